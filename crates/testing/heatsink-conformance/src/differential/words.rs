//! The random words that commands are made of.
//!
//! Called by: `commands`, for every argument.
//! Bound: a pool of keys per type, so that commands meet each other's data; values up to
//! `LONG_VALUE_BYTES`.
//! Invariant: everything comes from one seeded generator, in call order.

use fastrand::Rng;
use heatsink_testkit::key_slot;

use super::Keys;

const LONG_VALUE_BYTES: usize = 3000;
const POOL_KEYS: u64 = 5;
/// How often, of 100, a command gets a key of another type.
const STRAY_PERCENT: u64 = 6;

/// What a key usually holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    Text,
    Bits,
    Hash,
    List,
    Set,
    Zset,
    Stream,
    Geo,
    Hll,
    Number,
}

const POOLS: [Pool; 10] = [
    Pool::Text,
    Pool::Bits,
    Pool::Hash,
    Pool::List,
    Pool::Set,
    Pool::Zset,
    Pool::Stream,
    Pool::Geo,
    Pool::Hll,
    Pool::Number,
];

/// Random words, and the last payload that `DUMP` gave.
pub(super) struct Words {
    rng: Rng,
    keys: Keys,
    /// What follows every key: a hash tag if all are to be in one slot.
    tag: String,
    /// The slots of the keys handed out for the command that is being made.
    slots: Vec<u16>,
    pub(super) dumped: Option<Vec<u8>>,
}

impl Words {
    pub(super) fn new(seed: u64, keys: Keys) -> Self {
        let tag = if keys == Keys::Tagged { format!("{{{seed}}}") } else { String::new() };
        Self { rng: Rng::with_seed(seed), keys, tag, slots: Vec::new(), dumped: None }
    }

    /// Whether the keys are on the nodes of a cluster.
    pub(super) fn clustered(&self) -> bool {
        self.keys != Keys::Free
    }

    /// Whether keys of one command may be in several slots, so that it must be one that can
    /// be split.
    pub(super) fn spread(&self) -> bool {
        self.keys == Keys::Spread
    }

    /// How many slots the keys handed out since the last call are in.
    pub(super) fn take_slot_count(&mut self) -> usize {
        self.slots.sort_unstable();
        self.slots.dedup();
        self.slots.drain(..).count()
    }

    /// A key as it is called in this run.
    pub(super) fn named(&mut self, name: &[u8]) -> Vec<u8> {
        let key = [name, self.tag.as_bytes()].concat();
        if self.clustered() {
            self.slots.push(key_slot(&key));
        }
        key
    }

    /// A number of keys that is one, or none at all; where there is no cluster, several too.
    pub(super) fn key_count(&mut self) -> String {
        let count = self.integer();
        if self.clustered() && ["2", "3"].contains(&count.as_str()) {
            "1".to_owned()
        } else {
            count
        }
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.rng.u64(..bound)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A key that usually holds what `pool` says.
    pub(super) fn key(&mut self, pool: Pool) -> Vec<u8> {
        let pool = if self.chance(STRAY_PERCENT) { self.pick(&POOLS) } else { pool };
        let number = self.below(POOL_KEYS);
        let name = match number {
            // One key of each pool is binary, one is empty of meaning to text tools.
            0 => [&[0, 0xff, b'\r', b'\n', b'$'], format!("{pool:?}").as_bytes()].concat(),
            _ => format!("{pool:?}:{number}").to_lowercase().into_bytes(),
        };
        self.named(&name)
    }

    /// Every key of a run.
    pub(super) fn all_keys(&self) -> Vec<Vec<u8>> {
        let mut names = vec![Vec::new()];
        for pool in POOLS {
            names.push([&[0, 0xff, b'\r', b'\n', b'$'], format!("{pool:?}").as_bytes()].concat());
            for number in 1..POOL_KEYS {
                names.push(format!("{pool:?}:{number}").to_lowercase().into_bytes());
            }
        }
        names.extend((0..POOL_KEYS).map(|number| format!("lex:{number}").into_bytes()));
        names.iter().map(|name| [name, self.tag.as_bytes()].concat()).collect()
    }

    pub(super) fn any_key(&mut self) -> Vec<u8> {
        if self.chance(2) {
            return self.named(b"");
        }
        let pool = self.pick(&POOLS);
        self.key(pool)
    }

    /// One to `most` keys.
    pub(super) fn keys(&mut self, pool: Pool, most: u64) -> Vec<Vec<u8>> {
        (0..=self.below(most)).map(|_| self.key(pool)).collect()
    }

    /// Any bytes: numbers, text, nothing, protocol-like text, binary, long.
    pub(super) fn value(&mut self) -> Vec<u8> {
        match self.below(12) {
            0 => Vec::new(),
            1..=3 => self.integer().into_bytes(),
            4 => self.float().into_bytes(),
            5 => b"+OK\r\n$-1\r\n*1\r\n".to_vec(),
            6 => (0..self.below(40)).map(|_| self.rng.u8(..)).collect(),
            7 => vec![self.rng.u8(..); self.below(LONG_VALUE_BYTES as u64) as usize],
            _ => self.member(),
        }
    }

    /// A short word out of few, for members and fields that meet again.
    pub(super) fn member(&mut self) -> Vec<u8> {
        match self.below(10) {
            0 => vec![0x80, self.rng.u8(..4)],
            1..=4 => self.below(20).to_string().into_bytes(),
            _ => format!("m{}", self.below(20)).into_bytes(),
        }
    }

    pub(super) fn members(&mut self, most: u64) -> Vec<Vec<u8>> {
        (0..=self.below(most)).map(|_| self.member()).collect()
    }

    /// An integer, now and then at the edge of the range or none at all.
    pub(super) fn integer(&mut self) -> String {
        match self.below(30) {
            0 => i64::MAX.to_string(),
            1 => i64::MIN.to_string(),
            2 => "nan".to_owned(),
            3 => "1x".to_owned(),
            4 => "99999999999999999999".to_owned(),
            _ => self.small().to_string(),
        }
    }

    /// An integer from -20 to 99.
    pub(super) fn small(&mut self) -> i64 {
        self.below(120) as i64 - 20
    }

    /// A float with few digits, an infinity, or none at all.
    pub(super) fn float(&mut self) -> String {
        match self.below(20) {
            0 => "+inf".to_owned(),
            1 => "-inf".to_owned(),
            2 => "1e400".to_owned(),
            3 => "abc".to_owned(),
            _ => format!("{}.{}", self.small(), self.pick(&["0", "5", "25", "125"])),
        }
    }

    /// A bound of a score range.
    pub(super) fn score_bound(&mut self) -> String {
        match self.below(6) {
            0 => "-inf".to_owned(),
            1 => "+inf".to_owned(),
            2 => format!("({}", self.small()),
            _ => self.float(),
        }
    }

    /// A sorted set whose members all have the same score. Of others a server does not say
    /// what a lexicographical range holds, and it depends on chance.
    pub(super) fn lex_key(&mut self) -> Vec<u8> {
        let number = self.below(POOL_KEYS);
        self.named(format!("lex:{number}").as_bytes())
    }

    /// A bound of a lexicographical range.
    pub(super) fn lex_bound(&mut self) -> Vec<u8> {
        match self.below(5) {
            0 => b"-".to_vec(),
            1 => b"+".to_vec(),
            2 => self.member(),
            3 => [b"(", self.member().as_slice()].concat(),
            _ => [b"[", self.member().as_slice()].concat(),
        }
    }

    /// A stream id, rising with `clock` more often than not.
    pub(super) fn stream_id(&mut self) -> String {
        match self.below(12) {
            0 => "0-0".to_owned(),
            1 => "x".to_owned(),
            2 => format!("{}-*", self.below(2000)),
            3 => self.below(2000).to_string(),
            _ => format!("{}-{}", self.below(2000), self.below(5)),
        }
    }

    /// A moment so far off that no run sees it pass, in seconds since 1970.
    pub(super) fn far_second(&mut self) -> u64 {
        4_102_444_800 + self.below(1000)
    }
}
