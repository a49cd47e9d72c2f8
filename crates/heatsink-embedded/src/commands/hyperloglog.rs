//! `HyperLogLog`: how many distinct elements, in 12 KiB, with a standard error of 0.81 %.
//!
//! Called by: `table`.
//! Bound: 16384 registers of six bits per key, always stored densely.
//! Invariant: the value is a string, as in Redis: a header and the packed registers. A merge
//! takes the maximum of each register, so counters may be merged in any order.

use crate::args::Args;
use crate::db::Db;
use crate::failure::{Failure, Outcome};
use crate::reply::Reply;
use crate::value::{Bytes, Value};

/// Bits of the hash that choose the register.
const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
const REGISTER_BITS: usize = 6;
/// Bits of the hash that are left to count zeros in.
const RANK_BITS: u32 = 64 - INDEX_BITS;
const HEADER: &[u8; 16] = b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80";
const DENSE_BYTES: usize = HEADER.len() + REGISTERS * REGISTER_BITS / 8;
const HASH_SEED: u64 = 0xadc8_3b19;

/// Registers unpacked, one byte each.
struct Registers(Vec<u8>);

impl Registers {
    fn new() -> Self {
        Self(vec![0; REGISTERS])
    }

    fn unpack(stored: &[u8]) -> Result<Self, Failure> {
        const INVALID: Failure =
            Failure::of("WRONGTYPE Key is not a valid HyperLogLog string value.");
        if stored.len() != DENSE_BYTES || !stored.starts_with(&HEADER[..5]) {
            return Err(INVALID);
        }
        let mut registers = Vec::with_capacity(REGISTERS);
        for packed in stored[HEADER.len()..].chunks_exact(3) {
            let word = u32::from_le_bytes([packed[0], packed[1], packed[2], 0]);
            registers.extend((0..4).map(|at| (word >> (at * REGISTER_BITS) & 0x3f) as u8));
        }
        Ok(Self(registers))
    }

    fn pack(&self) -> Bytes {
        let mut stored = Vec::with_capacity(DENSE_BYTES);
        stored.extend_from_slice(HEADER);
        for four in self.0.chunks_exact(4) {
            let word = four
                .iter()
                .rev()
                .fold(0_u32, |word, register| word << REGISTER_BITS | u32::from(*register));
            stored.extend_from_slice(&word.to_le_bytes()[..3]);
        }
        stored
    }

    /// Notes an element; whether that changed a register.
    fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur64(element, HASH_SEED);
        let register = &mut self.0[hash as usize % REGISTERS];
        // The marker bit bounds the rank where all other bits are zero.
        let rank = ((hash >> INDEX_BITS) | 1 << RANK_BITS).trailing_zeros() as u8 + 1;
        let raised = rank > *register;
        *register = rank.max(*register);
        raised
    }

    fn merge(&mut self, other: &Self) {
        for (register, other) in self.0.iter_mut().zip(&other.0) {
            *register = (*register).max(*other);
        }
    }

    /// Otmar Ertl's estimator (arXiv:1702.01284): unbiased over the whole range, without tables.
    fn estimate(&self) -> u64 {
        let mut histogram = [0_u32; 64];
        for register in &self.0 {
            histogram[usize::from(*register)] += 1;
        }
        let registers = REGISTERS as f64;
        let top = f64::from(histogram[RANK_BITS as usize + 1]);
        let mut sum = registers * tau((registers - top) / registers);
        for count in histogram[1..=RANK_BITS as usize].iter().rev() {
            sum = 0.5 * (sum + f64::from(*count));
        }
        sum += registers * sigma(f64::from(histogram[0]) / registers);
        let alpha_infinity = 0.5 / std::f64::consts::LN_2;
        (alpha_infinity * registers * registers / sum).round() as u64
    }
}

/// The correction for registers that are still zero.
fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * power;
        power += power;
        if sum <= before {
            return sum;
        }
    }
}

/// The correction for registers that are full.
fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut power, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        power *= 0.5;
        sum -= (1.0 - x).powi(2) * power;
        if sum >= before {
            return sum / 3.0;
        }
    }
}

/// The 64-bit Murmur 2 hash, which Redis uses here: counts agree with a real server's.
fn murmur64(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let mut mixed = [0; 8];
        mixed.copy_from_slice(word);
        let mut mixed = u64::from_le_bytes(mixed).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> SHIFT;
        hash = (hash ^ mixed.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
        hash = (hash ^ rest).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}

fn load(db: &mut Db, key: &[u8]) -> Result<Option<Registers>, Failure> {
    db.read::<Bytes>(key)?.map(|stored| Registers::unpack(stored)).transpose()
}

fn save(db: &mut Db, key: &[u8], registers: &Registers) -> Outcome {
    *db.upsert::<Bytes>(key)? = registers.pack();
    db.changed(key);
    Ok(())
}

pub(crate) fn pfadd(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let found = load(db, args[1])?;
    let mut changed = found.is_none();
    let mut registers = found.unwrap_or_else(Registers::new);
    for element in &args[2..] {
        changed |= registers.add(element);
    }
    if changed {
        save(db, args[1], &registers)?;
    }
    reply.flag(changed);
    Ok(())
}

pub(crate) fn pfcount(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let mut merged = Registers::new();
    for key in &args[1..] {
        if let Some(registers) = load(db, key)? {
            merged.merge(&registers);
        }
    }
    reply.int(merged.estimate() as i64);
    Ok(())
}

pub(crate) fn pfmerge(db: &mut Db, args: Args<'_>, reply: &mut Reply) -> Outcome {
    let mut merged = Registers::new();
    for key in &args[1..] {
        if let Some(registers) = load(db, key)? {
            merged.merge(&registers);
        }
    }
    if db.contains(args[1]) {
        save(db, args[1], &merged)?;
    } else {
        db.store(args[1], Value::String(merged.pack()));
    }
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_stay_within_three_standard_errors() {
        let mut registers = Registers::new();
        let mut count = 0_u32;
        for limit in [1, 10, 100, 1000, 10_000, 100_000, 300_000] {
            while count < limit {
                registers.add(format!("element:{count}").as_bytes());
                count += 1;
            }
            let error = (registers.estimate() as f64 - f64::from(limit)).abs() / f64::from(limit);
            assert!(error < 0.0244, "{limit}: {error}");
        }
    }

    #[test]
    fn packing_keeps_every_register() {
        let registers = Registers((0..REGISTERS).map(|at| (at % 51) as u8).collect());
        let unpacked = Registers::unpack(&registers.pack()).expect("a packed counter");
        assert_eq!(unpacked.0, registers.0);
    }

    #[test]
    fn a_merge_counts_common_elements_once() {
        let (mut a, mut b) = (Registers::new(), Registers::new());
        for at in 0..2000 {
            a.add(format!("{at}").as_bytes());
            b.add(format!("{}", at + 1000).as_bytes());
        }
        a.merge(&b);
        assert!((2920..3080).contains(&a.estimate()), "{}", a.estimate());
    }
}
