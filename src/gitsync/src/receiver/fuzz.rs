//! Readers of hostile input, for a fuzzer: each takes any bytes, ends soon, does not panic, and keeps its promise.

use super::payload::{of_form, read};
use mainstay_api::ReceiverType;

/// A body of a webhook, after a byte that chooses the type of the Receiver.
pub fn receiver_body(bytes: &[u8]) {
    let Some((&kind, body)) = bytes.split_first() else { return };
    let kind = ReceiverType::ALL[usize::from(kind) % ReceiverType::ALL.len()];
    // Either way is right; what is refused is refused without a quotation of it.
    let _ = read(kind, body);
    if let Ok(body) = of_form(body) {
        let _ = read(kind, &body);
    }
}
