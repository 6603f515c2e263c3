//! The templates in the configuration of handlers.
//!
//! Oathkeeper executes texts of mutators as templates of Go, with functions that read its environment and allocate any
//! amount of memory. Only references to fields of a request are passed on. Fields that mutators write, such as
//! `.Header`, are refused: each mutator could copy the headers of the one before it, so that they grow exponentially.
//!
//! Invariant: a permitted text calls no function other than `print`, `printIndex` and `toJson`, and has no loop.
//! Invariant: a permitted text reads no field that a mutator can write.
//! Invariant: no message contains a value from the configuration.
//!
//! Not here: the text outside of `{{ }}`, which is free. The author of an APIRule chooses headers and claims.

use serde_json::Value;

use mainstay_api::api_rule::ApiRuleHandler;
use mainstay_object::syntax::shown;

/// Maximum length of a text with templates, in bytes.
const LONGEST: usize = 4096;
/// Maximum number of references in all mutators of one rule.
const MOST: usize = 64;
/// The fields of a URL that a template may read.
const OF_URL: [&str; 9] = ["Fragment", "Host", "Hostname", "Opaque", "Path", "Port", "RawPath", "RawQuery", "Scheme"];

/// The message for a template that is more than a reference to a field.
const FORM: &str = "may have only references to fields in {{ }}, such as {{ print .Subject }}, {{ .Extra.email }}, \
                    {{ printIndex .MatchContext.RegexpCaptureGroups 0 }} or {{ .Extra | toJson }}";
/// The message for a template that is too long.
const LONG: &str = "has more than 4096 bytes with a template in {{ }}; write a shorter string";
/// The message for too many references.
const MANY: &str = "exceeds the 64 references in {{ }} that the mutators of a rule may have; write fewer";
/// The message for a field that is not permitted.
const FIELD: &str = "may read only .Subject, .Extra, .MatchContext.RegexpCaptureGroups, .MatchContext.Method and \
                     .MatchContext.URL with its fields in {{ }}";

/// The message for a field that a hydrator writes.
const HYDRATED: &str =
    "may read only .Subject in {{ }}, because the rule has a hydrator, which writes the other fields";

/// A word of a template.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    /// A field, such as `.Extra.name`.
    Field,
    /// The index of a list.
    Index,
    Print,
    PrintIndex,
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
            _ if word.len() <= 3 && word.bytes().all(|c| c.is_ascii_digit()) => Some(Self::Index),
            _ => word.strip_prefix('.').filter(|path| path.split('.').all(is_name)).map(|_| Self::Field),
        }
    }
}

/// Whether no mutator can write the field of this path, such as `.Extra.email`.
fn is_readable(path: &str) -> bool {
    let names: Vec<&str> = path.split('.').skip(1).collect();
    match names.as_slice() {
        ["Subject"] | ["Extra", ..] | ["MatchContext", "RegexpCaptureGroups" | "Method" | "URL"] => true,
        ["MatchContext", "URL", field] => OF_URL.contains(field),
        _ => false,
    }
}

/// The references that the remaining mutators of a rule may have.
pub(super) struct References {
    left: usize,
    readable: Readable,
}

/// The fields that no mutator of a rule writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readable {
    Session,
    /// A hydrator replaces the other fields of the session with the response of its server.
    Subject,
}

impl References {
    /// Returns the references of a rule with these mutators.
    pub(super) fn of(mutators: &[ApiRuleHandler]) -> Self {
        let is_hydrated = mutators.iter().any(|mutator| mutator.handler == "hydrator");
        Self { left: MOST, readable: if is_hydrated { Readable::Subject } else { Readable::Session } }
    }
}

/// Returns the first field below `attribute` with a template that is not permitted, and why.
pub(super) fn refused(config: &Value, attribute: &str, left: &mut References) -> Option<(String, &'static str)> {
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
                match count(text, left.readable) {
                    Err(why) => return Some((at, why)),
                    Ok(count) if count > left.left => return Some((at, MANY)),
                    Ok(count) => left.left -= count,
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the number of references in a text, or why it has another template.
fn count(text: &str, readable: Readable) -> Result<usize, &'static str> {
    let (mut rest, mut count) = (text, 0);
    while let Some((_, after)) = rest.split_once("{{") {
        let (inside, next) = after.split_once("}}").ok_or(FORM)?;
        // A hyphen beside the braces, with a blank, removes blanks of the text.
        let inside = inside.strip_prefix("- ").unwrap_or(inside);
        let inside = inside.strip_suffix(" -").unwrap_or(inside);
        let path = field(inside).ok_or(FORM)?;
        if readable == Readable::Subject && path != ".Subject" {
            return Err(HYDRATED);
        }
        if !is_readable(path) {
            return Err(FIELD);
        }
        (rest, count) = (next, count + 1);
    }
    Ok(count)
}

/// Returns the path of the field that a template refers to; `None` if the template is more than a reference.
fn field(inside: &str) -> Option<&str> {
    let (value, json) = inside.split_once('|').unwrap_or((inside, "toJson"));
    if words(json).ne(["toJson"]) {
        return None;
    }
    let words: Vec<(&str, Word)> = words(value).map(|word| Some((word, Word::parse(word)?))).collect::<Option<_>>()?;
    match words.as_slice() {
        [(path, Word::Field)]
        | [(_, Word::Print), (path, Word::Field)]
        | [(_, Word::PrintIndex), (path, Word::Field), (_, Word::Index)] => Some(path),
        _ => None,
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '\t']).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why_not(text: &str) -> Option<&'static str> {
        let (at, why) = refused(&json!({"headers": {"X-User": text}}), "config", &mut References::of(&[]))?;
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
            "{{ .MatchContext.Method }} {{ .MatchContext.URL }} {{ .MatchContext.URL.Path }}",
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
            "{{ .Subject | }}",
            "{{ .Subject || toJson }}",
        ] {
            assert_eq!(why_not(text), Some(FORM), "{text}");
        }
    }

    #[test]
    fn fields_that_a_mutator_can_write_are_refused() {
        for text in [
            "{{ .Header }}",
            "{{ .Header | toJson }}",
            "{{ print .Header.X }}",
            "{{ .Copy.Header.Clone | toJson }}",
            "{{ print .Copy.Copy.Copy.Header }}",
            "{{ .Subject.Copy }}",
            "{{ .MatchContext }}",
            "{{ .MatchContext.Header }}",
            "{{ .MatchContext.URL.JoinPath }}",
            "{{ .MatchContext.URL.Query.Encode }}",
            "{{ printIndex .Header 0 }}",
            "{{ .subject }}",
        ] {
            assert_eq!(why_not(text), Some(FIELD), "{text}");
        }
    }

    #[test]
    fn the_mutators_of_a_rule_share_one_limit_of_references() {
        let half = json!({"headers": {"X": "{{ .Subject }}".repeat(MOST / 2)}});
        let mut left = References::of(&[]);
        let mut refused = || refused(&half, "config", &mut left).map(|(_, why)| why);
        assert_eq!([refused(), refused(), refused()], [None, None, Some(MANY)]);
    }

    #[test]
    fn a_template_beside_a_hydrator_reads_the_subject_only() {
        let hydrator = ApiRuleHandler { handler: "hydrator".into(), config: None };
        let why_not = |text: &str| {
            let config = json!({"headers": {"X": text}});
            refused(&config, "config", &mut References::of(std::slice::from_ref(&hydrator))).map(|(_, why)| why)
        };
        assert_eq!(why_not("{{ print .Subject }}"), None);
        for text in ["{{ .Extra | toJson }}", "{{ .MatchContext.URL }}", "{{ .Header }}"] {
            assert_eq!(why_not(text), Some(HYDRATED), "{text}");
        }
    }

    #[test]
    fn templates_of_each_field_are_judged_and_their_number_is_bounded() {
        let bad = "{{ env \"PATH\" }}";
        for config in [json!({"claims": bad}), json!({"Cookies": {"a": bad}}), json!({"fresh": [[{"key": bad}]]})] {
            assert!(refused(&config, "config", &mut References::of(&[])).is_some(), "{config}");
        }
        assert_eq!(why_not(&"{{ .Subject }}".repeat(MOST)), None);
        assert_eq!(why_not(&"{{ .Subject }}".repeat(MOST + 1)), Some(MANY));
        assert_eq!(why_not(&format!("{{{{ .Subject }}}}{}", "x".repeat(LONGEST))), Some(LONG));
        assert_eq!(why_not(&"x".repeat(2 * LONGEST)), None);
    }
}
