//! What a server says of its own commands: the `COMMAND` reply, Redis 2.8 to date.

use super::{Access, Begin, Command, CommandTable, Find, KeySpec, Role, Tips};
use crate::value::Value;

impl CommandTable {
    /// Takes over what a server's `COMMAND` reply says; returns how many commands it named.
    /// Entries that cannot be understood are passed over: those commands stay as they are.
    pub fn learn(&mut self, reply: &Value) -> usize {
        reply.array().iter().filter(|entry| self.learn_one(entry).is_some()).count()
    }

    fn learn_one(&mut self, entry: &Value) -> Option<()> {
        let fields = entry.array();
        let name = std::str::from_utf8(fields.first()?.text()?).ok()?.to_ascii_lowercase();
        let flag = |wanted: &str| {
            let flags = fields.get(2).map_or(&[][..], Value::array);
            flags.iter().any(|flag| flag.text() == Some(wanted.as_bytes()))
        };
        let mut access = match (flag("write"), flag("readonly")) {
            (true, _) => Access::Write,
            (false, true) => Access::Read,
            (false, false) => Access::Neither,
        };
        // Scripts are neither to the server, which asks what they call.
        let known = self.commands.get(name.as_bytes());
        if access == Access::Neither && known.is_some_and(|known| known.access == Access::Write) {
            access = Access::Write;
        }
        let specs = fields.get(8).map(Value::array).filter(|specs| !specs.is_empty());
        let keys: Box<[KeySpec]> = match specs {
            Some(specs) => specs.iter().filter_map(key_spec).collect(),
            // Before Redis 7 only first, last and step are told; `movablekeys` means that
            // they are not the whole truth, and then the built-in table knows better.
            None if flag("movablekeys") && known.is_some() => known?.keys.clone(),
            None => first_last_step(fields).into_iter().collect(),
        };
        // Keys have places of their own where specifications tell them by a word or a number. If
        // all of them stand in fixed places, `movablekeys` means that there are others.
        let is_fixed = |spec: &KeySpec| {
            matches!((&spec.begin, spec.find), (Begin::Index(_), Find::Range { limit: 0 | 1, .. }))
        };
        let is_incomplete = |spec: &Value| {
            let flags = spec.get(b"flags").map_or(&[][..], Value::array);
            flags.iter().any(|flag| flag.text() == Some(b"incomplete")) || key_spec(spec).is_none()
        };
        let has_others = specs.is_some_and(|specs| specs.iter().any(is_incomplete))
            || known.is_none() && flag("movablekeys") && keys.iter().all(is_fixed);
        // A command of a module that names keys, and does not say what it does to them.
        if access == Access::Neither && known.is_none() && (has_others || !keys.is_empty()) {
            access = Access::Write;
        }
        // The flag is there since Redis 7.
        let may_block = flag("blocking") || known.is_some_and(|known| known.role == Role::Blocking);
        let tips = match fields.get(7) {
            Some(told) => {
                let mut tips = Tips::default();
                told.array().iter().filter_map(Value::text).for_each(|tip| tips.learn(tip));
                tips
            }
            // Before Redis 7 a server has nothing to say about clusters.
            None => known.map_or_else(Tips::default, |known| Tips {
                request: known.request_policy,
                response: known.response_policy,
            }),
        };
        let arity = fields.get(1).and_then(Value::integer).unwrap_or(0);
        let mut command = Command::new(&name, access, may_block, tips, keys);
        if has_others {
            command = command.with_unknown_keys();
        }
        self.insert(Command { arity, ..command });
        for subcommand in fields.get(9).map_or(&[][..], Value::array) {
            self.learn_one(subcommand);
        }
        Some(())
    }
}

fn first_last_step(fields: &[Value]) -> Option<KeySpec> {
    let first = usize::try_from(fields.get(3)?.integer()?).ok().filter(|first| *first > 0)?;
    let last = fields.get(4)?.integer()? as isize;
    let step = usize::try_from(fields.get(5)?.integer()?).ok()?;
    // A last key in front of the first means none; below zero it would count from the end.
    let last = if last >= 0 { last.checked_sub_unsigned(first).filter(|l| *l >= 0)? } else { last };
    Some(KeySpec { begin: Begin::Index(first), find: Find::Range { last, step, limit: 0 } })
}

fn key_spec(spec: &Value) -> Option<KeySpec> {
    let begin = spec.get(b"begin_search")?;
    let of_begin = begin.get(b"spec")?;
    let begin = match begin.get(b"type")?.text()? {
        // Argument 0 is the command's name.
        b"index" => Begin::Index(size(of_begin, b"index").filter(|index| *index > 0)?),
        b"keyword" => Begin::Keyword {
            word: std::str::from_utf8(of_begin.get(b"keyword")?.text()?).ok()?.into(),
            from: of_begin.get(b"startfrom")?.integer()? as isize,
        },
        _ => return None,
    };
    let find = spec.get(b"find_keys")?;
    let of_find = find.get(b"spec")?;
    let find = match find.get(b"type")?.text()? {
        b"range" => Find::Range {
            last: of_find.get(b"lastkey")?.integer()? as isize,
            step: size(of_find, b"keystep")?,
            limit: size(of_find, b"limit")?,
        },
        b"keynum" => Find::Counted {
            count_at: size(of_find, b"keynumidx")?,
            first: size(of_find, b"firstkey")?,
            step: size(of_find, b"keystep")?,
        },
        _ => return None,
    };
    Some(KeySpec { begin, find })
}

fn size(map: &Value, key: &[u8]) -> Option<usize> {
    usize::try_from(map.get(key)?.integer()?).ok()
}
