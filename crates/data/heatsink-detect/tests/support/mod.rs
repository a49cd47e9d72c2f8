//! Streams of keys for the tests and the example: Zipf and uniform, from a seed.

/// Draws ranks 0, 1, 2 ... with probability falling as `1 / (rank + 1)^exponent`.
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
        let cumulative = (0..keys)
            .map(|rank| {
                sum += weight(rank);
                sum
            })
            .collect();
        Self { cumulative }
    }

    pub(crate) fn draw(&self, random: &mut fastrand::Rng) -> usize {
        let all = self.cumulative[self.cumulative.len() - 1];
        let point = random.f64() * all;
        self.cumulative.partition_point(|sum| *sum <= point).min(self.cumulative.len() - 1)
    }
}
