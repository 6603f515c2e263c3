//! Removes values from a server's message, because a value may be a secret.
//!
//! Invariant: no text about a Secret is passed on. From any other text each quoted value is removed, and at most
//! [`MAX_SHOWN`] bytes of one line remain.

use super::Key;
use super::is_unprintable;

/// Bytes of a server's message that remain.
const MAX_SHOWN: usize = 512;
/// Bytes of a server's message that are scanned: the values in it can be whole pod templates.
const MAX_SCANNED: usize = 64 * 1024;
/// Replaces a text about a Secret.
const WITHHELD: &str = "(the server's text is withheld: it may quote the Secret)";
/// Replaces a value.
const CUT: &str = "…";
/// Texts that API servers write before a value.
const MARKERS: &[&str] =
    &["Invalid value: ", "Unsupported value: ", "Duplicate value: ", "Not found: ", "{Value:", "Value:\""];

/// A server's message about an object, without values.
pub fn redact_server_text(key: &Key, text: &str) -> String {
    if key.is("", "Secret") {
        return WITHHELD.to_owned();
    }
    let text = truncated(text, MAX_SCANNED);
    let mut kept = String::new();
    let mut rest = text;
    while let Some((at, marker)) = next_marker(rest) {
        kept.push_str(&rest[..at + marker.len()]);
        kept.push_str(CUT);
        rest = &rest[at + marker.len()..];
        // The marker of a struct dump includes the bracket or quote that opens its value.
        let open = match *marker {
            "{Value:" => Some('}'),
            "Value:\"" => Some('"'),
            _ => None,
        };
        rest = &rest[value_length(rest, open)..];
        if kept.len() > MAX_SHOWN {
            break;
        }
    }
    kept.push_str(rest);
    let line: String = kept.chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect();
    let short = truncated(&line, MAX_SHOWN - CUT.len());
    if short.len() < line.len() { format!("{short}{CUT}") } else { line }
}

fn truncated(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The first marker; of two at one position the longer.
fn next_marker(text: &str) -> Option<(usize, &'static &'static str)> {
    MARKERS
        .iter()
        .filter_map(|marker| text.find(marker).map(|at| (at, marker)))
        .min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()))
}

/// The length of the value at the start of `text`: to its closing quote, its last closing bracket, or the `: ` or `, `
/// after a bare word. A value without an end takes everything.
fn value_length(text: &str, open: Option<char>) -> usize {
    let mut closers: Vec<char> = Vec::new();
    let mut quote = None;
    match open {
        Some('"') => quote = Some('"'),
        Some(bracket) => closers.push(bracket),
        None => {}
    }
    let nested = open.is_some();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let end = at + c.len_utf8();
        if let Some(mark) = quote {
            if c == '\\' && mark != '`' {
                chars.next();
            } else if c == mark {
                quote = None;
                if closers.is_empty() && (nested || ends_value(&text[end..])) {
                    return end;
                }
            }
            continue;
        }
        match c {
            '"' | '`' => quote = Some(c),
            '{' | '[' | '(' => closers.push(match c {
                '{' => '}',
                '[' => ']',
                _ => ')',
            }),
            ':' | ',' | ']' if closers.is_empty() && (c == ']' || text[end..].starts_with(' ')) => return at,
            c if closers.last() == Some(&c) => {
                closers.pop();
                if closers.is_empty() && (nested || ends_value(&text[end..])) {
                    return end;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Whether the rest after a closed value is not part of it.
fn ends_value(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([':', ',', ']', '\n', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        redact_server_text(&Key::new("batch", "Job", Some("a"), "b"), text)
    }

    #[test]
    fn never_quotes_a_text_about_a_secret() {
        let secret = Key::new("", "Secret", Some("a"), "b");
        assert!(!redact_server_text(&secret, "cannot handle hunter2").contains("hunter2"));
    }

    #[test]
    fn cuts_values_and_keeps_what_is_wrong_with_them() {
        let cases = [
            (
                "x: spec.a: Invalid value: \"hunter2\": must be lower case",
                "x: spec.a: Invalid value: …: must be lower case",
            ),
            (
                "[a: Invalid value: 5: too small, b: Invalid value: \"a\\\"b: c\": no]",
                "[a: Invalid value: …: too small, b: Invalid value: …: no]",
            ),
            (
                "spec.template: Invalid value: core.PodTemplateSpec{Env:[]core.EnvVar{core.EnvVar{Name:\"A\", Value:\"hun}ter2\"}}}: field is immutable",
                "spec.template: Invalid value: …: field is immutable",
            ),
            (
                "spec.t: Unsupported value: \"no\": supported values: \"A\", \"B\"",
                "spec.t: Unsupported value: …: supported values: \"A\", \"B\"",
            ),
            (
                ".data.x: expected string, got &value.valueUnstructured{Value:map[a:hunter2 b:{c}]}",
                ".data.x: expected string, got &value.valueUnstructured{Value:…",
            ),
            ("spec.volumes[0].name: Not found: \"hunter2\"", "spec.volumes[0].name: Not found: …"),
            ("spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}", "spec.ports[1]: Duplicate value: …"),
            ("a: Invalid value: {\"open\": \"hunter2\"", "a: Invalid value: …"),
            ("a: Invalid value: v1.Time{date(2020: x), \"hunter2\"}: no", "a: Invalid value: …: no"),
            ("two\nlines", "two lines"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn keeps_at_most_512_bytes_of_whole_characters() {
        let text = shown(&"ä".repeat(5000));
        assert!(text.len() <= 512 && text.ends_with('…'), "{}", text.len());
        let many = shown(&"Invalid value: \"x\": ä, ".repeat(5000));
        assert!(many.len() <= 512);
    }
}
