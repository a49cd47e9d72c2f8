//! Which registers of a `HyperLogLog` a shard has: an even share of neighbours.

use std::ops::Range;

use heatsink_resp::hyperloglog::{REGISTERS, register_of};

/// The shard of an element's register.
pub(crate) fn shard_of(element: &[u8], shards: usize) -> usize {
    of_register(register_of(element), shards)
}

fn of_register(register: usize, shards: usize) -> usize {
    register * shards / REGISTERS
}

/// The registers of a shard.
pub(crate) fn of_shard(shard: usize, shards: usize) -> Range<usize> {
    let first = |shard: usize| (shard * REGISTERS).div_ceil(shards);
    first(shard)..first(shard + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_register_is_in_the_shard_of_its_elements() {
        for shards in [1, 2, 3, 7, 8, 64, 1000] {
            assert_eq!(
                (of_shard(0, shards).start, of_shard(shards - 1, shards).end),
                (0, REGISTERS)
            );
            for register in 0..REGISTERS {
                let shard = of_register(register, shards);
                assert!(of_shard(shard, shards).contains(&register), "{shards} {register}");
            }
        }
    }
}
