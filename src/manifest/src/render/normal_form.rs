//! Writes a value as YAML in kustomize's output form. Expressions are substituted in this form.
//!
//! The form determines the effect of a substituted value. Strings are plain if possible, so `"${N}"` is written as
//! `${N}` and can become a number. Keys are sorted. A string of several lines is a literal block.
//!
//! Invariant: parsing the text gives the same value.
//!
//! Not here: folding of long lines. Folding would change a default value that it splits.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Writes a map as YAML.
pub fn normal_form(map: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_map(&mut text, map, 0);
    text
}

fn indent(text: &mut String, columns: usize) {
    text.extend(std::iter::repeat_n(' ', columns));
}

/// Writes entries, each on its own lines. The first entry is already indented.
fn write_map(text: &mut String, map: &Map<String, Value>, columns: usize) {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort_unstable();
    for (number, key) in keys.into_iter().enumerate() {
        if number > 0 {
            indent(text, columns);
        }
        // YAML requires an explicit key indicator for a longer key.
        let is_simple = key.len() <= 128 && !key.contains(is_break);
        if !is_simple {
            text.push_str("? ");
        }
        text.push_str(&line(key));
        if !is_simple {
            text.push('\n');
            indent(text, columns);
        }
        text.push(':');
        write_value(text, &map[key], columns, Within::Map);
    }
}

/// The map or list that contains a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Map,
    List,
}

/// Writes a value after the indicator of its entry, up to the end of its last line.
fn write_value(text: &mut String, value: &Value, columns: usize, within: Within) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            match within {
                Within::Map => {
                    text.push('\n');
                    indent(text, columns + 2);
                }
                Within::List => text.push(' '),
            }
            write_map(text, map, columns + 2);
        }
        Value::Array(items) if !items.is_empty() => {
            let columns = match within {
                Within::Map => {
                    text.push('\n');
                    columns
                }
                Within::List => {
                    text.push(' ');
                    columns + 2
                }
            };
            for (number, item) in items.iter().enumerate() {
                if number > 0 || within == Within::Map {
                    indent(text, columns);
                }
                text.push('-');
                write_value(text, item, columns, Within::List);
            }
        }
        Value::String(string) if is_block(string) => write_block(text, string, columns + 2),
        other => {
            let scalar = match other {
                Value::String(string) => line(string),
                Value::Object(_) => "{}".to_owned(),
                other => other.to_string(),
            };
            text.push(' ');
            text.push_str(&scalar);
            text.push('\n');
        }
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns whether a character needs an escape.
fn is_special(c: char) -> bool {
    !matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Returns whether a string is written as a literal block. Such a string has several lines, and no character that needs
/// an escape.
fn is_block(string: &str) -> bool {
    let is_plain = !string.contains(|c| is_special(c) || is_break(c) && c != '\n');
    string.contains('\n') && is_plain && !string.contains(" \n") && !string.ends_with(' ')
}

fn write_block(text: &mut String, string: &str, columns: usize) {
    text.push_str(" |");
    if string.starts_with([' ', '\n']) {
        text.push('2');
    }
    let body = string.trim_end_matches('\n');
    match string.len() - body.len() {
        0 => text.push('-'),
        1 if !body.is_empty() => {}
        _ => text.push('+'),
    }
    text.push('\n');
    for line in string.split_inclusive('\n') {
        if line != "\n" {
            indent(text, columns);
        }
        text.push_str(line);
    }
    if !string.ends_with('\n') {
        text.push('\n');
    }
}

/// Writes a string on one line.
fn line(string: &str) -> String {
    let has_breaks = string.contains(is_break);
    let needs_escapes = has_breaks || string.contains(is_special);
    if needs_escapes || is_of_other_type(string) {
        return double_quoted(string);
    }
    if is_indicator(string) || string.starts_with(' ') || string.ends_with(' ') {
        return format!("'{}'", string.replace('\'', "''"));
    }
    string.to_owned()
}

/// Returns whether a parser may read the unquoted string as a value of another type. A string with `$` stays a string.
fn is_of_other_type(string: &str) -> bool {
    const WORDS: [&str; 13] = ["", "~", "null", "y", "yes", "true", "on", "n", "no", "false", "off", "<<", "="];
    let lower = string.to_ascii_lowercase();
    WORDS.contains(&&*lower)
        || !string.contains('$') && string.starts_with(|c: char| c.is_ascii_digit())
        || !string.contains('$')
            && string.starts_with(['+', '-', '.'])
            && string.chars().skip(1).take(2).any(|c| c.is_ascii_alphanumeric() || c == '.')
}

/// Returns whether the unquoted string contains an active YAML indicator.
fn is_indicator(string: &str) -> bool {
    let mut chars = string.chars();
    let first = chars.next();
    let is_alone = chars.next().is_none_or(|c| c == ' ');
    let begins = match first {
        Some('#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`') => true,
        Some('?' | ':' | '-') => is_alone,
        _ => false,
    };
    begins
        || string.starts_with("---")
        || string.starts_with("...")
        || string.contains(": ")
        || string.contains(" #")
        || string.ends_with(':')
}

fn double_quoted(string: &str) -> String {
    let mut quoted = String::from("\"");
    for c in string.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if is_special(c) || is_break(c) => {
                // Writing to a string cannot fail.
                let _ = match u32::from(c) {
                    code @ ..=0xff => write!(quoted, "\\x{code:02X}"),
                    code @ ..=0xffff => write!(quoted, "\\u{code:04X}"),
                    code => write!(quoted, "\\U{code:08X}"),
                };
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{Limits, read_value};

    fn check(value: Value) -> String {
        let Value::Object(map) = value else { panic!("{value} is no map") };
        let text = normal_form(&map);
        let read = read_value(&text, &Limits::new(|| Duration::ZERO));
        assert_eq!(read.map(Value::Object), Ok(Value::Object(map)), "{text}");
        text
    }

    #[test]
    fn strings_are_as_plain_as_they_can_be() {
        let cases = [
            ("${N}", "${N}"),
            ("a ${N} b", "a ${N} b"),
            ("123", "\"123\""),
            ("-1", "\"-1\""),
            ("-1${N}", "-1${N}"),
            ("", "\"\""),
            ("yes", "\"yes\""),
            ("{${N}}", "'{${N}}'"),
            ("it: ${N}", "'it: ${N}'"),
            ("it's", "it's"),
            ("'${N}'", "'''${N}'''"),
            ("\"${N}\"", "'\"${N}\"'"),
            ("${N}:", "'${N}:'"),
            ("${N} # x", "'${N} # x'"),
            (" ${N}", "' ${N}'"),
            ("a\t${N}", "\"a\\t${N}\""),
            ("- ${N}", "'- ${N}'"),
            ("*${N}", "'*${N}'"),
            ("ä${N}", "ä${N}"),
            ("a\n${N}\n", "|\n  a\n  ${N}"),
            ("\n a", "|2-\n\n   a"),
            ("a \nb", "\"a \\nb\""),
        ];
        for (string, expected) in cases {
            assert_eq!(check(json!({ "a": string })), format!("a: {expected}\n"), "{string:?}");
        }
    }

    #[test]
    fn lists_are_not_indented_and_keys_are_sorted() {
        let value = json!({"z": [{"b": 1, "a": [[1, "x"], []]}, {}], "c": {"d": null, "e": {}}, "a": true});
        let expected = "a: true\nc:\n  d: null\n  e: {}\nz:\n- a:\n  - - 1\n    - x\n  - []\n  b: 1\n- {}\n";
        assert_eq!(check(value), expected);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9f64).prop_map(|f| if f.fract() == 0.0 { 0.5 } else { f }).prop_map(Value::from),
            "[ \t\n\r\u{85}\u{2028}a-c0-9_.:#&*!|>'\"%@`~+?,{}$\\[\\]\\\\=-]{0,10}".prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[ \na-c:#'\"?-]{0,5}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn reading_the_text_gives_the_value_again(value in any_value()) {
            check(json!({ "spec": value }));
        }
    }
}
