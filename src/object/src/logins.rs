//! Hides the logins of URLs in texts and in objects: `https://user:password@host` becomes `https://(hidden)@host`.
//!
//! Invariant: the time is proportional to the length of the text, because a hostile object may consist of URLs.
//! Invariant: if a login cannot be told from the rest of a URL, more than the login is hidden.
//!
//! Not here: logins without a scheme, such as `user:password@host`, which look like the tag and the digest of an image.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

/// Replacements: for a single or unchanged login, and for the two sides of a changed one.
const HIDDEN: &str = "(hidden)";
const BEFORE: &str = "(hidden-before)";
const AFTER: &str = "(hidden-after)";
/// Maximum length of a scheme, in bytes.
const SCHEME: usize = 32;
/// The end of a text that was cut.
const CUT: char = '…';

/// Returns a text without the logins of the URLs in it. The user of an SSH URL is not hidden, because it is no secret.
pub fn hide_logins(text: &str) -> Cow<'_, str> {
    marked(text, HIDDEN)
}

/// Returns the two sides of a change without the logins of URLs. If only logins differ, the sides still differ.
pub fn hide_changed_logins(before: &str, after: &str) -> (String, String) {
    let (one, other) = (hide_logins(before), hide_logins(after));
    if one == other && before != after {
        return (marked(before, BEFORE).into_owned(), marked(after, AFTER).into_owned());
    }
    (one.into_owned(), other.into_owned())
}

/// Hides the logins of URLs in all strings of a value.
pub fn hide_logins_in(value: &mut Value) {
    match value {
        Value::String(text) => {
            let shown = match hide_logins(text) {
                Cow::Owned(shown) => shown,
                Cow::Borrowed(_) => return,
            };
            *text = shown;
        }
        Value::Array(items) => items.iter_mut().for_each(hide_logins_in),
        Value::Object(fields) => fields.values_mut().for_each(hide_logins_in),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn marked<'t>(text: &'t str, mark: &str) -> Cow<'t, str> {
    if !text.contains(':') || !text.contains(['@', CUT]) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if begins_with_url(line.trim_start()) {
            // A password in a field with one URL may contain spaces and quotes.
            add(line, mark, &mut shown);
        } else {
            for part in line.split_inclusive(ends_url) {
                add(part, mark, &mut shown);
            }
        }
    }
    if shown == text { text.into() } else { shown.into() }
}

/// Returns whether a character ends a URL in a sentence or in JSON. A quote in a URL is written in hexadecimal digits.
fn ends_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '`' | '<' | '>')
}

fn begins_with_url(line: &str) -> bool {
    let colon = line.bytes().take(SCHEME).position(|byte| !is_of_scheme(byte));
    colon.is_some_and(|at| line.as_bytes()[at] == b':' && authority(line, at).is_some())
}

/// Adds a part of a text, which has no spaces around URLs.
fn add(part: &str, mark: &str, shown: &mut String) {
    let mut done = 0;
    for login in logins(part) {
        shown.push_str(&part[done..login.start]);
        shown.push_str(mark);
        done = login.end;
    }
    shown.push_str(&part[done..]);
}

/// The end of an authority, and the last `@` and `.` in it.
#[derive(Clone, Copy)]
struct Authority {
    end: usize,
    at: Option<usize>,
    dot: Option<usize>,
}

impl Authority {
    fn of(part: &str, start: usize) -> Self {
        let end = part[start..].find(['/', '?', '#', '\\']).map_or(part.len(), |length| start + length);
        let last = |c: char| part[start..end].rfind(c).map(|at| start + at);
        Self { end, at: last('@'), dot: last('.') }
    }
}

/// The parts of a text that are the same for all URLs in it.
#[derive(Clone, Copy)]
struct Ends {
    /// The last `@`.
    at: Option<usize>,
    /// The end of the text before the mark of a cut.
    cut: Option<usize>,
}

/// Returns the places of the logins to hide.
fn logins(part: &str) -> Vec<Range<usize>> {
    let ends = Ends { at: part.rfind('@'), cut: part.trim_end().strip_suffix(CUT).map(str::len) };
    let mut all = Vec::new();
    let Some(last) = ends.at.max(ends.cut) else { return all };
    let (mut from, mut known) = (0, None::<Authority>);
    while let Some(colon) = part.get(from..last).and_then(|rest| rest.find(':')).map(|at| from + at) {
        from = colon + 1;
        let Some((scheme, start)) = authority(part, colon) else { continue };
        // Many schemes within an authority share its end.
        let found = known.filter(|known| known.end >= start).unwrap_or_else(|| Authority::of(part, start));
        known = Some(found);
        let Some(end) = end_of_login(start, found, ends) else { continue };
        if is_hidden(scheme, &part[start..end], &part[end..]) {
            all.push(start..end);
        }
        from = end;
    }
    all
}

/// The scheme of a URL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Ssh,
    Other,
}

/// Returns the scheme before a colon, and the start of the authority after it. Browsers accept any number of slashes
/// after the schemes of HTTP.
fn authority(part: &str, colon: usize) -> Option<(Scheme, usize)> {
    let bytes = part.as_bytes();
    let length = bytes[..colon].iter().rev().take(SCHEME).take_while(|byte| is_of_scheme(**byte)).count();
    let (scheme, rest) = (part[colon - length..colon].to_ascii_lowercase(), &bytes[colon + 1..]);
    let slashes = rest.iter().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
    let follows = rest.first().is_some_and(|byte| !byte.is_ascii_whitespace() && *byte != b'"');
    let is_http = scheme == "http" || scheme == "https";
    let (scheme, slashes) = if is_http && slashes > 0 {
        (Scheme::Http, slashes)
    } else if is_http && follows {
        (Scheme::Other, 0)
    } else if rest.starts_with(b"//") || rest.starts_with(br"\/\/") {
        let is_ssh = scheme.ends_with("ssh") || scheme.ends_with("sftp");
        (if is_ssh { Scheme::Ssh } else { Scheme::Other }, if rest[0] == b'/' { 2 } else { 4 })
    } else {
        return None;
    };
    (length > 0).then_some((scheme, colon + 1 + slashes))
}

fn is_of_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

/// Returns the end of the login that begins at `start`, if there is one.
fn end_of_login(start: usize, found: Authority, ends: Ends) -> Option<usize> {
    let at = found.at.filter(|at| *at >= start);
    let has_dot = found.dot.is_some_and(|dot| dot >= at.unwrap_or(start));
    let later = ends.at.filter(|later| *later > found.end && found.end > start);
    match (later, at) {
        // A login with a slash ends the authority too early.
        (Some(later), Some(_)) => Some(later),
        (Some(later), None) if !has_dot => Some(later),
        (_, Some(at)) => Some(at),
        (_, None) => ends.cut.filter(|cut| *cut > start && found.end > *cut),
    }
}

/// Returns whether a login is hidden. A mark stays, and so do the user of an SSH URL and the name of an image before its
/// digest, such as in `docker-pullable://nginx@sha256:…`.
fn is_hidden(scheme: Scheme, login: &str, rest: &str) -> bool {
    let is_plain = login.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let is_digest = ["@sha256:", "@sha512:"].iter().any(|digest| rest.starts_with(digest));
    let is_public = scheme == Scheme::Ssh && is_plain || scheme == Scheme::Other && is_digest;
    !login.is_empty() && !is_public && ![HIDDEN, BEFORE, AFTER].contains(&login)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(text: &str, expected: &str) {
        let shown = hide_logins(text);
        assert_eq!(shown, expected);
        assert_eq!(hide_logins(&shown), expected, "a second time");
        assert!(!shown.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_login_of_a_url_is_hidden_in_each_text() {
        for (text, expected) in [
            ("https://user:hunter2@host/shop?a=b", "https://(hidden)@host/shop?a=b"),
            ("HTTPS://hunter2@host", "HTTPS://(hidden)@host"),
            ("https://u:hun@ter2@host/shop", "https://(hidden)@host/shop"),
            ("https://u:hunter2 @host/shop", "https://(hidden)@host/shop"),
            ("https://u:hunter2\"@host/shop", "https://(hidden)@host/shop"),
            ("https:user:hunter2@host/shop", "https:(hidden)@host/shop"),
            ("https:\\/\\/u:hunter2@host", "https:\\/\\/(hidden)@host"),
            ("ssh://git:hunter2@host:22/shop", "ssh://(hidden)@host:22/shop"),
            ("ssh://git%3Ahunter2@host/shop", "ssh://(hidden)@host/shop"),
            ("jdbc:postgresql://u:hunter2@db/shop", "jdbc:postgresql://(hidden)@db/shop"),
            ("redis://:hunter2@redis:6379/0", "redis://(hidden)@redis:6379/0"),
            ("git+https://hunter2@host/a", "git+https://(hidden)@host/a"),
            (r#"{"url":"https://u:hunter2@host","b":"x@y"}"#, r#"{"url":"https://(hidden)@host","b":"x@y"}"#),
            ("a: http://u:hunter2@h\nb: amqp://u:hunter2@h", "a: http://(hidden)@h\nb: amqp://(hidden)@h"),
            ("of http://a.b and https://u:hunter2@h, 'c@d'", "of http://a.b and https://(hidden)@h, 'c@d'"),
            ("http://a.b,https://u:hunter2@h", "http://a.b,https://(hidden)@h"),
            ("größe https://ü:hunter2@h/ß", "größe https://(hidden)@h/ß"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn a_login_that_cannot_be_told_from_the_rest_is_hidden_with_the_rest() {
        for (text, expected) in [
            ("https://user:hunter2/x@host/shop", "https://(hidden)@host/shop"),
            ("https://user:pa@ss/hunter2@gitlab.com/shop", "https://(hidden)@gitlab.com/shop"),
            ("https://hunter2/x@host/shop", "https://(hidden)@host/shop"),
            ("https://hunter2?x@host/shop", "https://(hidden)@host/shop"),
            ("https://hunter2\\x@host/shop", "https://(hidden)@host/shop"),
            ("\"https://user:hunter2…", "\"https://(hidden)…"),
            ("http:https://u:hunter2@host", "http:(hidden)@host"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn a_text_without_a_login_stays() {
        for text in [
            "",
            "https://host/team/shop.git",
            "https://git.example.com/@team/shop",
            "https://git.example.com?mail=a@example.com",
            "https://[::1]:8443/shop",
            "ssh://git@host:22/shop",
            "git@host:team/shop",
            "mail a@example.com: http: b@example.com",
            "docker-pullable://nginx@sha256:0123",
            "registry.example.com/http:1.0@sha256:0123",
            "https://@host",
            "https://host/shop and more…",
        ] {
            check(text, text);
            assert!(matches!(hide_logins(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn a_change_of_a_login_is_visible_but_not_the_login() {
        let changed = |before: &str, after: &str| hide_changed_logins(before, after);
        let pair = |before: &str, after: &str| (before.to_owned(), after.to_owned());
        assert_eq!(
            changed("https://a:hunter2@h", "https://b:hunter2@h"),
            pair("https://(hidden-before)@h", "https://(hidden-after)@h")
        );
        assert_eq!(changed("https://a@h/1", "https://a@h/2"), pair("https://(hidden)@h/1", "https://(hidden)@h/2"));
        assert_eq!(changed("https://a@h", "https://a@h"), pair("https://(hidden)@h", "https://(hidden)@h"));
        assert_eq!(changed("1", "2"), pair("1", "2"));
    }

    #[test]
    fn each_string_of_an_object_is_shown_without_logins() {
        let url = "https://u:hunter2@h";
        let copy = json!({"spec": {"url": url}}).to_string();
        let mut object = json!({"metadata": {"annotations": {"copy": copy}}, "spec": {"all": [url, 1, null]}});
        hide_logins_in(&mut object);
        assert!(!object.to_string().contains("hunter2"), "{object}");
        assert_eq!(object["spec"]["all"], json!(["https://(hidden)@h", 1, null]));
    }

    #[test]
    fn a_long_text_of_urls_takes_little_time() {
        // A search from each scheme would take minutes.
        for unit in ["http:", "http://a.b:", "a://", "http://a.b/", "http:a.b:@x"] {
            let text = format!("{}/@", unit.repeat((1 << 20) / unit.len()));
            assert!(hide_logins(&text).len() <= 2 * text.len(), "{unit}");
        }
    }
}
