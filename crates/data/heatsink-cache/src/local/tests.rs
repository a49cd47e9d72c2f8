//! The rules of coherence, one by one.

use std::time::Duration;

use super::{KeySettings, Limits, LinkId, LocalCache, Lookup, Registered, Ttl};
use crate::identity::{LoginId, Protocol, Reader};

const A: Reader = Reader { login: LoginId(1), protocol: Protocol::Resp3 };
const B: Reader = Reader { login: LoginId(2), protocol: Protocol::Resp3 };
const A2: Reader = Reader { login: LoginId(1), protocol: Protocol::Resp2 };
const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
const STRLEN: &[u8] = b"*2\r\n$6\r\nSTRLEN\r\n$1\r\nk\r\n";

fn at_ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A cache with key `k` registered and a link of login 1.
struct Rig {
    cache: LocalCache,
    link: LinkId,
    now: Duration,
}

impl Rig {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let mut cache = LocalCache::new(limits);
        let link = cache.link_opened(A.login);
        let mut rig = Self { cache, link, now: Duration::ZERO };
        rig.register(b"k");
        rig
    }

    fn register(&mut self, key: &[u8]) {
        match self.cache.register(key, KeySettings::default()) {
            Registered::New(settling) => self.cache.write_done(settling),
            other => panic!("{other:?}"),
        }
    }

    /// What is sent for a miss.
    fn miss(&mut self, command: &[u8]) -> super::FillToken {
        match self.cache.lookup(self.now, A, b"k", command) {
            Lookup::Miss(token) => token.sent_on(self.link),
            other => panic!("{other:?}"),
        }
    }

    fn store(&mut self, command: &[u8], reply: &[u8]) {
        let token = self.miss(command);
        assert!(self.cache.filled(self.now, token, reply, Ttl::Unlimited));
    }

    fn filled(&mut self, token: super::FillToken, reply: &[u8]) -> bool {
        self.cache.filled(self.now, token, reply, Ttl::Unlimited)
    }

    fn hit(&mut self, command: &[u8]) -> Option<Vec<u8>> {
        match self.cache.lookup(self.now, A, b"k", command) {
            Lookup::Hit { reply, .. } => Some(reply.to_vec()),
            _ => None,
        }
    }
}

#[test]
fn a_reply_is_served_to_the_same_login_protocol_and_command_only() {
    let mut rig = Rig::new();
    rig.store(GET, b"+v\r\n");
    assert_eq!(rig.hit(GET).unwrap(), b"+v\r\n");
    assert_eq!(rig.hit(STRLEN), None);
    for other in [B, A2] {
        assert!(matches!(rig.cache.lookup(rig.now, other, b"k", GET), Lookup::Miss(_)));
    }
    let lower = GET.to_ascii_lowercase();
    assert!(matches!(rig.cache.lookup(rig.now, A, b"k", &lower), Lookup::Miss(_)));
    let counters = rig.cache.counters(b"k").unwrap();
    assert_eq!((counters.hits, counters.misses, counters.stored), (1, 5, 1));
    assert_eq!(counters.bytes_served, 4);
}

#[test]
fn an_unregistered_key_is_none_of_ours() {
    let mut rig = Rig::new();
    assert!(matches!(rig.cache.lookup(rig.now, A, b"other", GET), Lookup::NotRegistered));
    assert!(rig.cache.write_sent(b"other").is_none());
    assert!(rig.cache.fill_token(rig.now, A, b"other", GET).is_none());
    rig.cache.invalidated(b"other");
}

#[test]
fn a_push_during_a_fill_keeps_its_reply_out() {
    // 1. fill sent   2. server executes it   3. foreign write   4. push arrives
    // 5. ... or the push arrives before the reply: the reply may be older than the write.
    let mut rig = Rig::new();
    let token = rig.miss(GET);
    rig.cache.invalidated(b"k");
    assert!(!rig.filled(token, b"+old\r\n"));
    assert_eq!(rig.hit(GET), None);
    assert_eq!(rig.cache.counters(b"k").unwrap().overtaken, 1);
}

#[test]
fn two_pushes_during_a_fill() {
    let mut rig = Rig::new();
    let token = rig.miss(GET);
    rig.cache.invalidated(b"k");
    rig.cache.invalidated(b"k");
    assert!(!rig.filled(token, b"+old\r\n"));
    rig.store(GET, b"+new\r\n");
    assert_eq!(rig.hit(GET).unwrap(), b"+new\r\n");
}

#[test]
fn a_push_after_the_reply_evicts_all_commands_of_the_key() {
    // 1. fills stored   2. foreign write   3. push
    let mut rig = Rig::new();
    rig.store(GET, b"+v\r\n");
    rig.store(STRLEN, b":1\r\n");
    rig.cache.invalidated(b"k");
    assert_eq!((rig.hit(GET), rig.hit(STRLEN)), (None, None));
    assert_eq!(rig.cache.counters(b"k").unwrap().evicted.invalidation, 2);
    assert!(rig.cache.is_empty());
    assert_eq!(rig.cache.bytes(), 0);
}

#[test]
fn a_push_for_one_login_evicts_those_of_all() {
    let mut rig = Rig::new();
    rig.store(GET, b"+v\r\n");
    let link = rig.cache.link_opened(B.login);
    let Lookup::Miss(token) = rig.cache.lookup(rig.now, B, b"k", GET) else { panic!() };
    assert!(rig.filled(token.sent_on(link), b"+v\r\n"));
    rig.cache.invalidated(b"k");
    assert!(rig.cache.is_empty());
}

#[test]
fn a_write_evicts_when_sent_and_nothing_is_served_while_it_is_pending() {
    let mut rig = Rig::new();
    rig.store(GET, b"+old\r\n");
    let write = rig.cache.write_sent(b"k").unwrap();
    assert!(rig.cache.is_pending(b"k"));
    assert!(write.concerns(rig.cache.key_id(b"k").unwrap()));
    let Lookup::Bypass(token) = rig.cache.lookup(rig.now, A, b"k", GET) else { panic!() };
    assert!(!token.is_storable());
    let token = token.sent_on(rig.link);
    assert!(!rig.filled(token, b"+old\r\n"));
    rig.cache.write_done(write);
    assert!(!rig.cache.is_pending(b"k"));
    rig.store(GET, b"+new\r\n");
    assert_eq!(rig.cache.counters(b"k").unwrap().evicted.write, 1);
}

#[test]
fn a_fill_that_overlaps_a_write_at_either_end_is_not_stored() {
    // 1. fill sent   2. write sent   3. fill answered with the old value
    let mut rig = Rig::new();
    let token = rig.miss(GET);
    let write = rig.cache.write_sent(b"k").unwrap();
    assert!(!rig.filled(token, b"+old\r\n"));
    rig.cache.write_done(write);

    // 1. fill sent   2. write sent   3. write answered   4. the fill's reply, executed before
    let token = rig.miss(GET);
    let write = rig.cache.write_sent(b"k").unwrap();
    rig.cache.write_done(write);
    assert!(!rig.filled(token, b"+old\r\n"));

    // 1. write sent   2. fill sent, executed first   3. write answered   4. fill answered
    let write = rig.cache.write_sent(b"k").unwrap();
    let token = rig.cache.fill_token(rig.now, A, b"k", GET).unwrap().sent_on(rig.link);
    rig.cache.write_done(write);
    assert!(!rig.filled(token, b"+old\r\n"));
}

#[test]
fn a_key_is_pending_until_its_last_write_is_done() {
    let mut rig = Rig::new();
    let first = rig.cache.write_sent(b"k").unwrap();
    let second = rig.cache.write_sent(b"k").unwrap();
    rig.cache.write_done(second);
    assert!(matches!(rig.cache.lookup(rig.now, A, b"k", GET), Lookup::Bypass(_)));
    rig.cache.write_done(first);
    assert!(matches!(rig.cache.lookup(rig.now, A, b"k", GET), Lookup::Miss(_)));
}

#[test]
fn a_flush_ends_what_was_cached_before_it_and_while_it_was_under_way() {
    let mut rig = Rig::new();
    rig.store(GET, b"+v\r\n");
    let before = rig.miss(STRLEN);
    let write = rig.cache.write_sent_to_all();
    assert!(rig.cache.is_empty());
    assert!(!rig.filled(before, b":1\r\n"));
    // However long it takes, others are served meanwhile.
    rig.store(GET, b"+v\r\n");
    let meanwhile = rig.miss(STRLEN);
    rig.cache.write_done(write);
    assert!(rig.cache.is_empty());
    assert!(!rig.filled(meanwhile, b":1\r\n"));
    rig.store(GET, b"+v\r\n");
}

#[test]
fn a_registration_is_pending_until_what_was_sent_before_is_answered() {
    // 1. SET k 2 sent, k is not registered   2. k registered   3. fill sent and executed
    // 4. SET executed   5. fill stored: 1   6. SET answered   7. its client reads: 1!
    let mut rig = Rig::new();
    let Registered::New(settling) = rig.cache.register(b"l", KeySettings::default()) else {
        panic!();
    };
    let Lookup::Bypass(token) = rig.cache.lookup(rig.now, A, b"l", b"GET l") else { panic!() };
    let token = token.sent_on(rig.link);
    rig.cache.write_done(settling);
    assert!(!rig.filled(token, b":1\r\n"));
    assert!(matches!(rig.cache.lookup(rig.now, A, b"l", b"GET l"), Lookup::Miss(_)));
}

#[test]
fn fills_and_writes_do_not_outlive_their_registration() {
    // 1. fill and write sent   2. key deregistered   3. registered again   4. both answered
    let mut rig = Rig::new();
    let token = rig.miss(GET);
    let write = rig.cache.write_sent(b"k").unwrap();
    assert!(rig.cache.deregister(b"k").is_some());
    assert!(matches!(rig.cache.lookup(rig.now, A, b"k", GET), Lookup::NotRegistered));
    rig.register(b"k");
    let pending = rig.cache.write_sent(b"k").unwrap();
    rig.cache.write_done(write);
    assert!(rig.cache.is_pending(b"k"), "the old write is not the new one");
    rig.cache.write_done(pending);
    assert!(!rig.filled(token, b"+old\r\n"));
}

#[test]
fn a_flush_empties_everything_and_keeps_fills_out() {
    let mut rig = Rig::new();
    rig.store(GET, b"+v\r\n");
    let token = rig.miss(STRLEN);
    rig.cache.flushed();
    assert!(rig.cache.is_empty());
    assert!(!rig.filled(token, b":1\r\n"));
}

#[test]
fn a_lost_link_takes_its_entries_and_its_fills() {
    // 1. fill sent   2. link lost, reconnected   3. the reply that was read before is handled
    let mut rig = Rig::new();
    rig.store(GET, b"+v\r\n");
    let token = rig.miss(STRLEN);
    rig.cache.link_lost(rig.link);
    let old = rig.link;
    rig.link = rig.cache.link_opened(A.login);
    assert_eq!(rig.hit(GET), None);
    assert!(!rig.filled(token, b":1\r\n"));
    rig.store(GET, b"+v\r\n");
    rig.cache.link_lost(old); // late, and of no effect on the link that took its place
    assert!(rig.hit(GET).is_some());
    assert_eq!(rig.cache.counters(b"k").unwrap().evicted.link, 1);
}

#[test]
fn a_reply_is_stored_only_through_a_link_of_its_login() {
    let mut rig = Rig::new();
    let foreign = rig.cache.link_opened(B.login);
    let token = rig.miss(GET).sent_on(foreign);
    assert!(!rig.filled(token, b"+v\r\n"));
    let Lookup::Miss(without) = rig.cache.lookup(rig.now, A, b"k", GET) else { panic!() };
    assert!(!rig.filled(without, b"+v\r\n"));
}

#[test]
fn deadlines_count_from_the_sending_of_the_fill() {
    let second = at_ms(1000);
    for (ttl, last_ms) in [
        (Ttl::Unlimited, 60_000),
        (Ttl::Absent, 60_000),
        (Ttl::Remaining(second), 200),
        (Ttl::Remaining(second * 1000), 60_000),
    ] {
        let mut rig = Rig::new();
        let token = rig.miss(GET);
        assert!(rig.cache.filled(at_ms(50), token, b"+v\r\n", ttl));
        rig.now = at_ms(last_ms - 1);
        assert!(rig.hit(GET).is_some());
        rig.now = at_ms(last_ms);
        assert_eq!(rig.hit(GET), None);
        assert_eq!(rig.cache.counters(b"k").unwrap().evicted.deadline, 1);
    }
}

#[test]
fn a_reply_that_came_after_its_deadline_is_not_stored() {
    let mut rig = Rig::new();
    let token = rig.miss(GET);
    assert!(!rig.cache.filled(at_ms(20), token, b"+v\r\n", Ttl::Remaining(at_ms(100))));
    let token = rig.miss(GET);
    assert!(!rig.cache.filled(at_ms(0), token, b"+v\r\n", Ttl::Remaining(Duration::ZERO)));
}

#[test]
fn pttl_replies() {
    assert_eq!(Ttl::from_pttl(-2), Some(Ttl::Absent));
    assert_eq!(Ttl::from_pttl(-1), Some(Ttl::Unlimited));
    assert_eq!(Ttl::from_pttl(7), Some(Ttl::Remaining(at_ms(7))));
    assert_eq!(Ttl::from_pttl(-3), None);
}

#[test]
fn errors_are_not_stored_and_end_what_was() {
    let mut rig = Rig::new();
    rig.store(GET, b"+v\r\n");
    let refresh = rig.cache.fill_token(rig.now, A, b"k", GET).unwrap().sent_on(rig.link);
    assert!(!rig.filled(refresh, b"-NOPERM no\r\n"));
    assert_eq!(rig.hit(GET), None);
}

#[test]
fn an_entry_in_use_asks_for_one_refresh_ahead_of_its_deadline() {
    let mut rig = Rig::new();
    rig.store(GET, b"+1\r\n");
    let refresh_wanted = |rig: &mut Rig, ms| {
        rig.now = at_ms(ms);
        rig.cache.hit(rig.now, A, GET).expect("a hit").refresh
    };
    assert!(!refresh_wanted(&mut rig, 1000));
    assert!(!refresh_wanted(&mut rig, 47_999));
    assert!(refresh_wanted(&mut rig, 48_000));
    assert!(!refresh_wanted(&mut rig, 48_001), "one is out");
    let token = rig.cache.fill_token(rig.now, A, b"k", GET).unwrap().sent_on(rig.link);
    assert!(rig.filled(token, b"+2\r\n"));
    rig.now = at_ms(61_000);
    assert_eq!(rig.hit(GET).unwrap(), b"+2\r\n");
    assert_eq!(rig.cache.len(), 1);
    assert_eq!(rig.cache.counters(b"k").unwrap().refreshes, 1);
}

#[test]
fn an_entry_that_nobody_used_asks_for_none() {
    let mut rig = Rig::new();
    rig.store(GET, b"+1\r\n");
    assert!(!rig.cache.hit(at_ms(50_000), A, GET).unwrap().refresh);
    assert!(rig.cache.hit(at_ms(50_001), A, GET).unwrap().refresh, "now it is in use");
}

#[test]
fn limits_hold_and_what_is_used_stays() {
    let limits = Limits { entries: 4, ..Limits::default() };
    let mut rig = Rig::with(limits);
    rig.store(GET, b"+v\r\n");
    for number in 0..20 {
        assert!(rig.hit(GET).is_some(), "in use, so it stays: {number}");
        rig.store(format!("GETRANGE k 0 {number}").as_bytes(), b"+v\r\n");
        assert!(rig.cache.len() <= 4);
    }
    assert_eq!(rig.cache.counters(b"k").unwrap().evicted.capacity, 17);
    rig.cache.set_limits(Limits { entries: 1, ..limits });
    assert_eq!(rig.cache.len(), 1);
    rig.cache.set_limits(Limits { bytes: 0, ..limits });
    assert_eq!((rig.cache.len(), rig.cache.bytes()), (0, 0));
    let token = rig.miss(GET);
    assert!(!rig.filled(token, b"+v\r\n"));
}

#[test]
fn bytes_are_bounded_as_a_whole_and_by_entry() {
    let mut rig =
        Rig::with(Limits { bytes: 10_000, entry_bytes: 2000, keys: 1, ..Limits::default() });
    let token = rig.miss(GET);
    assert!(!rig.filled(token, &[b'+'; 2000]));
    for number in 0..50 {
        rig.store(format!("GETRANGE k 0 {number}").as_bytes(), &[b'+'; 1000]);
        assert!(rig.cache.bytes() <= 10_000);
    }
    assert!(rig.cache.len() >= 8);
    let long = [b'x'; 2000];
    assert!(matches!(rig.cache.lookup(rig.now, A, b"k", &long), Lookup::Bypass(_)));
    let more = rig.cache.register(b"more", KeySettings::default());
    assert!(matches!(more, Registered::Full));
}

#[test]
fn other_settings_empty_the_key() {
    let mut rig = Rig::new();
    rig.store(GET, b"+v\r\n");
    assert!(matches!(rig.cache.register(b"k", KeySettings::default()), Registered::Known));
    assert!(rig.hit(GET).is_some());
    let token = rig.miss(STRLEN);
    let shorter = KeySettings { max_ttl: at_ms(10), ..KeySettings::default() };
    assert!(matches!(rig.cache.register(b"k", shorter), Registered::Known));
    assert!(rig.cache.is_empty());
    assert!(!rig.filled(token, b":1\r\n"));
}

#[test]
fn counters_of_all_keys() {
    let mut rig = Rig::new();
    rig.register(b"l");
    rig.store(GET, b"+v\r\n");
    let mut stored: Vec<_> = rig.cache.keys().map(|(key, c)| (key.to_vec(), c.stored)).collect();
    stored.sort();
    assert_eq!(stored, [(b"k".to_vec(), 1), (b"l".to_vec(), 0)]);
}

#[test]
fn odd_settings_do_no_harm() {
    for (ttl_fraction, life) in [(-1.0, 0), (f64::NAN, 0), (7.0, 100), (f64::INFINITY, 100)] {
        let settings = KeySettings { ttl_fraction, ..KeySettings::default() };
        assert_eq!(settings.life(Ttl::Remaining(at_ms(100))), at_ms(life), "{ttl_fraction}");
    }
    let longest = Ttl::from_pttl(i64::MAX).unwrap();
    assert_eq!(KeySettings::default().life(longest), Duration::from_secs(60));
}
