//! The gateway: routes requests by VirtualServices and HTTPRoutes to Services, and checks them by Oathkeeper's Rules.
//!
//! `table` indexes the objects, `decide` decides about a request, `forward` sends it to a ready endpoint, and `serve`
//! listens. `serving` routes requests to Knative Services. `definitions.yaml` contains the CRDs with their supported
//! fields.
//!
//! Invariant: unsupported configuration is not served. A VirtualService or HTTPRoute with an unknown field has no
//! routes, and a Rule with an unknown handler refuses every request.
//! Invariant: routes point to the cluster's Services only, never to names in DNS.
//! Invariant: matching a regular expression takes linear time and bounded memory.
//! Invariant: certificates are issued for served hosts and hosts below `localhost`. The authority's key is in memory
//! only.
//!
//! Not here: connection upgrades, weights, retries, and the status of HTTPRoutes.

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

pub(crate) use forward::is_service;
pub use forward::ready_endpoints;
pub use issuer::Issuer;
pub use serve::Gateway;

/// CRDs of VirtualServices, Rules and HTTPRoutes, as a stream of YAML documents.
pub const DEFINITIONS: &str = include_str!("definitions.yaml");
