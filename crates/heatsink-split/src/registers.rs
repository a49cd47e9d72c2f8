//! Which registers of a `HyperLogLog` a shard has: an even share of neighbours.

use std::ops::Range;

use heatsink_resp::hyperloglog::{REGISTERS, register_of};

/// The shard of an element's register.
pub(crate) fn shard_of(element: &[u8], shards: usize) -> usize {
    register_of(element) * shards / REGISTERS
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
            assert_eq!(of_shard(shards - 1, shards).end, REGISTERS);
            for at in 0..500 {
                let element = format!("{at}").into_bytes();
                let shard = shard_of(&element, shards);
                assert!(of_shard(shard, shards).contains(&register_of(&element)), "{shards}");
            }
        }
    }
}
