//! Random choices that are the same in each run with the same seed.

/// A generator of numbers.
pub(super) struct Choices(u64);

impl Choices {
    /// Starts with a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`; 0 if that is 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        // The steps and constants of SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % limit.max(1) as u64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_below_their_limit_and_differ() {
        let mut choices = Choices::new(1);
        let numbers: std::collections::HashSet<usize> = (0..200).map(|_| choices.below(10)).collect();
        assert_eq!((numbers.len(), numbers.iter().max()), (10, Some(&9)));
        assert_eq!((choices.below(0), choices.below(1)), (0, 0));
    }
}
