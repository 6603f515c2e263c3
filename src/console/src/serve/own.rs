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
use crate::filter::{PAIRS, Query};
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

    /// Returns a form if a page of this session has sent it, and if all of its fields were read.
    pub(super) fn own(&self, form: Sent) -> Result<Sent, Response> {
        // Digests are compared, so that the duration reveals nothing about the token.
        if TokenDigest::of(form.get("csrf")) != TokenDigest::of(&self.csrf) {
            let text = "The form is not of this session. Open the page again.";
            return Err(answer::message(StatusCode::FORBIDDEN, "Refused", text));
        }
        if form.is_cut() {
            let text = format!(
                "The form has more than {PAIRS} fields, so nothing was changed. Go back, and remove some fields, or change the \
                 manifest of the object."
            );
            return Err(answer::message(StatusCode::UNPROCESSABLE_ENTITY, "Too many fields", &text));
        }
        Ok(form)
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

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use crate::serve::row_memory::RowMemory;
    use crate::serve::session::tests::session;

    #[tokio::test]
    async fn a_form_with_too_many_fields_is_refused() {
        let session = session(&RowMemory::default());
        let status = async |count: usize| {
            let body = vec!["a=1"; count].join("&");
            session.form(&mut Request::new(Body::from(body))).await.err().map(|response| response.status())
        };
        assert_eq!(status(PAIRS).await, None);
        assert_eq!(status(PAIRS + 1).await, Some(StatusCode::UNPROCESSABLE_ENTITY));
    }
}
