//! Strings of a notice in the markup of a service.
//!
//! Invariant: a [`Text`] of a notice is escaped. Every format gets only a [`Marked`] notice, whose strings are all
//! escaped. A format for programs says so with [`Data`].
//!
//! Not here: addresses, channels and names, which the author of the Provider writes.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::notice::{CHANGE_REQUEST, CommitState, Notice, Severity};

/// A zero-width character. It splits words that services would turn into links and mentions.
const BREAK: char = '\u{200b}';

/// The rules of a service's markup.
pub(super) trait Markup {
    /// Whether services turn URLs of the text into links. Such URLs are split.
    const HAS_LINKS: bool = true;

    /// Appends a character in such a way that the service displays the character itself.
    fn push(c: char, text: &mut String);
}

/// Slack: `<`, `>` and `&` begin links, mentions and entities.
pub(super) struct Slack;
/// HTML of Google Chat and Grafana.
pub(super) struct Html;
/// Markdown in which a backslash escapes characters: Discord and Microsoft Teams.
pub(super) struct Markdown;
/// Markdown that cannot escape links and mentions: Rocket.Chat, Lark and the incident services.
pub(super) struct LooseMarkdown;
/// Markdown of Datadog. `%%%` ends it, and `@` begins a mention.
pub(super) struct Datadog;
/// Text without markup, in which services look for mentions: Telegram, Matrix, Webex and commit statuses.
pub(super) struct Plain;
/// Code in the Markdown of a Git host, between two or more backticks. Hosts interpret no part of it, but GitLab looks for
/// commands at the beginning of a line.
pub(super) struct Code;
/// JSON for programs, which get each string as it is: Flux's events.
pub(super) struct Data;

fn push_entity(c: char, text: &mut String) {
    match c {
        '&' => text.push_str("&amp;"),
        '<' => text.push_str("&lt;"),
        '>' => text.push_str("&gt;"),
        c => text.push(c),
    }
}

fn push_broken(c: char, broken: &[char], text: &mut String) {
    text.push(c);
    if broken.contains(&c) {
        text.push(BREAK);
    }
}

impl Markup for Slack {
    fn push(c: char, text: &mut String) {
        push_entity(c, text);
    }
}

impl Markup for Html {
    fn push(c: char, text: &mut String) {
        if c == '\n' {
            text.push_str("<br>");
        } else {
            push_entity(c, text);
        }
    }
}

impl Markup for Markdown {
    fn push(c: char, text: &mut String) {
        if "\\`*_~|<>[](){}#@!".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
}

impl Markup for LooseMarkdown {
    fn push(c: char, text: &mut String) {
        push_broken(c, &['@', '#', '<', '[', ']', '!'], text);
    }
}

impl Markup for Datadog {
    fn push(c: char, text: &mut String) {
        if c == '%' && text.ends_with('%') {
            text.push(BREAK);
        }
        LooseMarkdown::push(c, text);
    }
}

impl Markup for Plain {
    fn push(c: char, text: &mut String) {
        push_broken(c, &['@'], text);
    }
}

impl Markup for Code {
    const HAS_LINKS: bool = false;

    fn push(c: char, text: &mut String) {
        match c {
            '`' => text.extend([c, BREAK]),
            '/' if text.is_empty() || text.ends_with('\n') => text.extend([BREAK, c]),
            '\n' | '\t' => text.push(c),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
}

impl Markup for Data {
    const HAS_LINKS: bool = false;

    fn push(c: char, text: &mut String) {
        text.push(c);
    }
}

/// An escaped string.
pub(super) struct Text<M>(String, PhantomData<M>);

impl<M: Markup> Text<M> {
    /// Escapes a string. The result has at most `most` bytes, and never ends within an escape.
    pub(super) fn within(raw: &str, most: usize) -> Self {
        let mut text = String::new();
        let mut rest = raw.chars();
        while let Some(c) = rest.next() {
            let end = text.len();
            M::push(c, &mut text);
            if M::HAS_LINKS && c == ':' && rest.as_str().starts_with("//") {
                text.push(BREAK);
            }
            if text.len() > most {
                text.truncate(end);
                break;
            }
        }
        Self(text, PhantomData)
    }

    /// Returns the text between two parts of markup.
    pub(super) fn between(self, before: &str, after: &str) -> Self {
        Self(format!("{before}{}{after}", self.0), PhantomData)
    }

    /// Returns the text, preceded by a title.
    pub(super) fn after(self, title: &Self) -> Self {
        Self(format!("{}: {}", title.0, self.0), PhantomData)
    }

    /// Returns the escaped text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the text is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<M> Serialize for Text<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

fn whole<M: Markup>(raw: &str) -> Text<M> {
    Text::within(raw, usize::MAX)
}

/// A notice that returns its strings only in escaped form.
pub(super) struct Marked<'n, M>(&'n Notice, PhantomData<M>);

impl<'n, M: Markup> Marked<'n, M> {
    pub(super) fn of(notice: &'n Notice) -> Self {
        Self(notice, PhantomData)
    }

    pub(super) fn is_error(&self) -> bool {
        self.0.severity == Severity::Error
    }

    /// Returns the id, which is hexadecimal.
    pub(super) fn id(&self) -> String {
        self.0.id()
    }

    /// Returns the resource, in at most this many bytes.
    pub(super) fn subject(&self, most: usize) -> Text<M> {
        Text::within(&self.0.subject(), most)
    }

    pub(super) fn reason(&self) -> Text<M> {
        whole(&self.0.reason)
    }

    pub(super) fn kind(&self) -> Text<M> {
        whole(&self.0.kind)
    }

    pub(super) fn api_version(&self) -> Text<M> {
        whole(&self.0.api_version)
    }

    pub(super) fn namespace(&self) -> Text<M> {
        whole(&self.0.namespace)
    }

    pub(super) fn name(&self) -> Text<M> {
        whole(&self.0.name)
    }

    pub(super) fn uid(&self) -> Option<Text<M>> {
        self.0.uid.as_deref().map(whole)
    }

    /// Returns the managed object that the notice is about.
    pub(super) fn object(&self) -> Option<Text<M>> {
        self.0.object.as_deref().map(whole)
    }

    pub(super) fn topic(&self) -> Text<M> {
        whole(&self.0.topic())
    }

    /// Returns the subject with the managed object, in at most this many bytes.
    pub(super) fn subject_of_object(&self, most: usize) -> Text<M> {
        match &self.0.object {
            Some(object) => Text::within(&format!("{} {object}", self.0.subject()), most),
            None => self.subject(most),
        }
    }

    pub(super) fn severity(&self) -> &'static str {
        self.0.severity.as_str()
    }

    pub(super) fn time(&self) -> jiff::Timestamp {
        self.0.time
    }

    /// Returns the state of the commit.
    pub(super) fn state(&self) -> Option<CommitState> {
        self.0.commit.as_ref().map(|(_, state)| *state)
    }

    /// Returns the commit, which is hexadecimal, and its state.
    pub(super) fn commit(&self) -> Result<(&'n str, CommitState), String> {
        let (commit, state) = self.0.commit.as_ref().ok_or("the message is not about a commit")?;
        let is_id = matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then_some((commit.as_str(), *state)).ok_or_else(|| "the message has no full commit id".to_owned())
    }

    /// Returns the number of the pull request.
    pub(super) fn change_request(&self) -> Result<u64, String> {
        let number = self.0.change_request().ok_or(
            "messages beyond spec.messagesPerMinute are not posted as comments; raise it, or select fewer messages",
        )?;
        let number = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        number.and_then(|number| number.parse().ok()).ok_or_else(|| {
            format!(
                "{CHANGE_REQUEST} of {} must be the number of a pull request; correct the annotation",
                self.0.subject()
            )
        })
    }

    /// Returns a hexadecimal id of the resource, which is different for each Provider.
    pub(super) fn resource_id(&self, provider: &str) -> String {
        self.0.resource_id(provider)
    }

    /// Returns the same notice for another markup.
    pub(super) fn with<O: Markup>(&self) -> Marked<'n, O> {
        Marked(self.0, PhantomData)
    }

    pub(super) fn details(&self) -> impl Iterator<Item = (Text<M>, Text<M>)> {
        self.0.details.iter().map(|(name, value)| (whole(name), whole(value)))
    }

    pub(super) fn metadata(&self) -> impl Iterator<Item = (Text<M>, Text<M>)> {
        self.0.metadata.iter().map(|(name, value)| (whole(name), whole(value)))
    }

    /// Returns details and metadata as one object.
    pub(super) fn record(&self) -> Value {
        let all = self.0.fields().into_iter();
        let all: BTreeMap<String, Value> =
            all.map(|(name, value)| (whole::<M>(name).0, Value::String(whole::<M>(value).0))).collect();
        Value::Object(all.into_iter().collect())
    }

    /// Returns the message, in at most this many bytes.
    pub(super) fn message(&self, most: usize) -> Text<M> {
        Text::within(&self.0.message, most)
    }

    /// Returns the first line of the message, in at most this many bytes. A line that announces others is followed by
    /// the second one.
    pub(super) fn first_line(&self, most: usize) -> Text<M> {
        let mut lines = self.0.message.lines();
        let first = lines.next().unwrap_or_default();
        match lines.next().filter(|_| first.ends_with(':')) {
            Some(second) => Text::within(&format!("{first} {}", second.trim_start()), most),
            None => Text::within(first, most),
        }
    }

    /// Returns the Alert that selected the notice, as JSON.
    pub(super) fn alert(&self) -> Option<&'n str> {
        self.0.alert.as_deref()
    }

    /// Returns the resource and the first line of the message, in at most this many bytes.
    pub(super) fn line(&self, most: usize) -> Text<M> {
        let line = self.0.message.lines().next().unwrap_or_default();
        Text::within(&format!("{}: {line}", self.0.subject()), most)
    }

    /// Returns names and values of the details and the metadata, each in at most its number of bytes.
    pub(super) fn fields(&self, name: usize, value: usize) -> impl Iterator<Item = (Text<M>, Text<M>)> {
        self.0.ordered().into_iter().map(move |(n, v)| (Text::within(n, name), Text::within(v, value)))
    }

    /// Returns title, message and fields as lines, in at most this many bytes.
    pub(super) fn lines(&self, most: usize) -> Text<M> {
        let mark = if self.is_error() { "❗ " } else { "" };
        let fields: Vec<_> = self.0.ordered().iter().map(|(name, value)| format!("\n{name}: {value}")).collect();
        Text::within(&format!("{mark}{}\n{}{}", self.0.subject(), self.0.message, fields.concat()), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped<M: Markup>(raw: &str, most: usize) -> String {
        Text::<M>::within(raw, most).0
    }

    #[test]
    fn each_markup_escapes_what_begins_a_link_or_a_mention() {
        let raw = "<!channel> & [a](http://e) @room";
        assert_eq!(escaped::<Slack>(raw, 99), "&lt;!channel&gt; &amp; [a](http:\u{200b}//e) @room");
        assert_eq!(escaped::<Html>("<a>\n&", 99), "&lt;a&gt;<br>&amp;");
        assert_eq!(escaped::<Markdown>(raw, 99), "\\<\\!channel\\> & \\[a\\]\\(http:\u{200b}//e\\) \\@room");
        assert_eq!(escaped::<Markdown>(r"\[a\](b)", 99), r"\\\[a\\\]\(b\)");
        assert_eq!(escaped::<LooseMarkdown>("[a](b) <b|a>", 99), "[\u{200b}a]\u{200b}(b) <\u{200b}b|a>");
        assert_eq!(escaped::<Plain>("[a](b) @room", 99), "[a](b) @\u{200b}room");
        assert_eq!(escaped::<Plain>("git: ssh://a", 99), "git: ssh:\u{200b}//a");
        assert_eq!(escaped::<Datadog>("%%% @ops 9%", 99), "%\u{200b}%\u{200b}% @\u{200b}ops 9%");
        assert_eq!(escaped::<Data>(raw, 99), raw);
        assert_eq!(escaped::<Code>(raw, 99), raw);
        let code = "/close\r\n/merge ```\nhttps://a/b";
        assert_eq!(
            escaped::<Code>(code, 99),
            "\u{200b}/close \n\u{200b}/merge `\u{200b}`\u{200b}`\u{200b}\nhttps://a/b"
        );
    }

    #[test]
    fn a_text_ends_before_an_escape_and_not_within_it() {
        assert_eq!(escaped::<Slack>("ab&c", 5), "ab");
        assert_eq!(escaped::<Slack>("ab&c", 7), "ab&amp;");
        assert_eq!(escaped::<Markdown>("ab[c", 3), "ab");
        assert_eq!(escaped::<Plain>("ä€", 4), "ä");
    }
}
