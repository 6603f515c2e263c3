//! Texts of others, such as names in certificates, for messages.

use mainstay_object::is_unprintable;

/// Maximum length, in characters.
const LONGEST: usize = 200;

/// Cuts a text, and replaces characters that end a line, change its direction, or are invisible.
pub(super) fn plain(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if is_unprintable(c) { '?' } else { c }).collect()
}

/// Returns a text in quotation marks. It has none itself, so no part of it looks like the rest of a message.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(text).replace('"', "'"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replaces_characters_that_mislead_a_reader() {
        assert_eq!(plain("größe\n\u{202e}x\u{2028}\u{200b}\u{e0041}"), "größe??x???");
        assert_eq!(plain(&"ä".repeat(300)), "ä".repeat(200));
        assert_eq!(quoted("a\"; it is trusted: \"b"), "\"a'; it is trusted: 'b\"");
    }

    proptest! {
        #[test]
        fn a_text_is_printable_and_short(text: String) {
            let quoted = quoted(&text);
            prop_assert!(!quoted.contains(is_unprintable) && quoted.matches('"').count() == 2);
            prop_assert!(quoted.chars().count() <= LONGEST + 2);
        }
    }
}
