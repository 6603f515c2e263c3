//! The status of a commit at a Git host, and dispatch events.
//!
//! Invariant: host and repository are always those in the Provider's address. A commit is a hexadecimal id.

use mainstay_api::conditions::cut;
use serde_json::{Value, json};

use super::encoding::{basic, encoded};
use super::markup::{Data, Marked, Plain, Text};
use super::{Target, event};
use crate::address::{self, NO_AZURE_REPOSITORY, NO_REPOSITORY};
use crate::notice::CommitState;
use crate::provider_type::ProviderType as P;
use crate::request::Request;

/// Maximum length of the name of a status, in bytes.
const NAME: usize = 255;
/// Maximum length of a description, in bytes. It is that of GitHub; other hosts accept more.
const DESCRIPTION: usize = 140;

/// Returns the segments of the address's path, without `.git` at the end.
pub(super) fn segments(target: &Target) -> Vec<&str> {
    address::segments(target.address.expose())
}

/// Returns owner and name of a repository.
pub(super) fn repository(target: &Target) -> Result<(&str, &str), String> {
    address::owner_and_name(target.address.expose()).ok_or_else(|| format!("spec.address: {NO_REPOSITORY}"))
}

pub(super) fn github_api(target: &Target) -> String {
    match target.host() {
        "github.com" => "https://api.github.com".to_owned(),
        _ => format!("{}/api/v3", target.origin()),
    }
}

/// Returns the name of the commit status: that of the Provider's expression, or one that is the same for all commits of a
/// GitSync.
pub(super) fn context(target: &Target, notice: &Marked<'_, Plain>) -> Result<String, String> {
    if let Some(expression) = &target.status_name {
        let name = expression.of(&event::of(&notice.with::<Data>()), notice.alert())?;
        return Ok(Text::<Plain>::within(&name, NAME).as_str().to_owned());
    }
    let uid = notice.uid();
    let uid = uid.as_ref().and_then(|uid| uid.as_str().split('-').next()).unwrap_or_default();
    let name = format!("{}/{}/{uid}", notice.kind().as_str().to_lowercase(), notice.name().as_str());
    Ok(name.trim_end_matches('/').to_owned())
}

/// Returns the reason as words: `CommitApplied` becomes `commit applied`. The message is not a part of it, because
/// everyone reads the statuses of a public repository.
pub(super) fn description(notice: &Marked<'_, Plain>) -> String {
    let mut words = String::new();
    for c in notice.reason().as_str().chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    cut(&words, DESCRIPTION).to_owned()
}

pub(super) fn word(state: CommitState, words: [&'static str; 3]) -> &'static str {
    let [pending, success, failure] = words;
    match state {
        CommitState::Pending => pending,
        CommitState::Success => success,
        CommitState::Failure => failure,
    }
}

/// Returns the request that sets the status of the notice's commit.
pub(super) fn status(target: &Target, notice: &Marked<'_, Plain>) -> Result<Request, String> {
    let (sha, state) = notice.commit()?;
    let (context, description) = (context(target, notice)?, description(notice));
    let token = target.secret_token();
    let plain = |words| word(state, words);
    match target.kind {
        P::Gitlab => {
            let (id, at) = (encoded(&segments(target).join("/")), target.origin());
            let body = json!({
                "name": context, "state": plain(["pending", "success", "failed"]), "description": description,
            });
            let url = format!("{at}/api/v4/projects/{id}/statuses/{sha}");
            Ok(Request::post(url, &body).header("private-token", token))
        }
        P::Gitea => {
            let (owner, name) = repository(target)?;
            let body = json!({
                "state": plain(["pending", "success", "failure"]), "target_url": "", "context": context,
                "description": description,
            });
            let url = format!("{}/api/v1/repos/{owner}/{name}/statuses/{sha}", target.origin());
            Ok(Request::post(url, &body).header("authorization", format!("token {token}")))
        }
        P::Bitbucket => {
            let (owner, name) = repository(target)?;
            let body = json!({
                "state": plain(["INPROGRESS", "SUCCESSFUL", "FAILED"]), "key": key(&context), "name": context,
                "description": description, "url": "https://bitbucket.org",
            });
            let api =
                if target.host() == "bitbucket.org" { "https://api.bitbucket.org".to_owned() } else { target.origin() };
            let url = format!("{api}/2.0/repositories/{owner}/{name}/commit/{sha}/statuses/build");
            Ok(with_login(Request::post(url, &body), token))
        }
        P::AzureDevops => azure(target, sha, &context, &description, plain(["pending", "succeeded", "failed"])),
        _ => {
            let (owner, name) = repository(target)?;
            let state = plain(["pending", "success", "failure"]);
            let body = json!({"state": state, "context": context, "description": description});
            let url = format!("{}/repos/{owner}/{name}/statuses/{sha}", github_api(target));
            Ok(github(Request::post(url, &body), token))
        }
    }
}

/// Shortens a context to the 40 characters that Bitbucket permits.
pub(super) fn key(context: &str) -> String {
    use sha2::{Digest as _, Sha256};
    hex::encode(&Sha256::digest(context)[..20])
}

/// Adds the token: `USER:PASSWORD`, or an access token.
fn with_login(request: Request, token: &str) -> Request {
    match token.split_once(':') {
        Some((user, password)) => request.header("authorization", basic(user, password)),
        None => request.bearer(token),
    }
}

pub(super) fn github(request: Request, token: &str) -> Request {
    request.header("accept", "application/vnd.github+json").header("x-github-api-version", "2022-11-28").bearer(token)
}

/// The address is `https://dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY`.
fn azure(target: &Target, sha: &str, context: &str, description: &str, state: &str) -> Result<Request, String> {
    let (organisation, project, repository) = address::azure_repository(target.address.expose())
        .ok_or_else(|| format!("spec.address: {NO_AZURE_REPOSITORY}"))?;
    let (genre, name) = context.split_once('/').unwrap_or(("mainstay", context));
    let body = json!({"state": state, "description": description, "context": {"genre": genre, "name": name}});
    let url = format!(
        "{}/{organisation}/{project}/_apis/git/repositories/{repository}/commits/{sha}/statuses?api-version=7.0",
        target.origin()
    );
    Ok(Request::post(url, &body).header("authorization", basic("", target.secret_token())))
}

/// Returns the request for a dispatch event, which starts workflows of a repository. The type of the event is that of
/// Flux.
pub(super) fn dispatch(target: &Target, notice: &Marked<'_, Data>) -> Result<Request, String> {
    let (owner, name) = repository(target)?;
    let kind = format!("{}/{}.{}", notice.kind().as_str(), notice.name().as_str(), notice.namespace().as_str());
    let payload: Value = event::of(notice);
    let url = format!("{}/repos/{owner}/{name}/dispatches", github_api(target));
    let body = json!({"event_type": cut(&kind, 100), "client_payload": payload});
    Ok(github(Request::post(url, &body), target.secret_token()))
}

#[cfg(test)]
mod tests;
