//! The command table: what a proxy must know of a command before it passes it on.
//!
//! Called by: the proxy's `command` stage, for every request.
//! Source: `command/builtin.txt`, completed from the server's `COMMAND` reply so that module
//! commands and those of newer servers are understood too.

mod keys;
mod learned;
mod reach;
mod tips;
mod value;

use std::collections::HashMap;

use foldhash::fast::FixedState;

pub use keys::{Begin, Find, KeySpec};
use reach::Reach;
pub use reach::Unnamed;
use tips::Tips;
pub use tips::{RequestPolicy, ResponsePolicy};
pub use value::ValueKind;

/// What a command does to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reads.
    Read,
    /// May write.
    Write,
    /// Touches no data.
    Neither,
}

/// What a command does to the connection it is sent on. Everything that is not
/// [`Role::Plain`] needs care when connections are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leaves no trace on the connection.
    Plain,
    /// May keep the connection waiting.
    Blocking,
    /// Waits only if `BLOCK` is among its options (`XREAD`, `XREADGROUP`).
    BlockingOption,
    /// `WAIT`, `WAITAOF`: speaks of the writes of its own connection.
    Wait,
    /// Must overtake what a shared connection may be stuck with (`SCRIPT KILL`, …).
    Urgent,
    /// `MULTI`
    Multi,
    /// `EXEC`
    Exec,
    /// `DISCARD`
    Discard,
    /// `WATCH`
    Watch,
    /// `UNWATCH`
    Unwatch,
    /// `SUBSCRIBE` and its kin, and their opposites.
    Subscription(Subscription),
    /// Turns the connection into something else (`MONITOR`, `SYNC`, …).
    Takeover,
    /// `AUTH`
    Auth,
    /// `HELLO`
    Hello,
    /// `SELECT`
    Select,
    /// `RESET`
    Reset,
    /// `QUIT`
    Quit,
    /// `CLIENT`, to be told apart by its subcommand.
    Client,
}

/// The six commands of pub/sub that change what a connection listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// What is subscribed to.
    pub kind: SubscriptionKind,
    /// `SUBSCRIBE` rather than `UNSUBSCRIBE`.
    pub subscribe: bool,
}

/// What is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// Channels by name.
    Channel,
    /// Patterns.
    Pattern,
    /// Sharded channels.
    Shard,
}

/// One command, or one subcommand (`object|encoding`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Name in lower case; `container|sub` for a subcommand.
    pub name: Box<str>,
    /// What it does to data.
    pub access: Access,
    /// What it does to its connection.
    pub role: Role,
    /// Where its keys stand.
    pub keys: Box<[KeySpec]>,
    /// To which nodes of a cluster it goes.
    pub request_policy: RequestPolicy,
    /// How the replies of several nodes become one.
    pub response_policy: ResponsePolicy,
    /// What its key holds, as far as its name tells.
    pub value_kind: ValueKind,
    /// How many arguments the server takes, its name among them: exactly this many, or at least that many if
    /// it is below zero. 0 if the server has not told; it differs from release to release.
    arity: i64,
    /// The argument that is its only key; 0 if it may touch any other.
    single_key: usize,
    /// What it may touch besides `keys`.
    reach: Reach,
    /// Has subcommands of its own in the table.
    container: bool,
    /// Found by its container and its own name, never by the two in one.
    subcommand: bool,
}

impl Command {
    fn new(name: &str, access: Access, may_block: bool, tips: Tips, keys: Box<[KeySpec]>) -> Self {
        let reach = Reach::of(name, access, !keys.is_empty());
        let single_key = match &*keys {
            [KeySpec { begin: Begin::Index(at), find: Find::Range { last: 0, .. } }]
                if reach == Reach::Named =>
            {
                *at
            }
            _ => 0,
        };
        Self {
            name: name.into(),
            access,
            role: role(name, may_block),
            keys,
            request_policy: tips.request,
            response_policy: tips.response,
            value_kind: ValueKind::of_command(name),
            arity: 0,
            single_key,
            reach,
            container: false,
            subcommand: name.contains('|'),
        }
    }

    /// The same if the server says that it may touch other keys than those that it names.
    fn with_unknown_keys(self) -> Self {
        match self.reach {
            Reach::Named => Self { reach: Reach::Anything, single_key: 0, ..self },
            _ => self,
        }
    }

    /// It has subcommands or is one: not its name alone tells what it is.
    #[inline]
    pub fn needs_second_argument(&self) -> bool {
        self.container || self.subcommand
    }

    /// The argument that is its key, if it always has exactly one and in the same place.
    /// The request may still be too short to hold it.
    #[inline]
    pub fn single_key_index(&self) -> Option<usize> {
        (self.single_key != 0).then_some(self.single_key)
    }

    /// Whether the server has said that it refuses this number of arguments, the name among them. It does
    /// that before it looks at any key.
    #[inline]
    pub fn refuses_count(&self, arg_count: usize) -> bool {
        let count = i64::try_from(arg_count).unwrap_or(i64::MAX);
        match self.arity {
            0 => false,
            exactly @ 1.. => count != exactly,
            at_least => count < at_least.saturating_neg(),
        }
    }

    /// Calls `on_key` with the index of each argument that is a key. The channels of sharded
    /// pub/sub (`SPUBLISH`, `SSUBSCRIBE`, `SUNSUBSCRIBE`) are among them: a cluster places
    /// them by the same slots.
    pub fn for_each_key<'a>(
        &self,
        arg_count: usize,
        arg: impl Fn(usize) -> &'a [u8] + Copy,
        mut on_key: impl FnMut(usize),
    ) {
        if self.reach.for_each_key(arg_count, arg, &mut on_key) {
            return;
        }
        for spec in &self.keys {
            spec.for_each(arg_count, arg, &mut on_key);
        }
    }
}

/// Longest name that is looked up, `container|sub` together.
const MAX_NAME_BYTES: usize = 64;

/// Commands by name.
#[derive(Clone, Debug)]
pub struct CommandTable {
    commands: HashMap<Box<[u8]>, Command, FixedState>,
}

impl Default for CommandTable {
    /// The built-in table.
    fn default() -> Self {
        let mut table = Self { commands: HashMap::default() };
        for line in include_str!("command/builtin.txt").lines() {
            if !line.starts_with('#') {
                table.insert(parse_line(line));
            }
        }
        table
    }
}

impl CommandTable {
    /// Looks a command up by its name in any case; a subcommand by its second argument.
    #[inline]
    pub fn lookup(&self, name: &[u8], second: Option<&[u8]>) -> Option<&Command> {
        let mut lower = [0; MAX_NAME_BYTES];
        let len = name.len();
        if len > MAX_NAME_BYTES {
            return None;
        }
        lower[..len].copy_from_slice(name);
        lower[..len].make_ascii_lowercase();
        let command = self.commands.get(&lower[..len])?;
        if !command.container {
            // To a server `client|kill` is no name; only two arguments lead to a subcommand.
            return (!command.subcommand).then_some(command);
        }
        // An unknown subcommand is left to the container: the server says what is wrong.
        let Some(second) = second else { return Some(command) };
        let end = len + 1 + second.len();
        if end > MAX_NAME_BYTES {
            return Some(command);
        }
        lower[len] = b'|';
        lower[len + 1..end].copy_from_slice(second);
        lower[len + 1..end].make_ascii_lowercase();
        Some(self.commands.get(&lower[..end]).unwrap_or(command))
    }

    /// Number of commands and subcommands known.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// True if nothing is known; never the case for a table made by [`Default`].
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    fn insert(&mut self, command: Command) {
        if let Some((container, _)) = command.name.split_once('|')
            && let Some(container) = self.commands.get_mut(container.as_bytes())
        {
            container.container = true;
        }
        let container =
            self.commands.get(command.name.as_bytes()).is_some_and(|known| known.container);
        let name = command.name.as_bytes().into();
        self.commands.insert(name, Command { container, ..command });
    }
}

/// Reads a line of `builtin.txt`; the file is part of the program, so a bad line is a bug.
fn parse_line(line: &str) -> Command {
    let mut words = line.split(' ');
    let name = words.next().expect("a name");
    let access = words.next().expect("an access");
    let mut tips = Tips::default();
    let mut keys = Vec::new();
    for word in words {
        match word.strip_prefix('!') {
            Some(policy) => tips = Tips::parse(policy).expect("a cluster policy"),
            None => keys.push(KeySpec::parse(word).expect("a key position")),
        }
    }
    let kind = match access.as_bytes()[0] {
        b'r' => Access::Read,
        b'w' => Access::Write,
        _ => Access::Neither,
    };
    Command::new(name, kind, access.ends_with('b'), tips, keys.into())
}

/// The role of a command. Roles are about connections, which no server describes in its
/// `COMMAND` reply (but for blocking), so they are given by name.
fn role(name: &str, may_block: bool) -> Role {
    let subscription = |kind, subscribe| Role::Subscription(Subscription { kind, subscribe });
    match name {
        "multi" => Role::Multi,
        "exec" => Role::Exec,
        "discard" => Role::Discard,
        "watch" => Role::Watch,
        "unwatch" => Role::Unwatch,
        "subscribe" => subscription(SubscriptionKind::Channel, true),
        "unsubscribe" => subscription(SubscriptionKind::Channel, false),
        "psubscribe" => subscription(SubscriptionKind::Pattern, true),
        "punsubscribe" => subscription(SubscriptionKind::Pattern, false),
        "ssubscribe" => subscription(SubscriptionKind::Shard, true),
        "sunsubscribe" => subscription(SubscriptionKind::Shard, false),
        "monitor" | "sync" | "psync" | "replconf" | "script|debug" | "asking" | "readonly"
        | "readwrite" => Role::Takeover,
        "auth" => Role::Auth,
        "hello" => Role::Hello,
        "select" => Role::Select,
        "reset" => Role::Reset,
        "quit" => Role::Quit,
        "wait" | "waitaof" => Role::Wait,
        "xread" | "xreadgroup" => Role::BlockingOption,
        "script|kill" | "function|kill" | "shutdown" | "failover" => Role::Urgent,
        _ if name == "client" || name.starts_with("client|") => Role::Client,
        _ if may_block => Role::Blocking,
        _ => Role::Plain,
    }
}

#[cfg(test)]
mod tests;
