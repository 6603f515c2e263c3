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
                Some(Flaw::Message(error)) => Self::Refused(format!("the service answers {error}")),
                Some(Flaw::Other(error)) => retry(format!("the service answers {error}")),
            },
            // These statuses mean that the message is invalid. Other messages may still be accepted.
            400 | 413 | 422 => Self::Refused(format!("the service refuses the message (status {status})")),
            // GitHub answers so when its rate limit is exceeded, and says when the next request may be sent.
            403 if after.is_some() => retry("the service limits the rate of messages (status 403)".to_owned()),
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

/// An error in the body of a successful response, in words of the agent or as one word of the service.
enum Flaw {
    /// The service does not accept this message.
    Message(String),
    /// The service accepts no message now.
    Other(String),
}

/// Returns the error in the body of a successful response. Slack and Lark respond with 200 in any case; the body says
/// whether they accepted the message.
fn error_of(kind: ProviderType, body: &[u8]) -> Option<Flaw> {
    match kind {
        ProviderType::Slack => error_of_slack(body),
        ProviderType::Lark => error_of_lark(body),
        _ => None,
    }
}

/// Returns the error as a number. A bot names it `code`; earlier versions named it `StatusCode`.
fn error_of_lark(body: &[u8]) -> Option<Flaw> {
    if body.is_empty() {
        return None;
    }
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else {
        return Some(Flaw::Other("not as a bot of Lark; correct the address".to_owned()));
    };
    let code = answer.get("code").or_else(|| answer.get("StatusCode"))?;
    match code.as_i64() {
        Some(0) => None,
        // The parameters are wrong, or the message has no keyword that the bot requires.
        Some(code @ (9499 | 19002 | 19024)) => Some(Flaw::Message(format!("code {code}"))),
        Some(code @ 19001) => Some(Flaw::Other(format!("code {code}: it does not know the bot; correct the address"))),
        Some(code) => Some(Flaw::Other(format!("code {code}"))),
        None => Some(Flaw::Other("an error".to_owned())),
    }
}

/// Returns the error as one word.
fn error_of_slack(body: &[u8]) -> Option<Flaw> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    if answer.get("ok")?.as_bool()? {
        return None;
    }
    let word = answer.get("error").and_then(Value::as_str).unwrap_or("an error");
    let is_word =
        word.len() <= 64 && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte == b' ');
    let word = if is_word { word } else { "an error" };
    // `invalid_blocks`, `msg_too_long` and similar errors are about the message.
    let is_about_message = word.starts_with("msg_") || word.starts_with("invalid_b");
    Some(if is_about_message { Flaw::Message(word.to_owned()) } else { Flaw::Other(word.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ProviderType, status: u16, body: &str) -> String {
        match Outcome::of(kind, status, None, body.as_bytes()) {
            Outcome::Delivered => "delivered".to_owned(),
            Outcome::Retry { why, .. } => format!("retry: {why}"),
            Outcome::Refused(why) => format!("refused: {why}"),
        }
    }

    #[test]
    fn an_answer_of_lark_is_judged_by_its_code() {
        let lark = |body: &str| of(ProviderType::Lark, 200, body);
        let accepted = r#"{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}"#;
        for body in [accepted, r#"{"StatusCode":0}"#, "{}", ""] {
            assert_eq!(lark(body), "delivered", "{body}");
        }
        for (body, expected) in [
            (r#"{"code":19024,"msg":"SECRET Key Words Not Found"}"#, "refused: the service answers code 19024"),
            (r#"{"code":9499,"msg":"Bad Request","data":{}}"#, "refused: the service answers code 9499"),
            (r#"{"code":11232,"msg":"frequency limited"}"#, "retry: the service answers code 11232"),
            (
                r#"{"code":19001,"msg":"SECRET"}"#,
                "retry: the service answers code 19001: it does not know the bot; correct the address",
            ),
            (r#"{"StatusCode":1}"#, "retry: the service answers code 1"),
            (r#"{"code":"SECRET"}"#, "retry: the service answers an error"),
            ("<html>SECRET", "retry: the service answers not as a bot of Lark; correct the address"),
        ] {
            assert_eq!(lark(body), expected, "{body}");
        }
        assert_eq!(of(ProviderType::Generic, 200, r#"{"code":19001}"#), "delivered");
        assert!(of(ProviderType::Lark, 400, accepted).starts_with("refused:"));
    }

    #[test]
    fn a_rate_limit_with_status_403_is_waited_for() {
        let after = Some(Duration::from_secs(60));
        let limited = Outcome::of(ProviderType::Github, 403, after, b"");
        let why = "the service limits the rate of messages (status 403)".to_owned();
        assert_eq!(limited, Outcome::Retry { why, after });
        assert!(of(ProviderType::Github, 403, "").contains("correct the Secret"));
    }

    #[test]
    fn an_answer_is_judged_by_its_status_and_for_slack_by_its_body() {
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
