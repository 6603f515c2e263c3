//! Messages of chats.

use serde_json::{Value, json};

use super::{Target, encoded};
use crate::notice::{Notice, Severity};
use crate::request::{REPORTER, Request};

/// Returns a text with title, message and fields as lines.
fn plain(notice: &Notice) -> String {
    let mark = if notice.severity == Severity::Error { "❗ " } else { "" };
    let fields: Vec<_> = notice.ordered().iter().map(|(name, value)| format!("\n{name}: {value}")).collect();
    format!("{mark}{}\n{}{}", notice.subject(), notice.message, fields.concat())
}

/// Masks the characters that begin links, mentions and entities in Slack's markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the attachment that Slack, Discord and Rocket.Chat take.
fn attachment(notice: &Notice, color: &str, text: &str) -> Value {
    let fields: Vec<_> =
        notice.ordered().iter().map(|(t, v)| json!({"title": t, "value": v, "short": false})).collect();
    json!({"color": color, "author_name": notice.subject(), "text": text, "mrkdwn_in": ["text"], "fields": fields})
}

fn sender(target: &Target) -> &str {
    if target.username.is_empty() { REPORTER } else { &target.username }
}

pub(super) fn slack(target: &Target, notice: &Notice) -> Request {
    let color = if notice.severity == Severity::Error { "danger" } else { "good" };
    let mut attachment = attachment(notice, color, &escaped(&notice.message));
    let line = notice.message.lines().next().unwrap_or_default();
    attachment["fallback"] = json!(escaped(&format!("{}: {line}", notice.subject())));
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

pub(super) fn discord(target: &Target, notice: &Notice) -> Request {
    let color = if notice.severity == Severity::Error { "danger" } else { "good" };
    let url = if target.url().ends_with("/slack") { target.url().to_owned() } else { target.below("slack") };
    let attachment = attachment(notice, color, &notice.message);
    Request::post(url, &json!({"username": sender(target), "attachments": [attachment]}))
}

pub(super) fn rocket(target: &Target, notice: &Notice) -> Request {
    let color = if notice.severity == Severity::Error { "#ff0000" } else { "#0076d7" };
    let mut body = json!({"username": sender(target), "attachments": [attachment(notice, color, &notice.message)]});
    if !target.channel.is_empty() {
        body["channel"] = json!(target.channel);
    }
    Request::post(target.url(), &body)
}

pub(super) fn teams(target: &Target, notice: &Notice) -> Request {
    let color = if notice.severity == Severity::Error { "attention" } else { "default" };
    let facts: Vec<_> = notice.ordered().iter().map(|(t, v)| json!({"title": t, "value": v})).collect();
    let text = |text: &str| json!({"type": "TextBlock", "text": text, "wrap": true});
    let (mut title, mut message) = (text(&notice.subject()), text(&notice.message));
    (title["size"], title["weight"], message["color"]) = (json!("large"), json!("bolder"), json!(color));
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard", "version": "1.4", "msteams": {"width": "Full"},
        "body": [title, message, {"type": "FactSet", "facts": facts}],
    });
    let attachment = json!({"contentType": "application/vnd.microsoft.card.adaptive", "content": card});
    Request::post(target.url(), &json!({"type": "message", "attachments": [attachment]}))
}

pub(super) fn google(target: &Target, notice: &Notice) -> Request {
    let markup = |text: &str| escaped(text).replace('\n', "<br>");
    let color = if notice.severity == Severity::Error { "#ff0000" } else { "#0f9d58" };
    let message = format!("<font color=\"{color}\">{}</font>", markup(&notice.message));
    let mut widgets = vec![json!({"textParagraph": {"text": message}})];
    let fields = notice.ordered();
    widgets.extend(
        fields.iter().map(|(t, v)| json!({"decoratedText": {"topLabel": t, "text": markup(v), "wrapText": true}})),
    );
    let card =
        json!({"header": {"title": notice.subject(), "subtitle": notice.reason}, "sections": [{"widgets": widgets}]});
    Request::post(target.url(), &json!({"cardsV2": [{"cardId": notice.id(), "card": card}]}))
}

/// The text has no markup, so no character of it needs an escape. A topic follows the chat after a colon.
pub(super) fn telegram(target: &Target, notice: &Notice) -> Request {
    let text = plain(notice);
    let text = mainstay_api::conditions::cut(&text, 4000);
    let (chat, topic) = target.channel.split_once(':').unwrap_or((&target.channel, ""));
    let mut body = json!({"chat_id": chat, "text": text, "disable_web_page_preview": true});
    if let Ok(topic) = topic.parse::<u64>() {
        body["message_thread_id"] = json!(topic);
    }
    Request::post(target.below(&format!("bot{}/sendMessage", target.secret_token())), &body)
}

/// The id of the transaction is that of the notice, so a repeated attempt is no second message.
pub(super) fn matrix(target: &Target, notice: &Notice) -> Request {
    let (room, id) = (encoded(&target.channel), notice.id());
    let url = target.below(&format!("_matrix/client/v3/rooms/{room}/send/m.room.message/{id}"));
    let request = Request::post(url, &json!({"msgtype": "m.text", "body": plain(notice)}));
    Request { method: http::Method::PUT, ..request }.bearer(target.secret_token())
}

pub(super) fn webex(target: &Target, notice: &Notice) -> Request {
    let text = plain(notice);
    let body = json!({"roomId": target.channel, "text": mainstay_api::conditions::cut(&text, 7000)});
    Request::post(target.url(), &body).bearer(target.secret_token())
}
