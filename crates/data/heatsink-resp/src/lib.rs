//! RESP2 and RESP3 as bytes: where a request or a reply ends, which command it is, which
//! keys it names. No I/O, and no tree is built for a frame that is only passed on.
//!
//! - [`request`]: finds the end of a request and its arguments; resumable, so a request
//!   that trickles in is scanned once.
//! - [`inline`]: the telnet form of a request.
//! - [`reply`]: finds the end of a reply; resumable in the same way.
//! - [`value`]: an owned reply, for the few that have to be looked into.
//! - [`command`]: the command table, built in and completed from a server's `COMMAND`.
//! - [`encode`]: writes requests.
//! - [`hyperloglog`]: the string that counts distinct elements, as a server stores it.
//! - [`number`]: decimal numbers in their only spelling.
//!
//! ```
//! use heatsink_resp::request::{Limits, RequestScan, Status};
//!
//! let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPI";
//! let mut scan = RequestScan::default();
//! let mut args = Vec::new();
//! let status = scan.advance(bytes, &Limits::default(), |span| args.push(span));
//! assert_eq!(status, Ok(Status::Complete { len: 20 }));
//! assert_eq!(&bytes[args[0].clone()], b"GET");
//! ```

pub mod command;
pub mod encode;
pub mod glob;
pub mod hyperloglog;
pub mod inline;
pub mod number;
pub mod reply;
pub mod request;
pub mod value;
