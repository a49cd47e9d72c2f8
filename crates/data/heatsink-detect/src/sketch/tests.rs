//! The sketch against an exact map, and its edges.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{Shape, Sketch};
use crate::key::KeyHasher;

fn hash(key: u16) -> u64 {
    KeyHasher::with_seed(7).key(&key.to_le_bytes()).hash()
}

proptest! {
    #[test]
    fn an_estimate_is_never_too_low(
        depth in 1_usize..=8,
        width in 1_usize..40,
        requests in prop::collection::vec((0_u16..60, 1_u32..5), 0..400),
    ) {
        let mut sketch = Sketch::new(Shape::new(depth, width));
        let mut exact = HashMap::new();
        for (key, count) in requests {
            *exact.entry(key).or_insert(0) += count;
            prop_assert!(sketch.add(hash(key), count) >= exact[&key]);
        }
        let total: u32 = exact.values().sum();
        prop_assert_eq!(sketch.total(), u64::from(total));
        for (key, count) in exact {
            prop_assert!(sketch.estimate(hash(key)) >= count);
            prop_assert!(sketch.estimate(hash(key)) <= total);
        }
    }

    #[test]
    fn a_merged_sketch_is_the_sum_of_both(
        left in prop::collection::vec(0_u16..200, 0..300),
        right in prop::collection::vec(0_u16..200, 0..300),
    ) {
        let shape = Shape::new(4, 16);
        let (mut one, mut two) = (Sketch::new(shape), Sketch::new(shape));
        for key in &left {
            one.add(hash(*key), 1);
        }
        for key in &right {
            two.add(hash(*key), 1);
        }
        let mut merged = one.clone();
        merged.merge(&two);
        for cell in 0..shape.cells() {
            prop_assert_eq!(merged.cells[cell], one.cells[cell] + two.cells[cell]);
        }
        prop_assert_eq!(merged.total(), one.total() + two.total());
        for key in 0..200 {
            let exact = left.iter().chain(&right).filter(|other| **other == key).count();
            prop_assert!(merged.estimate(hash(key)) as usize >= exact);
        }
    }
}

#[test]
fn counters_stop_at_their_end() {
    let mut sketch = Sketch::new(Shape::new(4, 64));
    assert_eq!(sketch.add(hash(1), u32::MAX - 1), u32::MAX - 1);
    assert_eq!(sketch.add(hash(1), 5), u32::MAX);
    assert_eq!(sketch.add(hash(1), 5), u32::MAX);
    let other = sketch.clone();
    sketch.merge(&other);
    assert_eq!(sketch.estimate(hash(1)), u32::MAX);
    assert_eq!(sketch.estimate(hash(2)), 0);
    sketch.clear();
    assert_eq!((sketch.estimate(hash(1)), sketch.total()), (0, 0));
}

#[test]
fn the_bound_is_the_theory_s_and_holds() {
    let shape = Shape::new(4, 2048);
    assert!((shape.error_bound(100_000) - 132.7).abs() < 0.1);
    let mut sketch = Sketch::new(shape);
    for request in 0..100_000_u32 {
        sketch.add(hash((request % 20_000) as u16), 1);
    }
    let misses =
        (0..20_000).filter(|key| f64::from(sketch.estimate(hash(*key)) - 5) > 132.7).count();
    assert!(misses <= 366, "{misses} of 20000 estimates miss the bound, e^-4 of them (1.83 %) may");
}

#[test]
fn every_column_of_every_row_is_used() {
    let shape = Shape::new(8, 50);
    let mut used = vec![false; shape.cells()];
    for key in 0..5000 {
        for cell in shape.cells_of::<8>(hash(key)) {
            used[cell] = true;
        }
    }
    assert!(used.iter().all(|used| *used));
}

#[test]
#[should_panic(expected = "one shape")]
fn different_shapes_do_not_merge() {
    Sketch::new(Shape::new(4, 64)).merge(&Sketch::new(Shape::new(4, 32)));
}
