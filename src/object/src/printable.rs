//! Escapes names and paths from repositories, so that they stay on one line and cannot mislead a reader.

use std::borrow::Cow;

/// Escapes characters that end the line, change the text direction, control a terminal or are invisible: `a\nb`,
/// `\u{202e}lmay.bew`. Use it for every name or path from untrusted input.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unprintable(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown.into()
}

/// Escapes a text of several lines. Line feeds and tabs are kept.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c: char| is_unprintable(c) && c != '\n' && c != '\t') {
        return text.into();
    }
    let parts = text.split_inclusive(['\n', '\t']).map(|part| match part.strip_suffix(['\n', '\t']) {
        Some(rest) => format!("{}{}", printable(rest), &part[rest.len()..]),
        None => printable(part).into_owned(),
    });
    parts.collect::<String>().into()
}

/// Returns whether a character is a control character, a line separator, a direction mark, or invisible. Joiners are
/// printable: names in many scripts need them.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_what_ends_a_line_changes_the_direction_or_is_not_seen() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected, "{text:?}");
        check("apps/größe.yaml", "apps/größe.yaml");
        check("a\\n", "a\\n");
        check("ok.yaml\nDeployment.apps shop/web: applied", "ok.yaml\\nDeployment.apps shop/web: applied");
        check("\u{202e}lmay.bew", "\\u{202e}lmay.bew");
        check("a\u{2067}b\u{2069}\u{200b}\u{2028}", "a\\u{2067}b\\u{2069}\\u{200b}\\u{2028}");
        check("\u{1b}[31m\u{feff}", "\\u{1b}[31m\\u{feff}");
        check("👩\u{200d}💻.yaml", "👩\u{200d}💻.yaml");
    }

    #[test]
    fn line_feeds_and_tabs_of_several_lines_stay() {
        assert_eq!(printable_lines("a\tb\n"), "a\tb\n");
        assert_eq!(
            printable_lines("\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{202e}x\ty"),
            "\\u{1b}]0;owned\\u{7}\\u{9b}31m\\r\n\\u{202e}x\ty"
        );
    }

    proptest! {
        #[test]
        fn unprintable_characters_are_removed(text: String) {
            prop_assert!(!printable(&text).contains(is_unprintable));
        }
    }
}
