//! Pod Security: the labels `pod-security.kubernetes.io/…` of a namespace restrict pods and cause warnings about
//! workloads.
//!
//! [`labels`] parses the policy of a namespace. [`checks`] lists the checks of each level with their versions.
//! [`baseline`] and [`restricted`] contain the checks, and [`admission`] enforces them. Checks, order and texts are
//! those of the module `k8s.io/pod-security-admission` of Kubernetes 1.36.
//!
//! Invariant: each write is checked, including those of controllers.
//!
//! Not here: an audit log. `audit` labels are only validated. There are no exemptions.

mod admission;
mod baseline;
mod checks;
mod labels;
mod pod;
mod restricted;
#[cfg(test)]
mod tests;

pub(crate) use admission::judge;
