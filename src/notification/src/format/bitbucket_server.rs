//! The build status of a commit at Bitbucket Server and Data Center.
//!
//! The status that the service has is read first. An equal status is not sent again, because each one notifies users.
//!
//! Invariant: host, project and repository are always those in the Provider's address.

use mainstay_api::conditions::cut;
use serde_json::json;

use super::Target;
use super::commit::{context, description, key, word, words};
use super::markup::{Marked, Plain};
use crate::address::{NO_CLONE, clone_of_bitbucket};
use crate::delivery::{Delivery, LookUp};
use crate::request::Request;

/// Maximum length of a field, in bytes.
const LONGEST: usize = 255;

/// Returns the look-up of the status, and the request that sets it.
pub(super) fn status(target: &Target, notice: &Marked<'_, Plain>) -> Result<Delivery, String> {
    let (sha, state) = notice.commit()?;
    let mut url = target.address.expose().clone();
    url.set_query(None);
    url.set_fragment(None);
    let (path, project, repository) = clone_of_bitbucket(&url).ok_or_else(|| format!("spec.address: {NO_CLONE}"))?;
    let path = format!("{path}/rest/api/latest/projects/{project}/repos/{repository}/commits/{sha}/builds");
    let (context, description) = (context(target, notice)?, description(notice, LONGEST));
    let key = key(&context);
    // Users see the name, and not the key.
    let own = format!("{}/{}", notice.kind().as_str().to_lowercase(), notice.name().as_str());
    let name = format!("{} [{}]", if target.status_name.is_some() { &context } else { &own }, words(notice));
    let name = cut(&name, LONGEST);
    let state = word(state, ["INPROGRESS", "SUCCESSFUL", "FAILED"]);
    let body = json!({
        "key": key, "state": state, "url": url.as_str(), "description": description, "name": name,
    });
    url.set_path(&path);
    let set = with_headers(target, Request::post(url.as_str(), &body));
    // The key is hexadecimal.
    url.set_query(Some(&format!("key={key}")));
    let wanted = ["key", "state", "description", "name"].map(|field| (field, body[field].clone()));
    let look_up = LookUp { request: with_headers(target, Request::get(url)), wanted: wanted.into() };
    Ok(Delivery::Unless(look_up, set))
}

/// Adds the login, the headers by which the service accepts requests of programs, and those of the Secret.
fn with_headers(target: &Target, request: Request) -> Request {
    let request = target.authorized(request).header("x-atlassian-token", "no-check");
    target.with_own(request.header("x-requested-with", "XMLHttpRequest"))
}
