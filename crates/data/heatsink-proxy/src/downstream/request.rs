//! One whole request: its bytes as the client framed them, and its arguments.

use std::ops::Range;

use heatsink_resp::command::{Access, Command, CommandTable, Unnamed};
use heatsink_resp::request::{Limits, RequestScan, Status};

/// Requests above this size are passed on before they are complete, if all their keys are known. They
/// do not go along the pipelines that clients share, unless they touch hot keys.
pub(crate) const BIG_REQUEST_BYTES: usize = 256 << 10;

/// Whether a request was dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Taken,
    /// It stays in the input until the client is resumed.
    Wait,
}

/// Limits for a request that was within the real ones when it came: none.
const NO_LIMITS: Limits = Limits {
    max_args: u64::MAX,
    max_bulk_bytes: u64::MAX,
    max_request_bytes: u64::MAX,
    unauthenticated: false,
};

/// Where the arguments of a complete request stand in its bytes.
pub(crate) fn spans(bytes: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut args = Vec::new();
    let scan = RequestScan::default().advance(bytes, &NO_LIMITS, |span| args.push(span));
    matches!(scan, Ok(Status::Complete { .. })).then_some(args)
}

/// Looks into a complete request of which nothing but its bytes is at hand; `None` if its command is
/// not known.
pub(crate) fn look_into<T>(
    table: &CommandTable,
    bytes: &[u8],
    look: impl FnOnce(&Command, Request<'_>) -> T,
) -> Option<T> {
    let args = spans(bytes)?;
    let request = Request { bytes, args: &args };
    let command = table.lookup(request.name(), request.arg(1))?;
    Some(look(command, request))
}

/// Whether a request only reads.
pub(crate) fn is_read(table: &CommandTable, bytes: &[u8]) -> bool {
    look_into(table, bytes, |command, _| command.access) == Some(Access::Read)
}

/// Whether a request may write.
pub(crate) fn may_write(table: &CommandTable, bytes: &[u8]) -> bool {
    let access = look_into(table, bytes, |command, _| command.access);
    access.is_none_or(|access| access == Access::Write)
}

/// The place of a request's only key.
pub(crate) fn only_key(command: &Command, request: Request<'_>) -> Option<usize> {
    if let Some(index) = command.single_key_index() {
        return Some(index).filter(|index| *index < request.len());
    }
    let (mut count, mut only) = (0, 0);
    let arg = |index| request.arg(index).unwrap_or_default();
    command.for_each_key(request.len(), arg, |index| (count, only) = (count + 1, index));
    (count == 1).then_some(only)
}

/// Whether a command makes changes that servers send no invalidations for.
pub(crate) fn is_untold(command: &Command) -> bool {
    &*command.name == "swapdb"
}

/// Whether a request touches keys of other databases than its client's.
pub(crate) fn reaches_other_databases(command: &Command, request: Request<'_>) -> bool {
    match &*command.name {
        "flushall" | "swapdb" | "move" => true,
        "copy" => request.args_from(3).any(|arg| arg.eq_ignore_ascii_case(b"db")),
        // A script that names no keys may flush, or select another database.
        "eval" | "evalsha" | "fcall" => request.unnamed(command) == Unnamed::Anything,
        _ => false,
    }
}

/// A request that is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The request as it is passed on.
    pub(crate) bytes: &'a [u8],
    /// Where the arguments stand in `bytes`; never empty.
    pub(crate) args: &'a [Range<usize>],
}

impl<'a> Request<'a> {
    pub(crate) fn arg(&self, index: usize) -> Option<&'a [u8]> {
        self.args.get(index).map(|span| &self.bytes[span.clone()])
    }

    pub(crate) fn name(&self) -> &'a [u8] {
        &self.bytes[self.args[0].clone()]
    }

    pub(crate) fn len(&self) -> usize {
        self.args.len()
    }

    /// What it may touch besides the keys that it names.
    #[inline]
    pub(crate) fn unnamed(&self, command: &Command) -> Unnamed {
        command.unnamed(self.len(), |index| self.arg(index).unwrap_or_default())
    }

    /// Whether it may touch a key without naming it.
    pub(crate) fn matches(&self, command: &Command, key: &[u8]) -> bool {
        command.matches(key, self.len(), |index| self.arg(index).unwrap_or_default())
    }

    /// True if the argument at `index` is `word`, in any case.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.arg(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// All arguments from `start` on.
    pub(crate) fn args_from(&self, start: usize) -> impl Iterator<Item = &'a [u8]> {
        let bytes = self.bytes;
        self.args.get(start..).unwrap_or_default().iter().map(move |span| &bytes[span.clone()])
    }
}
