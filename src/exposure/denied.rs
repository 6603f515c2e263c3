//! The text of an error, with what helps where a right is missing.

use crate::cluster::{Denial, Error};
use crate::failure::chain;

/// The error and its causes; where the agent lacks a right, where that is to be had.
pub(super) fn explain(error: &Error) -> String {
    let is_unpermitted = error.refusal().is_some_and(|refusal| refusal.denial == Some(Denial::Permission));
    let hint = if is_unpermitted { "; manifests/exposure has the rights that it takes" } else { "" };
    format!("{}{hint}", chain(error))
}
