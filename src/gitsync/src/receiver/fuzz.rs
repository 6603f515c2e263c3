//! Fuzz targets for parsers of hostile input. Each target accepts any bytes, ends soon, does not panic, and checks an
//! invariant.

use super::payload::{of_form, read};
use mainstay_api::ReceiverType;

/// Parses the body of a webhook. The first byte selects the type of the Receiver.
pub fn receiver_body(bytes: &[u8]) {
    let Some((&kind, body)) = bytes.split_first() else { return };
    let kind = ReceiverType::ALL[usize::from(kind) % ReceiverType::ALL.len()];
    // Both results are right; an error quotes no part of the body.
    let _ = read(kind, body);
    if let Ok(body) = of_form(body) {
        let _ = read(kind, &body);
    }
}
