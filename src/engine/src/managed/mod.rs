//! The store of managed objects: what every object must be, for whom, what was last applied to it, and what is going on
//! with it.
//!
//! - [`Desired`]: what an object must be, and by what it is known to be its owner's
//! - `store`: the store itself; `objects` counts what is in it for its owners as it changes; `account`: what an owner asks
//!   for, and its reverts so far
//! - `events`: what is seen of an object, and what follows from it; [`verdict`]: whether it must be reverted; `writes`: what
//!   begins, is answered and fails
//! - `object`: one managed object; `apply_state`: what was last applied to it; `phase`: what is done about it; `pending`:
//!   whether it is being written, and what waits to be acted on
//! - [`projection`], [`fields`], `ownership`, `reserved`, `collision`, `unions`, `stale_defaults`: which fields
//!   are ours, what they hold, and what is in their way
//! - `adoption`: what former appliers own becomes ours; `aliases`: fields that the server keeps in step with others
//! - [`IgnoreRules`]: which fields are left to others; `ignored`: those of one object; `additions`: what people's tools added
//! - `deletion`: whether an object that left may be deleted; [`installation`]: the Mainstay that runs here is not, unasked; [`replacement`]: whether one that cannot be changed may be
//!   deleted and created anew; `autoscaled`, `watched_kinds`: what else bears on all objects
//! - [`health_rules`]: the expressions of a GitSync for the health of kinds
//! - `applied_configuration`: what stands in a live object of what was last applied to it
//! - [`revert_backoff`]: how long a revert waits because somebody keeps changing the object
//! - `audit`: which object is audited when
//! - `remaining`: how an object differs that is not reverted at once; `drifted`: which do, and what ends that; `lost_fields`:
//!   what was taken from us in a live object
//! - `summary`: what an owner's status says of its objects
//! - [`inventory`]: the store of one GitSync, written down; `written` changes it together with the objects; [`places`]: where
//!   in the repository they are, beside it; `inventory_maps`: which ConfigMaps hold one
//!
//! Invariant: an object is in the store from the moment its first apply begins until it is forgotten; what is not in it
//! is ignored everywhere.
//! Invariant: no more is remembered of a live object than its identity, two digests' worth of bytes and its health, and of
//! one whose drift remains the first fields in which it differs.
//!
//! Deliberately absent: requests, clocks and tasks. All of it are values and decisions over values.

pub(crate) mod account;
pub(crate) mod additions;
pub(crate) mod adoption;
pub(crate) mod aliases;
pub(crate) mod applied_configuration;
pub(crate) mod apply_state;
pub mod attempts;
pub(crate) mod audit;
mod autoscaled;
pub(crate) mod autoscaler;
pub(crate) mod backoff_expiry;
pub(crate) mod collision;
pub mod deletion;
pub(crate) mod desired;
pub(crate) mod drifted;
mod events;
pub mod fields;
#[cfg(test)]
mod fixtures;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
pub mod health_rules;
mod ignore_rules;
pub(crate) mod ignored;
pub mod installation;
pub mod inventory;
pub(crate) mod inventory_maps;
mod lost_fields;
pub(crate) mod memory_budget;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod ownership;
mod pause_end;
pub(crate) mod pending;
pub(crate) mod phase;
pub mod places;
pub mod projection;
pub(crate) mod remaining;
pub mod replacement;
pub(crate) mod reserved;
pub mod revert_backoff;
pub(crate) mod stale_defaults;
pub(crate) mod store;
pub(crate) mod summary;
pub(crate) mod unions;
pub mod verdict;
mod watched_kinds;
pub(crate) mod writes;
pub(crate) mod written;

pub use account::{History, Policy};
pub use adoption::{Appliers, KNOWN_APPLIERS};
pub use applied_configuration::AppliedConfiguration;
pub use desired::{Desired, Mark};
pub use ignore_rules::IgnoreRules;
pub use ignored::Ignored;
pub use memory_budget::{Part, Waiting, kept_within, memory_limit};
pub use ownership::released;
pub use pause_end::PauseEnd;
pub use reserved::{Reserved, is_added_to};
pub use summary::{Listed, SHOWN, Summary};
pub use verdict::is_paused;
