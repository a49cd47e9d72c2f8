//! Streams of keys, drawn before anything is timed.
//!
//! Called by: every measurement of `detect`.
//! Bound: 4 bytes a request and about 24 a key, or about 28 a request for keys in a buffer.
//! Invariant: the same seed gives the same stream; a key has 16 to 32 bytes.

/// Draws ranks 0, 1, 2 ... with probability falling as `1 / (rank + 1)^exponent`.
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// The exponent of every skewed stream here.
    pub(crate) const EXPONENT: f64 = 0.99;

    pub(crate) fn new(keys: usize) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-Self::EXPONENT);
                sum
            })
            .collect();
        Self { cumulative }
    }

    pub(crate) fn draw(&self, random: &mut fastrand::Rng) -> usize {
        let last = self.cumulative.len() - 1;
        let point = random.f64() * self.cumulative[last];
        self.cumulative.partition_point(|sum| *sum <= point).min(last)
    }
}

/// The name of a key, made without an allocation.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    bytes: [u8; 32],
    len: usize,
}

impl Name {
    /// 16 to 32 bytes that differ from those of every other number.
    pub(crate) fn of(number: u64) -> Self {
        let mut bytes = *b"key:............................";
        for (place, byte) in bytes[4..16].iter_mut().enumerate() {
            *byte = b'a' + (number >> (4 * place) & 15) as u8;
        }
        Self { bytes, len: 16 + (number % 17) as usize }
    }

    /// The number whose name this is.
    pub(crate) fn number(name: &[u8]) -> Option<u64> {
        let digits = name.strip_prefix(b"key:")?.get(..12)?;
        Some(digits.iter().rev().fold(0, |number, digit| number << 4 | u64::from(digit - b'a')))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The same requests in both layouts.
pub(crate) struct Streams {
    pub(crate) scattered: Stream,
    pub(crate) received: Stream,
}

impl Streams {
    pub(crate) fn new(keys: usize, requests: usize, seed: u64) -> Self {
        let scattered = Stream::scattered(keys, requests, seed);
        Self { received: scattered.received(), scattered }
    }
}

/// Requests, each of which names a key.
pub(crate) struct Stream {
    bytes: Vec<u8>,
    /// Where the key of each request begins, and in the lowest five bits its length less one.
    places: Vec<u32>,
}

impl Stream {
    /// The keys lie once each, in no order, in memory that caches do not hold.
    fn scattered(keys: usize, requests: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::with_capacity(keys * 24);
        let mut places: Vec<u32> = (0..keys).map(|key| push(&mut bytes, key as u64)).collect();
        // Without this the hottest keys would lie side by side.
        random.shuffle(&mut places);
        let zipf = Zipf::new(keys);
        let places = (0..requests).map(|_| places[zipf.draw(&mut random)]).collect();
        Self { bytes, places }
    }

    /// The key of each request follows that of the one before, as in a buffer that requests
    /// are received in. The same requests as those of `scattered`.
    fn received(&self) -> Self {
        let mut received = Self { bytes: Vec::new(), places: Vec::new() };
        for key in self.blocks(self.places.len()).flatten() {
            let place = place(received.bytes.len(), key.len());
            received.places.push(place);
            received.bytes.extend_from_slice(key);
        }
        received
    }

    /// Requests of all keys in turn, each `times` times.
    pub(crate) fn in_turn(keys: std::ops::Range<u64>, times: usize) -> Self {
        let mut bytes = Vec::new();
        let once: Vec<u32> = keys.map(|key| push(&mut bytes, key)).collect();
        Self { bytes, places: once.repeat(times) }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The requests in blocks of one length; what is left over at the end is left out.
    pub(crate) fn blocks(&self, requests: usize) -> impl Iterator<Item = Block<'_>> + Clone {
        let blocks = self.places.chunks_exact(requests.max(1));
        blocks.map(|places| Block { bytes: &self.bytes, places: places.iter() })
    }
}

/// Where a key begins and how long it is, in 32 bits.
fn place(start: usize, len: usize) -> u32 {
    assert!(start < 1 << 27 && len <= 32, "a stream of at most 128 MiB, keys of at most 32 bytes");
    (start as u32) << 5 | (len as u32 - 1)
}

fn push(bytes: &mut Vec<u8>, key: u64) -> u32 {
    let name = Name::of(key);
    bytes.extend_from_slice(name.bytes());
    place(bytes.len() - name.bytes().len(), name.bytes().len())
}

/// A stretch of a stream.
#[derive(Clone)]
pub(crate) struct Block<'a> {
    bytes: &'a [u8],
    places: std::slice::Iter<'a, u32>,
}

impl<'a> Iterator for Block<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let place = *self.places.next()?;
        Some(&self.bytes[(place >> 5) as usize..][..=(place & 31) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_long_as_they_should_be_and_mean_their_number() {
        for number in [0, 1, 16, 123_456_789, (1 << 40) + 7] {
            let name = Name::of(number);
            assert!((16..=32).contains(&name.bytes().len()));
            assert_eq!(Name::number(name.bytes()), Some(number));
        }
        assert_eq!(Name::number(b"other"), None);
    }

    #[test]
    fn both_layouts_hold_the_same_requests_and_the_first_ranks_the_most() {
        let scattered = Stream::scattered(1000, 20_000, 1);
        let received = scattered.received();
        let requests = |stream: &Stream| -> Vec<Vec<u8>> {
            stream.blocks(10_000).flatten().map(<[u8]>::to_vec).collect()
        };
        let all = requests(&scattered);
        assert_eq!(all.len(), 20_000);
        assert!(all == requests(&received));
        let mut counts = std::collections::HashMap::new();
        for key in &all {
            *counts.entry(key).or_insert(0) += 1;
        }
        // 1 / (1 + 1/2 + ... + 1/1000), about 0.13, is the share of the first.
        let hottest = counts.values().max().copied().unwrap_or(0);
        assert!((2000..3500).contains(&hottest), "{hottest}");
    }
}
