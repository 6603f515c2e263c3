//! Requests to Knative Services: forwards them to a Revision's pod, or holds them until there is one.
//!
//! `destination` selects the Revision; `activator` holds and forwards requests and triggers a scale-up.
//!
//! Invariant: a request counts for its Revision from its arrival to the end of the response.
//! Invariant: a request stays with the Revision that was selected for it.
//!
//! Not here: connection upgrades and HTTP/2.

#[expect(clippy::disallowed_methods, reason = "it connects to pods and waits for them, with deadlines")]
mod activator;
mod destination;

pub(crate) use super::forward::Body;
pub(super) use activator::{Asked, answer};
pub(crate) use activator::{relay, said, serve};
pub(crate) use destination::is_led;
pub(super) use destination::of_host;
