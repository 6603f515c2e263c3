//! The length of a pause or a suspension.

use std::time::Duration;

use mainstay_api::{NotADuration, Span};

/// Parses a length of at least one second. A shorter pause would end before it has an effect.
pub(super) fn at_least_a_second(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: NotADuration| error.to_string())?;
    if span.0 < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_nothing_is_refused() {
        for text in ["0s", "0h0m", "999ms", "", "tomorrow"] {
            assert!(at_least_a_second(text).is_err(), "{text}");
        }
        assert_eq!(at_least_a_second("1h30m").map(|span| span.0.as_secs()), Ok(5400));
    }
}
