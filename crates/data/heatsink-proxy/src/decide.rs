//! The one place where it is decided what becomes of a request.
//!
//! Called by: `intake` and `dispatch`, with each request before anything is done about it.
//! A pure function of the command, of what its client is in the middle of, and of one look at the hot
//! keys. The table in `decide/table.txt` has what is decided about every kind of command in every state
//! of a client; a test compares it.

#[cfg(test)]
mod tests;

use heatsink_resp::command::{Command, Role};

use crate::downstream::connection::{Client, Lost};
use crate::downstream::request::{BIG_REQUEST_BYTES, Request};
use crate::reserved::{listings, names};
use crate::session::dedicated::{Dedicated, Expected, Transaction};
use crate::session::lost::LostStep;

/// What a client is in the middle of, as far as that matters to its next request.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one machine")]
pub(crate) struct Situation<'a> {
    /// Its dedicated connection.
    pub(crate) dedicated: Option<&'a Dedicated>,
    /// What it has lost, and is not told yet.
    pub(crate) lost: Lost,
    /// Whether all that it asked before is answered.
    pub(crate) is_drained: bool,
    /// Whether it waits for reads or changes of hot keys, which took a way of their own.
    pub(crate) awaits_hot: bool,
    /// It reads so slowly that it has to be on a connection of its own.
    pub(crate) is_bulky: bool,
    /// Somebody knows who it is, or need not.
    pub(crate) is_known: bool,
    /// It moves data for this process: what it asks is passed on as it is.
    pub(crate) is_within: bool,
    /// It is in a transaction on a cluster, whose node may not be known yet.
    pub(crate) in_transaction: bool,
    /// The upstream is a cluster.
    pub(crate) is_clustered: bool,
    /// Logins are checked here: the server is never asked to.
    pub(crate) checks_logins: bool,
}

impl<'a> Situation<'a> {
    #[inline]
    pub(crate) fn of(client: &'a Client, is_clustered: bool, checks_logins: bool) -> Self {
        Self {
            dedicated: client.dedicated.as_deref(),
            lost: client.lost,
            is_drained: client.is_drained(),
            awaits_hot: client.hot.awaits(),
            is_bulky: client.bulky,
            is_known: client.is_known,
            is_within: client.within,
            in_transaction: client.transaction.is_some(),
            is_clustered,
            checks_logins,
        }
    }

    /// Nothing stands between it and the connections that clients share.
    #[inline]
    fn is_plain(&self) -> bool {
        self.dedicated.is_none()
            && self.lost == Lost::Nothing
            && self.is_known
            && !self.is_bulky
            && !self.in_transaction
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It waits until all that its client asked before is answered, or is not about hot keys any more.
    Wait,
    /// Passed on along the connections that clients share; nothing of its client stands in the way.
    Pass,
    /// It touches hot keys, and may be served without the server, or together with others.
    Mitigate,
    /// It tells of keys or channels: those of the fleet are left out of the reply.
    ListNames,
    /// It names a key or a channel of the fleet.
    RefuseReserved,
    /// Its client has to authenticate first.
    RefuseUnknown,
    /// Part of a transaction on a cluster.
    StepTransaction,
    /// Passed on along the connections that clients share, by a client that may have state elsewhere.
    Forward,
    /// Passed on along a dedicated connection of the client.
    Dedicated(Expected),
    /// `WAIT`: passed on along a dedicated connection, made to know of earlier writes.
    DedicatedWait,
    /// Changes what a connection is, or speaks of the server alone.
    Takeover,
    /// Changes user, database or protocol in the middle of what needs a dedicated connection.
    Stray,
    /// Has no place in a transaction, which fails.
    Misplaced,
    /// `MULTI` on a cluster.
    Multi,
    Auth,
    Hello,
    Select,
    Reset,
    Quit,
    /// A `CLIENT` subcommand.
    Client,
    /// Closed without a word.
    Hangup,
    /// Would have the server check a login that is checked here.
    Barred,
    /// A channel's name is so long that nobody could tell what the confirmation says.
    LongChannel,
    /// The transaction was lost with its connection.
    Lost(LostStep),
}

/// Confirmations of subscriptions are counted, so they have to come whole: a frame of up to 64 KiB does.
const MAX_CHANNEL_BYTES: usize = 16 << 10;

/// The decision depends on what the server will have answered to earlier requests, or the
/// request is answered here and must not overtake them.
fn needs_drained(role: Option<Role>, client: &Situation<'_>) -> bool {
    if client.lost != Lost::Nothing {
        return true;
    }
    match role {
        Some(
            Role::Auth
            | Role::Hello
            | Role::Select
            | Role::Reset
            | Role::Quit
            | Role::Client
            | Role::Takeover,
        ) => true,
        Some(Role::Subscription(_)) => client.dedicated.is_some(),
        _ => false,
    }
}

/// Decides about a request of a client. `touches_hot` tells whether the request names a hot key or may
/// touch one, and is asked once at most.
#[inline]
pub(crate) fn decide(
    client: &Situation<'_>,
    command: Option<&Command>,
    request: Request<'_>,
    touches_hot: impl FnOnce(&Command) -> bool,
) -> Decision {
    let is_reserved = client.is_known && !client.is_within && names::is_named(command, request);
    match command {
        Some(command) if command.role == Role::Plain && client.is_plain() && !is_reserved => {
            decide_plain(client, command, request, touches_hot)
        }
        _ if is_reserved => Decision::RefuseReserved,
        _ => decide_in_state(client, command, request, touches_hot),
    }
}

/// The usual case: a command like any other of a client with no state of its own.
#[inline]
fn decide_plain(
    client: &Situation<'_>,
    command: &Command,
    request: Request<'_>,
    touches_hot: impl FnOnce(&Command) -> bool,
) -> Decision {
    if client.is_within {
        return pass(client, request);
    }
    if client.awaits_hot && command.keys.is_empty() {
        // It may be about anything, and must not overtake what its client has asked of hot keys: a
        // `DBSIZE` behind an `INCR` that makes the key.
        return Decision::Wait;
    }
    if listings::tells_names(command) {
        return Decision::ListNames;
    }
    if touches_hot(command) { Decision::Mitigate } else { pass(client, request) }
}

/// A large request is not passed on where others would wait behind it.
#[inline]
fn pass(client: &Situation<'_>, request: Request<'_>) -> Decision {
    if request.bytes.len() >= BIG_REQUEST_BYTES && !client.is_clustered {
        Decision::Dedicated(Expected::Plain)
    } else {
        Decision::Pass
    }
}

/// A client with state of its own, or a command that makes or needs some.
fn decide_in_state(
    client: &Situation<'_>,
    command: Option<&Command>,
    request: Request<'_>,
    touches_hot: impl FnOnce(&Command) -> bool,
) -> Decision {
    let role = command.map(|command| command.role);
    if needs_drained(role, client) && !client.is_drained {
        return Decision::Wait;
    }
    if client.awaits_hot
        && command.is_none_or(|command| command.keys.is_empty() || touches_hot(command))
    {
        return Decision::Wait;
    }
    let may_be_unknown = matches!(role, Some(Role::Auth | Role::Hello | Role::Quit | Role::Reset))
        || role.is_none() && is_from_browser(request);
    if !client.is_known && !may_be_unknown {
        return Decision::RefuseUnknown;
    }
    if client.in_transaction {
        return Decision::StepTransaction;
    }
    if client.is_clustered
        && matches!(client.lost, Lost::Nothing | Lost::Watch | Lost::Moved)
        && let Some(role) = role
    {
        // A client's dedicated connection leads to one node only: what needs no state goes to the node
        // of its keys all the same, and `MULTI` waits for a key.
        match (role, client.dedicated) {
            (Role::Plain, Some(dedicated)) if dedicated.is_free_beside() => {
                return Decision::Forward;
            }
            (Role::Multi, None) if client.lost == Lost::Nothing && request.len() == 1 => {
                return Decision::Multi;
            }
            _ => {}
        }
    }
    decide_by_role(client, role, request)
}

/// What becomes of a request whose turn it is, by what its command does to a connection.
pub(crate) fn decide_by_role(
    client: &Situation<'_>,
    role: Option<Role>,
    request: Request<'_>,
) -> Decision {
    if let Some(step) = lost(role, client.lost) {
        return Decision::Lost(step);
    }
    let Some(role) = role else {
        if is_from_browser(request) {
            return Decision::Hangup;
        }
        return Decision::Dedicated(Expected::Unknown);
    };
    if matches!(role, Role::Subscription(_))
        && request.args_from(1).any(|name| name.len() > MAX_CHANNEL_BYTES)
    {
        return Decision::LongChannel;
    }
    let is_big = request.bytes.len() >= BIG_REQUEST_BYTES;
    match client.dedicated {
        Some(dedicated) => decide_beside_dedicated(role, request, dedicated, client.checks_logins),
        None => decide_shared(role, request, client.is_bulky || is_big),
    }
}

fn decide_shared(role: Role, request: Request<'_>, bulky: bool) -> Decision {
    match role {
        Role::Plain | Role::Exec | Role::Discard | Role::Unwatch if bulky => {
            Decision::Dedicated(Expected::Plain)
        }
        // Without a transaction the server has only an error, or nothing, to say to these.
        Role::Plain | Role::Exec | Role::Discard | Role::Unwatch => Decision::Forward,
        Role::BlockingOption if !has_block_option(request) => Decision::Forward,
        Role::BlockingOption
        | Role::Blocking
        | Role::Multi
        | Role::Watch
        | Role::Urgent
        | Role::Subscription(_) => {
            Decision::Dedicated(Dedicated::expect(Some(role), request.len()))
        }
        Role::Wait => Decision::DedicatedWait,
        Role::Takeover => Decision::Takeover,
        Role::Auth => Decision::Auth,
        Role::Hello => Decision::Hello,
        Role::Select => Decision::Select,
        Role::Reset if request.len() > 1 => Decision::Forward,
        Role::Reset => Decision::Reset,
        Role::Quit => Decision::Quit,
        Role::Client => Decision::Client,
    }
}

/// While a client has a dedicated connection, everything goes there.
fn decide_beside_dedicated(
    role: Role,
    request: Request<'_>,
    dedicated: &Dedicated,
    checks_logins: bool,
) -> Decision {
    let queueing = dedicated.transaction == Transaction::Queueing;
    let login =
        checks_logins && (role == Role::Auth || role == Role::Hello && has_auth_option(request));
    match role {
        Role::Auth if login && !queueing && !dedicated.is_confined() => Decision::Auth,
        Role::Auth | Role::Hello if login => Decision::Barred,
        Role::Reset if request.len() == 1 => Decision::Reset,
        Role::Quit => Decision::Quit,
        Role::Client if !queueing && !dedicated.is_confined() => Decision::Client,
        Role::Auth | Role::Hello | Role::Select if dedicated.is_confined() => {
            Decision::Dedicated(Expected::Plain)
        }
        Role::Client if queueing && names_client(request) => Decision::Client,
        _ if queueing && is_misplaced(role, request) => Decision::Misplaced,
        Role::Takeover => Decision::Takeover,
        Role::Auth | Role::Hello | Role::Select => Decision::Stray,
        Role::BlockingOption if !has_block_option(request) => Decision::Dedicated(Expected::Plain),
        _ => Decision::Dedicated(Dedicated::expect(Some(role), request.len())),
    }
}

/// It cannot be told, from the replies to a transaction, what it has made of the connection; or its
/// replies would stand inside that of `EXEC`; or it would not have to wait for its turn.
fn is_misplaced(role: Role, request: Request<'_>) -> bool {
    match role {
        Role::Client => request.is(1, "reply"),
        Role::Hello => request.len() > 2,
        // The reply to `EXEC` would tell of any number of logins whether they are right.
        Role::Auth | Role::Subscription(_) => true,
        _ => false,
    }
}

/// Subcommands of `CLIENT` that may name clients, or after which a connection is the client's for
/// good, or that Heatsink asks as well; see [`crate::session::client_command`].
fn names_client(request: Request<'_>) -> bool {
    ["id", "setname", "setinfo", "tracking", "unblock", "kill", "no-evict", "no-touch"]
        .iter()
        .any(|sub| request.is(1, sub))
}

/// A browser made to talk to the server: as the server does, hang up.
pub(crate) fn is_from_browser(request: Request<'_>) -> bool {
    request.is(0, "post") || request.is(0, "host:")
}

fn has_auth_option(request: Request<'_>) -> bool {
    request.args_from(1).any(|arg| arg.eq_ignore_ascii_case(b"auth"))
}

fn lost(role: Option<Role>, lost: Lost) -> Option<LostStep> {
    if matches!(role, Some(Role::Quit | Role::Reset)) {
        return None;
    }
    match (lost, role) {
        (Lost::Watch, Some(Role::Multi)) => Some(LostStep::Begin),
        (Lost::Moved, Some(Role::Multi)) => Some(LostStep::BeginMoved),
        (Lost::Watch | Lost::Moved, Some(Role::Unwatch)) => Some(LostStep::Unwatch),
        (Lost::Nothing | Lost::Watch | Lost::Moved, _) => None,
        (Lost::MovedTransaction, Some(Role::Exec)) => Some(LostStep::Touched),
        (Lost::Transaction, Some(Role::Exec)) => Some(LostStep::Abort),
        (Lost::Transaction | Lost::MovedTransaction, Some(Role::Discard)) => Some(LostStep::Forget),
        (Lost::MovedTransaction, _) => Some(LostStep::Queue),
        (Lost::Transaction, _) => Some(LostStep::Refuse),
    }
}

/// `BLOCK` among the arguments of `XREAD` or `XREADGROUP`. It may be a key, or a group's name,
/// and then the request goes to a dedicated connection without need; the other mistake would
/// block everyone.
fn has_block_option(request: Request<'_>) -> bool {
    request.args_from(1).any(|arg| arg.eq_ignore_ascii_case(b"block"))
}
