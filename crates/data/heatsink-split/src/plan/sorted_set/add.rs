//! `ZADD` with its options.
//!
//! Invariant: nothing is added to any shard if there is a score that the server would refuse.

use heatsink_cluster::join::Join;

use super::super::request::Members;
use super::super::{Context, Plan};

const OPTIONS: [&[u8]; 6] = [b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"];

pub(super) fn plan(context: &Context<'_>, args: &[&[u8]]) -> Option<Plan> {
    let is_option = |arg: &&&[u8]| OPTIONS.iter().any(|option| arg.eq_ignore_ascii_case(option));
    let first = 2 + args[2..].iter().take_while(is_option).count();
    let given = |option: &[u8]| args[2..first].iter().any(|arg| arg.eq_ignore_ascii_case(option));
    let [nx, xx, gt, lt, _, incr] = OPTIONS.map(given);
    let (pairs, []) = args[first..].as_chunks::<2>() else { return None };
    if pairs.is_empty() || (nx && (xx || gt || lt)) || (gt && lt) || (incr && pairs.len() > 1) {
        return None;
    }
    if let [[_, member]] = pairs {
        // Its shard says what is wrong with the score.
        return Some(Plan::One(context.layout.shard_of(member)));
    }
    if !pairs.iter().all(|[score, _]| is_score(score)) {
        return None;
    }
    Members { args, first, step: 2, at: 1 }.joined(context, Join::Sum)
}

/// Whether every server takes this for a score. There are spellings that some take and that are
/// not known here, such as hexadecimal ones.
fn is_score(text: &[u8]) -> bool {
    let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if unsigned.eq_ignore_ascii_case(b"inf") {
        return true;
    }
    let known = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'-' | b'+');
    if !unsigned.first().is_some_and(u8::is_ascii_digit) || !text.iter().all(known) {
        return false;
    }
    let Some(score) = parse(text) else { return false };
    let mut mantissa = unsigned.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    // Servers refuse what is too large, or too small to be told from zero.
    score.is_finite() && (score != 0.0 || !mantissa.any(|byte| matches!(byte, b'1'..=b'9')))
}

/// A score as a number.
pub(super) fn parse(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_that_every_server_takes() {
        for text in ["0", "-0", "1.5", "-1e3", "+3", "1E-5", "inf", "-INF", "+inf", "0.0e9", "00"] {
            assert!(is_score(text.as_bytes()), "{text}");
        }
        for text in
            ["", "-", "nan", "x", "1x", " 1", "1e400", "1e-400", "0x10", "infinity", "1,5", "--1"]
        {
            assert!(!is_score(text.as_bytes()), "{text}");
        }
    }
}
