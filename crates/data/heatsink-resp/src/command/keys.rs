//! Where the keys of a request stand, in the terms of a server's key specifications.

/// One run of keys among the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Where to start.
    pub begin: Begin,
    /// How to go on.
    pub find: Find,
}

/// Where a run of keys starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this argument.
    Index(usize),
    /// Behind the argument that equals `word` in any case.
    Keyword {
        /// The word to look for.
        word: Box<str>,
        /// Argument to search from; counted from the end, backwards, if negative.
        from: isize,
    },
}

/// How a run of keys goes on from where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Up to `last` arguments further, or up to the `last`-but-one from the end if negative.
    Range {
        /// Relative to the start, or to the end if negative.
        last: isize,
        /// Distance between keys.
        step: usize,
        /// If over 1, only this part of what remains (`XREAD`: the first half).
        limit: usize,
    },
    /// A number among the arguments says how many.
    Counted {
        /// Where the number stands, relative to the start.
        count_at: usize,
        /// First key, relative to the start.
        first: usize,
        /// Distance between keys.
        step: usize,
    },
}

impl KeySpec {
    /// Reads the notation of `builtin.txt`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (begin, rest) = if let Some((word, rest)) = text.split_once('@') {
            let end = rest[1..].find(['+', '#'])? + 1;
            let from = rest[..end].parse().ok()?;
            (Begin::Keyword { word: word.into(), from }, &rest[end..])
        } else {
            let end = text.find(['+', '#'])?;
            (Begin::Index(text[..end].parse().ok()?), &text[end..])
        };
        let find = if let Some(rest) = rest.strip_prefix('#') {
            let (count_at, rest) = rest.split_once('+')?;
            let (first, step) = rest.split_once('/')?;
            Find::Counted {
                count_at: count_at.parse().ok()?,
                first: first.parse().ok()?,
                step: step.parse().ok()?,
            }
        } else {
            let (last, rest) = rest.strip_prefix('+')?.split_once('/')?;
            let (step, limit) = rest.split_once('~').unwrap_or((rest, "0"));
            Find::Range {
                last: last.parse().ok()?,
                step: step.parse().ok()?,
                limit: limit.parse().ok()?,
            }
        };
        Some(Self { begin, find })
    }

    pub(super) fn for_each<'a>(
        &self,
        arg_count: usize,
        arg: impl Fn(usize) -> &'a [u8],
        on_key: &mut impl FnMut(usize),
    ) {
        let Some(begin) = self.begin.locate(arg_count, &arg) else { return };
        let (first, last, step) = match self.find {
            Find::Range { last, step, limit } => {
                let last = if last >= 0 {
                    begin + last as usize
                } else if limit <= 1 {
                    match arg_count.checked_sub(last.unsigned_abs()) {
                        Some(last) => last,
                        None => return,
                    }
                } else {
                    (begin + arg_count.saturating_sub(begin) / limit).saturating_sub(1)
                };
                (begin, last, step)
            }
            Find::Counted { count_at, first, step } => {
                if begin + count_at >= arg_count {
                    return;
                }
                let count = leading_number(arg(begin + count_at));
                if count == 0 {
                    return;
                }
                let first = begin + first;
                let span = (count - 1).saturating_mul(step);
                (first, first.saturating_add(span), step)
            }
        };
        let mut at = first;
        // A request cut short names fewer keys than it promised; the server will refuse it.
        while at <= last && at < arg_count {
            on_key(at);
            at += step.max(1);
        }
    }
}

/// The number at the start of a text, 0 if there is none. What stands behind it makes the
/// request wrong, but a server finds the keys first, and finds them like this.
pub(super) fn leading_number(text: &[u8]) -> usize {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: usize, digit| {
        number.saturating_mul(10).saturating_add(usize::from(digit - b'0'))
    })
}

impl Begin {
    fn locate<'a>(&self, arg_count: usize, arg: &impl Fn(usize) -> &'a [u8]) -> Option<usize> {
        let is_word = |at: &usize, word: &str| arg(*at).eq_ignore_ascii_case(word.as_bytes());
        match self {
            Self::Index(at) => (*at < arg_count).then_some(*at),
            Self::Keyword { word, from } => {
                let found = if *from >= 0 {
                    (*from as usize..arg_count).find(|at| is_word(at, word))
                } else {
                    let end = (arg_count + 1).checked_sub(from.unsigned_abs())?;
                    (1..end).rev().find(|at| is_word(at, word))
                };
                found.map(|at| at + 1).filter(|at| *at < arg_count)
            }
        }
    }
}
