//! The scripts, and a call of one with its arguments.
//!
//! Called by: `remote`, which makes calls; `connect`, which sends them.
//! Invariant: a script names all keys it touches, all of one slot. A call says whether it may
//! be sent again when nobody knows whether it was carried out.

use std::sync::LazyLock;

use redis::{Cmd, Script};

use crate::model::Channel;
use crate::settings::Names;

macro_rules! on {
    ($keys:expr, $($file:literal),+) => {
        LazyLock::new(|| {
            let text = concat!(include_str!("../scripts/common.lua"), $(include_str!($file)),+);
            Source { script: Script::new(text), text, keys: $keys }
        })
    };
}

macro_rules! on_registry {
    ($file:literal) => {
        on!(Keys::Registry, "../scripts/registry.lua", $file)
    };
}

pub(super) static PUT: LazyLock<Source> = on_registry!("../scripts/put.lua");
pub(super) static REMOVE: LazyLock<Source> = on_registry!("../scripts/remove.lua");
pub(super) static RENEW: LazyLock<Source> = on_registry!("../scripts/renew.lua");
pub(super) static SWEEP: LazyLock<Source> = on_registry!("../scripts/sweep.lua");
pub(super) static SNAPSHOT: LazyLock<Source> = on_registry!("../scripts/snapshot.lua");
pub(super) static PULSE: LazyLock<Source> = on_registry!("../scripts/pulse.lua");
pub(super) static LOOK: LazyLock<Source> = on!(Keys::Registry, "../scripts/look.lua");
pub(super) static HEARTBEAT: LazyLock<Source> = on!(Keys::Members, "../scripts/heartbeat.lua");
pub(super) static LEAVE: LazyLock<Source> = on!(Keys::All, "../scripts/leave.lua");
pub(super) static ACKNOWLEDGE: LazyLock<Source> = on!(Keys::Acks, "../scripts/acknowledge.lua");

/// A script as the server gets it: by its hash, or whole when it does not know that.
pub(super) struct Source {
    script: Script,
    text: &'static str,
    keys: Keys,
}

enum Keys {
    Registry,
    Members,
    Acks,
    All,
}

/// What is sent in one call.
pub(super) struct Call {
    action: Action,
    args: Vec<Vec<u8>>,
    is_repeatable: bool,
}

enum Action {
    Run(&'static Source),
    Tell(Channel),
}

impl Call {
    /// A script that must not be sent again once it may have been carried out.
    pub(super) fn once(source: &'static Source) -> Self {
        Self { action: Action::Run(source), args: Vec::new(), is_repeatable: false }
    }

    /// A script that does no harm when it is carried out twice.
    pub(super) fn repeatable(source: &'static Source) -> Self {
        Self { is_repeatable: true, ..Self::once(source) }
    }

    /// A message.
    pub(super) fn message(channel: Channel, body: &[u8]) -> Self {
        let action = Action::Tell(channel);
        Self { action, args: vec![body.to_vec()], is_repeatable: false }
    }

    pub(super) fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.args.push(arg.as_ref().to_vec());
        self
    }

    pub(super) fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    pub(super) fn flag(self, flag: bool) -> Self {
        self.arg(if flag { "1" } else { "0" })
    }

    pub(super) fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    /// The command to try first.
    pub(super) fn command(&self, names: &Names, sharded: bool) -> Cmd {
        match self.action {
            Action::Run(source) => {
                self.script(source, "EVALSHA", source.script.get_hash(), names, sharded)
            }
            Action::Tell(channel) => {
                let mut command = redis::cmd(publish(sharded));
                command.arg(names.channel(channel)).arg(&self.args);
                command
            }
        }
    }

    /// The command for a server that does not know the script.
    pub(super) fn whole_command(&self, names: &Names, sharded: bool) -> Option<Cmd> {
        match self.action {
            Action::Run(source) => Some(self.script(source, "EVAL", source.text, names, sharded)),
            Action::Tell(_) => None,
        }
    }

    fn script(&self, source: &Source, verb: &str, code: &str, names: &Names, sharded: bool) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(code);
        match source.keys {
            Keys::Registry => {
                let keys = [&names.state, &names.registry, &names.expiry, &names.blocked];
                let candidate = format!("{:032x}", fastrand::u128(..));
                command.arg(keys.len()).arg(&keys);
                command.arg(publish(sharded)).arg(&names.changes).arg(candidate);
            }
            Keys::Members => {
                let keys = [&names.members, &names.presence, &names.roster];
                command.arg(keys.len()).arg(&keys);
            }
            Keys::Acks => {
                command.arg(1).arg(&names.acks);
            }
            Keys::All => {
                let members = [&names.members, &names.presence, &names.roster];
                let others = [&names.state, &names.registry, &names.expiry, &names.blocked];
                command.arg(8).arg(&members).arg(&others).arg(&names.acks);
            }
        }
        for arg in &self.args {
            command.arg(arg);
        }
        command
    }
}

fn publish(sharded: bool) -> &'static str {
    if sharded { "SPUBLISH" } else { "PUBLISH" }
}
