//! The addresses that a process of Mainstay connects to when the target is taken from an object: a tenant writes the object, and the
//! process connects from inside of the cluster.
//!
//! - [`EgressPolicy`]: the rules; [`Egress`]: which of them hold for a namespace; [`EgressRefusal`]: why an address is refused
//! - [`Network`]: a range of addresses that an operator allows
//! - [`is_metadata_host`]: hosts that are written as addresses which serve credentials of a machine
//!
//! Invariant: an address is judged after its name was resolved, and the judged address is the one that is connected to.
//! Invariant: link-local and metadata addresses are refused for every namespace, whatever is allowed.
//!
//! Deliberately not here: resolving names, connecting, and which namespaces are confined.

mod metadata;
mod network;
mod policy;

pub use metadata::{METADATA_REFUSED, is_metadata_host};
pub use network::{InvalidNetwork, Network};
pub use policy::{Egress, EgressPolicy, EgressRefusal, proxy_hosts};
