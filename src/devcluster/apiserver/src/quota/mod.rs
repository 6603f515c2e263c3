//! ResourceQuotas: what an object takes of them, and whether it may.
//!
//! A quota names resources: `pods`, `requests.cpu`, `services.nodeports`, `count/deployments.apps`. Whoever creates an
//! object takes from every quota of the namespace that names something of it; 403 when one of them has too little.
//!
//! Invariant: what is decided here comes from the status of the quotas, as on a real server: a quota that nobody has
//! counted yet refuses nothing.
//!
//! Deliberately absent: counting what is there, which a controller does (`controllers::quotas`).

mod admission;
mod amounts;
mod pods;
mod scopes;
mod usage;

pub(crate) use self::admission::{charge, decide};
pub use self::usage::used;

/// Where quotas are stored.
pub const STORAGE: &str = "resourcequotas";
