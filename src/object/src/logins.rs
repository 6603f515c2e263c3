//! Hides the logins of URLs in texts and in objects: `https://user:password@host` becomes `https://(hidden)@host`.
//!
//! Invariant: the time is proportional to the length of the text, because a hostile object may consist of URLs.
//! Invariant: if a login cannot be told from the rest of a URL, more than the login is hidden.
//!
//! Not here: logins without a scheme, such as `user:password@host`, which look like the tag and the digest of an image.
//!
//! Limits: a login stays if its beginning looks like a host with a path: `john.doe:12/34@host`, `john.doe/x@host`, and
//! `token/x?y@host` or `user:12/x'y@host`, in which a query or a quote follows the path. A login in the middle of a sentence
//! ends at a space, and so does one without a colon before its first space.

use std::borrow::Cow;
use std::ops::BitOr;
use std::ops::Range;

use serde_json::{Map, Value};

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

/// Returns whether a text contains the login of a URL, or a mark in the place of a login.
pub fn has_login(text: &str) -> bool {
    has_mark(text) || matches!(hide_logins(text), Cow::Owned(_))
}

/// Hides the logins of URLs in all strings and keys of a value. Returns whether a login is hidden in it, now or since
/// before.
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
        Value::Array(items) => items.iter_mut().map(hide_logins_in).fold(false, BitOr::bitor),
        Value::Object(fields) => {
            let is_hidden = fields.values_mut().map(hide_logins_in).fold(false, BitOr::bitor);
            if !fields.keys().any(|key| has_login(key)) {
                return is_hidden;
            }
            for (key, item) in std::mem::take(fields) {
                insert_hidden(fields, &key, HIDDEN, item);
            }
            true
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Adds a field of a map that is in both states of it. `None` stands for a state without the map or without the field.
/// A key with a login shows if only one of the states has it.
pub(super) fn add_field(
    key: &str,
    (before, one): (Option<&mut Map<String, Value>>, Option<Value>),
    (after, other): (Option<&mut Map<String, Value>>, Option<Value>),
) {
    let is_changed = before.is_some() && after.is_some() && one.is_some() != other.is_some();
    for (fields, item, mark) in [(before, one, BEFORE), (after, other, AFTER)] {
        if let Some((fields, item)) = fields.zip(item) {
            insert_hidden(fields, key, if is_changed { mark } else { HIDDEN }, item);
        }
    }
}

/// Adds a field to a map. If keys differ only in their logins, a number follows the later ones.
fn insert_hidden(fields: &mut Map<String, Value>, key: &str, mark: &str, item: Value) {
    let shown = marked(key, mark);
    let is_taken = fields.contains_key(&*shown);
    let shown = if is_taken { format!("{shown} ({})", fields.len() + 1) } else { shown.into_owned() };
    fields.insert(shown, item);
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
/// `--url=https://…`, `[url="https://…"]`. Without a quote, it is the whole line; without a URL, it is 0. A login contains
/// a space only after a colon: without it, the space ends the URL.
fn url_at_beginning(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    let word = line[indent..].split(char::is_whitespace).next().unwrap_or_default();
    let length = word.match_indices(':').find_map(|(at, _)| {
        let colon = indent + at;
        let before = &word[..at - scheme_length(word, at)];
        let quote = before.chars().next_back().filter(|c| matches!(c, '"' | '\''));
        let bare = before.strip_suffix(['"', '\'']).unwrap_or(before);
        let is_value = bare.is_empty() || bare.ends_with('=');
        let (_, start) = is_value.then(|| authority(line, colon)).flatten()?;
        let closed = quote.and_then(|quote| closing(&line[colon..], quote)).map(|length| colon + length);
        let end = closed.unwrap_or(line.len());
        let text = line.get(start..end).unwrap_or_default();
        let space = text.find(char::is_whitespace).filter(|space| !text[..*space].contains(':'));
        Some(space.map_or(end, |space| start + space))
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
    // Brackets, quotes and punctuation may follow a text that was cut.
    let follows = |c: char| ends_url(c) || matches!(c, ')' | ']' | ',' | ';' | '.' | '\'');
    let ends = Ends { at: part.rfind('@'), cut: part.trim_end_matches(follows).strip_suffix(CUT).map(str::len) };
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
mod tests;
