//! Table: every command the store knows, found by name.
//!
//! Called by: `engine` for each request; `introspection` for `COMMAND`.
//! Invariant: a handler runs only with a number of arguments that its row allows. A
//! subcommand is a row of its own, named `container|subcommand`.

mod rows;

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

use crate::args::Args;
use crate::client::Client;
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;
use crate::world::Call;

/// Longest name in the table; a longer one is unknown.
const NAME_BYTES_MAX: usize = 32;
/// How much of a request is shown in the error about its name.
const SHOWN_BYTES: usize = 128;

/// What runs a command.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Needs nothing but the selected database.
    Data(fn(&mut Db, Args<'_>, &mut Reply) -> Outcome),
    /// Needs the connection, its peers or several databases.
    Call(fn(&mut Call<'_>) -> Outcome),
}

pub(crate) const READ: u16 = 1;
pub(crate) const WRITE: u16 = 1 << 1;
pub(crate) const DENYOOM: u16 = 1 << 2;
pub(crate) const ADMIN: u16 = 1 << 3;
pub(crate) const PUBSUB: u16 = 1 << 4;
pub(crate) const NOSCRIPT: u16 = 1 << 5;
pub(crate) const LOADING: u16 = 1 << 6;
pub(crate) const STALE: u16 = 1 << 7;
pub(crate) const FAST: u16 = 1 << 8;
pub(crate) const NO_AUTH: u16 = 1 << 9;
pub(crate) const BUSY: u16 = 1 << 10;
pub(crate) const SKIP_SLOWLOG: u16 = 1 << 11;

/// Names of the flags in the order in which Redis lists them.
const FLAG_NAMES: [(u16, &str); 12] = [
    (WRITE, "write"),
    (READ, "readonly"),
    (DENYOOM, "denyoom"),
    (ADMIN, "admin"),
    (PUBSUB, "pubsub"),
    (NOSCRIPT, "noscript"),
    (LOADING, "loading"),
    (STALE, "stale"),
    (SKIP_SLOWLOG, "skip_slowlog"),
    (FAST, "fast"),
    (NO_AUTH, "no_auth"),
    (BUSY, "allow_busy"),
];

/// A command.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// Number of arguments, the name included; at least that many where negative.
    pub(crate) arity: i8,
    flags: u16,
    pub(crate) first_key: i8,
    /// Counted from the end where negative.
    pub(crate) last_key: i8,
    pub(crate) key_step: i8,
    pub(crate) handler: Handler,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Command {
    pub(crate) fn is_read(&self) -> bool {
        self.flags & READ != 0
    }

    /// Whether the command runs at once even between `MULTI` and `EXEC`.
    pub(crate) fn runs_in_multi(&self) -> bool {
        matches!(self.name, "exec" | "discard" | "multi" | "watch" | "quit" | "reset")
    }

    /// Whether a connection that speaks the older protocol may use it while subscribed.
    fn runs_in_subscription(&self) -> bool {
        self.name.ends_with("subscribe") || matches!(self.name, "ping" | "quit" | "reset")
    }

    pub(crate) fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        let flags = self.flags;
        FLAG_NAMES.iter().filter(move |(flag, _)| flags & flag != 0).map(|(_, name)| *name)
    }

    fn accepts(&self, count: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= wanted } else { count == wanted }
    }

    /// The keys that a request names. Its count of arguments has been checked.
    pub(crate) fn keys<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> {
        let (first, last, step) = if self.first_key == 0 {
            (0, 0, 1)
        } else {
            let end = if self.last_key < 0 {
                args.len() - usize::from(self.last_key.unsigned_abs()) + 1
            } else {
                self.last_key as usize + 1
            };
            (self.first_key as usize, end, self.key_step as usize)
        };
        let named = args.get(first..last.min(args.len())).unwrap_or_default();
        named.iter().step_by(step).copied()
    }
}

static BY_NAME: LazyLock<HashMap<&'static [u8], &'static Command, RandomState>> =
    LazyLock::new(|| rows::ROWS.iter().map(|row| (row.name.as_bytes(), row)).collect());

/// A command or subcommand by its full name, in any case.
pub(crate) fn by_name(name: &[u8]) -> Option<&'static Command> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(&*lower).copied()
}

/// Commands that are not subcommands.
pub(crate) fn top_level() -> impl Iterator<Item = &'static Command> {
    rows::ROWS.iter().filter(|row| !row.name.contains('|'))
}

/// The command that a request asks for, with its count of arguments checked.
pub(crate) fn find(args: Args<'_>) -> Result<&'static Command, Failure> {
    let name = args.first().copied().unwrap_or_default();
    let Some(mut command) = by_name(name) else {
        return Err(unsupported(name).unwrap_or_else(|| unknown(args)));
    };
    if rows::CONTAINERS.contains(&command.name) && args.len() > 1 {
        let subcommand = args[1];
        let full = [name, b"|", subcommand].concat();
        command = by_name(&full).ok_or_else(|| {
            unsupported(&full).unwrap_or_else(|| unknown_sub(command, subcommand))
        })?;
    }
    if !command.accepts(args.len()) {
        return Err(Failure::arity(command.name));
    }
    Ok(command)
}

/// Refuses what a subscribed connection may not do.
pub(crate) fn check_context(client: &Client, command: &Command) -> Outcome {
    let restricted = client.is_subscriber() && !client.reply.is_resp3();
    if !restricted || command.runs_in_subscription() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context",
        command.name
    )))
}

/// The error about a command that Redis has and the store has not.
pub(crate) fn unsupported(name: &[u8]) -> Option<Failure> {
    let lower = String::from_utf8(name.to_ascii_lowercase()).ok()?;
    let container = lower.split('|').next().unwrap_or_default();
    let known =
        rows::UNSUPPORTED.contains(&lower.as_str()) || rows::UNSUPPORTED.contains(&container);
    known.then(|| refusal(&lower.replace('|', " ")))
}

/// The error about something that Redis can do and the store cannot.
pub(crate) fn refusal(what: &str) -> Failure {
    Failure::new(format!(
        "ERR heatsink: the embedded store does not support '{what}'; use --upstream redis://... \
         for a full server"
    ))
}

/// What is shown of an argument: up to its first NUL, as much as fits.
fn excerpt(arg: &[u8], room: usize) -> &[u8] {
    let end = arg.iter().position(|byte| *byte == 0).unwrap_or(arg.len());
    &arg[..end.min(room)]
}

fn unknown(args: Args<'_>) -> Failure {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(excerpt(args.first().copied().unwrap_or_default(), SHOWN_BYTES));
    text.extend_from_slice(b"', with args beginning with: ");
    let mut shown = Vec::new();
    for arg in &args[1..] {
        if shown.len() >= SHOWN_BYTES {
            break;
        }
        let room = SHOWN_BYTES - shown.len();
        shown.push(b'\'');
        shown.extend_from_slice(excerpt(arg, room));
        shown.extend_from_slice(b"' ");
    }
    text.extend_from_slice(&shown);
    Failure::new(text)
}

fn unknown_sub(command: &Command, subcommand: &[u8]) -> Failure {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(excerpt(subcommand, SHOWN_BYTES));
    let container = command.name.to_ascii_uppercase();
    text.extend_from_slice(format!("'. Try {container} HELP.").as_bytes());
    Failure::new(text)
}

/// Every row, for tests that try them all.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    rows::ROWS.iter()
}
