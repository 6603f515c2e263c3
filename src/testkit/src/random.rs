//! Random numbers of tests.
//!
//! A test that fails must fail again, and a change must not be refused for a defect that it did not make. So all tests
//! use one seed, which `.cargo/config.toml` sets for proptest, too. A scheduled workflow explores other seeds.

use std::env;

use fastrand::Rng;

/// Environment variable with the seed, a number. proptest reads it, too.
const SEED: &str = "PROPTEST_RNG_SEED";

/// Returns a generator that starts with the seed of `PROPTEST_RNG_SEED` (default: 1).
///
/// # Panics
/// If the variable is not a number.
pub fn random() -> Rng {
    let seed = env::var(SEED).map_or(1, |text| text.parse().unwrap());
    Rng::with_seed(seed)
}
