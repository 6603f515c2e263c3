//! Messages of chats.
//!
//! Invariant: strings of a notice are escaped for the markup of the chat, so they create no links and mention no one.

use serde_json::{Value, json};

use super::Target;
use super::encoding::encoded;
use super::markup::{Html, LooseMarkdown, Markdown, Marked, Markup, Plain, Slack};
use crate::request::{REPORTER, Request};

const WHOLE: usize = usize::MAX;

/// Returns the attachment for Slack and Rocket.Chat. No part of it contains formatted text.
fn attachment<M: Markup>(notice: &Marked<'_, M>, color: &str) -> Value {
    let fields = notice.fields(WHOLE, WHOLE);
    let fields: Vec<_> = fields.map(|(t, v)| json!({"title": t, "value": v, "short": false})).collect();
    json!({
        "color": color, "author_name": notice.subject(WHOLE), "text": notice.message(WHOLE), "mrkdwn_in": [],
        "fields": fields,
    })
}

fn sender(target: &Target) -> &str {
    if target.username.is_empty() { REPORTER } else { &target.username }
}

pub(super) fn slack(target: &Target, notice: &Marked<'_, Slack>) -> Request {
    let mut attachment = attachment(notice, if notice.is_error() { "danger" } else { "good" });
    attachment["fallback"] = json!(notice.line(WHOLE));
    let mut body = json!({"username": sender(target), "attachments": [attachment]});
    if !target.channel.is_empty() {
        body["channel"] = json!(target.channel);
    }
    let request = Request::post(target.url(), &body);
    match &target.token {
        Some(token) => request.bearer(token.expose()),
        None => request,
    }
}

/// Limits lengths and fields, because Discord rejects longer parts, more fields, empty ones, and embeds of more than
/// 6000 characters.
pub(super) fn discord(target: &Target, notice: &Marked<'_, Markdown>) -> Request {
    let color = if notice.is_error() { 0x00d0_0000 } else { 0x0028_a745 };
    let (title, description) = (notice.subject(256), notice.message(2000));
    let mut left = 5900 - title.len() - description.len();
    let mut fields = Vec::new();
    for (name, value) in notice.fields(256, 1024).filter(|(n, v)| !n.is_empty() && !v.is_empty()).take(25) {
        let Some(rest) = left.checked_sub(name.len() + value.len()) else { break };
        left = rest;
        fields.push(json!({"name": name, "value": value, "inline": false}));
    }
    let embed = json!({"title": title, "description": description, "color": color, "fields": fields});
    let body = json!({"username": sender(target), "allowed_mentions": {"parse": []}, "embeds": [embed]});
    // Discord's endpoint for messages in Slack's format does not support `allowed_mentions`.
    let url = target.url();
    Request::post(url.strip_suffix("/slack").unwrap_or(url), &body)
}

pub(super) fn rocket(target: &Target, notice: &Marked<'_, LooseMarkdown>) -> Request {
    let color = if notice.is_error() { "#ff0000" } else { "#0076d7" };
    let mut body = json!({"username": sender(target), "attachments": [attachment(notice, color)]});
    if !target.channel.is_empty() {
        body["channel"] = json!(target.channel);
    }
    Request::post(target.url(), &body)
}

pub(super) fn teams(target: &Target, notice: &Marked<'_, Markdown>) -> Request {
    let color = if notice.is_error() { "attention" } else { "default" };
    let facts: Vec<_> = notice.fields(WHOLE, WHOLE).map(|(t, v)| json!({"title": t, "value": v})).collect();
    let title = json!({
        "type": "TextBlock", "text": notice.subject(WHOLE), "wrap": true, "size": "large", "weight": "bolder",
    });
    let message = json!({"type": "TextBlock", "text": notice.message(WHOLE), "wrap": true, "color": color});
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard", "version": "1.4", "msteams": {"width": "Full"},
        "body": [title, message, {"type": "FactSet", "facts": facts}],
    });
    let attachment = json!({"contentType": "application/vnd.microsoft.card.adaptive", "content": card});
    Request::post(target.url(), &json!({"type": "message", "attachments": [attachment]}))
}

pub(super) fn google(target: &Target, notice: &Marked<'_, Html>) -> Request {
    let color = if notice.is_error() { "#ff0000" } else { "#0f9d58" };
    let message = notice.message(WHOLE).between(&format!("<font color=\"{color}\">"), "</font>");
    let mut widgets = vec![json!({"textParagraph": {"text": message}})];
    let fields = notice.fields(WHOLE, WHOLE);
    widgets.extend(fields.map(|(t, v)| json!({"decoratedText": {"topLabel": t, "text": v, "wrapText": true}})));
    let header = json!({"title": notice.subject(WHOLE), "subtitle": notice.reason()});
    let card = json!({"header": header, "sections": [{"widgets": widgets}]});
    Request::post(target.url(), &json!({"cardsV2": [{"cardId": notice.id(), "card": card}]}))
}

/// In `channel`, a topic may follow the chat after a colon.
pub(super) fn telegram(target: &Target, notice: &Marked<'_, Plain>) -> Request {
    let (chat, topic) = target.channel.split_once(':').unwrap_or((&target.channel, ""));
    let mut body = json!({"chat_id": chat, "text": notice.lines(4000), "disable_web_page_preview": true});
    if let Ok(topic) = topic.parse::<u64>() {
        body["message_thread_id"] = json!(topic);
    }
    Request::post(target.below(&format!("bot{}/sendMessage", target.secret_token())), &body)
}

/// The transaction id is the id of the notice, so that a repeated attempt creates no second message.
pub(super) fn matrix(target: &Target, notice: &Marked<'_, Plain>) -> Request {
    let (room, id) = (encoded(&target.channel), notice.id());
    let url = target.below(&format!("_matrix/client/v3/rooms/{room}/send/m.room.message/{id}"));
    // Without `m.mentions`, servers search the text for mentions.
    let body = json!({"msgtype": "m.text", "body": notice.lines(WHOLE), "m.mentions": {}});
    let request = Request::post(url, &body);
    Request { method: http::Method::PUT, ..request }.bearer(target.secret_token())
}

pub(super) fn webex(target: &Target, notice: &Marked<'_, Plain>) -> Request {
    let body = json!({"roomId": target.channel, "text": notice.lines(7000)});
    Request::post(target.url(), &body).bearer(target.secret_token())
}

/// A card, whose texts have no markup. Bots accept requests of at most 20 KB, so the message and the fields are limited.
pub(super) fn lark(target: &Target, notice: &Marked<'_, LooseMarkdown>) -> Request {
    let color = if notice.is_error() { "red" } else { "turquoise" };
    let mut left: usize = 4000;
    let mut fields = Vec::new();
    for (name, value) in notice.fields(128, 512) {
        let line = value.after(&name);
        let Some(rest) = left.checked_sub(line.len() + 1) else { break };
        left = rest;
        fields.push(line.as_str().to_owned());
    }
    let mut elements = vec![json!({"tag": "div", "text": {"tag": "plain_text", "content": notice.message(4000)}})];
    if !fields.is_empty() {
        elements.push(json!({"tag": "div", "text": {"tag": "plain_text", "content": fields.join("\n")}}));
    }
    let title = json!({"tag": "plain_text", "content": notice.subject(256)});
    let card = json!({
        "config": {"wide_screen_mode": true}, "header": {"title": title, "template": color}, "elements": elements,
    });
    Request::post(target.url(), &json!({"msg_type": "interactive", "card": card}))
}
