//! The backward loop: what was verified of every managed object, and what puts it back when it is changed.
//!
//! A watch event becomes a verdict ([`decide`]) by comparing the [`projection`] of the live object onto our own fields
//! with the digest of what the server answered to our last apply. What has to go back is applied again at once, or
//! later when somebody keeps fighting ([`heat`]). The forward loop applies through the same [`Drift`], so there is one
//! ledger and one writer per object.
//!
//! Invariant: an event whose projection is unchanged costs a hash and no request.
//! Invariant: no more is remembered of a live object than its identity, two digests' worth of bytes and its health.
//!
//! Deliberately absent: where desired objects come from. The owner hands them in.

mod apply;
mod attempts;
mod autoscaler;
mod book;
mod collision;
mod cooling;
pub mod decide;
mod desired;
mod exclusive;
mod fair;
pub mod fields;
mod foreign;
pub mod heat;
mod in_place;
#[expect(clippy::disallowed_methods, reason = "the loop's clock is here")]
mod keep;
mod ledger;
mod limit;
mod managed;
mod ownership;
pub mod projection;
#[expect(clippy::disallowed_methods, reason = "it waits for turns, and is the task that runs them")]
mod queue;
#[expect(clippy::disallowed_methods, reason = "reverts are tasks, and wait for their turn")]
mod revert;
mod standing;
mod summary;
#[expect(clippy::disallowed_methods, reason = "watches are tasks, with a clock")]
mod watch;
mod watching;

pub use apply::{Change, Intent, Put};
pub use decide::is_paused;
pub use desired::{Desired, Mark, Owner};
pub use foreign::{Reserved, is_added_to};
pub use keep::{Alone, Announcement, Drift, Error, Known};
pub use ledger::Policy;
pub use ownership::{released, take_over};
pub use standing::Standing;
pub use summary::{Listed, SHOWN, Summary};
