//! Where input is cut, as a network would: the same way for the same input.

use fastrand::Rng;

/// A generator whose sequence depends on nothing but `data`.
pub(crate) fn rng_of(data: &[u8]) -> Rng {
    // FNV-1a: good enough to start a generator, and the same on every machine.
    let seed = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Rng::with_seed(seed)
}

/// The ends of pieces that together are `len` bytes long, ascending, the last one `len`.
/// Small pieces are likely, because headers are small; an empty input is one empty piece.
pub(crate) fn ends(len: usize, rng: &mut Rng) -> Vec<usize> {
    let longest = 1_usize << rng.u32(0..10);
    let mut ends = Vec::new();
    let mut at = 0;
    while at < len {
        at = (at + rng.usize(1..=longest)).min(len);
        ends.push(at);
    }
    if ends.is_empty() {
        ends.push(0);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_and_repeatable() {
        for len in 0..300 {
            let data = vec![b'x'; len];
            let cuts = ends(len, &mut rng_of(&data));
            assert_eq!(cuts.last(), Some(&len));
            assert!(cuts.is_sorted());
            assert_eq!(cuts, ends(len, &mut rng_of(&data)));
        }
    }
}
