//! What a request may touch besides the keys whose places are known.
//!
//! Called by: the table, for each command and each request.
//! Invariant: what is not known in full counts as touching everything. A few commands of the server's
//! own name keys among their options, in ways that key specifications do not tell; those are read
//! here as the server reads them.

use super::keys::leading_number;
use super::{Access, Command};

/// What a request may touch besides the keys that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// Nothing.
    Nothing,
    /// It reads keys that match patterns among its arguments: [`Command::matches`] tells.
    Matching,
    /// It may do to any key what [`Command::access`] says.
    Anything,
}

/// How the keys of a command are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// By its key specifications, all of them.
    Named,
    /// `SORT`, `SORT_RO`: keys by patterns, and a place for the result.
    Sort,
    /// `GEORADIUS`, `GEORADIUSBYMEMBER`: options from this argument on, with a place for the result.
    Radius(usize),
    /// `MIGRATE`: one key, or those behind `KEYS`.
    Migrate,
    /// Scripts and functions: any key if they name none.
    Script,
    /// `SCAN`: the types of all keys, if it asks for one.
    Scan,
    /// By its key specifications, and perhaps others.
    Anything,
}

impl Reach {
    /// What is known of a command by its name; `named` if it has key specifications.
    pub(super) fn of(name: &str, access: Access, named: bool) -> Self {
        match name {
            "sort" | "sort_ro" => Self::Sort,
            "georadius" => Self::Radius(6),
            "georadiusbymember" => Self::Radius(5),
            "migrate" => Self::Migrate,
            "eval" | "evalsha" | "fcall" | "eval_ro" | "evalsha_ro" | "fcall_ro" => Self::Script,
            "scan" => Self::Scan,
            // They tell which keys there are, or are about functions.
            "dbsize" | "keys" | "lolwut" | "randomkey" => Self::Named,
            _ if name.starts_with("function|") => Self::Named,
            _ if !named && access != Access::Neither => Self::Anything,
            _ => Self::Named,
        }
    }

    /// Calls `on_key` for each key, if key specifications do not tell them; else false.
    pub(super) fn for_each_key<'a>(
        self,
        arg_count: usize,
        arg: impl Fn(usize) -> &'a [u8] + Copy,
        mut on_key: impl FnMut(usize),
    ) -> bool {
        match self {
            Self::Named | Self::Script | Self::Scan | Self::Anything => return false,
            Self::Sort => {
                (1..arg_count.min(2)).for_each(&mut on_key);
                let mut store = None;
                for (at, option) in sort_options(arg_count, arg) {
                    if option == SortOption::Store {
                        store = Some(at);
                    }
                }
                store.into_iter().for_each(on_key);
            }
            Self::Radius(from) => {
                (1..arg_count.min(2)).for_each(&mut on_key);
                radius_store(from, arg_count, arg).into_iter().for_each(on_key);
            }
            Self::Migrate => match migrated(arg_count, arg) {
                Some(first) => (first..arg_count).for_each(on_key),
                None => (3..arg_count.min(4)).for_each(on_key),
            },
        }
        true
    }
}

impl Command {
    /// What a request may touch besides the keys that it names.
    #[inline]
    pub fn unnamed<'a>(&self, arg_count: usize, arg: impl Fn(usize) -> &'a [u8] + Copy) -> Unnamed {
        match self.reach {
            Reach::Script if arg_count <= 2 || leading_number(arg(2)) > 0 => Unnamed::Nothing,
            Reach::Script | Reach::Anything => Unnamed::Anything,
            Reach::Scan if (2..arg_count).step_by(2).any(|at| is_word(arg(at), "type")) => {
                Unnamed::Anything
            }
            Reach::Sort if patterns(arg_count, arg).next().is_some() => Unnamed::Matching,
            Reach::Named | Reach::Radius(_) | Reach::Migrate | Reach::Sort | Reach::Scan => {
                Unnamed::Nothing
            }
        }
    }

    /// Whether a request may touch a key without naming it.
    pub fn matches<'a>(
        &self,
        key: &[u8],
        arg_count: usize,
        arg: impl Fn(usize) -> &'a [u8] + Copy,
    ) -> bool {
        match self.unnamed(arg_count, arg) {
            Unnamed::Nothing => false,
            Unnamed::Matching => patterns(arg_count, arg).any(|pattern| fits(pattern, key)),
            Unnamed::Anything => true,
        }
    }
}

fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortOption {
    /// `BY` or `GET`
    Pattern,
    /// `STORE`
    Store,
}

/// The options of a `SORT` that have to do with keys, and where their arguments stand.
fn sort_options<'a>(
    arg_count: usize,
    arg: impl Fn(usize) -> &'a [u8] + Copy,
) -> impl Iterator<Item = (usize, SortOption)> {
    let mut at = 2;
    std::iter::from_fn(move || {
        while at < arg_count {
            let word = arg(at);
            let is = |option: &str| is_word(word, option);
            let (option, arguments) = match () {
                () if is("limit") => (None, 2),
                () if is("by") || is("get") => (Some(SortOption::Pattern), 1),
                () if is("store") => (Some(SortOption::Store), 1),
                () => (None, 0),
            };
            let behind = at + 1;
            at = behind + arguments;
            if let Some(option) = option
                && behind < arg_count
            {
                return Some((behind, option));
            }
        }
        None
    })
}

/// The patterns of a `SORT` that lead to other keys. One without an asterisk leads nowhere.
fn patterns<'a>(
    arg_count: usize,
    arg: impl Fn(usize) -> &'a [u8] + Copy,
) -> impl Iterator<Item = &'a [u8]> {
    let patterns = sort_options(arg_count, arg);
    let patterns = patterns.filter(|(_, option)| *option == SortOption::Pattern);
    patterns.map(move |(at, _)| arg(at)).filter(|pattern| pattern.contains(&b'*'))
}

/// Whether a pattern of a `SORT` becomes this key when something is put in the place of its first
/// asterisk. A field of a hash stands behind an arrow.
fn fits(pattern: &[u8], key: &[u8]) -> bool {
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return false };
    let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
    // An arrow with nothing behind it is part of the name.
    let arrow = behind.windows(2).position(|two| two == b"->");
    let arrow = arrow.filter(|arrow| arrow + 2 < behind.len());
    let behind = &behind[..arrow.unwrap_or(behind.len())];
    key.strip_prefix(before).is_some_and(|rest| rest.ends_with(behind))
}

/// Where the result of a `GEORADIUS` goes: of several places, the last.
fn radius_store<'a>(
    from: usize,
    arg_count: usize,
    arg: impl Fn(usize) -> &'a [u8] + Copy,
) -> Option<usize> {
    let (mut at, mut store) = (from, None);
    while at < arg_count {
        let is = |option: &str| is_word(arg(at), option);
        if (is("store") || is("storedist")) && at + 1 < arg_count {
            store = Some(at + 1);
        }
        at += if is("store") || is("storedist") || is("count") { 2 } else { 1 };
    }
    store
}

/// The first of the keys behind `KEYS` of a `MIGRATE`, if its key is empty.
fn migrated<'a>(arg_count: usize, arg: impl Fn(usize) -> &'a [u8] + Copy) -> Option<usize> {
    let mut at = 6;
    while at < arg_count && arg(3).is_empty() {
        let is = |option: &str| is_word(arg(at), option);
        if is("keys") {
            return Some(at + 1);
        }
        at += if is("auth2") {
            3
        } else if is("auth") {
            2
        } else {
            1
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::CommandTable;
    use super::*;
    use crate::value::Value;

    fn args(request: &str) -> Vec<&[u8]> {
        request.split(' ').map(str::as_bytes).collect()
    }

    fn keys(table: &CommandTable, request: &str) -> String {
        let args = args(request);
        let command = table.lookup(args[0], args.get(1).copied()).expect(request);
        let mut keys = Vec::new();
        let key = |at: usize| keys.push(std::str::from_utf8(args[at]).expect("text"));
        command.for_each_key(args.len(), |at| args[at], key);
        keys.join(" ")
    }

    fn unnamed(table: &CommandTable, request: &str) -> Unnamed {
        let args = args(request);
        let command = table.lookup(args[0], args.get(1).copied()).expect(request);
        command.unnamed(args.len(), |at| args[at])
    }

    fn matches(request: &str, key: &str) -> bool {
        let table = CommandTable::default();
        let args = args(request);
        let command = table.lookup(args[0], None).expect(request);
        command.matches(key.as_bytes(), args.len(), |at| args[at])
    }

    #[test]
    fn keys_among_options_are_those_that_the_server_takes() {
        let table = CommandTable::default();
        for (request, expected) in [
            ("SORT", ""),
            ("SORT a", "a"),
            ("SORT a STORE d", "a d"),
            ("sort a LIMIT 0 10 store d", "a d"),
            ("SORT a STORE d STORE e", "a e"),
            ("SORT a BY STORE STORE d", "a d"),
            ("SORT a STORE by GET #", "a by"),
            ("SORT a GET store DESC", "a"),
            ("SORT a STORE", "a"),
            ("SORT_RO a BY w_*", "a"),
            ("GEORADIUS a 1 1 1 m STORE d", "a d"),
            ("GEORADIUS a 1 1 1 m STORE d COUNT 1 STOREDIST e", "a e"),
            ("GEORADIUS a 1 1 1 m STORE STORE ASC", "a STORE"),
            ("GEORADIUSBYMEMBER a store 1 m storedist d", "a d"),
            ("GEORADIUSBYMEMBER a m 1 m STORE", "a"),
            ("MIGRATE h 1 a 0 10", "a"),
            ("MIGRATE h 1 a 0 10 COPY AUTH keys", "a"),
            ("MIGRATE h 1  0 10 REPLACE AUTH2 keys keys KEYS a keys b", "a keys b"),
        ] {
            assert_eq!(keys(&table, request), expected, "{request}");
        }
    }

    #[test]
    fn what_is_not_known_in_full_may_touch_anything() {
        let table = CommandTable::default();
        for (request, expected) in [
            ("GET a", Unnamed::Nothing),
            ("EVAL script 1 a", Unnamed::Nothing),
            ("EVAL script 0 a", Unnamed::Anything),
            ("evalsha_ro sha 0", Unnamed::Anything),
            ("FCALL f -1 a", Unnamed::Anything),
            ("FCALL f", Unnamed::Nothing),
            ("FLUSHALL", Unnamed::Anything),
            ("SWAPDB 0 1", Unnamed::Anything),
            ("KEYS *", Unnamed::Nothing),
            ("SCAN 0", Unnamed::Nothing),
            ("SCAN 0 MATCH type COUNT 10", Unnamed::Nothing),
            ("scan 0 match x* type set", Unnamed::Anything),
            ("FUNCTION LOAD x", Unnamed::Nothing),
            ("PUBLISH a m", Unnamed::Nothing),
            ("SORT a", Unnamed::Nothing),
            ("SORT a BY nosort GET #", Unnamed::Nothing),
            ("SORT a BY w_*", Unnamed::Matching),
            ("SORT_RO a GET o_*->f", Unnamed::Matching),
            ("GEORADIUS a 1 1 1 m STORE d", Unnamed::Nothing),
        ] {
            assert_eq!(unnamed(&table, request), expected, "{request}");
        }
    }

    #[test]
    fn patterns_of_a_sort_lead_to_some_keys_only() {
        assert!(matches("SORT ids BY w_*", "w_7"));
        assert!(matches("SORT ids BY w_*", "w_"));
        assert!(!matches("SORT ids BY w_*", "v_7"));
        assert!(matches("SORT ids GET # GET o_*:x->name", "o_1:x"));
        assert!(!matches("SORT ids GET # GET o_*:x->name", "o_1:y"));
        assert!(matches("SORT ids GET o_*->", "o_1->"));
        assert!(!matches("SORT ids GET ab*ba", "aba"));
        assert!(!matches("SORT ids", "ids2"));
        assert!(matches("EVAL s 0", "any"));
    }

    #[test]
    fn a_command_that_the_server_does_not_describe_in_full_is_not_taken_for_one_of_one_key() {
        let mut table = CommandTable::default();
        let spec = |flags: &str, find: &str| {
            format!(
                "%3\r\n+flags\r\n{flags}+begin_search\r\n%2\r\n+type\r\n+index\r\n+spec\r\n%1\r\n\
                 +index\r\n:1\r\n+find_keys\r\n%2\r\n+type\r\n{find}"
            )
        };
        let range = "+range\r\n+spec\r\n%3\r\n+lastkey\r\n:0\r\n+keystep\r\n:1\r\n+limit\r\n:0\r\n";
        let unknown = "+unknown\r\n+spec\r\n%0\r\n";
        let command = |name: &str, flags: &str, specs: &[String]| {
            let (len, count, specs) = (name.len(), specs.len(), specs.concat());
            format!(
                "*1\r\n*10\r\n${len}\r\n{name}\r\n:-2\r\n{flags}:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n\
                 *{count}\r\n{specs}*0\r\n"
            )
        };
        let (writes, none) = ("*1\r\n+write\r\n", "*0\r\n");
        let movable = "*2\r\n+write\r\n+movablekeys\r\n";
        let described = [
            command("m.full", writes, &[spec(none, range)]),
            command("m.incomplete", writes, &[spec("*1\r\n+incomplete\r\n", range)]),
            command("m.unknown", writes, &[spec(none, range), spec(none, unknown)]),
            command("m.movable", movable, &[spec(none, range)]),
            command("m.silent", none, &[spec(none, range)]),
        ];
        for reply in &described {
            assert_eq!(table.learn(&Value::decode(reply.as_bytes()).expect("a reply")), 1);
        }
        assert_eq!(unnamed(&table, "m.full a b"), Unnamed::Nothing);
        for name in ["m.incomplete", "m.unknown", "m.movable"] {
            let request = format!("{name} a b");
            assert_eq!(unnamed(&table, &request), Unnamed::Anything, "{name}");
            assert_eq!(keys(&table, &request), "a", "{name}");
            let command = table.lookup(name.as_bytes(), None).expect("learned");
            assert_eq!(command.single_key_index(), None, "{name}");
        }
        // It names a key and does not say what it does to it.
        assert_eq!(table.lookup(b"m.silent", None).expect("learned").access, Access::Write);
    }
}
