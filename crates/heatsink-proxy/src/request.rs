//! One whole request: its bytes as the client framed them, and its arguments.

use std::ops::Range;

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
