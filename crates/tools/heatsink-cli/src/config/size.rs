//! Sizes as people write them: `4096`, `"64MiB"`, `"1 GB"`.

/// Units, longest suffix first so that `B` does not end the search for `KiB`.
const UNITS: [(&str, u64); 7] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("b", 1),
];

/// Bytes meant by `text`; `None` if it is no size or does not fit.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((&text, 1));
    let digits = digits.trim_end();
    // `parse` alone would take a sign.
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The shortest exact way to write `bytes`.
pub(crate) fn show(bytes: u64) -> String {
    for (suffix, unit) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes != 0 && bytes.is_multiple_of(unit) {
            return format!("{}{suffix}", bytes / unit);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_in_any_case() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("12B", 12),
            ("16KiB", 16 << 10),
            ("64mib", 64 << 20),
            ("1 GiB", 1 << 30),
            ("2KB", 2_000),
            ("3MB", 3_000_000),
            ("4gb", 4_000_000_000),
        ] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "+1", "1.5GiB", "1TiB", "many", "99999999999GiB", "1 2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for bytes in [0, 1, 1000, 1024, 16 << 10, 512 << 20, 1 << 30, (1 << 30) + 1] {
            assert_eq!(parse(&show(bytes)), Some(bytes));
        }
        assert_eq!(show(512 << 20), "512MiB");
    }
}
