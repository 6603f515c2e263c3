//! Requests to Services of Knative: by what the Ingress says to a Revision, and there to a pod, or held until there is one.
//!
//! `destination` decides, by the objects; `activator` holds, has pods made and leads.
//!
//! Invariant: a request counts for its Revision from when it arrives to the end of its answer.
//! Invariant: a request stays with the Revision that was chosen for it.
//!
//! Deliberately absent: upgrades of connections, and HTTP/2.

#[expect(clippy::disallowed_methods, reason = "it connects to pods and waits for them, with deadlines")]
mod activator;
mod destination;

pub(crate) use super::forward::Body;
pub(super) use activator::{Asked, answer};
pub(crate) use activator::{relay, said, serve};
pub(crate) use destination::is_led;
pub(super) use destination::of_host;
