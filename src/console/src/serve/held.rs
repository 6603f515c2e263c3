//! Responses that keep their memory permit until the client has read them.
//!
//! Invariant: the permit of a response is dropped with its last byte in memory, also if the connection buffers it. The
//! listener closes the connection of a client that does not read its response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A body whose bytes keep a permit.
struct HeldBody<P> {
    body: Body,
    permit: Arc<P>,
}

/// Marks a response whose bytes keep the memory of their page.
#[derive(Clone, Copy, Debug)]
struct HasMemory;

/// Returns the response, whose bytes keep the permit of their memory.
pub(super) fn held_memory<P: Send + Sync + 'static>(response: Response, permit: P) -> Response {
    let mut response = held(response, permit);
    response.extensions_mut().insert(HasMemory);
    response
}

/// Returns whether the bytes of a response keep the permit of their memory.
pub(super) fn has_memory(response: &Response) -> bool {
    response.extensions().get::<HasMemory>().is_some()
}

/// Bytes of such a body.
struct HeldBytes<P> {
    bytes: Bytes,
    _permit: Arc<P>,
}

impl<P> AsRef<[u8]> for HeldBytes<P> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<P: Send + Sync + 'static> HttpBody for HeldBody<P> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let held = |bytes| Bytes::from_owner(HeldBytes { bytes, _permit: Arc::clone(&self.permit) });
        polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(held))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the response, whose bytes keep a permit.
pub(super) fn held<P: Send + Sync + 'static>(response: Response, permit: P) -> Response {
    response.map(|body| Body::new(HeldBody { body, permit: Arc::new(permit) }))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn a_permit_is_kept_until_the_last_byte_of_its_response_is_dropped() {
        let permit = Arc::new(());
        let is_kept = || Arc::strong_count(&permit) > 1;
        let response = held(Response::new(Body::from("page")), Arc::clone(&permit));
        assert_eq!(response.body().size_hint().exact(), Some(4));
        let mut bytes = to_bytes(response.into_body(), 10).await.unwrap();
        assert_eq!(&*bytes.split_to(3), b"pag");
        assert!(is_kept(), "a connection has bytes in its buffer");
        drop(bytes);
        assert!(!is_kept());
        let response = held(Response::new(Body::from("page")), Arc::clone(&permit));
        assert!(!has_memory(&response));
        let response = held_memory(response, ());
        assert!(has_memory(&response) && is_kept());
        drop(response);
        assert!(!is_kept(), "the client has closed the connection");
    }
}
