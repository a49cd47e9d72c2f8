//! Numbers as Redis reads and writes them.
//!
//! Called by: argument parsing, counters and every reply with a score.
//! Invariant: `integer` accepts exactly one spelling of a value, so that a string that reads
//! as an integer prints back as itself.

use std::fmt::Write as _;

/// Digits after the point that float counters keep.
const FRACTION_DIGITS: usize = 17;
const FRACTION_SCALE: i128 = 10_i128.pow(FRACTION_DIGITS as u32);

/// Reads a 64-bit integer in its only accepted spelling: no sign but `-`, no leading zeros.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical || text.len() > 20 {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a double as `strtod` does, without NaN and without values that do not fit.
pub(crate) fn double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let value: f64 = text.parse().ok()?;
    let digits = text.bytes().take_while(|b| !matches!(b, b'e' | b'E'));
    let written_infinite = !text.bytes().any(|b| b.is_ascii_digit());
    let written_zero = !digits.clone().any(|b| matches!(b, b'1'..=b'9'));
    let fits = (written_zero || value != 0.0) && (written_infinite || value.is_finite());
    (fits && !value.is_nan()).then_some(value)
}

/// Writes a double with 17 significant digits, as C's `%.17g`.
pub(crate) fn double_text(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return trim_fraction(format!("{value:.decimals$}"));
    }
    let mut text = trim_fraction(mantissa.to_owned());
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(text, "e{sign}{:02}", exponent.abs()).expect("a string takes all text");
    text
}

/// Adds for `INCRBYFLOAT`: exactly, in decimal, where both fit 17 fraction digits; otherwise
/// as doubles. Redis adds in the machine's extended precision, whose rounding noise shows in
/// the last digits of large sums; here those digits are right instead.
pub(crate) fn add_float_text(value: &[u8], increment: &[u8]) -> Option<String> {
    if let (Some(a), Some(b)) = (decimal(value), decimal(increment)) {
        return Some(decimal_text(a.checked_add(b)?));
    }
    let sum = double(value)? + double(increment)?;
    sum.is_finite().then(|| trim_fraction(format!("{sum:.FRACTION_DIGITS$}")))
}

/// A plain decimal, scaled to an integer; none if it has an exponent or too many digits.
fn decimal(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.len() > 19
        || fraction.len() > FRACTION_DIGITS
        || whole.len() + fraction.len() == 0
        || !plain(whole)
        || !plain(fraction)
    {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: i128 = format!("{fraction:0<FRACTION_DIGITS$}").parse().ok()?;
    let scaled = whole * FRACTION_SCALE + fraction;
    Some(if negative { -scaled } else { scaled })
}

fn decimal_text(scaled: i128) -> String {
    let sign = if scaled < 0 { "-" } else { "" };
    let (whole, fraction) = (scaled.abs() / FRACTION_SCALE, scaled.abs() % FRACTION_SCALE);
    trim_fraction(format!("{sign}{whole}.{fraction:0FRACTION_DIGITS$}"))
}

fn trim_fraction(mut text: String) -> String {
    if text.contains('.') {
        let kept = text.trim_end_matches('0').trim_end_matches('.').len();
        text.truncate(kept);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for good in ["0", "7", "-1", "9223372036854775807", "-9223372036854775808"] {
            assert_eq!(integer(good.as_bytes()).map(|n| n.to_string()).as_deref(), Some(good));
        }
        for bad in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "9223372036854775808"] {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn doubles_print_as_in_c() {
        for (value, text) in [
            (3.0, "3"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-inf"),
            (-0.0, "-0"),
        ] {
            assert_eq!(double_text(value), text);
        }
    }

    #[test]
    fn doubles_that_do_not_fit_are_refused() {
        for bad in ["", "1e400", "1e-400", "nan", "1 ", " 1", "x"] {
            assert_eq!(double(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(double(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(double(b"0e-999"), Some(0.0));
    }

    #[test]
    fn float_sums_are_exact_in_decimal() {
        let sum = |a: &str, b: &str| add_float_text(a.as_bytes(), b.as_bytes());
        assert_eq!(sum("0.1", "0.2").as_deref(), Some("0.3"));
        assert_eq!(sum("10.50", "-10.5").as_deref(), Some("0"));
        assert_eq!(sum("5", "2.0e2").as_deref(), Some("205"));
        assert_eq!(sum("1", "x"), None);
    }
}
