//! Reads forms of the server's own pages, and performs the form that changes a session.

use axum::Extension;
use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;

use super::answer;
use super::session::{Its, Session};
use crate::filter::Query;
use crate::session::TokenDigest;
use mainstay_cluster::body;

/// Maximum size of a form, in bytes.
const FORM: usize = 64 << 10;

/// Reads a form.
///
/// # Errors
/// Fails with a response that says why the form was not read.
pub(super) async fn form(request: &mut Request) -> Result<Query, Response> {
    let read = body::read(request.body_mut(), FORM, |_| true).await;
    let wrong = |_| answer::message(StatusCode::BAD_REQUEST, "Wrong form", "The form is too large, or did not arrive.");
    read.map(|bytes| Query::parse(&bytes)).map_err(wrong)
}

impl Session {
    /// Reads a form that a page of this session has sent.
    ///
    /// # Errors
    /// Fails with a response that refuses the form.
    pub(super) async fn form(&self, request: &mut Request) -> Result<Query, Response> {
        self.own(form(request).await?)
    }

    /// Returns a form if a page of this session has sent it.
    pub(super) fn own(&self, form: Query) -> Result<Query, Response> {
        // Digests are compared, so that the duration reveals nothing about the token.
        if TokenDigest::of(form.get("csrf")) == TokenDigest::of(&self.csrf) {
            return Ok(form);
        }
        let text = "The form is not of this session. Open the page again.";
        Err(answer::message(StatusCode::FORBIDDEN, "Refused", text))
    }
}

/// Shows the objects of another namespace to a user who may not list the objects of all namespaces.
pub(super) async fn select_namespace(Extension(session): Its, mut request: Request) -> Response {
    match session.form(&mut request).await {
        Err(response) => response,
        Ok(form) => {
            session.watch_within(form.get("in"));
            answer::see_other("/")
        }
    }
}
