//! Numbers and times as people read them in reasons and readiness.
//!
//! Called by: decisions, policies and the agent. Thousands are set apart by plain spaces.

use std::time::Duration;

/// A number rounded to a whole one, thousands set apart: `48 211`.
pub fn whole(number: f64) -> String {
    let digits = (number.max(0.0).round() as u64).to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A share of 0 to 1 in percent with one decimal, none if it is whole: `99.9 %`. Anything
/// short of all is never shown as all.
pub fn percent(share: f64) -> String {
    let tenths = if share < 1.0 { (share * 1000.0).round().min(999.0) } else { 1000.0 };
    if tenths % 10.0 == 0.0 {
        format!("{:.0} %", tenths / 10.0)
    } else {
        format!("{:.1} %", tenths / 10.0)
    }
}

/// Seconds with one decimal: `3.2 s`.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// A number of things: `1 proxy`, `2 proxies`.
pub fn count(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", whole(number as f64), if number == 1 { one } else { many })
}

/// Bytes of a key as text: what is not printable ASCII is escaped.
pub fn key_text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::{count, percent, whole};

    #[test]
    fn numbers_read_well() {
        for (number, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (1000.0, "1 000"),
            (48_211.3, "48 211"),
            (1e7, "10 000 000"),
        ] {
            assert_eq!(whole(number), text);
        }
        assert_eq!(whole(-3.0), "0");
        for (share, text) in
            [(0.0, "0 %"), (0.5, "50 %"), (0.9994, "99.9 %"), (0.9999, "99.9 %"), (1.0, "100 %")]
        {
            assert_eq!(percent(share), text);
        }
        assert_eq!(count(1, "proxy", "proxies"), "1 proxy");
        assert_eq!(count(2000, "proxy", "proxies"), "2 000 proxies");
    }
}
