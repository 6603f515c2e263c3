//! The controllers of an embedded Kubernetes cluster, and a simulated kubelet.
//!
//! The controllers cover Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs, autoscalers, disruption
//! budgets, endpoints, quotas, garbage collection, namespaces, volumes, service bindings and Knative Serving, as far as
//! a rollout needs them. [`start`] runs them on an API server of [`devcluster_apiserver`].
//!
//! One task ([`controller_set`]) reads the event log. Every controller ([`controller`]) enqueues the objects that an
//! event concerns into the [`work_queue`]. The task then reconciles one object after the other; the writes come back as
//! events. To add a controller, add a file and a line in `controller_set`.
//!
//! Invariant: controllers write through the API's verbs with their own manager names. Versions, events, field ownership
//! and generations are therefore those of a real cluster.
//! Invariant: a reconcile decides from the state alone, so it may run at any time and any number of times.
//!
//! Not here: containers. Pods are simulated (`pods`) unless a kubelet runs them ([`devcluster_apiserver::kubelet`]).
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]
#![expect(clippy::disallowed_methods, reason = "controllers are tasks, with a clock")]

mod autoscalers;
mod capacity;
mod cluster_roles;
mod controller;
mod controller_set;
mod cron_jobs;
mod cron_schedule;
mod daemon_sets;
mod deployments;
mod disruption_budgets;
mod endpoint_mirrors;
mod endpoints;
mod garbage;
mod jobs;
pub mod knative;
mod namespaces;
mod pods;
mod quotas;
mod replica_sets;
mod revisions;
pub mod service_catalog;
mod simulated_outcome;
mod stateful_sets;
mod volumes;
mod work_queue;

pub use self::controller_set::start;
