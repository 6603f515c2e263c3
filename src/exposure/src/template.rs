//! The templates in the configuration of handlers.
//!
//! Oathkeeper executes texts of mutators as templates of Go, with functions that read its environment and allocate any
//! amount of memory. Only references to fields of a request are passed on.
//!
//! Invariant: a permitted text calls no function other than `print`, `printIndex` and `toJson`, and has no loop.
//! Invariant: no message contains a value from the configuration.
//!
//! Not here: the text outside of `{{ }}`, which is free. The author of an APIRule chooses headers and claims.

use serde_json::Value;

use mainstay_object::syntax::shown;

/// Maximum length of a text with templates, in bytes.
const LONGEST: usize = 4096;
/// Maximum number of references in the configuration of one handler.
const MOST: usize = 64;

/// The message for a template that is more than a reference to a field.
const FORM: &str = "may have only references to fields in {{ }}, such as {{ print .Subject }}, {{ .Extra.email }}, \
                    {{ printIndex .MatchContext.RegexpCaptureGroups 0 }} or {{ .Extra | toJson }}";
/// The message for a template that is too long.
const LONG: &str = "has more than 4096 bytes with a template in {{ }}; write a shorter string";
/// The message for too many references.
const MANY: &str = "exceeds the 64 references in {{ }} that a handler may have; write fewer";

/// A word of a template.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    /// A field, such as `.Extra.name`.
    Field,
    /// The index of a list.
    Index,
    Print,
    PrintIndex,
    ToJson,
    Pipe,
}

impl Word {
    fn parse(word: &str) -> Option<Self> {
        let is_name = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match word {
            "print" => Some(Self::Print),
            "printIndex" => Some(Self::PrintIndex),
            "toJson" => Some(Self::ToJson),
            "|" => Some(Self::Pipe),
            _ if word.len() <= 3 && word.bytes().all(|c| c.is_ascii_digit()) => Some(Self::Index),
            _ => word.strip_prefix('.').filter(|path| path.split('.').all(is_name)).map(|_| Self::Field),
        }
    }
}

/// Returns the first field below `attribute` with a template that is not permitted, and why.
pub(super) fn refused(config: &Value, attribute: &str) -> Option<(String, &'static str)> {
    let mut references = 0;
    let mut open = vec![(attribute.to_owned(), config)];
    while let Some((at, value)) = open.pop() {
        match value {
            Value::Object(fields) => {
                open.extend(fields.iter().rev().map(|(field, value)| (format!("{at}.{}", shown(field)), value)));
            }
            Value::Array(items) => {
                open.extend(items.iter().enumerate().rev().map(|(index, item)| (format!("{at}[{index}]"), item)));
            }
            Value::String(text) if text.contains("{{") => {
                if text.len() > LONGEST {
                    return Some((at, LONG));
                }
                let Some(count) = count(text) else { return Some((at, FORM)) };
                references += count;
                if references > MOST {
                    return Some((at, MANY));
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the number of references in a text; `None` if it has another template.
fn count(text: &str) -> Option<usize> {
    let (mut rest, mut count) = (text, 0);
    while let Some((_, after)) = rest.split_once("{{") {
        let (inside, next) = after.split_once("}}")?;
        // A hyphen beside the braces, with a blank, removes blanks of the text.
        let inside = inside.strip_prefix("- ").unwrap_or(inside);
        let inside = inside.strip_suffix(" -").unwrap_or(inside);
        if !is_reference(inside) {
            return None;
        }
        (rest, count) = (next, count + 1);
    }
    Some(count)
}

fn is_reference(inside: &str) -> bool {
    let apart = inside.replace('|', " | ");
    let words: Option<Vec<Word>> = apart.split([' ', '\t']).filter(|word| !word.is_empty()).map(Word::parse).collect();
    let Some(words) = words else { return false };
    let value = words.strip_suffix(&[Word::Pipe, Word::ToJson]).unwrap_or(&words);
    matches!(value, [Word::Field] | [Word::Print, Word::Field] | [Word::PrintIndex, Word::Field, Word::Index])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why_not(text: &str) -> Option<&'static str> {
        let (at, why) = refused(&json!({"headers": {"X-User": text}}), "config")?;
        assert_eq!(at, "config.headers.X-User");
        Some(why)
    }

    #[test]
    fn references_to_fields_are_permitted() {
        for text in [
            "",
            "admin",
            "{\"a\": {\"b\": {}}}",
            "{{ .Subject }}",
            "{{.Subject}}",
            "{{ print .Subject }}",
            "{{- print .Extra.a_b.c1 -}}",
            "{{ printIndex .MatchContext.RegexpCaptureGroups 0 }}",
            "{{ .Extra | toJson }}",
            "{{ print .Extra.scp|toJson }}",
            "{\"aud\": [\"a\"], \"session\": {{ .Extra | toJson }}, \"sub\": \"{{ print .Subject }}\"}",
        ] {
            assert_eq!(why_not(text), None, "{text}");
        }
    }

    #[test]
    fn other_templates_are_refused() {
        for text in [
            "{{ repeat 2000000000 \"x\" }}",
            "{{ range $i := until 2000000000 }}x{{ end }}",
            "{{ env \"PATH\" }}",
            "{{ if .Subject }}x{{ end }}",
            "{{ define \"x\" }}{{ end }}",
            "{{ template \"x\" }}",
            "{{ $x := .Subject }}",
            "{{ $ }}",
            "{{ . }}",
            "{{ .Subject | repeat 10 }}",
            "{{ .Subject | toJson | toJson }}",
            "{{ print .Subject .Subject }}",
            "{{ print \"x\" }}",
            "{{ print (env \"PATH\") }}",
            "{{ printf \"%s\" .Subject }}",
            "{{ .MatchContext.Header.Get \"X\" }}",
            "{{ toJson }}",
            "{{ \"}}{{\" }}",
            "{{/* {{ .Subject }} */}}",
            "{{ .Subject",
            "{{{ .Subject }}}",
            "{{ .Sub ject }}",
            "{{ .Subject\n}}",
            "{{ .Subject }}{{ env \"PATH\" }}",
            "{{ ..Subject }}",
            "{{ .1 }}",
            "{{}}",
            "{{ 1 }}",
            "{{ printIndex .A 00000000000 }}",
        ] {
            assert_eq!(why_not(text), Some(FORM), "{text}");
        }
    }

    #[test]
    fn templates_of_each_field_are_judged_and_their_number_is_bounded() {
        let bad = "{{ env \"PATH\" }}";
        for config in [json!({"claims": bad}), json!({"Cookies": {"a": bad}}), json!({"fresh": [[{"key": bad}]]})] {
            assert!(refused(&config, "config").is_some(), "{config}");
        }
        assert_eq!(why_not(&"{{ .Subject }}".repeat(MOST)), None);
        assert_eq!(why_not(&"{{ .Subject }}".repeat(MOST + 1)), Some(MANY));
        assert_eq!(why_not(&format!("{{{{ .Subject }}}}{}", "x".repeat(LONGEST))), Some(LONG));
        assert_eq!(why_not(&"x".repeat(2 * LONGEST)), None);
    }
}
