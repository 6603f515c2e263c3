//! Removes possible secrets from a server's message.
//!
//! Invariant: of a text about a Secret, only names of unknown fields are passed on. From other texts, each value that
//! [may be secret](super::confidential) is removed, and at most [`MAX_SHOWN`] bytes remain, in one line.
//! Invariant: no login of a URL remains.
//! Invariant: the message of an admission webhook or policy is withheld, because it may contain values of the object in
//! any form. The name of the webhook or policy is passed on. Messages of Mainstay's own webhooks are passed on;
//! conditions contain the same messages.

use super::Key;
use super::confidential::may_be_secret;
use super::is_unprintable;
use super::logins::{has_login, hide_logins};

/// Maximum bytes of a server's message that remain.
const MAX_SHOWN: usize = 512;
/// Maximum bytes of a server's message that are scanned, because its values can be whole pod templates.
const MAX_SCANNED: usize = 64 * 1024;
/// Replaces a text about a Secret.
const WITHHELD: &str = "(the server's text is withheld: it may quote the Secret)";
/// Replaces the message of an admission webhook or policy.
const ADMISSION_WITHHELD: &str = "(its text is withheld: it may quote values of the object)";
/// Strings of API servers before and after the name of an admission webhook or policy. The message follows.
const ADMISSION: &[(&str, &str)] =
    &[("admission webhook \"", " denied the request: "), ("AdmissionPolicy '", " denied request: ")];
/// Mainstay's own webhooks, and the group of their objects.
const OWN_WEBHOOKS: [&str; 2] = [
    "\"validation.webhook.serverless.kyma-project.io\" denied the request:",
    "\"gitrepository.validation.webhook.serverless.kyma-project.io\" denied the request:",
];
const OWN_GROUP: &str = "serverless.kyma-project.io";
/// Replaces a value.
const CUT: &str = "…";
/// Strings with which API servers introduce a value.
const MARKERS: &[&str] =
    &["Invalid value: ", "Unsupported value: ", "Duplicate value: ", "Not found: ", "{Value:", "Value:\""];

/// Returns a server's message about an object, without possible secrets and without the object's name at the beginning.
pub fn redact_server_text(key: &Key, text: &str) -> String {
    redact_field_text(key, "", text)
}

/// Same as `redact_server_text`, for a message about one field, which the server reports separately.
pub fn redact_field_text(key: &Key, field: &str, text: &str) -> String {
    let text = truncated(text, MAX_SCANNED);
    if key.is("", "Secret") {
        return unknown_fields(text).map_or_else(|| WITHHELD.to_owned(), |fields| line(&fields));
    }
    if let Some(who) = admission(text).filter(|who| !is_own(key, who)) {
        return line(&format!("{} {ADMISSION_WITHHELD}", with_values(key, field, without_name(key, who))));
    }
    match typed_errors(text) {
        Some(errors) => line(&errors.map(|error| typed_error(key, error)).collect::<Vec<_>>().join("; ")),
        None => line(&with_values(key, field, without_name(key, text))),
    }
}

/// Returns the replacement for a server's message about a confidential object that is not a Secret.
pub fn withhold_server_text(text: &str) -> &'static str {
    if text.is_empty() { "" } else { WITHHELD }
}

/// Returns a field's path without the content of its brackets, except for indexes, because list items are identified by
/// their values.
pub fn without_item_names(path: &str) -> String {
    let mut shown = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('[') {
        shown.push_str(&rest[..at]);
        // A quoted key may contain brackets. A bracket without an end takes the rest of the text.
        let (item, after) = rest[at + 1..].split_at(value_length(&rest[at + 1..], Some(']')));
        let is_number = item.strip_suffix(']').is_some_and(|item| item.bytes().all(|byte| byte.is_ascii_digit()));
        shown.push('[');
        shown.push_str(if is_number { item } else { "…]" });
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// Returns the beginning of a denial, with the name of the admission webhook or policy but without its message; `None`
/// if the text is not a denial.
pub fn admission(text: &str) -> Option<&str> {
    ADMISSION.iter().find_map(|(who, denied)| {
        let named = text.find(who)? + who.len();
        // The length limit prevents that other text is mistaken for a name.
        let end = named + text[named..].find(denied)?;
        (end - named <= MAX_SHOWN).then_some(text[..end + denied.len()].trim_end())
    })
}

/// Adds a remedy to a withheld admission message: how to see the message. Returns `None` if nothing is withheld.
pub fn with_remedy(text: &str, remedy: &str) -> Option<String> {
    let shown = text.strip_suffix(ADMISSION_WITHHELD)?;
    Some(format!("{shown}{}; {remedy})", ADMISSION_WITHHELD.trim_end_matches(')')))
}

/// Returns whether Mainstay's own webhook denied the request.
fn is_own(key: &Key, who: &str) -> bool {
    &*key.group == OWN_GROUP && OWN_WEBHOOKS.iter().any(|name| who.ends_with(name))
}

/// Returns the text in one line, shortened and without the logins of URLs.
fn line(text: &str) -> String {
    // A login is hidden before the text is cut, because the cut could be within the login.
    let line: String = hide_logins(text).chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect();
    let short = truncated(&line, MAX_SHOWN - CUT.len());
    if short.len() < line.len() { format!("{short}{CUT}") } else { line }
}

/// Splits the field errors of an applied document; `None` if the message has a different form.
fn typed_errors(text: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, errors) = text.strip_prefix("failed to create typed ")?.split_once("): ")?;
    let errors = errors.strip_prefix("errors:\n").unwrap_or(errors);
    Some(errors.trim_start().trim_start_matches('.').split("\n  ."))
}

/// Redacts one field error: `data.n: expected string, got 5`.
fn typed_error(key: &Key, error: &str) -> String {
    let Some((before, value)) = error.split_once(", got &").filter(|(before, _)| before.contains(": expected ")) else {
        return with_values(key, "", error);
    };
    let value = value.trim_end();
    // The value is the text between the first and the last bracket.
    let value = value.split_once('{').and_then(|(_, value)| value.strip_suffix('}')).unwrap_or(value);
    let value = value.strip_prefix("Value:").unwrap_or(value);
    format!("{before}, got {}", go_value(key, before, value))
}

/// Describes a value in Go's notation.
fn go_value<'v>(key: &Key, path: &str, value: &'v str) -> &'v str {
    match value {
        _ if value.starts_with("map[") => "a map",
        _ if value.starts_with('[') => "a list",
        "<nil>" | "nil" | "interface {}(nil)" => "null",
        "" => "nothing",
        _ => shown(key, path, value),
    }
}

/// Returns a value, or its replacement.
fn shown<'v>(key: &Key, path: &str, value: &'v str) -> &'v str {
    let is_secret_kind = key.kind.to_ascii_lowercase().contains("secret");
    let is_of_go = value.contains('{') && !value.starts_with(['{', '[', '"']);
    if is_secret_kind || is_of_go || may_be_secret(path, value) || has_login(value) { CUT } else { value }
}

/// Returns the unknown fields of a Secret, if the message has no other errors. Field names are not confidential.
fn unknown_fields(text: &str) -> Option<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '[' | ']');
    let errors: Vec<&str> = typed_errors(text)?.collect();
    let is_unknown = |error: &&str| {
        error.strip_suffix(": field not declared in schema").is_some_and(|field| field.chars().all(is_name))
    };
    errors.iter().all(is_unknown).then(|| errors.join("; "))
}

/// Removes the object's name, which is displayed separately: `Deployment.apps "web" is invalid: [a, b]` becomes `a, b`.
fn without_name<'t>(key: &Key, text: &'t str) -> &'t str {
    let beginning = truncated(text, MAX_SHOWN);
    for words in [" is invalid: ", " is forbidden: ", ": "] {
        let named = format!("\"{}\"{words}", key.name);
        let Some((before, _)) = beginning.split_once(&named) else { continue };
        let is_name = before.split_whitespace().count() == 1;
        if is_name || words == ": " && before.starts_with("Operation cannot be fulfilled on ") {
            let rest = &text[before.len() + named.len()..];
            return rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(rest);
        }
    }
    match beginning.split_once(" cannot be handled as a ") {
        Some((before, rest)) if before.contains(" in version ") => rest
            .find(": ")
            .and_then(|end| text.get(before.len() + " cannot be handled as a ".len() + end + 2..))
            .unwrap_or(text),
        _ => text,
    }
}

/// Returns the message without the values that must not be shown.
fn with_values(key: &Key, field: &str, text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((at, marker)) = next_marker(rest) {
        // The path of the value is in the text that follows the previous value.
        let path = format!("{field}.{}", rest[..at].trim_end_matches([' ', ':']));
        kept.push_str(&rest[..at + marker.len()]);
        rest = &rest[at + marker.len()..];
        // The marker of a struct dump includes the bracket or quote that opens its value.
        let open = match *marker {
            "{Value:" => Some('}'),
            "Value:\"" => Some('"'),
            _ => None,
        };
        let (value, after) = rest.split_at(value_length(rest, open));
        kept.push_str(if open.is_some() { CUT } else { shown(key, &path, value) });
        rest = after;
        if kept.len() > MAX_SHOWN {
            break;
        }
    }
    kept.push_str(rest);
    kept
}

fn truncated(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Finds the first marker. The longer of two markers at the same position is returned.
fn next_marker(text: &str) -> Option<(usize, &'static &'static str)> {
    MARKERS
        .iter()
        .filter_map(|marker| text.find(marker).map(|at| (at, marker)))
        .min_by_key(|(at, marker)| (*at, usize::MAX - marker.len()))
}

/// Returns the length of the value at the start of `text`: up to its closing quote, its last closing bracket, or the `:
/// ` or `, ` that follows an unquoted word. A value without an end takes all of the text.
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

/// Returns whether the text that follows a closed value no longer belongs to it.
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
    fn shows_values_and_cuts_those_that_may_be_secret() {
        let cases = [
            (
                "x: spec.a: Invalid value: \"Web\": must be lower case",
                "x: spec.a: Invalid value: \"Web\": must be lower case",
            ),
            (
                "[a: Invalid value: 5: too small, b.password: Invalid value: \"a\\\"b: c\": no]",
                "[a: Invalid value: 5: too small, b.password: Invalid value: …: no]",
            ),
            (
                "spec.template: Invalid value: core.PodTemplateSpec{Env:[]core.EnvVar{core.EnvVar{Name:\"A\", Value:\"hun}ter2\"}}}: field is immutable",
                "spec.template: Invalid value: …: field is immutable",
            ),
            (
                "spec.t: Unsupported value: \"no\": supported values: \"A\", \"B\"",
                "spec.t: Unsupported value: \"no\": supported values: \"A\", \"B\"",
            ),
            ("spec.volumes[0].name: Not found: \"tmp\"", "spec.volumes[0].name: Not found: \"tmp\""),
            (
                "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
                "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
            ),
            ("a.token: Invalid value: {\"open\": \"hunter2\"", "a.token: Invalid value: …"),
            ("a: Invalid value: v1.Time{date(2020: x), \"hunter2\"}: no", "a: Invalid value: …: no"),
            ("two\nlines", "two lines"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text}");
        }
        let field =
            |field| redact_field_text(&Key::new("x", "Widget", None, "b"), field, "Invalid value: \"hunter2\": no");
        assert_eq!(field("spec.password"), "Invalid value: …: no");
        assert_eq!(field("spec.name"), "Invalid value: \"hunter2\": no");
        let sealed = Key::new("x", "SopsSecret", None, "b");
        assert!(!redact_server_text(&sealed, "spec.a: Invalid value: \"hunter2\": no").contains("hunter2"));
    }

    #[test]
    fn a_login_of_a_url_is_hidden_also_if_the_text_is_cut() {
        for (text, expected) in [
            (
                "spec.url: Forbidden: https://u:hunter2@h is unknown",
                "spec.url: Forbidden: https://(hidden)@h is unknown",
            ),
            ("spec.url: Invalid value: \"https:u:pa hunter2@h\": no", "spec.url: Invalid value: …: no"),
            (
                "failed to create typed patch object (a/b; x/v1, Kind=Job): .spec.m[url=\"https://u:hunter2@h\"].x: field not declared in schema",
                "spec.m[url=\"https://(hidden)@h\"].x: field not declared in schema",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        let cut = shown(&format!("see https://u:hunter2{}@h", "x".repeat(2 * MAX_SHOWN)));
        assert_eq!(cut, "see https://(hidden)@h");
    }

    #[test]
    fn says_what_is_wrong_with_an_applied_document_in_plain_words() {
        let prefix = "failed to create typed patch object (a/b; batch/v1, Kind=Job): ";
        let cases = [
            (".data.n: expected string, got &value.valueUnstructured{Value:5}", "data.n: expected string, got 5"),
            (
                "errors:\n  .data.n: expected string, got &value.valueUnstructured{Value:5}\n  .data.o: expected string, got &value.valueUnstructured{Value:true}",
                "data.n: expected string, got 5; data.o: expected string, got true",
            ),
            (
                ".data.x: expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"a\":\"hunter2\"}}",
                "data.x: expected string, got a map",
            ),
            (
                ".data.x: expected string, got &value.valueUnstructured{Value:interface {}(nil)}",
                "data.x: expected string, got null",
            ),
            (".spec.a: expected boolean, got &{yes}", "spec.a: expected boolean, got yes"),
            (".spec.passwordless: expected boolean, got &{hunt}er2}", "spec.passwordless: expected boolean, got …"),
            (".spec.a: expected any scalar, got &{map[b:hunter2]}", "spec.a: expected any scalar, got a map"),
            (".spec.a: expected list, got &{map[b:hunter2]}\n", "spec.a: expected list, got a map"),
            (".spec.bogus: field not declared in schema", "spec.bogus: field not declared in schema"),
            (
                ".spec.a: expected numeric (int or float), got string",
                "spec.a: expected numeric (int or float), got string",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(&format!("{prefix}{text}")), expected, "{text}");
        }
        let secret =
            |text: &str| redact_server_text(&Key::new("", "Secret", Some("a"), "b"), &format!("{prefix}{text}"));
        assert_eq!(secret(".sops: field not declared in schema"), "sops: field not declared in schema");
        for text in [
            ".data.p: expected string, got &{hunter2}",
            ".a b=hunter2: field not declared in schema",
            ".a: field not declared in schema\n  .data.p: hunter2",
        ] {
            assert!(!secret(text).contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn says_who_denied_a_request_and_not_in_which_words() {
        for (text, expected) in [
            (
                "admission webhook \"v.x.io\" denied the request: A=hunter2",
                "admission webhook \"v.x.io\" denied the request:",
            ),
            (
                "Job.batch \"b\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'q' denied request: hunter2 denied the request: x",
                "ValidatingAdmissionPolicy 'p' with binding 'q' denied request:",
            ),
        ] {
            assert_eq!(shown(text), format!("{expected} {ADMISSION_WITHHELD}"), "{text}");
        }
        let own = "admission webhook \"validation.webhook.serverless.kyma-project.io\" denied the request: validation failed: x";
        assert!(shown(own).ends_with(ADMISSION_WITHHELD), "it judges no such object");
        let function = Key::new("serverless.kyma-project.io", "Function", Some("a"), "b");
        assert_eq!(redact_server_text(&function, own), own);
        let other = own.replace("validation.webhook", "other.webhook");
        assert!(redact_server_text(&function, &other).ends_with(ADMISSION_WITHHELD));
        let short = "admission webhook \"v.x.io\" denied the request without explanation";
        assert_eq!(shown(short), short);
        let long = format!("admission webhook \"{}\" denied the request: hunter2", "v".repeat(5000));
        assert!(!shown(&long).contains("hunter2"));
    }

    #[test]
    fn paths_are_shown_without_what_items_are_called() {
        let cases = [
            ("spec.a", "spec.a"),
            ("spec.containers[name=\"hunter2\"].image", "spec.containers[…].image"),
            ("spec.a[12].b[port=1,name=\"x]\"].c", "spec.a[12].b[…].c"),
            ("spec.a[\"hunter2\"]", "spec.a[…]"),
            ("spec.a[hunter2", "spec.a[…]"),
        ];
        for (path, expected) in cases {
            assert_eq!(without_item_names(path), expected, "{path}");
        }
    }

    #[test]
    fn leaves_out_the_name_of_the_object() {
        let cases = [
            ("Job.batch \"b\" is invalid: spec.a: Required value", "spec.a: Required value"),
            ("Job.batch \"b\" is invalid: [spec.a: Required value, spec.b: no]", "spec.a: Required value, spec.b: no"),
            ("jobs.batch \"b\" is forbidden: exceeded quota: q", "exceeded quota: q"),
            ("jobs.batch \"c\" is forbidden: no", "jobs.batch \"c\" is forbidden: no"),
            ("a webhook says: \"b\" is invalid: no", "a webhook says: \"b\" is invalid: no"),
            ("Operation cannot be fulfilled on jobs.batch \"b\": it was modified", "it was modified"),
            (
                "Job in version \"v1\" cannot be handled as a Job: strict decoding error: unknown field \"spec.x\"",
                "strict decoding error: unknown field \"spec.x\"",
            ),
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
