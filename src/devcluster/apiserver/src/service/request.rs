//! Requests with their bodies: read into memory, or streamed to an extension.

use crate::{access::User, extension::Sent, route::Query, status::Status};
use bytes::{Buf as _, BufMut as _, Bytes};
use http::{Method, header, request::Parts};
use http_body_util::BodyExt as _;
use std::{
    io,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Maximum size of a body, in bytes.
const MAX_BODY: usize = 3 << 20;
/// Maximum size of a body that needs no memory budget, in bytes.
const SMALL: usize = 64 << 10;
/// Memory budget for all larger bodies, in bytes.
const ROOM: usize = 12 << 20;
/// Maximum wait for memory budget, and then for the body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum size and time for draining a refused body.
const DISCARDED: usize = 4 * MAX_BODY;
const MOMENT: Duration = Duration::from_secs(1);

/// The memory budget for bodies.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM)))
    }
}

/// The bytes of a body with their memory budget, which is released with the last reference.
struct Body {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A request with its body.
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

/// Reads the body of a request; 413 if it is too large, 429 if the memory budget is used up, 408 if it is too slow.
pub(super) async fn read<B>(room: &Room, parts: &Parts, body: B) -> Result<Bytes, Status>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Bytes::new());
    }
    let too_large =
        || Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {MAX_BODY}"));
    let size = body.size_hint();
    let said = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    if said(size.lower()) > MAX_BODY {
        discard(pin!(body)).await;
        return Err(too_large());
    }
    let length = size.exact().map_or(MAX_BODY, said);
    let held = if length > SMALL {
        let busy = || Status::new(429, "TooManyRequests", "too many large requests, please try again later");
        let units = u32::try_from(length).map_err(|_| too_large())?;
        let held = timeout(PATIENCE, Arc::clone(&room.0).acquire_many_owned(units)).await;
        Some(held.map_err(|_| busy())?.map_err(|_| busy())?)
    } else {
        None
    };
    let slow = |_| Status::new(408, "Timeout", "the body of the request did not come in time");
    let body = timeout(PATIENCE, whole(body, size.exact().map_or(0, said))).await.map_err(slow)?;
    let bytes = body?.ok_or_else(too_large)?;
    Ok(Bytes::from_owner(Body { bytes, _room: held }))
}

/// Drains a refused body, within bounds. A client that is still sending when the connection closes would not read the
/// response.
async fn discard<B>(mut body: Pin<&mut B>)
where
    B: http_body::Body,
{
    let mut rest = DISCARDED;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let size = frame.data_ref().map_or(0, bytes::Buf::remaining);
            let Some(less) = rest.checked_sub(size) else { return };
            rest = less;
        }
    };
    // A body that takes longer is cut off.
    let _ = timeout(MOMENT, reading).await;
}

/// Reads a whole body into memory; `None` if it is too large.
async fn whole<B>(body: B, length: usize) -> Result<Option<Vec<u8>>, Status>
where
    B: http_body::Body,
{
    let (mut body, mut bytes) = (pin!(body), Vec::with_capacity(length));
    let unread = |_| Status::bad_request("the body of the request could not be read");
    while let Some(frame) = body.frame().await.map(|frame| frame.map_err(unread)) {
        let Ok(data) = frame?.into_data() else { continue };
        if data.remaining() > MAX_BODY - bytes.len() {
            discard(body).await;
            return Ok(None);
        }
        bytes.put(data);
    }
    Ok(Some(bytes))
}

/// Converts a body for extensions.
pub(super) fn sent<B>(body: B) -> Sent
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = |mut data: B::Data| data.copy_to_bytes(data.remaining());
    body.map_frame(move |frame| frame.map_data(whole)).map_err(io::Error::other).boxed_unsync()
}
