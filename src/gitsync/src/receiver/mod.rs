//! Receivers: a Git host reports a push over HTTP, and the named remotes are looked up immediately.
//!
//! [`Deliveries`] receives a delivery. [`Issuers`](issuers::Issuers) checks the token of an issuer, for types that have
//! one. [`judge`](delivery::judge) checks whether the delivery is authentic otherwise and reports a push, and selects the
//! consumers. [`Pushes`](mainstay_git::Pushes) wakes them. [`run`] is the task of one Receiver.
//!
//! Invariant: a delivery is authenticated before its body is parsed. It causes only lookups of remotes that GitSyncs
//! and Functions in the Receiver's namespace follow anyway. Names in a payload are compared, never opened.
//! Invariant: no part of a token reaches a log, an Event, a response or a metric. The path that is derived from the
//! token is shown only in the status of the Receiver.
//!
//! Not here: TLS, which the ingress terminates; commits in payloads, because the remote is authoritative.

mod bounded;
mod context;
mod delivery;
mod filter;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod id_token;
#[expect(clippy::disallowed_methods, reason = "it reads keys from issuers, with deadlines, and keeps them for a time")]
mod issuers;
#[expect(clippy::disallowed_methods, reason = "it lists objects, with deadlines and at intervals")]
mod listing;
mod matching;
mod outcome;
mod payload;
mod providers;
#[expect(clippy::disallowed_methods, reason = "it writes statuses, and waits until one can be tried again")]
mod reconcile;
mod resolve;
mod room;
#[expect(clippy::disallowed_methods, reason = "it receives, with deadlines")]
mod server;
mod shared_list;
mod signature;
mod sources;
mod status;
mod turns;

pub use context::{BaseUrl, Context};
pub use payload::MAX_BODY;
pub use reconcile::{Input, receivers, run};
pub use resolve::problems;
pub use server::{Count, Deliveries};
