//! Formats counts for messages.

/// Returns the count and the noun, with an `s` unless the count is 1: `1 object`, `2 objects`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or_default();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_no_plural() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "object")), ["0 objects", "1 object", "2 objects"]);
        assert_eq!(counted(-1_i64, "file"), "0 files");
    }
}
