//! Glob patterns of `KEYS`, `SCAN MATCH` and `PSUBSCRIBE`.
//!
//! Called by: the embedded store, and policies that name keys by pattern.
//! Bound: at most pattern length times text length steps: only the last `*` is ever retried.
//! Invariant: every byte string is a pattern; a broken class or escape matches literally.

/// Whether the whole of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to resume after a mismatch: the pattern behind the last star, and the text it
    // has not swallowed yet.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            p += 1;
            retry = Some((p, t));
            continue;
        }
        if t == text.len() {
            return p == pattern.len();
        }
        if let Some(used) = match_one(&pattern[p..], text[t]) {
            p += used;
            t += 1;
            continue;
        }
        let Some((star, swallowed)) = retry else { return false };
        p = star;
        t = swallowed + 1;
        retry = Some((star, t));
    }
}

/// Matches one byte; the answer is how much of the pattern that took.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => {
            let (matched, used) = match_class(class, byte);
            matched.then_some(used + 1)
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Matches a class whose `[` has been read; a class without `]` ends with the pattern.
fn match_class(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut matched = false;
    while at < class.len() {
        match &class[at..] {
            [b'\\', escaped, ..] => {
                matched |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [low, b'-', high, ..] => {
                matched |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                matched |= *literal == byte;
                at += 1;
            }
            [] => break,
        }
    }
    (matched != negated, at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("*:*:x", "a:b:c:x", true),
            ("", "", true),
            ("", "a", false),
            ("[abc", "c", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_stay_cheap() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(5000).as_bytes()));
    }
}
