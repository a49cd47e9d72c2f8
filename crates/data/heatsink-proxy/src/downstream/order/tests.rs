use std::collections::VecDeque;
use std::io::IoSlice;

use super::*;
use crate::cluster::forward::{Departing, NodeBatches, Text};
use crate::observe::Mark;
use crate::upstream::nodes::NodeId;

/// Takes `room` bytes, then none.
#[derive(Default)]
struct Narrow {
    room: usize,
    taken: Vec<u8>,
    /// Writes of several pieces.
    gathered: usize,
}

impl Write for Narrow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(!bytes.is_empty());
        if self.room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = bytes.len().min(self.room);
        self.room -= count;
        self.taken.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.gathered += 1;
        self.write(&slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a client would have been told by now.
fn told(order: &mut Order, output: &mut Outgoing, buffers: &mut BufferPool) -> Vec<u8> {
    order.advance(output, buffers);
    let mut bytes = Vec::new();
    output.flush(&mut bytes).expect("a vector takes everything");
    bytes
}

#[test]
fn one_way_needs_no_places() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let way = order.expect(Source(1), 2, buffers);
    assert_eq!(order.expect(Source(1), 1, buffers), way);
    order.arrived(way, &[1], b"a", &mut output);
    order.part(way, b"b", &mut output);
    order.arrived(way, &[1, 2], b"cd", &mut output);
    assert!(order.spread.is_none() && buffers.spreads.is_empty() && order.outstanding() == 0);
    assert_eq!(told(&mut order, &mut output, buffers), b"abcd");
}

/// 1. of a large reply, a part is told; behind it is one that came another way, and one of ours
/// 2. the rest of it will not come
/// 3. what is behind it would be taken for the rest
#[test]
fn nothing_is_told_behind_a_reply_that_was_cut() {
    // The part may have come before its turn, too.
    for is_early in [false, true] {
        let (mut order, mut output) = (Order::default(), Outgoing::default());
        let buffers = &mut BufferPool::default();
        let first = order.expect(Source(1), 1, buffers);
        let large = order.expect(Source(2), 2, buffers);
        let behind = order.expect(Source(3), 3, buffers);
        let place = order.reserve(buffers);
        order.arrived(behind, &[6], b"behind", &mut output);
        if is_early {
            order.part(large, b"lar", &mut output);
        }
        order.arrived(first, &[5], b"first", &mut output);
        let mut seen = told(&mut order, &mut output, buffers);
        if !is_early {
            order.part(large, b"lar", &mut output);
            seen.extend(told(&mut order, &mut output, buffers));
        }
        order.local(b"ours", &mut output, buffers);
        assert!(order.cut(large, buffers) && order.is_cut());
        // What comes behind it is accounted for, but not told.
        order.arrived(large, &[5], b"error", &mut output);
        order.arrived(behind, &[6], b"behind", &mut output);
        order.part(behind, b"beh", &mut output);
        order.arrived(behind, &[3], b"ind", &mut output);
        order.fill(place, b"filled");
        let mut to = Narrow { room: usize::MAX, ..Narrow::default() };
        order.write(Some(&mut to), &mut output, buffers).unwrap();
        assert!(to.taken.is_empty() && output.is_empty());
        assert_eq!((seen, order.outstanding()), (b"firstlar".to_vec(), 0), "{is_early}");
    }
}

/// What is there of a reply that has not had its turn was told to nobody.
#[test]
fn a_part_that_was_not_told_makes_room_for_another_reply() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let first = order.expect(Source(1), 1, buffers);
    let large = order.expect(Source(2), 3, buffers);
    let behind = order.expect(Source(3), 1, buffers);
    order.arrived(large, &[1], b"2", &mut output);
    order.part(large, b"lar", &mut output);
    order.part(large, b"ge", &mut output);
    order.arrived(behind, &[1], b"5", &mut output);
    assert!(!order.cut(large, buffers) && !order.is_cut());
    assert_eq!((order.held_bytes(), order.outstanding()), (2, 3));
    // One is answered elsewhere.
    let place = order.hole(large, buffers);
    order.arrived(large, &[1], b"4", &mut output);
    order.fill(place, b"3");
    order.arrived(first, &[1], b"1", &mut output);
    assert_eq!(told(&mut order, &mut output, buffers), b"12345");
    assert_eq!((order.held_bytes(), order.outstanding()), (0, 0));
}

/// The same where everything comes one way, and the part was told at once.
#[test]
fn a_reply_that_was_cut_is_the_last_of_one_way_too() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let way = order.expect(Source(1), 2, buffers);
    order.part(way, b"lar", &mut output);
    assert!(order.cut(way, buffers));
    order.arrived(way, &[5], b"error", &mut output);
    order.local(b"ours", &mut output, buffers);
    assert_eq!(told(&mut order, &mut output, buffers), b"lar");
    assert!(order.is_cut() && order.outstanding() == 0);
}

#[test]
fn a_reply_that_comes_early_waits() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let first = order.expect(Source(1), 1, buffers);
    let second = order.expect(Source(2), 1, buffers);
    order.local(b"c", &mut output, buffers);
    order.arrived(second, &[1], b"b", &mut output);
    assert_eq!((order.held_bytes(), told(&mut order, &mut output, buffers)), (2, Vec::new()));
    order.arrived(first, &[1], b"a", &mut output);
    assert_eq!((told(&mut order, &mut output, buffers), order.held_bytes()), (b"abc".to_vec(), 0));
    assert!(order.spread.is_none() && order.outstanding() == 0);
}

#[test]
fn one_delivery_is_dealt_out_to_many_places() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let ways = [1, 2, 2, 1, 1, 2].map(|source| order.expect(Source(source), 1, buffers));
    assert_eq!(ways, [1, 2, 2, 1, 1, 2]);
    order.arrived(2, &[2, 3], b"bbc", &mut output);
    assert_eq!(told(&mut order, &mut output, buffers), b"");
    order.arrived(1, &[1, 3, 4], b"addE", &mut output);
    assert_eq!(told(&mut order, &mut output, buffers), b"abbcddE");
    order.arrived(2, &[1], b"f", &mut output);
    assert_eq!(told(&mut order, &mut output, buffers), b"f");
}

#[test]
fn a_hole_holds_what_is_behind_it_back() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let way = order.expect(Source(1), 3, buffers);
    order.arrived(way, &[1], b"a", &mut output);
    let hole = order.hole(way, buffers);
    order.arrived(way, &[1], b"c", &mut output);
    assert_eq!((told(&mut order, &mut output, buffers), order.outstanding()), (b"a".to_vec(), 1));
    order.fill(hole, b"b");
    assert_eq!((told(&mut order, &mut output, buffers), order.outstanding()), (b"bc".to_vec(), 0));
}

#[test]
fn the_places_of_what_is_still_to_come_are_known() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let one = order.expect(Source(1), 2, buffers);
    let other = order.expect(Source(2), 2, buffers);
    assert_eq!(order.expect(Source(1), 1, buffers), one);
    // It has come, and has not its turn.
    order.arrived(other, &[1], b"c", &mut output);
    let hole = order.hole(one, buffers);
    let places = |order: &Order, way| {
        order.places_of(way).map(|place| place.wrapping_sub(hole)).collect::<Vec<_>>()
    };
    assert_eq!((places(&order, one), places(&order, other)), (vec![1, 4], vec![3]));
    assert!(order.is_next(hole) && !order.is_next(hole.wrapping_add(1)));
    order.fill(hole, b"a");
    assert_eq!(told(&mut order, &mut output, buffers), b"a");
    assert!(!order.is_next(hole) && order.is_next(hole.wrapping_add(1)));
    assert_eq!((places(&order, one), places(&order, other)), (vec![1, 4], vec![3]));
}

#[test]
fn answers_that_wait_for_one_thing_each_do_not_mix() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let first = order.reserve(buffers);
    let second = order.reserve(buffers);
    assert_ne!(first, second);
    order.fill(second, b"");
    order.local(b"b", &mut output, buffers);
    // Once is enough.
    order.fill(second, b"x");
    order.fill(first, b"a");
    assert_eq!((told(&mut order, &mut output, buffers), order.outstanding()), (b"ab".to_vec(), 0));
}

/// 1. a request is answered, and nothing is outstanding any more
/// 2. the next request is sent; its place is among new ones
/// 3. the first is answered again, late: that must not be taken for the answer to the next
#[test]
fn a_second_answer_is_not_given_to_a_later_request() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let place = order.reserve(buffers);
    order.fill(place, b"a");
    assert_eq!(told(&mut order, &mut output, buffers), b"a");
    // Those that were used before have gone to another client.
    buffers.spreads.clear();
    let later = order.reserve(buffers);
    order.fill(place, b"again");
    assert!(told(&mut order, &mut output, buffers).is_empty());
    order.fill(later, b"b");
    assert_eq!((told(&mut order, &mut output, buffers), order.outstanding()), (b"b".to_vec(), 0));
}

#[test]
fn a_way_that_is_no_longer_used_becomes_another() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let mut first = order.reserve(buffers);
    for source in 1..1000 {
        let way = order.expect(Source(source), 1, buffers);
        assert!((way as usize) < Source::HINTS);
        order.arrived(way, &[1], b".", &mut output);
        let next = order.reserve(buffers);
        order.fill(first, b"");
        order.advance(&mut output, buffers);
        first = next;
    }
    order.fill(first, b"");
    assert_eq!(told(&mut order, &mut output, buffers), b".".repeat(999));
}

/// A client that never stops asking never has nothing held.
#[test]
fn what_was_told_takes_no_room_for_long() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let mut ways = VecDeque::new();
    for round in 0..10_000_u64 {
        ways.push_back(order.expect(Source(round % 2), 1, buffers));
        if round > 100 {
            // The odd ones first.
            let late = ways.remove(1).unwrap();
            order.arrived(late, &[100], &[b'x'; 100], &mut output);
            let early = ways.pop_front().unwrap();
            order.arrived(early, &[1], b"y", &mut output);
            ways.push_back(order.expect(Source(round % 2 + 2), 1, buffers));
        }
        told(&mut order, &mut output, buffers);
        let spread = order.spread.as_ref();
        assert!(spread.is_none_or(|spread| spread.buffer_bytes() < 64 << 10), "round {round}");
    }
}

/// Random requests over three ways, some redirected, some answered here, some large, in random
/// interleavings: what comes out is what was asked for, in order.
#[test]
fn every_interleaving_comes_out_in_order() {
    let mut gathered = 0;
    for seed in 0..2000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut order, mut output) = (Order::default(), Outgoing::default());
        let buffers = &mut BufferPool::default();
        let mut ways: [VecDeque<(u32, Vec<u8>)>; 3] = Default::default();
        let mut holes: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut expected = Vec::new();
        let mut to = Narrow::default();
        let mut node_batches = NodeBatches::default();
        let scale = [1, 20][seed as usize % 2];
        for asked in 0..60_u32 {
            let reply = match random.u8(..40) {
                0 => asked.to_le_bytes().repeat(5000),
                1 => Vec::new(),
                count => asked.to_le_bytes().repeat(usize::from(count) * scale),
            };
            match random.u8(..9) {
                0..=1 => {
                    let way = random.usize(..3);
                    expected.extend_from_slice(&reply);
                    let number = order.expect(Source(way as u64), 1, buffers);
                    ways[way].push_back((number, reply));
                }
                2 => {
                    let batch: Vec<_> = (0..random.u8(1..8)).map(|_| random.u16(..3)).collect();
                    for (node, number) in
                        expect_batch(&mut order, buffers, &mut node_batches, &batch)
                    {
                        expected.extend_from_slice(&reply);
                        ways[usize::from(node)].push_back((number, reply.clone()));
                    }
                }
                3 => {
                    expected.extend_from_slice(&reply);
                    order.local(&reply, &mut output, buffers);
                }
                4 => {
                    expected.extend_from_slice(&reply);
                    holes.push((order.reserve(buffers), reply));
                }
                5 => {
                    if let Some((way, reply)) = ways[random.usize(..3)].pop_front() {
                        holes.push((order.hole(way, buffers), reply));
                    }
                }
                6 => {
                    to.room = if random.bool() { usize::MAX } else { random.usize(..20_000) };
                    order.write(Some(&mut to), &mut output, buffers).unwrap();
                    output.flush(&mut to).unwrap();
                }
                7 if !holes.is_empty() => {
                    let (hole, reply) = holes.swap_remove(random.usize(..holes.len()));
                    order.fill(hole, &reply);
                }
                _ => {
                    let replies = &mut ways[random.usize(..3)];
                    let count = random.usize(..=replies.len().min(4));
                    arrive(&mut order, replies.drain(..count), &mut output, &mut random);
                }
            }
        }
        for (hole, reply) in holes {
            order.fill(hole, &reply);
        }
        for replies in ways {
            arrive(&mut order, replies.into_iter(), &mut output, &mut random);
        }
        to.room = usize::MAX;
        order.write(Some(&mut to), &mut output, buffers).unwrap();
        output.flush(&mut to).unwrap();
        assert!(to.taken == expected, "seed {seed}");
        gathered += to.gathered;
        assert_eq!((order.outstanding(), order.held_bytes()), (0, 0), "seed {seed}");
        assert!(order.spread.is_none(), "seed {seed}");
    }
    assert!(gathered > 100, "{gathered}");
}

/// Requests of one batch, to these nodes; what is expected from each, in their order.
fn expect_batch(
    order: &mut Order,
    buffers: &mut BufferPool,
    node_batches: &mut NodeBatches,
    nodes: &[u16],
) -> Vec<(u16, u32)> {
    for (at, node) in nodes.iter().enumerate() {
        // Some are among what the client sent, some among what got another name.
        let text = if at % 3 == 1 { Text::Renamed(at..at + 1) } else { Text::Asked(at..at + 1) };
        node_batches.push(NodeId(*node), text);
    }
    assert!(node_batches.in_order().map(|(_, node)| node.0).eq(nodes.iter().copied()));
    assert!(node_batches.find_links(|node| Some((node.index() + 100, Source(u64::from(node.0))))));
    node_batches.expect(order, buffers);
    let marks = vec![Mark::Nothing; nodes.len()];
    let (asked, renamed) = (vec![b'a'; nodes.len()], vec![b'r'; nodes.len()]);
    let mut expected = vec![None; nodes.len()];
    for Departing { link, way, requests } in node_batches.departing(&asked, &renamed, &marks) {
        let mut before = None;
        for (from, bytes, _) in requests {
            let expected_from = if bytes.start % 3 == 1 { &renamed } else { &asked };
            assert_eq!(from, expected_from);
            assert_eq!(usize::from(nodes[bytes.start]) + 100, link);
            assert!(before.replace(bytes.start) < Some(bytes.start), "in the client's order");
            assert_eq!(expected[bytes.start].replace((nodes[bytes.start], way)), None);
        }
    }
    node_batches.clear();
    assert!(node_batches.is_empty());
    expected.into_iter().map(|place| place.expect("each goes somewhere")).collect()
}

/// All replies have come, and what is said next is said behind them.
#[test]
fn an_answer_of_our_own_stays_behind_what_was_not_passed_on() {
    let (mut order, mut output) = (Order::default(), Outgoing::default());
    let buffers = &mut BufferPool::default();
    let ways = [1, 2].map(|source| order.expect(Source(source), 1, buffers));
    order.arrived(ways[1], &[1], b"b", &mut output);
    order.arrived(ways[0], &[1], b"a", &mut output);
    assert_eq!((order.outstanding(), order.held_bytes()), (0, 2));
    order.local(b"c", &mut output, buffers);
    assert_eq!(order.expect(Source(1), 1, buffers), ways[0]);
    order.arrived(ways[0], &[1], b"d", &mut output);
    assert_eq!(told(&mut order, &mut output, buffers), b"abcd");
    assert!(order.spread.is_none());
}

/// Replies of one way, together, the first of them sometimes in pieces.
fn arrive(
    order: &mut Order,
    replies: impl Iterator<Item = (u32, Vec<u8>)>,
    output: &mut Outgoing,
    random: &mut fastrand::Rng,
) {
    let (mut bytes, mut ends, mut way) = (Vec::new(), Vec::new(), None);
    for (number, reply) in replies {
        assert_eq!(*way.get_or_insert(number), number);
        let mut rest = &reply[..];
        while ends.is_empty() && random.bool() {
            let (piece, behind) = rest.split_at(random.usize(..=rest.len()));
            order.part(number, piece, output);
            rest = behind;
        }
        bytes.extend_from_slice(rest);
        ends.push(bytes.len());
    }
    if let Some(way) = way {
        order.arrived(way, &ends, &bytes, output);
    }
}
