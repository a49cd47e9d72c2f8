//! Seeds of random runs: fixed in the tests, random in campaigns, and always printed.
//!
//! Called by: tests that make up their input.
//! Bound: none needed.
//! Invariant: without a word from outside, a test does the same thing every time.

/// The seed to use: `fallback`, the number in `variable`, or a random one if it says `random`.
///
/// # Panics
///
/// If the variable is set to anything else.
#[must_use]
pub fn seed_from(variable: &str, fallback: u64) -> u64 {
    let seed = match std::env::var(variable) {
        Err(_) => fallback,
        Ok(text) if text == "random" => fastrand::u64(..),
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is neither a number nor `random`")),
    };
    println!("seed: {variable}={seed}");
    seed
}
