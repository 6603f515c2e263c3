//! Exposure: an APIRule becomes the objects by which others route requests to a Service.
//!
//! [`run`] is the task of one APIRule, [`watch`] follows what all of them need: what the cluster serves, the routes that are there,
//! and the Services. A reconcile goes through `resolve`, `services` (reads), `routes`, `perform` (writes) and `report` (writes the status);
//! `known` remembers what is watched (`index` the objects, `listed` which lists have come), `decide` says what is to be done about each object, and `refusals` when what the API server refuses is tried again.
//! `resolve` validates (by `checks`, and `anchored` what a path may match), `express` decides how each path is guarded (`token` what a token must have where Istio
//! checks it, `workload` what is known of the pods), `routes` builds the objects (one file per kind), and `host_conflict` says whose host it is.
//!
//! Invariant: a path with a check is never routed without it. Where the cluster cannot make the check there is no route for the
//! path, and none that may lead to the same requests.
//! Invariant: nothing is made for a Service that does not exist or leads out of its namespace (`no_target`).
//! Invariant: no URL of an APIRule that others ask leads inside, unless the operator permits it (`urls`).
//! Invariant: an APIRule that another controller serves is left to it.
//! Invariant: nothing is watched before the first APIRule is there, and nothing is asked while nothing changes.
//!
//! Deliberately absent: routing. That is Istio's and Oathkeeper's, a Gateway's, or the embedded cluster's.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod access_rule;
mod anchored;
mod checks;
mod child;
mod context;
mod decide;
mod express;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod host_conflict;
mod http_route;
mod index;
mod known;
mod listed;
mod no_target;
mod paths;
#[expect(clippy::disallowed_methods, reason = "it writes, and waits a little more or less")]
mod perform;
mod policies;
#[expect(clippy::disallowed_methods, reason = "it waits until something can be tried again")]
mod reconcile;
mod refusals;
#[expect(clippy::disallowed_methods, reason = "it writes the status, with the time")]
mod report;
mod reported;
mod resolve;
mod routes;
mod seen;
mod served;
#[expect(clippy::disallowed_methods, reason = "it waits a little more or less")]
mod services;
mod settings;
mod status;
mod token;
mod urls;
mod virtual_service;
mod watch;
mod workload;

pub use context::Context;
pub use reconcile::{Input, run};
pub use report::api_rules;
pub use settings::Settings;
pub use urls::{InvalidOrigin, IssuerOrigin};
pub use watch::watch;

#[cfg(test)]
mod fixtures;
