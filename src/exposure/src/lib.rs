//! The controller of APIRules. It turns an APIRule into objects that route requests to a Service.
//!
//! [`run`] is the task of one APIRule. [`watch`] watches the CRDs, the routing objects and the Services. A reconcile
//! calls `resolve` (validates with `checks` and `anchored`), `services` (reads), `routes` (builds objects, one file per
//! kind), `perform` (writes) and `report` (writes the status). `known` keeps the watched state (`index` the objects,
//! `listed` the lists), `decide` decides about each object, and `refusals` delays refused requests. `express` decides
//! how each path is guarded, with `token` and `workload` for checks by Istio. `host_conflict` assigns hosts.
//!
//! Invariant: a path with a check is never routed without it. If the cluster cannot make the check, neither this path
//! nor one that may match the same requests is routed.
//! Invariant: no route leads to a missing Service, or to one that leads out of its namespace (`no_target`).
//! Invariant: URLs in an APIRule that other components request do not lead into the cluster, unless the operator allows
//! it (`urls`).
//! Invariant: templates in an APIRule only refer to fields of the request (`template`).
//! Invariant: an APIRule that another controller serves is left to that controller.
//! Invariant: there are no watches before the first APIRule, and without changes no requests.
//!
//! Not here: routing itself, which Istio and Oathkeeper, a Gateway, or the embedded cluster perform.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod access_rule;
mod anchored;
mod backtracking;
mod checks;
mod child;
mod context;
mod decide;
mod express;
mod expression;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod guarded;
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
mod template;
mod token;
mod urls;
mod virtual_service;
mod watch;
mod workload;
mod written;

pub use context::Context;
pub use reconcile::{Input, run};
pub use report::api_rules;
pub use settings::Settings;
pub use urls::{InvalidOrigin, IssuerOrigin};
pub use watch::watch;
pub use written::problems;

#[cfg(test)]
mod fixtures;
