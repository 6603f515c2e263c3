//! Comments on pull requests at GitHub, GitLab and Gitea: the text of a comment, and the addresses of the API.
//!
//! Invariant: host and repository are always those in the Provider's address.
//! Invariant: each string of a notice is within code, where hosts find no link, no mention, no reference and no command.

use http::Method;
use serde_json::json;

use super::Target;
use super::commit::{github, github_api, repository, segments};
use super::encoding::encoded;
use super::markup::{Code, Marked, Text};
use crate::comment::{Comment, PER_PAGE, Requests};
use crate::delivery::Delivery;
use crate::notice::{CHANGE_REQUEST, CommitState};
use crate::provider_type::ProviderType as P;
use crate::request::Request;

/// Maximum length of a message, of the name and of the value of a field, in bytes, and maximum number of fields. All
/// together, a comment stays within the 65 536 characters that GitHub accepts.
const MESSAGE: usize = 8 << 10;
const NAME: usize = 128;
const VALUE: usize = 512;
const FIELDS: usize = 64;

/// The addresses of the API. Those of `list` and `edit` end before a number.
struct Addresses {
    user: String,
    list: String,
    create: String,
    edit: String,
}

/// Returns the conversation that posts a notice as the comment of its resource.
pub(super) fn comment(target: &Target, notice: &Marked<'_, Code>) -> Result<Delivery, String> {
    let number = notice.change_request()?;
    let marker = format!("<!-- mainstay-comment:{} -->", notice.resource_id(&target.uid));
    let body = json!({"body": text(&marker, notice)});
    let addresses = if target.kind == P::GitlabComment { gitlab(target, number) } else { issues(target, number)? };
    let token = target.secret_token();
    let with_login = |request: Request| {
        target.with_own(match target.kind {
            P::GitlabComment => request.header("private-token", token),
            P::GiteaComment => request.header("authorization", format!("token {token}")),
            _ => github(request, token),
        })
    };
    let method = if target.kind == P::GitlabComment { Method::PUT } else { Method::PATCH };
    let requests = Requests {
        user: with_login(Request::get(addresses.user)),
        list: with_login(Request::get(addresses.list)),
        create: with_login(Request::post(addresses.create, &body)),
        edit: with_login(Request { method, ..Request::post(addresses.edit, &body) }),
    };
    Ok(Delivery::Comment(Box::new(Comment::new(target.kind, number, marker, requests))))
}

/// Returns the addresses at GitHub and Gitea, where a pull request has the comments of an issue.
fn issues(target: &Target, number: u64) -> Result<Addresses, String> {
    let (owner, name) = repository(target)?;
    let is_gitea = target.kind == P::GiteaComment;
    let api = if is_gitea { format!("{}/api/v1", target.origin()) } else { github_api(target) };
    let issues = format!("{api}/repos/{owner}/{name}/issues");
    let create = format!("{issues}/{number}/comments");
    let list = if is_gitea { create.clone() } else { format!("{create}?per_page={PER_PAGE}&page=") };
    Ok(Addresses { user: format!("{api}/user"), list, create, edit: format!("{issues}/comments/") })
}

fn gitlab(target: &Target, number: u64) -> Addresses {
    let (id, at) = (encoded(&segments(target).join("/")), target.origin());
    let create = format!("{at}/api/v4/projects/{id}/merge_requests/{number}/notes");
    Addresses {
        user: format!("{at}/api/v4/user"),
        list: format!("{create}?sort=asc&order_by=created_at&per_page={PER_PAGE}&page="),
        edit: format!("{create}/"),
        create,
    }
}

/// Returns the text of a comment, which begins with its marker.
fn text(marker: &str, notice: &Marked<'_, Code>) -> String {
    let sign = match notice.state() {
        _ if notice.is_error() => "⚠️",
        Some(CommitState::Pending) => "⏳",
        Some(CommitState::Success) => "✅",
        _ => "ℹ️",
    };
    let object = format!("{}/{}/{}", notice.kind().as_str(), notice.namespace().as_str(), notice.name().as_str());
    let (object, reason) = (span(&object), span(notice.reason().as_str()));
    let message = notice.message(MESSAGE);
    let mut text =
        format!("{marker}\n## Mainstay\n\n{sign} {object}: {reason}\n\n```text\n{}\n```\n\n", message.as_str());
    let is_shown = |(name, _): &(Text<Code>, Text<Code>)| name.as_str() != CHANGE_REQUEST;
    for (name, value) in notice.fields(NAME, VALUE).filter(is_shown).take(FIELDS) {
        text.push_str(&format!("- {}: {}\n", span(name.as_str()), span(value.as_str())));
    }
    text
}

/// Returns an escaped string as code within a line. It has no two backticks in a row.
fn span(escaped: &str) -> String {
    format!("`` {} ``", escaped.replace('\n', " "))
}

#[cfg(test)]
mod tests;
