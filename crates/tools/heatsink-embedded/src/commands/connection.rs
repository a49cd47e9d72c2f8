//! Connection: greeting, authentication and the small talk of a connection.
//!
//! Called by: `table`. The `CLIENT` commands are in `clients`.

use crate::args::is;
use crate::commands::clients::set_name;
use crate::engine;
use crate::failure::{Failure, Outcome};
use crate::number;
use crate::reply::Proto;
use crate::world::Call;

/// The version of Redis whose replies the store imitates.
pub(crate) const COMPATIBLE_VERSION: &str = "7.0.15";

pub(crate) fn hello(call: &mut Call<'_>) -> Outcome {
    let mut proto = call.client.reply.proto;
    if let Some(version) = call.args.get(1) {
        proto = match number::integer(version) {
            Some(2) => Proto::Resp2,
            Some(3) => Proto::Resp3,
            Some(_) => return Err(Failure::of("NOPROTO unsupported protocol version")),
            None => {
                return Err(Failure::of("ERR Protocol version is not an integer or out of range"));
            }
        };
    }
    let mut name = None;
    let mut options = call.args.get(2..).unwrap_or_default();
    while let Some((option, rest)) = options.split_first() {
        options = match rest {
            [user, password, rest @ ..] if is(option, "auth") => {
                check_password(user, password)?;
                rest
            }
            [wanted, rest @ ..] if is(option, "setname") => {
                name = Some(*wanted);
                rest
            }
            _ => {
                let shown = String::from_utf8_lossy(option);
                return Err(Failure::new(format!("ERR Syntax error in HELLO option '{shown}'")));
            }
        };
    }
    if let Some(name) = name {
        set_name(call.client, name)?;
    }
    let reply = &mut call.client.reply;
    reply.proto = proto;
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", COMPATIBLE_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.int(if proto == Proto::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(call.client.id.0 as i64);
    let mode = if call.world.cluster.is_some() { "cluster" } else { "standalone" };
    for (field, value) in [("mode", mode), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// There is one user, without a password: any password is right for it.
fn check_password(user: &[u8], _password: &[u8]) -> Outcome {
    if user == b"default" {
        return Ok(());
    }
    Err(Failure::of("WRONGPASS invalid username-password pair or user is disabled."))
}

pub(crate) fn auth(call: &mut Call<'_>) -> Outcome {
    match call.args {
        [_, _] => Err(Failure::of(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        )),
        [_, user, password] => {
            check_password(user, password)?;
            call.client.reply.ok();
            Ok(())
        }
        _ => Err(Failure::SYNTAX),
    }
}

pub(crate) fn ping(call: &mut Call<'_>) -> Outcome {
    if call.args.len() > 2 {
        return Err(Failure::arity("ping"));
    }
    let payload = call.args.get(1).copied();
    let listens = call.client.is_subscriber();
    let reply = &mut call.client.reply;
    match payload {
        _ if listens && !reply.is_resp3() => {
            reply.bulks([b"pong".as_slice(), payload.unwrap_or_default()].into_iter());
        }
        Some(payload) => reply.bulk(payload),
        None => reply.simple("PONG"),
    }
    Ok(())
}

pub(crate) fn echo(call: &mut Call<'_>) -> Outcome {
    call.client.reply.bulk(call.args[1]);
    Ok(())
}

pub(crate) fn quit(call: &mut Call<'_>) -> Outcome {
    call.client.reply.ok();
    call.client.is_closing = true;
    Ok(())
}

pub(crate) fn reset(call: &mut Call<'_>) -> Outcome {
    engine::reset(call.world, call.client);
    call.client.reply.simple("RESET");
    Ok(())
}
