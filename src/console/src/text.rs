//! Prepares strings from the cluster for pages: without control characters, and with a limited length.
//!
//! Not here: the escaping of HTML. The templates escape every string.

use mainstay_api::conditions::cut;
use mainstay_object::printable_lines;

/// Maximum length of a message, in bytes.
pub(crate) const MESSAGE: usize = 4 << 10;
/// Maximum length of a name or a value, in bytes.
pub(crate) const SHORT: usize = 512;

/// Returns a string without terminal sequences, with other control characters escaped, cut to at most `most` bytes.
pub(crate) fn plain(text: &str, most: usize) -> String {
    let whole = without_terminal_sequences(cut(text, most.saturating_mul(2)));
    let shown = printable_lines(&whole);
    let short = cut(&shown, most);
    if short.len() < shown.len() || text.len() > most.saturating_mul(2) {
        format!("{short}…")
    } else {
        short.to_owned()
    }
}

/// Removes the sequences with which programs colour their output or move the cursor.
fn without_terminal_sequences(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' && c != '\u{9b}' {
            // A carriage return before a newline is part of a line end of Windows.
            if c != '\r' || rest.peek().is_some_and(|next| *next != '\n') {
                shown.push(c);
            }
            continue;
        }
        match if c == '\u{9b}' { Some('[') } else { rest.next() } {
            // Such a sequence consists of parameters and one letter.
            Some('[') => while rest.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
            // A title or a link ends with BEL or ESC \.
            Some(']' | 'P' | '_' | '^') => {
                while let Some(c) = rest.next() {
                    if c == '\u{7}' || c == '\u{1b}' && rest.next_if_eq(&'\\').is_some() {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    shown
}

/// Returns the beginning of a commit ID, or the whole string if it is not a commit ID.
pub(crate) fn short_id(text: &str) -> &str {
    let is_id = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { &text[..12] } else { text }
}

/// Shortens the commit IDs in a string.
pub(crate) fn with_short_ids(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        shown.push_str(short_id(end));
        shown.push_str(&word[end.len()..]);
    }
    shown
}

/// Formats a number of seconds for people.
pub(crate) fn ago(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

/// Formats milliseconds for people.
pub(crate) fn lasted(millis: i64) -> String {
    if millis < 10_000 { format!("{} ms", millis.max(0)) } else { ago(millis / 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_sequences_are_removed_and_other_control_characters_escaped() {
        let check = |text: &str, expected: &str| assert_eq!(plain(text, 100), expected, "{text:?}");
        check("\u{1b}[31mred\u{1b}[0m and \u{9b}1mbold", "red and bold");
        check("\u{1b}]0;owned\u{7}title", "title");
        check("\u{1b}]8;;http://evil.example\u{1b}\\link", "link");
        check("one\r\ntwo\tthree\u{0}", "one\ntwo\tthree\\u{0}");
        check("\u{202e}lmay", "\\u{202e}lmay");
        check("\u{1b}[never ends", "ever ends");
        check("\u{1b}", "");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let cut = plain(&"ö".repeat(10_000), 101);
        assert_eq!(cut, format!("{}…", "ö".repeat(50)));
        assert_eq!(plain("abc", 3), "abc");
    }

    #[test]
    fn only_a_commit_is_shortened() {
        assert_eq!(short_id(&"a1".repeat(20)), "a1a1a1a1a1a1");
        assert_eq!(short_id("main"), "main");
        let id = "0123456789".repeat(4);
        assert_eq!(with_short_ids(&format!("main@sha1:{id}, was {id}")), "main@sha1:012345678901, was 012345678901");
        assert_eq!(with_short_ids("größe: a.b c"), "größe: a.b c");
    }
}
