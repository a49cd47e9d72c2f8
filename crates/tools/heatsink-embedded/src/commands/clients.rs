//! Clients: the `CLIENT` commands.
//!
//! Called by: `table`.

use std::fmt::Write as _;

use crate::args::{Args, int, is};
use crate::client::{Client, ConnId};
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::tracking::{Scope, Tracker};
use crate::world::{Call, World};

pub(crate) fn id(call: &mut Call<'_>) -> Outcome {
    call.client.reply.int(call.client.id.0 as i64);
    Ok(())
}

/// Names a connection, if the name can be shown in a list.
pub(crate) fn set_name(client: &mut Client, name: &[u8]) -> Outcome {
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(Failure::of(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    client.name = name.to_vec();
    Ok(())
}

pub(crate) fn setname(call: &mut Call<'_>) -> Outcome {
    set_name(call.client, call.args[2])?;
    call.client.reply.ok();
    Ok(())
}

pub(crate) fn getname(call: &mut Call<'_>) -> Outcome {
    let client = &mut *call.client;
    let name = (!client.name.is_empty()).then_some(client.name.as_slice());
    client.reply.bulk_or_null(name);
    Ok(())
}

pub(crate) fn setinfo(call: &mut Call<'_>) -> Outcome {
    let attribute = call.args[2];
    if !is(attribute, "lib-name") && !is(attribute, "lib-ver") {
        let shown = String::from_utf8_lossy(attribute);
        return Err(Failure::new(format!("ERR Unrecognized option '{shown}'")));
    }
    call.client.reply.ok();
    Ok(())
}

/// A line of `CLIENT LIST`.
fn describe(world: &World, client: &Client) -> String {
    let seconds = |since_ms: u64| world.now_ms.saturating_sub(since_ms) / 1000;
    let tracker = world.tracking.get(client.id);
    let mut flags = String::new();
    let marks = [
        (client.is_subscriber(), 'P'),
        (client.queue.is_some(), 'x'),
        (client.is_closing, 'c'),
        (tracker.is_some(), 't'),
        (tracker.is_some_and(|t| t.is_broken), 'R'),
        (tracker.is_some_and(|t| matches!(t.scope, Scope::Broadcast(_))), 'B'),
    ];
    flags.extend(marks.iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| mark));
    if flags.is_empty() {
        flags.push('N');
    }
    let redirect = tracker.map_or(-1, |t| t.redirect.map_or(0, |target| target.0 as i64));
    let queued = client.queue.as_ref().map_or(-1, |queue| queue.requests.len() as i64);
    let mut line = String::new();
    let _ = write!(
        line,
        "id={} addr=embedded:0 laddr=embedded:0 fd=-1 name={} age={} idle={} flags={flags} db={} \
         sub={} psub={} ssub=0 multi={queued} qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 \
         rbp=0 obl={} oll=0 omem=0 tot-mem={} events=r cmd={} user=default redir={redirect} \
         resp={}",
        client.id.0,
        String::from_utf8_lossy(&client.name),
        seconds(client.connected_ms),
        seconds(client.active_ms),
        client.db,
        client.channels.len(),
        client.patterns.len(),
        client.input.len(),
        client.queue.as_ref().map_or(0, |queue| queue.bytes),
        client.reply.out.len(),
        client.input.capacity() + client.reply.out.capacity(),
        client.last_command,
        if client.reply.is_resp3() { 3 } else { 2 },
    );
    line.push('\n');
    line
}

pub(crate) fn info(call: &mut Call<'_>) -> Outcome {
    let line = describe(call.world, call.client);
    call.client.reply.verbatim(&line);
    Ok(())
}

pub(crate) fn list(call: &mut Call<'_>) -> Outcome {
    let mut wanted: Option<Vec<ConnId>> = None;
    let mut kind = None;
    match &call.args[2..] {
        [] => {}
        [word, name] if is(word, "type") => kind = Some(*name),
        [word, ids @ ..] if is(word, "id") && !ids.is_empty() => {
            let ids = ids.iter().map(|id| number::integer(id).map(|id| ConnId(id as u64)));
            let ids: Option<Vec<_>> = ids.collect();
            wanted = Some(ids.ok_or(Failure::of("ERR Invalid client ID"))?);
        }
        _ => return Err(Failure::SYNTAX),
    }
    let wants_subscribers = match kind {
        None => None,
        Some(kind) if is(kind, "normal") => Some(false),
        Some(kind) if is(kind, "pubsub") => Some(true),
        Some(kind) if is(kind, "master") || is(kind, "replica") || is(kind, "slave") => {
            wanted = Some(Vec::new());
            None
        }
        Some(kind) => {
            let shown = String::from_utf8_lossy(kind);
            return Err(Failure::new(format!("ERR Unknown client type '{shown}'")));
        }
    };
    let own: &Client = call.client;
    let peers = call.world.peers.values().map(Box::as_ref);
    let mut clients: Vec<&Client> = peers.chain([own]).collect();
    clients.retain(|client| {
        wanted.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && wants_subscribers.is_none_or(|wants| client.is_subscriber() == wants)
    });
    clients.sort_unstable_by_key(|client| client.id);
    let text: String = clients.iter().map(|client| describe(call.world, client)).collect();
    call.client.reply.verbatim(&text);
    Ok(())
}

pub(crate) fn kill(call: &mut Call<'_>) -> Outcome {
    let (mut target, mut spares_self) = (None, true);
    match &call.args[2..] {
        [_address] => return Err(Failure::of("ERR No such client")),
        filters if filters.len() % 2 == 0 => {
            for filter in filters.chunks_exact(2) {
                if is(filter[0], "id") {
                    let id = number::integer(filter[1]).filter(|id| *id > 0);
                    let id = id.ok_or(Failure::of("ERR client-id should be greater than 0"))?;
                    target = Some(ConnId(id as u64));
                } else if is(filter[0], "skipme") && is(filter[1], "yes") {
                    spares_self = true;
                } else if is(filter[0], "skipme") && is(filter[1], "no") {
                    spares_self = false;
                } else {
                    return Err(Failure::SYNTAX);
                }
            }
        }
        _ => return Err(Failure::SYNTAX),
    }
    let mut count = 0;
    for peer in call.world.peers.values_mut() {
        if target.is_none_or(|target| target == peer.id) && !peer.is_closing {
            peer.drop_now();
            call.world.killed.push(peer.id);
            count += 1;
        }
    }
    if !spares_self && target.is_none_or(|target| target == call.client.id) {
        call.client.is_closing = true;
        count += 1;
    }
    call.client.reply.int(count);
    Ok(())
}

/// A key under two prefixes would be told twice.
fn check_overlap(prefixes: &[Vec<u8>]) -> Outcome {
    for (at, prefix) in prefixes.iter().enumerate() {
        for other in &prefixes[at + 1..] {
            if prefix.starts_with(other) || other.starts_with(prefix) {
                let shown = [prefix, other].map(|bytes| String::from_utf8_lossy(bytes));
                return Err(Failure::new(format!(
                    "ERR Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a \
                     single client must not overlap.",
                    shown[0], shown[1]
                )));
            }
        }
    }
    Ok(())
}

/// Reads the options of `CLIENT TRACKING ON`.
fn tracker(options: Args<'_>, world: &World, own: ConnId) -> Result<Tracker, Failure> {
    let (mut redirect, mut prefixes) = (None, Vec::new());
    let (mut broadcast, mut opt_in, mut opt_out, mut no_loop) = (false, false, false, false);
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if is(option, "redirect") {
            if redirect.is_some() {
                return Err(Failure::of("ERR A client can only redirect to a single other client"));
            }
            let id = rest.next().ok_or(Failure::SYNTAX)?;
            let id = ConnId(int(id)? as u64);
            if id != own && !world.peers.contains_key(&id) {
                return Err(Failure::of("ERR The client ID you want redirect to does not exist"));
            }
            redirect = Some(id);
        } else if is(option, "prefix") {
            prefixes.push(rest.next().ok_or(Failure::SYNTAX)?.to_vec());
        } else if is(option, "bcast") {
            broadcast = true;
        } else if is(option, "optin") {
            opt_in = true;
        } else if is(option, "optout") {
            opt_out = true;
        } else if is(option, "noloop") {
            no_loop = true;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    let scope = match (broadcast, opt_in, opt_out) {
        (false, _, _) if !prefixes.is_empty() => {
            return Err(Failure::of("ERR PREFIX option requires BCAST mode to be enabled"));
        }
        (_, true, true) => {
            return Err(Failure::of("ERR You can't specify both OPTIN mode and OPTOUT mode"));
        }
        (true, false, false) => {
            if prefixes.is_empty() {
                prefixes.push(Vec::new());
            }
            check_overlap(&prefixes)?;
            Scope::Broadcast(prefixes)
        }
        (true, _, _) => {
            return Err(Failure::of("ERR OPTIN and OPTOUT are not compatible with BCAST"));
        }
        (false, true, false) => Scope::OptIn,
        (false, false, true) => Scope::OptOut,
        (false, false, false) => Scope::All,
    };
    Ok(Tracker { scope, redirect, no_loop, is_marked: false, is_broken: false })
}

pub(crate) fn tracking(call: &mut Call<'_>) -> Outcome {
    let conn = call.client.id;
    let tracker = tracker(&call.args[3..], call.world, conn)?;
    if is(call.args[2], "off") {
        call.world.tracking.disable(conn);
        call.client.reply.ok();
        return Ok(());
    }
    if !is(call.args[2], "on") {
        return Err(Failure::SYNTAX);
    }
    if let Some(before) = call.world.tracking.get(conn) {
        let is_broadcast = |scope: &Scope| matches!(scope, Scope::Broadcast(_));
        if is_broadcast(&before.scope) != is_broadcast(&tracker.scope) {
            return Err(Failure::of(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this \
                 client, and then re-enabling it with a different mode.",
            ));
        }
        let opts = |scope: &Scope| matches!(scope, Scope::OptIn | Scope::OptOut);
        if opts(&before.scope) && opts(&tracker.scope) && before.scope != tracker.scope {
            return Err(Failure::of(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this \
                 client, and then re-enabling it with a different mode.",
            ));
        }
    }
    call.world.tracking.enable(conn, tracker);
    call.client.reply.ok();
    Ok(())
}

pub(crate) fn caching(call: &mut Call<'_>) -> Outcome {
    let Some(tracker) = call.world.tracking.get_mut(call.client.id) else {
        return Err(Failure::of(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with \
             OPTIN or OPTOUT mode enabled",
        ));
    };
    match call.args[2] {
        word if is(word, "yes") && tracker.scope != Scope::OptIn => {
            return Err(Failure::of(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        word if is(word, "no") && tracker.scope != Scope::OptOut => {
            return Err(Failure::of(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        word if is(word, "yes") || is(word, "no") => tracker.is_marked = true,
        _ => return Err(Failure::SYNTAX),
    }
    call.client.reply.ok();
    Ok(())
}
