//! Resource versions as numbers.
//!
//! Not here: the meaning of a lower version, which is that the server was restored from a backup (`reflector`, `watch`).

/// Returns a resource version as a number. Returns `None` for other texts, and for 0, which some aggregated API servers
/// send with every list.
pub(super) fn number(version: &str) -> Option<u64> {
    version.parse().ok().filter(|number| *number != 0)
}

/// Whether a version is older than the newest one. Unknown versions cannot be compared.
pub(super) fn is_older(version: &str, newest: Option<u64>) -> bool {
    number(version).zip(newest).is_some_and(|(version, newest)| version < newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_other_than_0_are_compared() {
        assert_eq!(["7", "0", "", "v1", "-1"].map(number), [Some(7), None, None, None, None]);
        assert!(is_older("7", Some(8)) && !is_older("8", Some(8)) && !is_older("9", Some(8)));
        assert!(!is_older("0", Some(8)) && !is_older("", Some(8)) && !is_older("7", None));
    }
}
