//! Names that may become part of an address, with one type per kind of name.
//!
//! - [`DnsLabel`]: one label, such as a namespace
//! - [`ServiceName`]: the name of a Service
//! - [`HostName`]: a host with at least two labels; [`DomainName`]: a domain, which may have only one label
//! - [`ServiceHost`]: the host of a Service in the cluster; [`ServiceAddress`]: scheme, host and port
//! - [`UrlPath`]: path and query of a URL
//! - [`GatewayRef`]: a gateway, by namespace and name
//!
//! Invariant: a value is created only by a check of its syntax, so a string from a spec cannot add a host, port, user
//! or path.
//! Invariant: URLs and hosts are built only from these types; `tests/tidy` finds code that formats other strings into
//! URLs.

mod address;
mod gateway;
mod host;
mod invalid_name;
mod label;
mod path;
#[cfg(test)]
mod tests;

pub use address::{CLUSTER_DOMAIN, Scheme, ServiceAddress, ServiceHost};
pub use gateway::GatewayRef;
pub use host::{DomainName, HostName};
pub use invalid_name::InvalidName;
pub use label::{DnsLabel, ServiceName};
pub use path::UrlPath;
