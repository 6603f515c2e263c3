//! Receivers: a Git host reports a push over HTTP, and the remotes that it names are looked up at once.
//!
//! [`Deliveries`] receives, [`judge`](delivery::judge) decides whether a delivery is authentic, counts, and whom it means;
//! [`Pushes`](mainstay_git::Pushes) wakes those. [`run`] is the task of one Receiver.
//!
//! Invariant: a delivery is authentic before anything of its body is read, and never leads to more than lookups of remotes
//! that GitSyncs and Functions in the Receiver's namespace follow anyway. What a payload names is compared, never opened.
//! Invariant: of a token, nothing reaches a log, an Event, a status, an answer or a metric; the path that is made of it is
//! in the Receiver's status only.
//!
//! Deliberately absent: TLS, which belongs to the ingress; commits in payloads: the remote says what is there.

mod bounded;
mod context;
mod delivery;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod matching;
mod outcome;
mod payload;
#[expect(clippy::disallowed_methods, reason = "it writes statuses, and waits until one can be tried again")]
mod reconcile;
mod resolve;
mod room;
#[expect(clippy::disallowed_methods, reason = "it receives, with deadlines")]
mod server;
mod signature;
mod status;

pub use context::{BaseUrl, Context};
pub use payload::MAX_BODY;
pub use reconcile::{Input, receivers, run};
pub use server::{Count, Deliveries};
