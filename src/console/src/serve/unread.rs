//! Responses that their clients have not read. They keep the permit of their request, and their memory.
//!
//! Invariant: a form has memory for its result before it is processed, so that its effect is not hidden. Invariant: only a form
//! that may have had an effect is said to be processed.

use axum::body::HttpBody as _;
use axum::response::Response;
use http::{Method, StatusCode, header};

use super::connection_permits::REQUESTS;
use super::group_permits::GroupPermit;
use super::page_memory::{MOST_UNREAD, UnreadPermit};
use super::session::Session;
use super::{answer, held, live};

/// Memory of the result of a form before the form is processed, in bytes. A message and the result of an action are smaller.
const RESULT: u64 = 7 << 10;

// Each form that a group may send has this memory, so that forms are refused because of their number.
const _: () = assert!((REQUESTS.group as u64) * (RESULT >> 10) <= MOST_UNREAD.group as u64);

const UNREAD: &str =
    "The server has no memory for this page, because the responses to other requests were not read. Open it later.\n";
const NOT_PROCESSED: &str = "The server has no memory for the result of this form, because the responses to other requests \
                             were not read, so the form was not processed. Go back, and send the form again.\n";
const PROCESSED: &str = "The form was processed, but the server has no memory for the page with its result. Check whether \
                         the form had its effect before you send it again.";

/// Marks the response to a form that was not processed.
#[derive(Clone, Copy, Debug)]
struct NotProcessed;

/// Returns the response to a form that was not processed.
pub(super) fn not_processed(mut response: Response) -> Response {
    response.extensions_mut().insert(NotProcessed);
    response
}

/// Takes memory for the result of a request. Only a form needs it before its response.
///
/// # Errors
/// Fails with the response to a form that is not processed, because no memory is free.
pub(super) fn reserved(session: &Session, method: &Method) -> Result<Option<UnreadPermit>, Response> {
    if *method != Method::POST {
        return Ok(None);
    }
    match session.pages.try_unread(Some(RESULT)) {
        Some(memory) => Ok(Some(memory)),
        None => Err(answer::busy(NOT_PROCESSED)),
    }
}

/// Keeps the permit of a request, and the memory of its response, until the client has read the response. `reserved` is the
/// memory of a form. A stream has permits of its own.
pub(super) fn unread(
    session: &Session,
    request: GroupPermit,
    reserved: Option<UnreadPermit>,
    response: Response,
) -> Response {
    if response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == live::STREAM) {
        return response;
    }
    if held::has_memory(&response) {
        return held::held(response, request);
    }
    if let Some(mut memory) = reserved {
        let response = fitting(&mut memory, response);
        return held::held(response, (request, memory));
    }
    match session.pages.try_unread(response.body().size_hint().exact()) {
        Some(memory) => held::held(response, (request, memory)),
        None => answer::busy(UNREAD),
    }
}

/// Returns the result of a form, which keeps the memory that it has had since before its effect.
pub(super) fn keeping(mut memory: UnreadPermit, response: Response) -> Response {
    let response = fitting(&mut memory, response);
    held::held_memory(response, memory)
}

/// Returns the response to a form if it has enough memory, or else a message that takes less.
fn fitting(memory: &mut UnreadPermit, response: Response) -> Response {
    if memory.try_resize(response.body().size_hint().exact()) {
        return response;
    }
    if response.extensions().get::<NotProcessed>().is_some() { answer::busy(NOT_PROCESSED) } else { processed() }
}

/// Returns the response to a form whose result has no memory. The client must not send the form again unseen.
fn processed() -> Response {
    answer::message(StatusCode::SERVICE_UNAVAILABLE, "The result is not shown", PROCESSED)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;
    use crate::serve::row_memory::RowMemory;
    use crate::serve::session::tests::session;

    fn page(kibibytes: usize) -> Response {
        answer::page(StatusCode::OK, "x".repeat(kibibytes << 10))
    }

    fn request(session: &Session) -> GroupPermit {
        session.connections.try_request(&Method::GET).ok().unwrap()
    }

    #[tokio::test]
    async fn a_response_that_is_not_read_keeps_its_permits() {
        let session = session(&RowMemory::default());
        let read = |response: Response| unread(&session, request(&session), None, response);
        let first = read(page(900));
        assert_eq!(first.status(), 200);
        let second = read(page(900));
        assert!(second.status() == 503 && second.headers().contains_key(header::RETRY_AFTER));
        drop(first);
        assert_eq!(read(page(900)).status(), 200);
        // A page that waited for its memory has it already, and a stream has a permit of its own.
        let held: Vec<Response> = (0..64).map(|_| read(held::held_memory(page(900), ()))).collect();
        assert!(held.iter().all(|response| response.status() == 200));
        assert!(session.connections.try_request(&Method::GET).is_err());
        drop(held);
        let streams: Vec<Response> = (0..65).map(|_| read(answer::of_type(StatusCode::OK, live::STREAM, ""))).collect();
        assert!(streams.iter().all(|response| response.status() == 200));
    }

    #[tokio::test]
    async fn a_form_without_memory_for_its_result_is_not_processed() {
        let session = session(&RowMemory::default());
        assert!(reserved(&session, &Method::GET).is_ok_and(|memory| memory.is_none()));
        let held = session.pages.try_unread(None);
        assert!(held.is_some());
        assert!(reserved(&session, &Method::GET).is_ok());
        let refused = reserved(&session, &Method::POST).err().unwrap();
        assert_eq!(refused.status(), 503);
        let text = to_bytes(refused.into_body(), 1 << 10).await.unwrap();
        assert!(String::from_utf8_lossy(&text).contains("Go back, and send the form again"));
        drop(held);
        assert!(reserved(&session, &Method::POST).is_ok_and(|memory| memory.is_some()));
    }

    #[tokio::test]
    async fn the_result_of_a_form_is_shown_or_replaced_by_a_message_that_it_was_processed() {
        let session = session(&RowMemory::default());
        let memory = reserved(&session, &Method::POST).ok().unwrap();
        let held = session.pages.try_unread(Some(450 << 10));
        assert!(held.is_some());
        let small = unread(&session, request(&session), memory, page(8));
        assert_eq!(small.status(), 200);
        drop(small);
        let memory = reserved(&session, &Method::POST).ok().unwrap();
        let large = unread(&session, request(&session), memory, page(100));
        assert_eq!(large.status(), 503);
        assert!(!large.headers().contains_key(header::RETRY_AFTER), "the form must not be sent again");
        let text = to_bytes(large.into_body(), 1 << 20).await.unwrap();
        assert!(String::from_utf8_lossy(&text).contains("Check whether the form had its effect"));
        let memory = reserved(&session, &Method::POST).ok().unwrap();
        let unsent = unread(&session, request(&session), memory, not_processed(page(100)));
        assert!(unsent.status() == 503 && unsent.headers().contains_key(header::RETRY_AFTER));
        let text = to_bytes(unsent.into_body(), 1 << 20).await.unwrap();
        assert!(String::from_utf8_lossy(&text).contains("the form was not processed. Go back"));
        // The result of a call has memory of its own.
        let memory = session.pages.try_result().unwrap();
        let call = unread(&session, request(&session), None, keeping(memory, page(200)));
        assert_eq!(call.status(), 200);
        drop(held);
        let memory = reserved(&session, &Method::POST).ok().unwrap();
        assert_eq!(unread(&session, request(&session), memory, page(100)).status(), 200);
    }
}
