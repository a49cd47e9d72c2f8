use std::collections::VecDeque;

use super::*;

fn sent(output: &mut Outgoing) -> Vec<u8> {
    let mut bytes = Vec::new();
    output.flush(&mut bytes).expect("a vector takes everything");
    bytes
}

#[test]
fn one_way_needs_no_segments() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let pool = &mut BufferPool::default();
    let seq = order.expect(Source(1), 2);
    assert_eq!(order.expect(Source(1), 1), seq);
    order.arrived(seq, 1, b"a", &mut output, pool);
    order.part(seq, b"b", &mut output, pool);
    order.arrived(seq, 2, b"cd", &mut output, pool);
    assert!(order.segments.capacity() == 0 && order.outstanding() == 0);
    assert_eq!(sent(&mut output), b"abcd");
}

#[test]
fn a_reply_that_comes_early_waits() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let pool = &mut BufferPool::default();
    let first = order.expect(Source(1), 1);
    let second = order.expect(Source(2), 1);
    order.local(b"c", &mut output, pool);
    order.arrived(second, 1, b"b", &mut output, pool);
    assert_eq!((order.held_bytes(), sent(&mut output)), (2, Vec::new()));
    order.arrived(first, 1, b"a", &mut output, pool);
    assert_eq!((order.held_bytes(), sent(&mut output)), (0, b"abc".to_vec()));
    assert_eq!(order.outstanding(), 0);
}

#[test]
fn a_hole_holds_what_is_behind_it_back() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let pool = &mut BufferPool::default();
    let seq = order.expect(Source(1), 3);
    order.arrived(seq, 1, b"a", &mut output, pool);
    let hole = order.hole(seq);
    order.arrived(seq, 1, b"c", &mut output, pool);
    assert_eq!((sent(&mut output), order.outstanding()), (b"a".to_vec(), 1));
    order.fill(seq, hole, b"b", &mut output, pool);
    assert_eq!((sent(&mut output), order.outstanding()), (b"bc".to_vec(), 0));
}

#[test]
fn answers_that_wait_for_one_thing_each_do_not_mix() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let pool = &mut BufferPool::default();
    let first = order.expect(Source::ONCE, 1);
    let second = order.expect(Source::ONCE, 1);
    assert_ne!(first, second);
    order.arrived(second, 1, b"b", &mut output, pool);
    order.arrived(first, 1, b"a", &mut output, pool);
    assert_eq!(sent(&mut output), b"ab");
}

/// Random requests over three ways, some redirected, some answered here, in random
/// interleavings: what comes out is what was asked for, in order.
#[test]
fn every_interleaving_comes_out_in_order() {
    for seed in 0..2000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut order, mut output) = (Order::default(), Outgoing::default());
        let pool = &mut BufferPool::default();
        let mut ways: [VecDeque<(u32, u32)>; 3] = Default::default();
        let mut holes: Vec<(u32, u32, u32)> = Vec::new();
        let (mut asked, mut local) = (0_u32, 0);
        let mut expected = Vec::new();
        for _ in 0..60 {
            match random.u8(..6) {
                0..=1 => {
                    let way = random.usize(..3);
                    let seq = order.expect(Source(way as u64), 1);
                    ways[way].push_back((seq, asked));
                    expected.extend_from_slice(&asked.to_le_bytes());
                    asked += 1;
                }
                2 => {
                    order.local(&asked.to_le_bytes(), &mut output, pool);
                    expected.extend_from_slice(&asked.to_le_bytes());
                    asked += 1;
                    local += 1;
                }
                3 => {
                    if let Some((seq, id)) = ways[random.usize(..3)].pop_front() {
                        holes.push((seq, order.hole(seq), id));
                    }
                }
                4 if !holes.is_empty() => {
                    let (seq, hole, id) = holes.swap_remove(random.usize(..holes.len()));
                    order.fill(seq, hole, &id.to_le_bytes(), &mut output, pool);
                }
                _ => {
                    if let Some((seq, id)) = ways[random.usize(..3)].pop_front() {
                        let bytes = id.to_le_bytes();
                        order.part(seq, &bytes[..2], &mut output, pool);
                        order.arrived(seq, 1, &bytes[2..], &mut output, pool);
                    }
                }
            }
        }
        for (seq, hole, id) in holes {
            order.fill(seq, hole, &id.to_le_bytes(), &mut output, pool);
        }
        for (seq, id) in ways.into_iter().flatten() {
            order.arrived(seq, 1, &id.to_le_bytes(), &mut output, pool);
        }
        assert!(sent(&mut output) == expected, "seed {seed}");
        assert_eq!((order.outstanding(), order.held_bytes()), (0, 0), "seed {seed}");
        assert!(order.segments.is_empty() && local <= asked, "seed {seed}");
    }
}
