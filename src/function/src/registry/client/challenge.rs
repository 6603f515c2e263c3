//! Parses `WWW-Authenticate`.

/// The authentication that a registry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// User name and password.
    Basic,
    /// A token from a token server.
    Bearer {
        /// URL of the token server.
        realm: String,
        /// The service that the token is for.
        service: Option<String>,
    },
}

/// Maximum length of a parsed header in bytes.
const LONGEST: usize = 4096;

/// Parses the headers. Prefers a token to a password.
pub(super) fn challenge<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let all: Vec<Challenge> = headers.filter(|header| header.len() <= LONGEST).filter_map(one).collect();
    let bearer = all.iter().find(|challenge| matches!(challenge, Challenge::Bearer { .. }));
    bearer.or(all.first()).cloned()
}

fn one(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let parameters = parameters(rest);
    let find =
        |wanted: &str| parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(wanted)).map(|(_, v)| v.clone());
    Some(Challenge::Bearer { realm: find("realm")?, service: find("service") })
}

/// Parses `key=value` or `key="quoted value"`, separated by commas.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches([' ', ',']);
    while let Some((key, after)) = rest.split_once('=') {
        let unquoted = || {
            let end = after.find(',').unwrap_or(after.len());
            (after[..end].trim().to_owned(), &after[end..])
        };
        let (value, next) = after.strip_prefix('"').map_or_else(unquoted, quoted_string);
        found.push((key.trim().to_owned(), value));
        rest = next.trim_start_matches([' ', ',']);
    }
    found
}

/// Returns the string up to the closing quote, and the rest.
fn quoted_string(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &[&str], expected: &str) {
        let got = match challenge(headers.iter().copied()) {
            Some(Challenge::Basic) => "basic".to_owned(),
            Some(Challenge::Bearer { realm, service }) => format!("{realm} {}", service.unwrap_or_default()),
            None => "none".to_owned(),
        };
        assert_eq!(got, expected, "{headers:?}");
    }

    #[test]
    fn reads_what_registries_send() {
        check(&["Basic realm=\"x\""], "basic");
        check(&["basic"], "basic");
        check(&["Bearer realm=\"https://a.io/t\",service=\"r\",scope=\"repository:a:pull,push\""], "https://a.io/t r");
        check(&["Basic realm=x", "BEARER Realm=https://a.io/t, service=r"], "https://a.io/t r");
        check(&["Bearer service=\"a\\\"b, realm=\\\"\" , realm=\"t\""], "t a\"b, realm=\"");
        for nothing in ["", "Negotiate", "Bearer", "Bearer scope=\"x\"", "Bearer realm"] {
            check(&[nothing], "none");
        }
        check(&["Bearer realm=\"open"], "open ");
        check(&[&format!("Basic {}", "x".repeat(5000))], "none");
    }
}
