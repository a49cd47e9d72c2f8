//! Redis Cluster as bytes: which node has a key, what a redirection says, how a request is
//! taken apart for several nodes and their replies put together again. No I/O and no clock:
//! whoever holds the connections asks here.
//!
//! - [`slot`]: the slot of a key and of a whole request.
//! - [`topology`]: which node has which slots, from `CLUSTER SLOTS`.
//! - [`redirect`]: `MOVED`, `ASK` and the errors that pass.
//! - [`split`]: a request over many slots as one request a slot.
//! - [`join`](mod@join): the replies of several nodes as one.
//! - [`frame`]: a look at the outermost layer of a reply.
//! - [`cursor`]: one `SCAN` cursor over all shards.
//! - [`announce`]: what a cluster of one node answers to `CLUSTER`.
//!
//! ```
//! use heatsink_cluster::{join::{self, Join}, split};
//! use heatsink_resp::command::CommandTable;
//!
//! let table = CommandTable::default();
//! let request: [&[u8]; 4] = [b"MGET", b"a", b"b", b"{a}2"];
//! let mget = table.lookup(request[0], None).unwrap();
//! let pieces = split::by_slot(mget, &request).unwrap();
//! assert_eq!(pieces.len(), 2);
//! assert_eq!(pieces[0].bytes, b"*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$4\r\n{a}2\r\n");
//!
//! // Each piece goes to the node of its slot; the replies come back in its order.
//! let replies = [b"*2\r\n$1\r\n1\r\n$1\r\n3\r\n".to_vec(), b"*1\r\n$1\r\n2\r\n".to_vec()];
//! let reply = join::join(&Join::for_pieces(mget, &pieces), &replies);
//! assert_eq!(reply, b"*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n");
//! ```

pub mod announce;
pub mod cursor;
pub mod frame;
pub mod join;
pub mod members;
pub mod redirect;
pub mod slot;
pub mod split;
pub mod topology;
