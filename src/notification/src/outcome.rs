//! The outcome of an attempt to deliver a notice.

use std::time::Duration;

use serde_json::Value;

use crate::provider_type::ProviderType;

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The service accepted the notice.
    Delivered,
    /// The service did not accept the notice, but may accept it later.
    Retry {
        /// The cause.
        why: String,
        /// The delay that the service requests.
        after: Option<Duration>,
    },
    /// The service will never accept this notice.
    Refused(String),
}

impl Outcome {
    /// Returns the outcome for a response.
    pub fn of(kind: ProviderType, status: u16, after: Option<Duration>, body: &[u8]) -> Self {
        let retry = |why: String| Self::Retry { why, after };
        match status {
            200..=299 => match error_of(kind, body) {
                None => Self::Delivered,
                // `invalid_blocks`, `msg_too_long` and similar errors are about the message.
                Some(error) if error.starts_with("msg_") || error.starts_with("invalid_b") => {
                    Self::Refused(format!("the service answers {error}"))
                }
                Some(error) => retry(format!("the service answers {error}")),
            },
            // These statuses mean that the message is invalid. Other messages may still be accepted.
            400 | 413 | 422 => Self::Refused(format!("the service refuses the message (status {status})")),
            401 | 403 => retry(format!("the service refuses the credentials (status {status}); correct the Secret")),
            404 | 410 => retry(format!("the address does not exist at the service (status {status}); correct it")),
            300..=399 => {
                retry(format!("the service redirects (status {status}), which is not followed; correct the address"))
            }
            429 => retry("the service limits the rate of messages (status 429)".to_owned()),
            _ => retry(format!("the service answers with status {status}")),
        }
    }
}

/// Slack responds with 200 in any case; the body says whether Slack accepted the message. Returns the error in the body
/// as one word.
fn error_of(kind: ProviderType, body: &[u8]) -> Option<String> {
    if kind != ProviderType::Slack {
        return None;
    }
    let answer: Value = serde_json::from_slice(body).ok()?;
    if answer.get("ok")?.as_bool()? {
        return None;
    }
    let word = answer.get("error").and_then(Value::as_str).unwrap_or("an error");
    let is_word =
        word.len() <= 64 && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte == b' ');
    Some(if is_word { word.to_owned() } else { "an error".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_judged_by_its_status_and_for_slack_by_its_body() {
        let of = |kind, status, body: &str| match Outcome::of(kind, status, None, body.as_bytes()) {
            Outcome::Delivered => "delivered".to_owned(),
            Outcome::Retry { why, .. } => format!("retry: {why}"),
            Outcome::Refused(why) => format!("refused: {why}"),
        };
        let slack = ProviderType::Slack;
        assert_eq!(of(slack, 200, "ok"), "delivered");
        assert_eq!(of(slack, 200, r#"{"ok":true}"#), "delivered");
        assert_eq!(
            of(slack, 200, r#"{"ok":false,"error":"channel_not_found"}"#),
            "retry: the service answers channel_not_found"
        );
        assert_eq!(
            of(slack, 200, r#"{"ok":false,"error":"msg_too_long"}"#),
            "refused: the service answers msg_too_long"
        );
        assert_eq!(of(slack, 200, r#"{"ok":false,"error":"SECRET-1"}"#), "retry: the service answers an error");
        let generic = ProviderType::Generic;
        assert_eq!(of(generic, 204, r#"{"ok":false}"#), "delivered");
        assert!(of(generic, 503, "").starts_with("retry:") && of(generic, 401, "").contains("correct the Secret"));
        assert!(of(generic, 400, "").starts_with("refused:") && of(generic, 302, "").contains("not followed"));
    }
}
