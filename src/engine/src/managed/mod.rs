//! The store of managed objects: their owner, desired state, last applied state and phase.
//!
//! - [`Desired`]: the desired state of an object, and the mark that names its owner on the live object
//! - `store`: the store itself; `objects`: counts per owner; `account`: policy (also a suspension) and past reverts of
//!   an owner
//! - `events`: watch events and their consequences; [`verdict`]: whether an object must be reverted; `writes`: the
//!   start, success and failure of a write
//! - `object`: one managed object; `apply_state`: its last apply; `phase`: whether it is kept, paused or removed from
//!   the repository; `pending`: writes in progress and work that waits
//! - [`projection`], [`fields`], `ownership`, `reserved`, `collision`, `unions`, `stale_defaults`: the fields that
//!   Mainstay owns, their values, and conflicts about them
//! - `adoption`: takes over fields of former appliers; `aliases`: fields that the server keeps in step with others
//! - [`IgnoreRules`]: fields left to others; `ignored`: those of one object; `additions`: additions by users' tools
//! - `deletion`: whether a removed object may be deleted; [`installation`]: protects the running Mainstay from an
//!   unrequested deletion
//! - [`replacement`]: whether an immutable object may be replaced
//! - `autoscaled`, `watched_kinds`: state that concerns all objects; `restored`: the versions of a restored server
//! - [`health_rules`]: the expressions of a GitSync for the health of kinds
//! - `applied_configuration`: the part of the last applied configuration that a live object still has
//! - [`revert_backoff`]: how long a revert waits when an object is changed repeatedly
//! - `audit`: the schedule of audits
//! - `remaining`: drift that is not reverted immediately; `drifted`: the objects with such drift, and the event that
//!   ends it
//! - `lost_fields`: fields that a live object has lost
//! - `decisions`: the last decisions about objects, for the status of their owner; `recorded`: records them; `recalled`:
//!   pauses and reported drift that an earlier agent recorded
//! - `manifest_part`: the fields of a live object that its manifest sets
//! - `summary`: the objects in the status of an owner
//! - [`inventory`]: the written form of the store of one GitSync; `written`: changes it together with the objects
//! - [`places`]: the source locations of objects in the repository; `inventory_maps`: the ConfigMaps of an inventory
//!
//! Invariant: an object is in the store before this agent applies it. `store` says when it enters and leaves. Watch
//! events of objects that are not in the store are ignored, whatever their labels are. (A deletion needs proof that
//! Mainstay applied the object: `deletion`.)
//! Invariant: of a live object, the store keeps only the identity, two digests and the health. For an object whose
//! drift remains, it also keeps the first fields that differ.
//!
//! Not here: requests, clocks and tasks. The module holds values and decisions over values.

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
pub(crate) mod decisions;
pub mod deletion;
pub(crate) mod desired;
pub(crate) mod drifted;
mod events;
pub mod fields;
#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod gzip;
pub mod health_rules;
mod ignore_rules;
pub(crate) mod ignored;
pub mod installation;
pub mod inventory;
pub(crate) mod inventory_maps;
mod lost_fields;
mod manifest_part;
pub(crate) mod memory_budget;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod ownership;
mod pause_end;
pub(crate) mod pending;
pub(crate) mod phase;
pub mod places;
pub mod projection;
mod recalled;
mod recorded;
pub(crate) mod remaining;
pub mod replacement;
pub(crate) mod reserved;
mod restored;
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
pub use manifest_part::ManifestPart;
pub use memory_budget::{Part, Waiting, kept_within, memory_limit};
pub use ownership::released;
pub use pause_end::PauseEnd;
pub use reserved::{Reserved, is_added_to};
pub use summary::{Listed, SHOWN, Summary};
pub use verdict::pause_of;
