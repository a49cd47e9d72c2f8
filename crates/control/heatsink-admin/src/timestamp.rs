//! Milliseconds of Unix time as RFC 3339.
//!
//! Called by: the views, and whoever tells when a server was lost.
//! Bound: years up to 9999, as in RFC 3339; later moments are shown as its last millisecond.

use std::time::{Duration, UNIX_EPOCH};

/// The last moment that RFC 3339 can write.
const LAST_MS: u64 = 253_402_300_799_999;

/// `ms` after the beginning of 1970, in UTC, to the millisecond.
pub fn rfc3339(ms: u64) -> String {
    let moment = UNIX_EPOCH + Duration::from_millis(ms.min(LAST_MS));
    humantime::format_rfc3339_millis(moment).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_767_225_600_120), "2026-01-01T00:00:00.120Z");
        assert_eq!(rfc3339(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
