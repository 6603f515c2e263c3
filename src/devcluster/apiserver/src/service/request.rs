//! Requests as they are answered: with their body read, or with one that an extension reads.

use crate::{access::User, extension::Sent, route::Query, status::Status};
use bytes::{Buf as _, Bytes};
use http::{Method, header, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use std::io;

/// Largest accepted body, in bytes.
const MAX_BODY: usize = 3 << 20;

/// A request whose body has been read.
pub(super) struct Asked {
    pub(super) parts: Parts,
    pub(super) query: Query,
    pub(super) body: Bytes,
    pub(super) user: User,
}

impl Asked {
    pub(super) fn header(&self, name: header::HeaderName) -> &str {
        self.parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    pub(super) fn user_agent(&self) -> &str {
        self.header(header::USER_AGENT)
    }
}

/// Reads the body of a request; 413 when it is too large.
pub(super) async fn read<B>(parts: &Parts, body: B) -> Result<Bytes, Status>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Bytes::new());
    }
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {MAX_BODY}")))
        }
        Err(_) => Err(Status::bad_request("the body of the request could not be read")),
    }
}

/// A body as extensions read it.
pub(super) fn sent<B>(body: B) -> Sent
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = |mut data: B::Data| data.copy_to_bytes(data.remaining());
    body.map_frame(move |frame| frame.map_data(whole)).map_err(io::Error::other).boxed_unsync()
}
