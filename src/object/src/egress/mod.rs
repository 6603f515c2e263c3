//! Egress rules for targets that objects contain. A tenant writes the object, but Mainstay connects from inside of the
//! cluster.
//!
//! - [`EgressPolicy`]: the rules; [`Egress`]: which of them apply to a namespace; [`EgressRefusal`]: why an address
//!   is refused
//! - [`Network`]: a range of addresses that an operator allows
//! - [`is_metadata_host`]: hosts written as addresses of metadata services
//!
//! Invariant: an address is checked after name resolution, and the connection uses exactly the checked address.
//! Invariant: link-local and metadata addresses are refused for every namespace, even if an operator allows them.
//!
//! Not here: resolving names, connecting, and which namespaces are confined.

mod metadata;
mod network;
mod policy;

pub use metadata::{METADATA_REFUSED, is_metadata_host};
pub use network::{InvalidNetwork, Network};
pub use policy::{Egress, EgressPolicy, EgressRefusal, MACHINE_REFUSED, proxy_hosts};
