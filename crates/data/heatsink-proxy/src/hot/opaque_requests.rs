//! Connections on which the names of keys are not seen here, and large requests that are passed on in
//! pieces: no key may be split beside them.
//!
//! Called by: `dedicated_link` and `client_tracking`, before a client gets such a connection; `hot`, when
//! keys are to be split.
//! Invariant: on a connection that has another database than its pool, the client would find the
//! markers of split keys; on one on which the server tells of changes, it would be told the names of
//! shards. So such a connection is not given to a client before all keys are whole, and no key is split
//! while there is one: its worker does not say that it holds the writes of a key.
//!
//! On a cluster there are no such connections.
//!
//! A large request that is passed on in pieces is seen when it begins, and not when it is executed:
//!
//! ```text
//! 1. SET key, the first 300 KiB: nothing is done about the key
//! 2. the key is about to be split: its writes are held
//! 3. settled now, the mover takes the value away; writes go to the shards
//! 4. the rest of the value: SET key overwrites the marker, and others go on writing to the shards
//! ```
//!
//! So a worker that has one for a key does not say that it holds the writes of that key.

use crate::cluster::moved_values::freezes;
use crate::downstream::connection::Client;
use crate::hot::Mitigations;
use crate::relay::Relay;

impl Mitigations {
    /// Whether a client may write to keys which are about to be split without anybody seeing it:
    /// on such a connection, or by a large request that has begun.
    pub(super) fn writes_frozen_unseen(&self, relay: &Relay) -> impl Fn(&Client) -> bool + use<> {
        let splits = self.keys.splits().filter(|(_, how)| freezes(how));
        let splits = splits.filter(|_| relay.cluster.view.is_none());
        let frozen: Vec<Vec<u8>> = splits.map(|(key, _)| key.to_vec()).collect();
        move |client| {
            let dedicated = client.dedicated.as_ref();
            let uploads = dedicated.is_some_and(|dedicated| {
                dedicated.uploading && frozen.contains(&dedicated.upload_key)
            });
            !frozen.is_empty() && (client.hides_keys() || uploads)
        }
    }
}
