//! A value becomes YAML in the form in which kustomize prints it, which is where expressions are substituted.
//!
//! The form decides what a value can break: strings are plain wherever they can be, so that `"${N}"` is `${N}` and becomes a
//! number; keys are sorted; text of several lines is a literal block.
//!
//! Invariant: reading the text gives the value again.
//!
//! Deliberately absent: folding of long lines, which would change a default that it falls into.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// A map as YAML.
pub fn normal_form(map: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_map(&mut text, map, 0);
    text
}

fn indent(text: &mut String, columns: usize) {
    text.extend(std::iter::repeat_n(' ', columns));
}

/// Entries, each on lines of its own, of which the first is already indented.
fn write_map(text: &mut String, map: &Map<String, Value>, columns: usize) {
    let mut keys: Vec<&String> = map.keys().collect();
    keys.sort_unstable();
    for (number, key) in keys.into_iter().enumerate() {
        if number > 0 {
            indent(text, columns);
        }
        // What is longer is no key to a parser unless it is marked as one.
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

/// What a value is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Map,
    List,
}

/// A value behind the mark of its entry, up to the end of its last line.
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

/// Whether it has to be written with escapes.
fn is_special(c: char) -> bool {
    !matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

/// Whether it is a literal block: it has lines, and each can stand there as it is.
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

/// A string on one line.
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

/// Whether it would be no string without quotes, or not to every reader. What holds a `$` is one.
fn is_of_other_type(string: &str) -> bool {
    const WORDS: [&str; 13] =
        ["", "~", "null", "y", "yes", "true", "on", "n", "no", "false", "off", "<<", "="];
    let lower = string.to_ascii_lowercase();
    WORDS.contains(&&*lower)
        || !string.contains('$') && string.starts_with(|c: char| c.is_ascii_digit())
        || !string.contains('$')
            && string.starts_with(['+', '-', '.'])
            && string.chars().skip(1).take(2).any(|c| c.is_ascii_alphanumeric() || c == '.')
}

/// Whether a mark of YAML is where it would count.
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
                // Writing to a string does not fail.
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
