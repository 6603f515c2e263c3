//! The syntax of names, labels and variables in the API, with the API's own error messages.
//!
//! A violation thus has the same message in every check.

use super::is_unprintable;
use mainstay_api::conditions::cut;

/// Maximum bytes of a user's string that a message repeats.
const SHOWN: usize = 200;
const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const TOO_LONG: &str = "must be no more than 63 characters";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const DNS_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const ENV: &str = "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', \
     and must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for \
     validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')";
/// Maximum length of a name, a label value, and the name part of a label key.
const MAX_LENGTH: usize = 63;

/// Returns the part of a user's string that a message repeats.
pub fn shown(text: &str) -> String {
    let short = cut(text, SHOWN);
    let clean: String = short.chars().map(|c| if is_unprintable(c) { '\u{fffd}' } else { c }).collect();
    if short.len() < text.len() { clean + "…" } else { clean }
}

/// Returns the errors of a name that must be an RFC 1035 DNS label, such as that of a Service.
pub fn dns_label(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > MAX_LENGTH {
        wrong.push(TOO_LONG.to_owned());
    }
    let starts = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if !starts || !name.bytes().all(is_dns) || name.ends_with('-') {
        wrong.push(DNS_LABEL.to_owned());
    }
    wrong
}

/// Returns the error of an object name, such as that of a GitRepository.
pub fn subdomain(name: &str) -> Option<&'static str> {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(is_dns) && !part.starts_with('-') && !part.ends_with('-');
    (name.len() > 253 || !name.split('.').all(part)).then_some(SUBDOMAIN)
}

/// Returns the errors of a label's key and value.
pub fn label(key: &str, value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for words in label_key(key) {
        wrong.push(format!("Invalid value: \"{}\": {words}", shown(key)));
    }
    if value.len() > MAX_LENGTH {
        wrong.push(format!("Invalid value: \"{}\": {TOO_LONG}", shown(value)));
    }
    if !value.is_empty() && !is_name(value) {
        wrong.push(format!("Invalid value: \"{}\": {LABEL_VALUE}", shown(value)));
    }
    wrong
}

fn label_key(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a qualified name {NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else if let Some(words) = subdomain(prefix) {
                wrong.push(format!("prefix part {words}"));
            }
            name
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LENGTH {
        wrong.push(format!("name part {TOO_LONG}"));
    }
    if !is_name(name) {
        wrong.push(format!("name part {NAME_PART}"));
    }
    wrong
}

/// Returns the errors of an environment variable's name.
pub fn env_name(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let digit = name.bytes().next().is_none_or(|b| b.is_ascii_digit());
    if digit || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        wrong.push(ENV.to_owned());
    }
    match name {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        _ if name.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

fn is_dns(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

fn is_name(text: &str) -> bool {
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    end(text.bytes().next())
        && end(text.bytes().last())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_little_of_what_users_write() {
        assert_eq!(shown("a\nb"), "a\u{fffd}b");
        assert_eq!(shown(&"é".repeat(300)).chars().count(), 101);
    }

    #[test]
    fn takes_the_names_that_a_service_may_have() {
        for name in ["a", "hello", "a-1", "a--b"] {
            assert_eq!(dns_label(name), Vec::<String>::new(), "{name}");
        }
        assert_eq!(dns_label(&"a".repeat(63)), Vec::<String>::new());
        for name in ["", "1abc", "my_fn", "My", "a.b", "a-", "-a", "ä"] {
            assert_eq!(dns_label(name), [DNS_LABEL], "{name}");
        }
        assert_eq!(dns_label(&"a".repeat(64)), [TOO_LONG]);
    }

    #[test]
    fn takes_the_labels_that_the_api_takes() {
        for (key, value) in [("a", ""), ("example.com/My.Name_1", "v"), (&*"k".repeat(63), &*"v".repeat(63))] {
            assert_eq!(label(key, value), Vec::<String>::new(), "{key}={value}");
        }
        for (key, value, words) in [
            ("should BE not OK", "", "name part must consist of"),
            ("", "", "name part must be non-empty"),
            ("/a", "", "prefix part must be non-empty"),
            ("A.com/a", "", "prefix part a lowercase RFC 1123 subdomain"),
            ("a/b/c", "", "a qualified name must consist of"),
            ("a", "-v", "a valid label must be"),
            ("a", &*"v".repeat(64), "must be no more than 63 characters"),
            (&*"k".repeat(64), "", "name part must be no more than 63 characters"),
        ] {
            assert!(label(key, value).iter().any(|wrong| wrong.contains(words)), "{key}={value}: {words}");
        }
    }

    #[test]
    fn takes_the_variables_that_the_api_takes() {
        for name in ["A", "_a", "my.env-name", ".a", "-"] {
            assert_eq!(env_name(name), Vec::<String>::new(), "{name}");
        }
        for name in ["", "1A", "A B", "A=B", "ä"] {
            assert_eq!(env_name(name), [ENV], "{name}");
        }
        assert_eq!(env_name("."), ["must not be '.'"]);
        assert_eq!(env_name(".."), ["must not be '..'"]);
        assert_eq!(env_name("..a"), ["must not start with '..'"]);
    }
}
