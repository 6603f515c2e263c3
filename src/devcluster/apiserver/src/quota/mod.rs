//! ResourceQuotas: the usage of an object, and whether the quotas allow it.
//!
//! A quota names resources: `pods`, `requests.cpu`, `services.nodeports`, `count/deployments.apps`. A new object uses
//! every quota of its namespace that names one of its resources; 403 if one is exceeded.
//!
//! Invariant: as on a real server, admission reads the status of quotas. A quota with an empty status allows
//! everything.
//!
//! Not here: the counts of existing objects, which a controller maintains (`controllers::quotas`).

mod admission;
mod amounts;
mod pods;
mod scopes;
mod usage;

pub(crate) use self::admission::{charge, decide};
pub use self::usage::used;

/// Storage of quotas.
pub const STORAGE: &str = "resourcequotas";
