//! A Function becomes its children: ConfigMap, build Job, Deployment, Service and autoscaler.
//!
//! Invariant: only a change of source, dependencies, runtime or base image builds an image.
//! Invariant: the version that serves is not touched before the next one can be rolled out.
