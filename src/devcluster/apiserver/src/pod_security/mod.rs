//! Pod Security: the labels `pod-security.kubernetes.io/…` of a namespace refuse pods and warn of workloads.
//!
//! [`labels`] reads the policy of a namespace, [`checks`] lists the checks of each level with their versions, [`baseline`] and
//! [`restricted`] contain them, and [`admission`] judges writes by them. Checks, order and texts are those of the module
//! `k8s.io/pod-security-admission` of Kubernetes 1.36.
//!
//! Invariant: each write is judged, also those of controllers.
//!
//! Deliberately absent: an audit log. `audit` labels are validated and have no other effect. Nothing is exempt.

mod admission;
mod baseline;
mod checks;
mod labels;
mod pod;
mod restricted;
#[cfg(test)]
mod tests;

pub(crate) use admission::judge;
