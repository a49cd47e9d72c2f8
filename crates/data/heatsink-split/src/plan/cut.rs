//! Ranges by index, as `LRANGE` and `ZRANGE` have them: both ends belong to it, and negative ones
//! count from the end.

use std::ops::Range;

use heatsink_resp::number;

/// From one index to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) start: i64,
    pub(super) stop: i64,
}

impl Cut {
    pub(super) fn parse(start: &[u8], stop: &[u8]) -> Option<Self> {
        Some(Self { start: number::parse(start)?, stop: number::parse(stop)? })
    }

    /// Which of `len` elements are in it.
    pub(super) fn of(self, len: usize) -> Range<usize> {
        let index = |at: i64| if at < 0 { at.saturating_add_unsigned(len as u64) } else { at };
        let start = (index(self.start).max(0) as usize).min(len);
        let end = usize::try_from(index(self.stop).saturating_add(1)).unwrap_or(0).min(len);
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_clamped_as_a_server_does() {
        for (start, stop, range) in [
            (0, -1, 0..5),
            (1, 3, 1..4),
            (-2, -1, 3..5),
            (-9, 1, 0..2),
            (3, 99, 3..5),
            (5, 9, 5..5),
            (0, -6, 0..0),
            (3, 1, 3..3),
            (i64::MIN, i64::MAX, 0..5),
            (i64::MAX, i64::MIN, 5..5),
        ] {
            assert_eq!(Cut { start, stop }.of(5), range, "{start} {stop}");
        }
    }
}
