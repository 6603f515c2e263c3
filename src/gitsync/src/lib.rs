//! What a Git branch holds becomes what is in the cluster.
//!
//! One task per GitSync ([`reconcile`]) makes attempts ([`attempt`]) when it is time ([`schedule`]), and every attempt has
//! four steps:
//!
//! - **observe**: the reference is looked up, and the commit and what is there of it are read; [`resolve`] reads the GitSync,
//!   [`decryption`] is of what SOPS has encrypted, [`values`] become those of variables in them ([`substitution`]), [`placement`]
//!   gives documents their place in the cluster;
//!   [`rights`] says by whose rights that is read and written, and [`account`] that those are there; [`no_memory`] are commits that
//!   wait for memory ([`memory_wait`])
//! - **decide**: [`windows`] (of [`cron`](mod@mainstay_object::cron) schedules) and [`dependencies`] may hold the commit back; [`plan`] says what is applied, [`prune`] what
//!   is deleted, [`registry`] what the other GitSyncs manage and want, and [`contested`] what other GitOps tools keep
//!   ([`former_owners`] reads that)
//! - **perform**: the [`inventory`] is written, objects are applied and deleted; [`failures`] says what is tried again,
//!   [`prevented`] is what nobody may change by hand, [`terminating`] what is still being deleted, [`rerun`] what runs again, and [`finalize`] lets go of everything when the GitSync goes ([`ending`])
//! - **report**: an [`outcome`], on success and on failure alike, becomes a [`status`] with its [`conditions`]; [`urgency`]
//!   says how soon it is written
//!
//! # Requests of a GitSync
//!
//! | request | when | what it proves |
//! |---|---|---|
//! | inventory, before applies | the plan has objects that it does not list | whatever an agent may have created is listed, although it is killed before the answer |
//! | apply | once for each object that is new or changed | an object that was to be new and is there refuses it (409); only then is the object read, and planned for once more |
//! | inventory, after applies | an answer brought another UID or digest, or an object left | by UID: an object may be deleted. By digest: it needs no apply after a restart. To another GitSync: it was handed over. |
//! | status | something changed that somebody waits for; counters every 5 s | what is applied at which commit; the health, the failures and the reverts |
//! | Event | a commit is applied in full, or fails | nothing; equal Events are aggregated, and those above the rate limit are dropped |
//!
//! A new GitSync of four objects costs eight requests, and a commit that changes all four costs six and its Event. None of them is
//! a list: the watch of the inventories shows that there is none, and objects that no watch and no inventory shows are applied as
//! new. These are read: an object that exists already, one that an inventory lists and that this agent has not seen, and a kind
//! that may not be applied.
//!
//! A [`preview`] is an attempt of a command: it ends with the plan, and each step becomes a dry run ([`previewed`]).
//!
//! [`receiver`] is the controller of Receivers: webhooks of Git hosts, which have a push looked up at once. [`repository`] keeps the
//! status of GitRepositories.
//!
//! Invariant: nothing changed means no request.
//! Invariant: any problem in the documents means that nothing of the commit is applied or pruned.
//!
//! Deliberately absent: keeping objects as they are between commits; [`drift`](mainstay_engine::drift) detects their
//! changes, and [`apply`](mainstay_engine::apply) reverts them.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod abroad;
mod account;
#[expect(clippy::disallowed_methods, reason = "an attempt has a time")]
mod attempt;
mod charts;
#[expect(clippy::disallowed_methods, reason = "who waits for a connection has what came of it meanwhile")]
mod clusters;
mod conditions;
mod contents;
mod contested;
#[expect(clippy::disallowed_methods, reason = "lags are measured by a clock that only goes forward")]
mod context;
mod decryption;
#[expect(clippy::disallowed_methods, reason = "expressions about whole objects are answered beside other tasks")]
mod dependencies;
#[expect(clippy::disallowed_methods, reason = "what is left may be waited for until a time")]
mod ending;
#[expect(clippy::disallowed_methods, reason = "what failed is tried again at a time")]
mod failures;
#[expect(clippy::disallowed_methods, reason = "it waits before it tries again to let go")]
mod finalize;
mod former_owners;
mod inventory;
mod kustomizations;
mod listing;
mod memory_wait;
mod no_memory;
#[expect(clippy::disallowed_methods, reason = "what is read has a time")]
mod observe;
mod outcome;
mod overlay_fields;
#[expect(clippy::disallowed_methods, reason = "it waits between what it does")]
mod perform;
#[expect(clippy::disallowed_methods, reason = "a cluster that is left is not waited for without end")]
mod place;
pub mod placement;
pub mod plan;
mod prevented;
#[expect(clippy::disallowed_methods, reason = "windows and deletions are judged at a time")]
mod preview;
mod previewed;
pub mod prune;
#[expect(clippy::disallowed_methods, reason = "since when something cannot be read is written down")]
mod readable;
mod ready_expr;
pub mod receiver;
#[expect(clippy::disallowed_methods, reason = "it waits for whatever comes first")]
mod reconcile;
pub mod registry;
mod rendering;
#[expect(clippy::disallowed_methods, reason = "a report has a time")]
mod report;
pub mod repository;
#[expect(clippy::disallowed_methods, reason = "what is being deleted is looked at again at a time")]
mod rerun;
mod resolve;
mod rights;
#[expect(clippy::disallowed_methods, reason = "the next attempt has a time")]
mod schedule;
pub mod status;
mod substitution;
mod tally;
mod terminating;
mod unread;
mod urgency;
mod values;
mod whereabouts;
pub mod windows;

pub use abroad::{Abroad, Unreached, other_cluster};
pub use clusters::Begun;
pub use context::{Context, Input, SyncFacts};
pub use listing::{Listed, Listing, listing, listing_in};
pub use placement::label;
pub use preview::{Changes, NoPreview, Preview, Revision};
pub use previewed::{Fate, Previewed};
pub use reconcile::run;
pub use rights::Rights;
