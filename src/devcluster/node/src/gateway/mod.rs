//! A gateway: requests to the hosts of VirtualServices and HTTPRoutes are led to the cluster's Services, and checked as Rules of
//! Oathkeeper say.
//!
//! `table` keeps what the objects say, `decide` decides about a request by it, `forward` leads it to a ready
//! endpoint, and `serve` listens. `serving` leads requests to Services of Knative. `definitions.yaml` has the definitions of the three kinds, as far as they are understood here.
//!
//! Invariant: what is not understood is not served: a VirtualService or HTTPRoute with a field that is unknown here has no routes,
//! and a Rule with an unknown handler lets nobody through.
//! Invariant: names are those of the cluster's Services; nothing is asked of the names that this machine knows.
//! Invariant: expressions take time that is linear in the path, and bounded memory.
//!
//! Invariant: certificates are made for hosts that are served, and for those below `localhost`; the key of their authority is in
//! memory only.
//!
//! Deliberately absent: upgrades of connections, weights, retries, and the status of HTTPRoutes.

mod answer;
mod authority;
mod check;
mod decide;
#[expect(clippy::disallowed_methods, reason = "it asks issuers; its callers have deadlines")]
mod fetch;
#[expect(clippy::disallowed_methods, reason = "it connects to pods, with deadlines")]
mod forward;
mod http_route;
mod introspection;
pub mod issuer;
mod jwt;
#[expect(clippy::disallowed_methods, reason = "it has issuers asked, with deadlines")]
mod keys;
mod pattern;
mod reach;
mod rule;
#[expect(clippy::disallowed_methods, reason = "it listens, with deadlines")]
mod serve;
pub(crate) mod serving;
mod table;
mod target;
#[expect(clippy::disallowed_methods, reason = "it has issuers asked, with deadlines")]
mod verify;
mod virtual_service;

pub use forward::ready_endpoints;
pub use issuer::Issuer;
pub use serve::Gateway;

/// The definitions of VirtualServices, Rules and HTTPRoutes, as a stream of YAML documents.
pub const DEFINITIONS: &str = include_str!("definitions.yaml");
