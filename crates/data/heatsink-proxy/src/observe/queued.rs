//! The keys that a transaction has named so far, to be counted when it is executed.
//!
//! Bound: [`MAX_BYTES`] of names and what is kept beside each; keys beyond it are counted when
//! they are queued.

use heatsink_detect::heat::Kind;
use heatsink_resp::command::{Command, Unnamed, ValueKind};

use crate::downstream::request::{Request, is_untold, reaches_other_databases};
use crate::observe::kind;

/// Bytes that are kept for one transaction.
const MAX_BYTES: usize = 256 << 10;

/// Keys that a transaction has named.
#[derive(Debug, Default)]
pub(crate) struct QueuedKeys {
    names: Vec<u8>,
    keys: Vec<QueuedKey>,
    /// There was no room for some, or a command does not name all that it touches.
    incomplete: bool,
    /// A command reaches other databases.
    reaches_out: bool,
    /// Servers tell nobody of what a command changes.
    is_untold: bool,
}

/// The length of its name, how it is used, the bytes of its share of the request.
type QueuedKey = (u32, Kind, u32, ValueKind);

impl QueuedKeys {
    /// Adds the keys of a request; false if there is no room.
    pub(crate) fn add(&mut self, command: &Command, request: Request<'_>) -> bool {
        self.is_untold |= is_untold(command);
        self.incomplete |= request.unnamed(command) != Unnamed::Nothing;
        let Some(kind) = kind(command) else { return true };
        self.reaches_out |= reaches_other_databases(command, request);
        let arg = |index| request.arg(index).unwrap_or_default();
        let (mut count, mut names) = (0, 0);
        command.for_each_key(request.len(), arg, |index| {
            count += 1;
            names += arg(index).len();
        });
        let beside = (self.keys.len() + count) * size_of::<QueuedKey>();
        if self.names.len() + names + beside > MAX_BYTES {
            self.incomplete = true;
            return false;
        }
        command.for_each_key(request.len(), arg, |index| {
            self.names.extend_from_slice(arg(index));
            let (len, bytes) = (arg(index).len() as u32, (request.bytes.len() / count) as u32);
            self.keys.push((len, kind, bytes, command.value_kind));
        });
        true
    }

    /// A command was queued that nobody knows.
    pub(crate) fn add_unknown(&mut self) {
        self.incomplete = true;
    }

    /// Some keys are missing.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Some of the keys may be in another database than the client's.
    pub(crate) fn reaches_other_databases(&self) -> bool {
        self.reaches_out
    }

    /// Servers tell nobody of what a command changes.
    pub(crate) fn is_untold(&self) -> bool {
        self.is_untold
    }

    pub(crate) fn for_each(&self, mut each: impl FnMut(&[u8], Kind, u64, ValueKind)) {
        let mut rest = self.names.as_slice();
        for (len, kind, bytes, value) in &self.keys {
            let name;
            (name, rest) = rest.split_at(*len as usize);
            each(name, *kind, u64::from(*bytes), *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use heatsink_resp::command::CommandTable;
    use heatsink_resp::encode;
    use heatsink_resp::request::{Limits, RequestScan};

    use super::*;

    fn add(queued: &mut QueuedKeys, words: &[&[u8]]) -> bool {
        let limits = Limits {
            max_args: u64::MAX,
            max_bulk_bytes: u64::MAX,
            max_request_bytes: u64::MAX,
            unauthenticated: false,
        };
        let (mut bytes, mut args) = (Vec::new(), Vec::new());
        encode::command(&mut bytes, words);
        RequestScan::default().advance(&bytes, &limits, |span| args.push(span)).expect("valid");
        let table = CommandTable::default();
        let command = table.lookup(words[0], None).expect("known");
        queued.add(command, Request { bytes: &bytes, args: &args })
    }

    #[test]
    fn keys_are_bounded_however_short_their_names_and_values_are_not() {
        let mut queued = QueuedKeys::default();
        assert!(add(&mut queued, &[b"SET", b"large", &vec![b'x'; 2 * MAX_BYTES]]));
        let mut several = vec![&b"MGET"[..]];
        several.extend([&b"k"[..]; 1000]);
        let mut times = 0;
        while add(&mut queued, &several) {
            times += 1;
            assert!(times < 1000, "there is no end to it");
        }
        let kept = queued.keys.len() * size_of::<QueuedKey>() + queued.names.len();
        assert!(kept <= MAX_BYTES && times > 5, "{kept} bytes after {times} requests");
        let mut count = 0;
        queued.for_each(|_, _, _, _| count += 1);
        assert_eq!(count, 1 + 1000 * times);
    }
}
