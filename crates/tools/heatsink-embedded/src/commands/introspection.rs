//! Introspection: `INFO`, `CONFIG`, `COMMAND` and `TIME`.
//!
//! Called by: `table`.
//! Bound: memory is estimated from at most `SAMPLED_KEYS` keys of each database.

use std::fmt::Write as _;

use crate::args::is;
use crate::commands::connection::COMPATIBLE_VERSION;
use crate::commands::strings::STRING_BYTES_MAX;
use crate::failure::Outcome;
use crate::table::{self, Command};
use crate::value::Value;
use crate::world::{Call, DB_COUNT, World};
use heatsink_resp::glob;

/// Keys looked at to estimate the memory of a database.
const SAMPLED_KEYS: usize = 100;
/// What a key costs beside its bytes, roughly.
const KEY_OVERHEAD_BYTES: usize = 100;

pub(crate) fn time(call: &mut Call<'_>) -> Outcome {
    let (seconds, micros) = (call.world.now_ms / 1000, call.world.now_ms % 1000 * 1000);
    call.client.reply.bulks([seconds.to_string(), micros.to_string()].iter());
    Ok(())
}

fn value_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Hash(hash) => hash.iter().map(|(f, v)| f.len() + v.len() + 64).sum(),
        Value::List(list) => list.iter().map(|element| element.len() + 24).sum(),
        Value::Set(set) => set.iter().map(|member| member.len() + 40).sum(),
        Value::SortedSet(sorted) => sorted.iter().map(|(m, _)| m.len() * 2 + 96).sum(),
    }
}

fn estimated_bytes(world: &World) -> usize {
    let estimate = |db: &crate::db::Db| {
        let sampled = db.live().take(SAMPLED_KEYS);
        let sizes = sampled.map(|(k, e)| k.len() + value_bytes(&e.value) + KEY_OVERHEAD_BYTES);
        let (count, sum) = sizes.fold((0, 0), |(count, sum), size| (count + 1, sum + size));
        (sum * db.len()).checked_div(count).unwrap_or(0)
    };
    world.dbs.iter().map(estimate).sum()
}

/// One section of `INFO`, without its title.
fn section(name: &str, world: &World) -> Option<String> {
    let mut text = String::new();
    let mut line = |field: &str, value: &dyn std::fmt::Display| {
        let _ = write!(text, "{field}:{value}\r\n");
    };
    let uptime_ms = world.now_ms.saturating_sub(world.stats.started_ms);
    let (tracking_clients, tracked_keys) = world.tracking.counts();
    match name {
        "server" => {
            line("redis_version", &COMPATIBLE_VERSION);
            let in_cluster = world.cluster.is_some();
            line("redis_mode", if in_cluster { &"cluster" } else { &"standalone" });
            line("heatsink_store", &"embedded");
            line("arch_bits", &usize::BITS);
            line("process_id", &std::process::id());
            line("uptime_in_seconds", &(uptime_ms / 1000));
            line("uptime_in_days", &(uptime_ms / 86_400_000));
        }
        "clients" => {
            // The client that asks is outside the map of peers.
            line("connected_clients", &(world.peers.len() + 1));
            line("blocked_clients", &0);
            line("tracking_clients", &tracking_clients);
        }
        "memory" => {
            line("used_memory", &estimated_bytes(world));
            line("maxmemory", &0);
            line("maxmemory_policy", &"noeviction");
        }
        "stats" => {
            let (channels, patterns) = world.pubsub.counts();
            line("total_connections_received", &world.stats.connections);
            line("total_commands_processed", &world.stats.commands);
            line("total_net_input_bytes", &world.stats.input_bytes);
            line("expired_keys", &world.dbs.iter().map(|db| db.expired).sum::<u64>());
            line("evicted_keys", &0);
            line("pubsub_channels", &channels);
            line("pubsub_patterns", &patterns);
            line("pubsubshard_channels", &0);
            line("tracking_total_keys", &tracked_keys);
            line("total_error_replies", &world.stats.errors);
        }
        "replication" => {
            line("role", &"master");
            line("connected_slaves", &0);
        }
        "cluster" => line("cluster_enabled", &u8::from(world.cluster.is_some())),
        "keyspace" => {
            for (index, db) in world.dbs.iter().enumerate().filter(|(_, db)| db.len() > 0) {
                let (keys, expires, ttl) = (db.len(), db.deadline_count(), db.mean_ttl_ms());
                let value = format!("keys={keys},expires={expires},avg_ttl={ttl}");
                line(&format!("db{index}"), &value);
            }
        }
        _ => return None,
    }
    Some(text)
}

pub(crate) fn info(call: &mut Call<'_>) -> Outcome {
    const SECTIONS: [(&str, &str); 7] = [
        ("server", "Server"),
        ("clients", "Clients"),
        ("memory", "Memory"),
        ("stats", "Stats"),
        ("replication", "Replication"),
        ("cluster", "Cluster"),
        ("keyspace", "Keyspace"),
    ];
    let asked = &call.args[1..];
    let all = asked.is_empty()
        || asked.iter().any(|a| is(a, "all") || is(a, "default") || is(a, "everything"));
    let mut text = String::new();
    for (name, title) in SECTIONS {
        if !all && !asked.iter().any(|asked| is(asked, name)) {
            continue;
        }
        if let Some(body) = section(name, call.world) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{gap}# {title}\r\n{body}");
        }
    }
    call.client.reply.verbatim(&text);
    Ok(())
}

pub(crate) fn config_get(call: &mut Call<'_>) -> Outcome {
    let settings = [
        ("appendonly", "no".to_owned()),
        ("databases", DB_COUNT.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("proto-max-bulk-len", STRING_BYTES_MAX.to_string()),
        ("save", String::new()),
        ("timeout", "0".to_owned()),
    ];
    let patterns: Vec<Vec<u8>> = call.args[2..].iter().map(|p| p.to_ascii_lowercase()).collect();
    let asked = |name: &str| patterns.iter().any(|p| glob::matches(p, name.as_bytes()));
    let found: Vec<_> = settings.iter().filter(|(name, _)| asked(name)).collect();
    call.client.reply.map(found.len());
    for (name, value) in found {
        call.client.reply.bulk(name.as_bytes());
        call.client.reply.bulk(value.as_bytes());
    }
    Ok(())
}

pub(crate) fn config_resetstat(call: &mut Call<'_>) -> Outcome {
    let stats = &mut call.world.stats;
    (stats.connections, stats.commands, stats.errors, stats.input_bytes) = (0, 0, 0, 0);
    call.client.reply.ok();
    Ok(())
}

fn describe(call: &mut Call<'_>, command: &Command) {
    let reply = &mut call.client.reply;
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.int(i64::from(command.arity));
    let flags: Vec<&str> = command.flag_names().collect();
    reply.set(flags.len());
    for flag in flags {
        reply.simple(flag);
    }
    for position in [command.first_key, command.last_key, command.key_step] {
        reply.int(i64::from(position));
    }
    // Categories, tips, key specifications and subcommands are left out.
    for _ in 0..4 {
        reply.set(0);
    }
}

pub(crate) fn command(call: &mut Call<'_>) -> Outcome {
    let top_level: Vec<&Command> = table::top_level().collect();
    call.client.reply.array(top_level.len());
    for command in top_level {
        describe(call, command);
    }
    Ok(())
}

pub(crate) fn command_count(call: &mut Call<'_>) -> Outcome {
    call.client.reply.len(table::top_level().count());
    Ok(())
}

pub(crate) fn command_list(call: &mut Call<'_>) -> Outcome {
    let names: Vec<&str> = table::top_level().map(|command| command.name).collect();
    call.client.reply.bulks(names.iter());
    Ok(())
}

pub(crate) fn command_info(call: &mut Call<'_>) -> Outcome {
    let names = &call.args[2..];
    if names.is_empty() {
        return command(call);
    }
    call.client.reply.array(names.len());
    for name in names {
        match table::by_name(name) {
            Some(command) => describe(call, command),
            None => call.client.reply.null_array(),
        }
    }
    Ok(())
}

/// Documentation is what `redis-cli` asks for first; an empty answer satisfies it.
pub(crate) fn command_docs(call: &mut Call<'_>) -> Outcome {
    call.client.reply.map(0);
    Ok(())
}
