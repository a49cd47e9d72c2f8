//! Which keys are asked for, in which order.
//!
//! Called by: `cache`.
//! Bound: a trace is drawn before it is measured, and asked for again from its start.
//! Invariant: the keys of a trace lie in memory in its order, so that what is measured is the
//! cache's memory and not the trace's.

/// A number by Zipf's law with exponent 1: the `n`-th key is asked for `1/n` times as often as the
/// first.
pub(crate) struct Zipf {
    /// The chance of a number up to the index.
    up_to: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(keys: usize) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        for part in &mut up_to {
            *part /= sum;
        }
        Self { up_to }
    }

    pub(crate) fn draw(&self, rng: &mut fastrand::Rng) -> usize {
        let draw = rng.f64();
        self.up_to.partition_point(|part| *part < draw).min(self.up_to.len() - 1)
    }

    /// The share of requests that a cache answers which holds the hottest keys and no other.
    pub(crate) fn best_ratio(&self, entries: usize) -> f64 {
        self.up_to[entries.min(self.up_to.len()) - 1]
    }
}

/// The name of a key: 16 bytes. Hot keys do not stand beside each other.
pub(crate) fn name(number: usize) -> String {
    format!("{:016x}", (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The same key again and again.
pub(crate) fn one_key(length: usize) -> Vec<String> {
    vec![name(0); length]
}

pub(crate) fn zipf(zipf: &Zipf, length: usize, seed: u64) -> Vec<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| name(zipf.draw(&mut rng))).collect()
}

/// Keys that nobody has asked for before.
pub(crate) fn new_keys(length: usize, round: usize) -> Vec<String> {
    (0..length).map(|number| format!("n{round:03}-{number:011}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_drawn_as_often_as_the_law_says() {
        let zipf = Zipf::new(1000);
        let mut rng = fastrand::Rng::with_seed(7);
        let mut counts = vec![0_u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut rng)] += 1);
        // 1 / H(1000) = 13.36 %
        assert!((13_000..13_700).contains(&counts[0]), "{}", counts[0]);
        assert!((6_400..7_000).contains(&counts[1]), "{}", counts[1]);
        assert!((zipf.best_ratio(2) - 0.2004).abs() < 0.001);
        assert!((zipf.best_ratio(1000) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn names_differ_and_have_sixteen_bytes() {
        let names: std::collections::HashSet<_> =
            (0..1000).map(name).chain(new_keys(1000, 1)).chain(new_keys(1000, 2)).collect();
        assert_eq!(names.len(), 3000);
        assert!(names.iter().all(|name| name.len() == 16));
    }
}
