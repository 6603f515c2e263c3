//! The controllers of an embedded Kubernetes cluster, with a simulated kubelet: the event log in, writes like any
//! client's out.
//!
//! Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs, autoscalers, disruption budgets, endpoints,
//! quotas, garbage collection, namespaces, volumes, service bindings and Knative Serving, as far as they are needed to see a rollout. [`start`] runs all of
//! them on an API server of [`devcluster_apiserver`].
//!
//! One task reads the event log and lets every controller ([`controller`]) add the objects that an event concerns to
//! the [`work_queue`]; then it reconciles one object after the other ([`controller_set`]). A reconcile reads the state
//! of the world and brings it one step nearer to what it should be; whatever it writes comes back as an event. A
//! controller is a file; a new one is a line in `controller_set`.
//!
//! Invariant: controllers write through the verbs with their own manager names, so versions, events, ownership and
//! generations are those of a real cluster.
//! Invariant: an object may be reconciled at any time and any number of times; a reconcile decides from the state alone.
//!
//! Deliberately absent: containers. Pods are simulated (`pods`), unless a kubelet runs them ([`devcluster_apiserver::kubelet`]).
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
