//! Moving a slot from one primary to another, in the steps an operator's tool takes.
//!
//! Called by: tests of redirections, step by step or all at once.
//! Bound: `BATCH_KEYS` keys per `MIGRATE`.
//! Invariant: the target learns that it owns the slot before the source forgets it, so that at
//! no moment two nodes send a client to each other without end.
//!
//! Between [`begin_move_slot`](RedisCluster::begin_move_slot) and
//! [`finish_move_slot`](RedisCluster::finish_move_slot) the source answers `ASK` for keys it
//! does not have, and `TRYAGAIN` when it has some keys of a command and not others.

use std::time::Duration;

use super::RedisCluster;
use super::settings::expect_ok;
use super::view::Links;
use crate::reply::Reply;
use crate::wait::eventually_ok;

const BATCH_KEYS: usize = 100;
const HEAR_TIMEOUT: Duration = Duration::from_secs(10);
const MIGRATE_TIMEOUT_MS: &str = "5000";

impl RedisCluster {
    /// Moves `slot` with all its keys to node `to`: the three steps below.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        if self.owner_of(slot) == to {
            return;
        }
        self.begin_move_slot(slot, to);
        self.migrate_keys(slot, to);
        self.finish_move_slot(slot, to);
    }

    /// Marks `slot` as importing at node `to` and as migrating at its owner.
    #[track_caller]
    pub fn begin_move_slot(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        assert_ne!(from, to, "node {to} has slot {slot} already");
        let slot = slot.to_string();
        self.set_slot(to, &[&slot, "IMPORTING", self.id(from)]);
        self.set_slot(from, &[&slot, "MIGRATING", self.id(to)]);
    }

    /// Moves all keys of `slot` from its owner to node `to`; keys written at the source
    /// meanwhile go too. Returns how many went.
    #[track_caller]
    pub fn migrate_keys(&self, slot: u16, to: usize) -> usize {
        self.migrate_some_keys(slot, to, usize::MAX)
    }

    /// As [`migrate_keys`](Self::migrate_keys), at most `count` of them.
    #[track_caller]
    pub fn migrate_some_keys(&self, slot: u16, to: usize, count: usize) -> usize {
        let from = self.owner_of(slot);
        let mut source = self.node(from).admin_client();
        let port = self.node(to).port().to_string();
        let mut moved = 0;
        while moved < count {
            let batch = BATCH_KEYS.min(count - moved).to_string();
            let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &batch]);
            if keys.items().is_empty() {
                break;
            }
            let head = ["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_TIMEOUT_MS];
            let mut command: Vec<&[u8]> = head.iter().map(|word| word.as_bytes()).collect();
            command.extend(self.settings.migrate_auth.iter().map(String::as_bytes));
            command.push(b"KEYS");
            command.extend(keys.items().iter().filter_map(Reply::bytes));
            let reply = source.command(&command);
            // NOKEY: all of them expired or were deleted since they were listed.
            let done = reply == Reply::ok() || reply == Reply::Simple("NOKEY".into());
            assert!(done, "MIGRATE of slot {slot} to node {to}: {reply}");
            moved += keys.items().len();
        }
        moved
    }

    /// Makes node `to` the owner of `slot`: tells it, then the source, then the other
    /// primaries, and waits until the other nodes have heard of its claim. The source refuses
    /// while it has keys of the slot.
    #[track_caller]
    pub fn finish_move_slot(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        let primaries = self.primaries();
        let others = primaries.into_iter().filter(|node| ![from, to].contains(node));
        let slot = slot.to_string();
        for node in [to, from].into_iter().chain(others) {
            self.set_slot(node, &[&slot, "NODE", self.id(to)]);
        }
        eventually_ok(HEAR_TIMEOUT, || self.check_claim(to));
    }

    /// Whether every live node knows the claim of node `to`. Until then a move back goes wrong:
    ///
    /// 1. the slot goes from A to B; B claims it in a new epoch and sends word to A
    /// 2. the slot goes back to A, which has not read that word and claims it in the same epoch
    /// 3. A reads the word, which is newer than its own old claim, and gives the slot to B
    fn check_claim(&self, to: usize) -> Result<(), String> {
        let links_of = |node: usize| {
            let client = self.node(node).try_admin_client();
            client.and_then(|mut client| Links::of(&mut client)).map_err(|error| error.to_string())
        };
        let own = links_of(to)?;
        let epoch = own.epoch_of(self.id(to));
        for node in self.live() {
            let seen = links_of(node)?;
            if seen.epoch_of(self.id(to)) != epoch {
                return Err(format!("node {node} has not heard of epoch {epoch:?} of node {to}"));
            }
        }
        Ok(())
    }

    /// Takes back the marks of [`begin_move_slot`](Self::begin_move_slot); keys moved since
    /// stay where they are, out of reach.
    #[track_caller]
    pub fn abandon_move_slot(&self, slot: u16, to: usize) {
        let from = self.owner_of(slot);
        for node in [from, to] {
            self.set_slot(node, &[&slot.to_string(), "STABLE"]);
        }
    }

    #[track_caller]
    fn set_slot(&self, node: usize, words: &[&str]) {
        let command = [&["CLUSTER", "SETSLOT"], words].concat();
        expect_ok(&mut self.node(node).admin_client(), &command);
    }
}
