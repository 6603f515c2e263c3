//! The controllers of GitSyncs and Receivers: a GitSync applies a directory of a Git branch to a cluster.
//!
//! Each GitSync has one task ([`reconcile`]). It makes attempts ([`attempt`]) when they are due ([`schedule`]). Between
//! attempts, it keeps the state of its objects ([`attempt`]), the GitSync as last read ([`seen_sync`], [`sources`]), its
//! reports ([`reported`]) and its times ([`timers`]). An attempt has four steps:
//!
//! - **observe**: looks up the reference, and reads the commit and the live objects. [`resolve`] validates the GitSync,
//!   [`decryption`] decrypts SOPS files, and [`substitution`] inserts the [`values`] of variables. [`placement`] gives
//!   documents their place in the cluster. [`rights`] chooses the impersonated ServiceAccount, and [`account`] checks
//!   that it exists. A commit that does not fit ([`no_memory`]) waits for memory ([`memory_wait`]).
//! - **decide**: [`windows`] (of [`cron`](mod@mainstay_object::cron) schedules) and [`dependencies`] may hold the
//!   commit. [`plan`] selects the objects to apply, and [`prune`] those to delete. [`registry`] has the claims of other
//!   GitSyncs. [`contested`] has the objects that other GitOps tools keep, which [`former_owners`] reads.
//! - **perform**: writes the [`inventory`], then applies and deletes objects. [`failures`] schedules retries,
//!   [`prevented`] selects objects that are protected from manual changes, and [`terminating`] tracks pending
//!   deletions. [`rerun`] runs Jobs again. [`finalize`] releases all objects at the end of a GitSync ([`ending`]).
//! - **report**: turns an [`outcome`], on success and on failure, into a [`status`] with [`conditions`] and the
//!   [`history`] of applied commits. [`urgency`] decides how soon it is written.
//!
//! # Requests of a GitSync
//!
//! | request | when | purpose |
//! |---|---|---|
//! | inventory, before applies | the plan has objects that the inventory does not list | lists every object that the agent may have created, even if the agent is killed before the response |
//! | apply | once per new or changed object | an object that was planned as new but exists is refused (409); only then it is read and planned again |
//! | inventory, after applies | a response had a different UID or digest, or an object left | a UID allows a deletion; a digest saves an apply after a restart; an entry completes a handover from another GitSync |
//! | status | a change that users wait for; counters every 5 s | shows the applied commit, the health, the failures and the reverts |
//! | Event | a commit is applied in full, or fails | informs only; equal Events are aggregated, and those above the rate limit are dropped |
//!
//! A new GitSync of four objects costs eight requests. A commit that changes all four costs six and its Event. No
//! request is a list: the watch shows that there is no inventory, and objects that no watch and no inventory shows are
//! applied as new. The agent reads an object that exists already, an object in an inventory that this agent has not
//! seen, and a kind that may not be applied.
//!
//! A [`preview`] is an attempt of a command. It ends with the plan, and each step becomes a dry run ([`previewed`]).
//!
//! [`receiver`] is the controller of Receivers, which are webhooks for pushes. [`repository`] keeps the status of
//! GitRepositories.
//!
//! With shards, other agents look after some of the GitSyncs. [`other_agents`] shows those to the GitSyncs of this agent.
//!
//! Invariant: without a change there is no request.
//! Invariant: if a document has a problem, no object of the commit is applied or pruned.
//!
//! Not here: enforcing objects between commits. [`drift`](mainstay_engine::drift) detects their changes, and
//! [`apply`](mainstay_engine::apply) reverts them.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod abroad;
mod account;
mod applied_commits;
#[expect(clippy::disallowed_methods, reason = "an attempt has a time")]
mod attempt;
mod branch_reading;
mod changed_syncs;
mod chart_secrets;
mod chart_values;
mod charts;
#[expect(clippy::disallowed_methods, reason = "who waits for a connection has what came of it meanwhile")]
mod clusters;
mod commit_state;
#[expect(clippy::disallowed_methods, reason = "spans begin and end now")]
mod commit_trace;
mod compiled;
mod conditions;
mod contents;
mod contest_watch;
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
mod handovers;
mod health_report;
#[expect(clippy::disallowed_methods, reason = "an entry of the history has a time")]
mod history;
mod inputs;
mod inventory;
mod inventory_save;
mod kustomizations;
mod listing;
#[expect(clippy::disallowed_methods, reason = "whether a live object is paused depends on the time")]
mod live_objects;
mod memory_wait;
mod no_memory;
#[expect(clippy::disallowed_methods, reason = "what is read has a time")]
mod observe;
#[expect(clippy::disallowed_methods, reason = "a suspension has an end")]
mod other_agents;
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
mod reading;
mod ready_expr;
pub mod receiver;
#[expect(clippy::disallowed_methods, reason = "it waits for whatever comes first")]
mod reconcile;
pub mod registry;
mod remote;
mod removal;
mod rendering;
#[expect(clippy::disallowed_methods, reason = "a report has a time")]
mod report;
mod reported;
pub mod repository;
mod requested;
#[expect(clippy::disallowed_methods, reason = "what is being deleted is looked at again at a time")]
mod rerun;
mod resolve;
mod rights;
#[expect(clippy::disallowed_methods, reason = "it waits for the first of all signals")]
mod run;
#[expect(clippy::disallowed_methods, reason = "it shows what takes long, and since when")]
mod running;
#[expect(clippy::disallowed_methods, reason = "the next attempt has a time")]
mod schedule;
mod seen_sync;
mod shared_plan;
mod sources;
pub mod status;
#[expect(clippy::disallowed_methods, reason = "a status waits until a time")]
mod status_turn;
mod step;
mod substitution;
mod sync_names;
mod tally;
mod terminating;
mod timers;
mod unfinished;
mod unread;
mod urgency;
mod values;
mod whereabouts;
pub mod windows;
mod written_inventory;
mod written_status;

pub use abroad::{Abroad, Unreached, other_cluster};
pub use clusters::Begun;
pub use context::{Context, Input, SyncFacts};
pub use listing::{Listed, Listing, Locations, listing, listing_in};
pub use placement::label;
pub use preview::{Changes, NoPreview, Preview, Revision};
pub use previewed::{Fate, Previewed};
pub use resolve::git_sync_problems;
pub use rights::Rights;
pub use run::run;
