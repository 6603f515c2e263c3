//! Reads forms of the server's own pages, and performs the form that changes a session.
//!
//! Invariant: each form has a maximum size and a maximum time.

use std::ops::Deref;
use std::time::Duration;

use axum::Extension;
use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;

use super::answer;
use super::form_memory::FormPermit;
use super::session::{Its, Session};
use super::shared::Shared;
use crate::filter::Query;
use crate::session::TokenDigest;
use mainstay_cluster::body::BodyFault;

/// Maximum size of a form of a session, in bytes, and the maximum time for it.
const FORM: usize = 64 << 10;
const WITHIN: Duration = Duration::from_secs(10);

/// Returns the page about a form that was not read.
pub(super) fn unread(fault: BodyFault) -> Response {
    match fault {
        BodyFault::NoRoom => answer::message(
            StatusCode::SERVICE_UNAVAILABLE,
            "The server is busy",
            "Too many forms are being read. Go back, and send the form again.",
        ),
        BodyFault::TooLarge | BodyFault::Broken => {
            answer::message(StatusCode::BAD_REQUEST, "Wrong form", "The form is too large, or did not arrive.")
        }
    }
}

impl Shared {
    /// Reads a form of a client without a session.
    ///
    /// # Errors
    /// Fails with a response that says why the form was not read.
    pub(super) async fn form(&self, request: &mut Request) -> Result<Query, Response> {
        self.bodies.form(request.body_mut()).await.map_err(unread)
    }
}

/// A form of a session, with its memory.
pub(super) struct Sent {
    form: Query,
    /// The size of the form in bytes.
    pub(super) size: usize,
    memory: FormPermit,
}

impl Sent {
    /// Drops the form, and returns its memory.
    pub(super) fn into_memory(self) -> FormPermit {
        self.memory
    }
}

impl Deref for Sent {
    type Target = Query;

    fn deref(&self) -> &Query {
        &self.form
    }
}

impl Session {
    /// Reads a form that a page of this session has sent.
    ///
    /// # Errors
    /// Fails with a response that refuses the form.
    pub(super) async fn form(&self, request: &mut Request) -> Result<Sent, Response> {
        self.own(self.read_form(request, FORM, WITHIN).await.map_err(unread)?)
    }

    /// Reads a form of at most `most` bytes that arrives `within` this time.
    ///
    /// # Errors
    /// Says why the form was not read.
    pub(super) async fn read_form(
        &self,
        request: &mut Request,
        most: usize,
        within: Duration,
    ) -> Result<Sent, BodyFault> {
        let (bytes, memory) = self.pages.forms.read(request.body_mut(), most, within).await?;
        Ok(Sent { form: Query::parse(&bytes), size: bytes.len(), memory })
    }

    /// Returns a form if a page of this session has sent it.
    pub(super) fn own(&self, form: Sent) -> Result<Sent, Response> {
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
