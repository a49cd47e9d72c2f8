//! The window against an exact model of slots, and its edges.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::Window;
use crate::key::KeyHasher;
use crate::sketch::{Shape, Sketch};

fn hash(key: u8) -> u64 {
    KeyHasher::with_seed(7).key(&[key]).hash()
}

/// Exact counts per slot; the last one is open.
struct Model {
    slots: VecDeque<HashMap<u8, u32>>,
    closed: usize,
}

impl Model {
    fn new(closed: usize) -> Self {
        Self { slots: VecDeque::from([HashMap::new()]), closed }
    }

    fn rotate(&mut self, steps: usize) {
        if steps == 0 {
            return;
        }
        let open = self.slots.pop_back().unwrap_or_default();
        self.slots.extend((1..steps).map(|_| HashMap::new()));
        self.slots.push_back(open);
        while self.slots.len() > self.closed {
            self.slots.pop_front();
        }
        self.slots.push_back(HashMap::new());
    }

    fn count(&self, key: u8) -> u32 {
        self.slots.iter().filter_map(|slot| slot.get(&key)).sum()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8, u32),
    Rotate(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0_u8..40, 1_u32..4).prop_map(|(key, count)| Step::Add(key, count)),
        // More than the open slot has room for, at once or in a few times.
        1 => (0_u8..40, 10_000_u32..70_000).prop_map(|(key, count)| Step::Add(key, count)),
        1 => (0_usize..8).prop_map(Step::Rotate),
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn an_estimate_is_never_below_the_count_in_the_window(
        steps in steps(),
        slots in 1_usize..6,
        width in 1_usize..30,
    ) {
        let mut window = Window::new(Shape::new(4, width), slots);
        let mut model = Model::new(slots);
        for step in steps {
            match step {
                Step::Add(key, count) => {
                    *model.slots.back_mut().expect("a slot is open").entry(key).or_insert(0) += count;
                    prop_assert!(window.add(hash(key), count) >= model.count(key));
                }
                Step::Rotate(steps) => {
                    window.rotate(steps);
                    model.rotate(steps);
                }
            }
            let total: u32 = (0..40).map(|key| model.count(key)).sum();
            prop_assert_eq!(window.total(), u64::from(total));
            for key in 0..40 {
                prop_assert!(window.estimate(hash(key)) >= model.count(key));
                prop_assert!(window.estimate(hash(key)) <= total);
            }
        }
    }

    #[test]
    fn the_sums_are_the_sums_of_the_slots(steps in steps()) {
        let shape = Shape::new(3, 8);
        let mut window = Window::new(shape, 3);
        for step in steps {
            match step {
                Step::Add(key, count) => { window.add(hash(key), count); }
                Step::Rotate(steps) => window.rotate(steps),
            }
            for (number, sum) in window.sums.iter().enumerate() {
                let closed: u32 = window.closed.iter().skip(number).step_by(shape.cells()).sum();
                prop_assert_eq!(*sum, window.folded[number] + closed);
            }
        }
    }

    #[test]
    fn a_copy_says_the_same(keys in prop::collection::vec(0_u8..40, 0..200)) {
        let mut window = Window::new(Shape::new(4, 16), 4);
        for (number, key) in keys.iter().enumerate() {
            window.add(hash(*key), 1);
            window.rotate(usize::from(number % 60 == 59));
        }
        let mut copy = Sketch::new(Shape::new(1, 1));
        window.copy_to(&mut copy);
        prop_assert_eq!(copy.total(), window.total());
        for key in 0..40 {
            prop_assert_eq!(copy.estimate(hash(key)), window.estimate(hash(key)));
        }
    }
}

#[test]
fn the_bar_is_never_passed_unnoticed() {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut reached, mut named) = (0, 0);
    for bar in [1, 2, 7, 8, 60, 250, 40_000] {
        let mut window = Window::new(Shape::new(4, 64), 5);
        window.set_bar(bar);
        for number in 0..60_000 {
            // A few keys take half of all requests.
            let key = if random.bool() { random.u8(..4) } else { random.u8(..) };
            let maybe_over = window.add_one(hash(key));
            let is_over = window.estimate(hash(key)) >= bar;
            assert!(maybe_over || !is_over, "key {key} passed the bar of {bar}");
            reached += u32::from(is_over);
            named += u32::from(maybe_over);
            window.rotate(usize::from(number % 2000 == 1999));
        }
    }
    assert!(reached > 10_000, "{reached}");
    assert!(named < 2 * reached, "{named} looks at the sums for {reached}");
}

#[test]
fn a_request_stays_for_the_window_and_no_longer() {
    let mut window = Window::new(Shape::new(4, 2048), 20);
    window.add(hash(1), 3);
    for _ in 0..20 {
        window.rotate(1);
        assert_eq!(window.estimate(hash(1)), 3);
    }
    window.rotate(1);
    assert_eq!((window.estimate(hash(1)), window.total()), (0, 0));
}

#[test]
fn after_a_pause_the_latest_requests_are_still_there() {
    let mut window = Window::new(Shape::new(4, 2048), 20);
    window.add(hash(1), 3);
    window.rotate(1);
    window.add(hash(2), 4);
    window.rotate(5000);
    assert_eq!(window.estimate(hash(1)), 0, "older than the window");
    assert_eq!(window.estimate(hash(2)), 4, "may have come just now");
    window.rotate(19);
    assert_eq!(window.estimate(hash(2)), 4);
    window.rotate(1);
    assert_eq!(window.estimate(hash(2)), 0);
}

#[test]
fn a_window_that_was_full_recovers_when_the_slot_expires() {
    let mut window = Window::new(Shape::new(4, 64), 3);
    window.add(hash(1), u32::MAX - 10);
    window.rotate(1);
    window.add(hash(1), 100);
    assert_eq!(window.estimate(hash(1)), u32::MAX);
    window.rotate(2);
    assert_eq!(window.estimate(hash(1)), u32::MAX);
    window.rotate(1);
    assert_eq!(window.estimate(hash(1)), 100, "exact again");
    assert!(!window.saturated);
}
