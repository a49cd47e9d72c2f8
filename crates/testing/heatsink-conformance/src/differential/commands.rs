//! One random command: a module a type.
//!
//! Called by: `generator`, which adds what changes the connection's state.
//! Bound: see `words`.
//! Invariant: a command from here gets exactly one reply and leaves the connection's protocol,
//! transaction and subscriptions alone.

mod blocking;
mod connection;
mod geo;
mod hash;
mod key;
mod list;
mod script;
mod server;
mod set;
mod sorted_set;
mod stream;
mod string;

use super::check::Check;
use super::words::Words;

/// A command and how its reply is compared.
pub(super) struct Command {
    pub(super) args: Vec<Vec<u8>>,
    pub(super) check: Check,
    /// Whether an argument may be dropped or added without leaving what can be compared.
    pub(super) pliable: bool,
    /// Whether it names a key.
    pub(super) keyed: bool,
}

impl Command {
    fn exact(args: Vec<Vec<u8>>) -> Self {
        Self::checked(args, Check::Exact)
    }

    fn checked(args: Vec<Vec<u8>>, check: Check) -> Self {
        Self { args, check, pliable: true, keyed: false }
    }

    fn rigid(mut self) -> Self {
        self.pliable = false;
        self
    }
}

/// What can be an argument.
trait Arg {
    fn append_to(self, args: &mut Vec<Vec<u8>>);
}

impl Arg for &str {
    fn append_to(self, args: &mut Vec<Vec<u8>>) {
        args.push(self.as_bytes().to_vec());
    }
}

impl Arg for String {
    fn append_to(self, args: &mut Vec<Vec<u8>>) {
        args.push(self.into_bytes());
    }
}

impl Arg for Vec<u8> {
    fn append_to(self, args: &mut Vec<Vec<u8>>) {
        args.push(self);
    }
}

impl Arg for Vec<Vec<u8>> {
    fn append_to(mut self, args: &mut Vec<Vec<u8>>) {
        args.append(&mut self);
    }
}

impl Arg for i64 {
    fn append_to(self, args: &mut Vec<Vec<u8>>) {
        self.to_string().append_to(args);
    }
}

impl Arg for u64 {
    fn append_to(self, args: &mut Vec<Vec<u8>>) {
        self.to_string().append_to(args);
    }
}

/// `args!["GET", key]`: any mix of text, bytes, numbers and lists of bytes.
macro_rules! args {
    ($($arg:expr),* $(,)?) => {{
        let mut list: Vec<Vec<u8>> = Vec::new();
        $( $crate::differential::commands::Arg::append_to($arg, &mut list); )*
        list
    }};
}
use args;

/// As `args!`, then compared byte for byte.
macro_rules! exact {
    ($($arg:expr),* $(,)?) => {
        $crate::differential::commands::Command::exact(
            $crate::differential::commands::args![$($arg),*])
    };
}
use exact;

/// Commands that a cluster's clients may use with keys of several slots.
const SPLIT: [&str; 6] = ["MGET", "MSET", "DEL", "UNLINK", "EXISTS", "TOUCH"];

/// A random command of any type.
pub(super) fn any(words: &mut Words) -> Command {
    loop {
        words.take_slot_count();
        let mut command = of_any_type(words);
        let slots = words.take_slot_count();
        command.keyed = slots > 0;
        let splits = SPLIT.iter().any(|name| name.as_bytes() == command.args[0]);
        if slots <= 1 || splits {
            bend(words, &mut command, splits);
            return command;
        }
    }
}

fn of_any_type(words: &mut Words) -> Command {
    match words.below(100) {
        0..=13 => string::next(words),
        14..=22 => key::next(words),
        23..=32 => hash::next(words),
        33..=42 => list::next(words),
        43..=51 => set::next(words),
        52..=63 => sorted_set::next(words),
        64..=72 => stream::next(words),
        73..=77 => geo::next(words),
        78..=83 => script::next(words),
        84..=87 => blocking::next(words),
        88..=92 => connection::next(words),
        _ => server::next(words),
    }
}

/// Now and then a wrong number of arguments or an unusual spelling of the name.
fn bend(words: &mut Words, command: &mut Command, splits: bool) {
    if !command.pliable {
        return;
    }
    match words.below(60) {
        0 if command.args.len() > 1 => {
            command.args.pop();
        }
        // It may count as a key.
        1 if words.clustered() && (splits || !words.spread()) => {
            command.args.push(words.any_key());
        }
        1 if !words.clustered() => command.args.push(words.value()),
        2 => command.args.truncate(1),
        3..=8 => command.args[0].make_ascii_lowercase(),
        9 => {
            for byte in &mut command.args[0] {
                if words.chance(50) {
                    byte.make_ascii_lowercase();
                }
            }
        }
        _ => {}
    }
}
