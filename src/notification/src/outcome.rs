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
        if let Some(flaw) = flaw_of(kind, status, body) {
            return match flaw {
                Flaw::Message(error) => Self::Refused(format!("the service answers {error}")),
                Flaw::Other(error) => retry(format!("the service answers {error}")),
            };
        }
        match status {
            // Azure DevOps responds with a page for signing in to a token that is not valid.
            203 if kind == ProviderType::AzureDevops => retry(refused_credentials(status)),
            200..=299 => Self::Delivered,
            // These statuses mean that the message is invalid. Other messages may still be accepted.
            400 | 413 | 422 => Self::Refused(format!("the service refuses the message (status {status})")),
            // GitHub answers so when its rate limit is exceeded, and says when the next request may be sent.
            403 if after.is_some() => retry("the service limits the rate of messages (status 403)".to_owned()),
            401 | 403 => retry(refused_credentials(status)),
            // The address is right: a GitSync may follow another repository, whose commits this one does not have. GitHub
            // responds with 422 then. Its 404 means a wrong address or token, and the link in it has the word, too.
            404 if kind.is_commit_status() && kind != ProviderType::Github && names_commit(body) => {
                Self::Refused("the repository of the address does not have this commit (status 404)".to_owned())
            }
            404 | 410 => retry(format!("the address does not exist at the service (status {status}); correct it")),
            300..=399 => {
                retry(format!("the service redirects (status {status}), which is not followed; correct the address"))
            }
            429 => retry("the service limits the rate of messages (status 429)".to_owned()),
            _ => retry(format!("the service answers with status {status}")),
        }
    }
}

/// Whether the text of a response names a commit. If the repository is missing, it names that.
fn names_commit(body: &[u8]) -> bool {
    body.to_ascii_lowercase().windows(6).any(|word| word == b"commit")
}

fn refused_credentials(status: u16) -> String {
    format!("the service refuses the credentials (status {status}); correct the Secret")
}

/// An error in the body of a response, in words of the agent or as one word of the service.
enum Flaw {
    /// The service does not accept this message.
    Message(String),
    /// The service accepts no message now.
    Other(String),
}

/// Returns the error in the body of a response. Slack and Lark respond with 200 even if they did not accept the message.
/// Lark also responds with 400 when its rate limit is exceeded. At other services, 400 means that the message is invalid.
fn flaw_of(kind: ProviderType, status: u16, body: &[u8]) -> Option<Flaw> {
    match (kind, status) {
        (ProviderType::Slack, 200..=299) => error_of_slack(body),
        (ProviderType::Lark, 200..=299) => error_of_lark(body),
        (ProviderType::Lark, 400) if has_code(body) => error_of_lark(body),
        _ => None,
    }
}

/// Returns whether a body is an error of Lark with a number.
fn has_code(body: &[u8]) -> bool {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    let code = answer.as_ref().and_then(|answer| answer.get("code").or_else(|| answer.get("StatusCode")));
    code.is_some_and(Value::is_i64)
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
    fn a_commit_that_the_repository_of_the_address_lacks_delays_no_other_commit() {
        for kind in [ProviderType::Gitlab, ProviderType::BitbucketServer] {
            let outcome = of(kind, 404, r#"{"message":"404 Commit Not Found"}"#);
            assert_eq!(outcome, "refused: the repository of the address does not have this commit (status 404)");
            let outcome = of(kind, 404, r#"{"message":"404 Project Not Found"}"#);
            assert!(outcome.starts_with("retry: the address does not exist"), "{outcome}");
        }
        let of_github =
            r#"{"message":"Not Found","documentation_url":"https://docs.github.com/rest/commits/statuses"}"#;
        for (kind, body) in [(ProviderType::Slack, ""), (ProviderType::Github, of_github)] {
            assert!(of(kind, 404, body).starts_with("retry: the address does not exist"), "{body}");
        }
        assert!(of(ProviderType::Gitlab, 410, "").starts_with("retry: the address does not exist"));
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
    }

    #[test]
    fn lark_with_status_400_is_judged_by_its_code_if_it_has_one() {
        let lark = |body: &str| of(ProviderType::Lark, 400, body);
        assert_eq!(lark(r#"{"code":11232,"msg":"frequency limited"}"#), "retry: the service answers code 11232");
        assert_eq!(lark(r#"{"code":9499,"msg":"SECRET"}"#), "refused: the service answers code 9499");
        for body in ["", "<html>", "{}", "[]", r#"{"code":"SECRET"}"#, r#"{"code":0}"#] {
            assert_eq!(lark(body), "refused: the service refuses the message (status 400)", "{body}");
        }
        let generic = of(ProviderType::Generic, 400, r#"{"code":11232}"#);
        assert_eq!(generic, "refused: the service refuses the message (status 400)");
    }

    #[test]
    fn a_page_for_signing_in_to_azure_devops_is_not_a_delivery() {
        let why = "retry: the service refuses the credentials (status 203); correct the Secret";
        assert_eq!(of(ProviderType::AzureDevops, 203, "<html>"), why);
        assert_eq!(of(ProviderType::AzureDevops, 201, "{}"), "delivered");
        assert_eq!(of(ProviderType::Generic, 203, "<html>"), "delivered");
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
