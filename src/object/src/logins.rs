//! Hides the logins of URLs in texts and in objects: `https://user:password@host` becomes `https://(hidden)@host`.
//!
//! Invariant: the time is proportional to the length of the text, because a hostile object may consist of URLs.
//! Invariant: if a login cannot be told from the rest of a URL, more than the login is hidden.
//!
//! Not here: logins without a scheme, such as `user:password@host`, which look like the tag and the digest of an image.
//!
//! Limits: a login stays if its beginning looks like a host with a path: `john.doe:12/34@host`, `john.doe/x@host`, and
//! `token/x?y@host` or `user:12/x'y@host`, in which a query or a quote follows the path. A login in the middle of a sentence
//! ends at a space.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

/// Replacements: for a single or unchanged login, and for the two sides of a changed one.
const HIDDEN: &str = "(hidden)";
const BEFORE: &str = "(hidden-before)";
const AFTER: &str = "(hidden-after)";
const MARKS: [&str; 3] = [HIDDEN, BEFORE, AFTER];
/// Maximum length of a scheme, in bytes.
const SCHEME: usize = 32;
/// The end of a text that was cut.
const CUT: char = '…';
/// Minimum number of hexadecimal digits of a digest. A port has fewer.
const DIGEST: usize = 32;

/// Returns a text without the logins of the URLs in it. The user of an SSH URL is not hidden, because it is no secret.
pub fn hide_logins(text: &str) -> Cow<'_, str> {
    marked(text, HIDDEN)
}

/// Returns the two sides of a change without the logins of URLs. If only logins differ, the sides still differ, unless a
/// login was hidden before: its mark is equal to each login.
pub fn hide_changed_logins(before: &str, after: &str) -> (String, String) {
    let (one, other) = (hide_logins(before), hide_logins(after));
    if one == other && before != after && !has_mark(before) && !has_mark(after) {
        return (marked(before, BEFORE).into_owned(), marked(after, AFTER).into_owned());
    }
    (one.into_owned(), other.into_owned())
}

/// Hides the logins of URLs in all strings of a value. Returns whether a login is hidden in it, now or since before.
pub fn hide_logins_in(value: &mut Value) -> bool {
    match value {
        Value::String(text) => {
            let shown = match hide_logins(text) {
                Cow::Owned(shown) => shown,
                Cow::Borrowed(_) => return has_mark(text),
            };
            *text = shown;
            true
        }
        Value::Array(items) => items.iter_mut().fold(false, |is_hidden, item| hide_logins_in(item) || is_hidden),
        Value::Object(fields) => fields.values_mut().fold(false, |is_hidden, item| hide_logins_in(item) || is_hidden),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns whether a text has a mark in the place of a login.
fn has_mark(text: &str) -> bool {
    let is_of_login = |(at, mark): (usize, &str)| text[at + mark.len()..].starts_with(['@', CUT]);
    MARKS.iter().any(|mark| text.match_indices(*mark).any(is_of_login))
}

fn marked<'t>(text: &'t str, mark: &str) -> Cow<'t, str> {
    if !text.contains(':') || !text.contains(['@', CUT]) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        // A password in a field with one URL may contain spaces and quotes.
        let (url, rest) = line.split_at(url_at_beginning(line));
        add(url, mark, &mut shown);
        for part in rest.split_inclusive(ends_url) {
            add(part, mark, &mut shown);
        }
    }
    if shown == text { text.into() } else { shown.into() }
}

/// Returns whether a character ends a URL in a sentence or in JSON. A quote in a URL is written in hexadecimal digits.
fn ends_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '`' | '<' | '>')
}

/// Returns the length of the URL at the beginning of a line, also as the value of a variable, an argument or a key:
/// `--url=https://…`, `[url="https://…"]`. Without a quote, it is the whole line; without a URL, it is 0.
fn url_at_beginning(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    let word = line[indent..].split(char::is_whitespace).next().unwrap_or_default();
    let length = word.match_indices(':').find_map(|(at, _)| {
        let colon = indent + at;
        let before = &word[..at - scheme_length(word, at)];
        let quote = before.chars().next_back().filter(|c| matches!(c, '"' | '\''));
        let is_value = before.strip_suffix(['"', '\'']).unwrap_or(before).ends_with('=');
        let is_url = (before.is_empty() || is_value) && authority(line, colon).is_some();
        let closed = || quote.and_then(|quote| closing(&line[colon..], quote)).map(|length| colon + length);
        is_url.then(|| closed().unwrap_or(line.len()))
    });
    length.unwrap_or_default()
}

/// Returns the place of the first quote that has no backslash before it.
fn closing(text: &str, quote: char) -> Option<usize> {
    text.match_indices(quote).map(|(at, _)| at).find(|at| !text[..*at].ends_with('\\'))
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

/// The end of an authority, and the last places of some characters in it.
#[derive(Clone, Copy)]
struct Authority {
    end: usize,
    at: Option<usize>,
    dot: Option<usize>,
    colon: Option<usize>,
    space: Option<usize>,
    /// Whether the text after the last colon is empty or a number.
    has_port: bool,
}

impl Authority {
    fn of(part: &str, start: usize) -> Self {
        let end = part[start..].find(['/', '?', '#', '\\']).map_or(part.len(), |length| start + length);
        let text = part[start..end].trim_end();
        let last = |c: char| text.rfind(c).map(|at| start + at);
        let space = text.rfind(char::is_whitespace).map(|at| start + at);
        let has_port = text.rsplit(':').next().is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        Self { end, at: last('@'), dot: last('.'), colon: last(':'), space, has_port }
    }

    /// Returns whether the authority from `start` may be a host with or without a port.
    fn is_host(self, part: &str, start: usize) -> bool {
        let is_ipv6 = || part[start..self.end].starts_with('[') && part[..self.end].ends_with(']');
        self.colon.is_none_or(|colon| colon < start) || self.has_port || is_ipv6()
    }
}

/// The text after an authority that may belong to its login although the authority may be a host: the path.
#[derive(Clone, Copy)]
struct Path {
    end: usize,
    at: Option<usize>,
}

impl Path {
    fn of(part: &str, start: usize) -> Self {
        // A character that ends the authority may be part of a login.
        let inside = part.len().min(start + 1);
        let ends = |c: char| ends_url(c) || matches!(c, '?' | '\'');
        let end = part[inside..].find(ends).map_or(part.len(), |length| inside + length);
        Self { end, at: part[start..end].rfind('@').map(|at| start + at) }
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
    let (mut from, mut known, mut path) = (0, None::<Authority>, None::<Path>);
    while let Some(colon) = part.get(from..last).and_then(|rest| rest.find(':')).map(|at| from + at) {
        from = colon + 1;
        let Some((scheme, start)) = authority(part, colon) else { continue };
        // Many schemes within an authority share its end.
        let found = known.filter(|known| known.end >= start).unwrap_or_else(|| Authority::of(part, start));
        known = Some(found);
        let after = path.filter(|path| path.end > found.end).unwrap_or_else(|| Path::of(part, found.end));
        path = Some(after);
        let Some(end) = end_of_login(part, (scheme, start), (found, after), ends) else { continue };
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
    let length = scheme_length(part, colon);
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

/// Returns the length of the scheme before a colon.
fn scheme_length(part: &str, colon: usize) -> usize {
    let is_of_scheme = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(*byte);
    part.as_bytes()[..colon].iter().rev().take(SCHEME).take_while(is_of_scheme).count()
}

/// Returns the end of the login that begins at `start`, if there is one.
fn end_of_login(
    part: &str,
    (scheme, start): (Scheme, usize),
    (found, path): (Authority, Path),
    ends: Ends,
) -> Option<usize> {
    let after = |at: &usize| *at > found.end && found.end > start;
    if let Some(at) = found.at.filter(|at| *at >= start) {
        let is_public = scheme == Scheme::Ssh && is_plain(&part[start..at]);
        // A login with a slash ends the authority too early.
        return ends.at.filter(|later| !is_public && after(later)).or(Some(at));
    }
    let is_host = found.is_host(part, start);
    let is_in = |place: Option<usize>| place.is_some_and(|at| at >= start);
    let later = if is_host && (is_in(found.dot) || is_in(found.space)) {
        None
    } else if is_host {
        path.at
    } else {
        ends.at
    };
    let cut = ends.cut.filter(|cut| *cut > start);
    let cut = cut.filter(|cut| if found.end > *cut { !is_host_name(&part[start..*cut]) } else { !is_host });
    later.filter(after).or(cut)
}

/// Returns whether a text is a host name of several labels. A token has capital letters.
fn is_host_name(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    text.bytes().all(is_of_name) && text.contains('.')
}

/// Returns whether a login is hidden. A mark stays, and so do the user of an SSH URL and the name of an image before its
/// digest, such as in `docker-pullable://nginx@sha256:…`.
fn is_hidden(scheme: Scheme, login: &str, rest: &str) -> bool {
    let is_public = scheme == Scheme::Ssh && is_plain(login) || scheme == Scheme::Other && is_digest(rest);
    !login.is_empty() && !is_public && !MARKS.contains(&login)
}

fn is_plain(login: &str) -> bool {
    login.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Returns whether a text begins with the digest of an image, which may be cut.
fn is_digest(text: &str) -> bool {
    let Some(digits) = ["@sha256:", "@sha512:"].into_iter().find_map(|name| text.strip_prefix(name)) else {
        return false;
    };
    let length = digits.bytes().take(DIGEST).take_while(u8::is_ascii_hexdigit).count();
    length == DIGEST || digits.is_empty() || digits[length..].starts_with(CUT)
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
            ("--url=https://admin:hunter2<cret@db/x", "--url=https://(hidden)@db/x"),
            ("DB_URL=postgres://u:hunter2 ss@h", "DB_URL=postgres://(hidden)@h"),
            ("DB_URL=\"postgres://u:pa hunter2@h\"", "DB_URL=\"postgres://(hidden)@h\""),
            ("http://svc/a?u=https://u:hunter2@h", "http://svc/a?u=https://(hidden)@h"),
            (
                r#"[="https://u:hunter2@h"] [="https://u:hunter2@i"]"#,
                r#"[="https://(hidden)@h"] [="https://(hidden)@i"]"#,
            ),
            ("redis://hunter2@sha256:6379", "redis://(hidden)@sha256:6379"),
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
            ("https://john.doe:Pa/hunter2@git.corp/x", "https://(hidden)@git.corp/x"),
            ("postgres://app.user:ab+c/hunter2==@db/shop", "postgres://(hidden)@db/shop"),
            ("https://x.y:a?hunter2@h", "https://(hidden)@h"),
            ("amqp://svc.a:p#hunter2@h", "amqp://(hidden)@h"),
            ("https://x.y:a\\hunter2@h", "https://(hidden)@h"),
            ("https://x.y:a/hunter2…", "https://(hidden)…"),
            ("https://Hunter.hunter2…", "https://(hidden)…"),
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
            "docker-pullable://nginx@sha256:0123456789abcdef0123456789abcdef",
            "docker-pullable://nginx@sha256:0123…",
            "registry.example.com/http:1.0@sha256:0123456789abcdef0123456789abcdef",
            "http://svc/a?to=x@y.com",
            "http://svc:8080/notify mail a@b.com",
            "http://[::1]:8080/notify mail a@b.com",
            "fetch('http://svc/a',{from:'x@y'})",
            "git+ssh://git@github.com:a/b@v1",
            "see https://example.com…",
            "https://git.example.com:8443/@team/shop",
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
    fn a_login_that_was_hidden_before_is_no_change() {
        let (hidden, url) = ("https://(hidden)@h", "https://u:hunter2@h");
        let both = (hidden.to_owned(), hidden.to_owned());
        assert_eq!(hide_changed_logins(hidden, url), both);
        assert_eq!(hide_changed_logins(url, hidden), both);
    }

    #[test]
    fn each_string_of_an_object_is_shown_without_logins() {
        let url = "https://u:hunter2@h";
        let copy = json!({"spec": {"url": url}}).to_string();
        let mut object = json!({"metadata": {"annotations": {"copy": copy}}, "spec": {"all": [url, 1, null]}});
        assert!(hide_logins_in(&mut object));
        assert!(!object.to_string().contains("hunter2"), "{object}");
        assert_eq!(object["spec"]["all"], json!(["https://(hidden)@h", 1, null]));
        assert!(hide_logins_in(&mut object), "a second time");
        assert!(!hide_logins_in(&mut json!({"url": "https://h", "value": "(hidden)"})));
    }

    #[test]
    fn a_long_text_of_urls_takes_little_time() {
        // A search from each scheme would take minutes.
        for unit in ["http:", "http://a.b:", "a://", "http://a.b/", "http:a.b:@x", "http://a/?", "http:a/'b", "=http:"]
        {
            let text = format!("{}/@", unit.repeat((1 << 20) / unit.len()));
            assert!(hide_logins(&text).len() <= 2 * text.len(), "{unit}");
        }
    }
}
