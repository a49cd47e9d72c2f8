//! The one place where it is decided what becomes of a request.
//!
//! Called by: `intake`, for each request that is not plainly passed on.
//! A pure function of the command and of the client's state, which is settled (every earlier
//! request answered) wherever the decision depends on it.

use heatsink_resp::command::Role;

use crate::downstream::connection::{Client, Lost};
use crate::downstream::intake::BIG_REQUEST_BYTES;
use crate::downstream::request::Request;
use crate::session::dedicated::{Dedicated, Expected, Transaction};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Passed on along the pipelines that clients share.
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

/// How a lost transaction goes on towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LostStep {
    /// `MULTI` after a lost `WATCH`: begins, and will fail.
    Begin,
    /// A command inside: refused.
    Refuse,
    /// `EXEC`: fails.
    Abort,
    /// `DISCARD`: ends.
    Forget,
    /// `UNWATCH`: there is nothing to keep, and nothing to fear.
    Unwatch,
    /// `MULTI` after watched keys have moved to another node.
    BeginMoved,
    /// A command behind it.
    Queue,
    /// `EXEC`: a watched key was touched.
    Touched,
}

/// The decision depends on what the server will have answered to earlier requests, or the
/// request is answered here and must not overtake them.
pub(crate) fn needs_settled(role: Option<Role>, client: &Client) -> bool {
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

/// On a cluster, where a client's dedicated connection leads to one node only: what needs no state
/// goes to the node of its keys all the same, and `MULTI` waits for a key.
pub(crate) fn decide_clustered(
    role: Option<Role>,
    request: Request<'_>,
    client: &Client,
    service: bool,
) -> Decision {
    if matches!(client.lost, Lost::Nothing | Lost::Watch | Lost::Moved)
        && let Some(role) = role
    {
        match (role, &client.dedicated) {
            (Role::Plain, Some(dedicated)) if dedicated.is_free_beside() => {
                return Decision::Forward;
            }
            (Role::Multi, None) if client.lost == Lost::Nothing && request.len() == 1 => {
                return Decision::Multi;
            }
            _ => {}
        }
    }
    decide(role, request, client, service)
}

/// With `service_auth`, logins are checked here: the server is never asked to.
pub(crate) fn decide(
    role: Option<Role>,
    request: Request<'_>,
    client: &Client,
    service: bool,
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
    match &client.dedicated {
        Some(dedicated) => decide_beside_dedicated(role, request, dedicated, service),
        None => decide_shared(role, request, client.bulky || is_big),
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
    service: bool,
) -> Decision {
    let queueing = dedicated.transaction == Transaction::Queueing;
    let login = service && (role == Role::Auth || role == Role::Hello && has_auth_option(request));
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
/// replies would stand inside that of `EXEC`.
fn is_misplaced(role: Role, request: Request<'_>) -> bool {
    match role {
        Role::Client => request.is(1, "reply"),
        Role::Hello => request.len() > 2,
        Role::Subscription(_) => true,
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
