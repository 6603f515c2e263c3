//! The guard: a proxy in front of the in-cluster registry of `mainstay install` that checks permissions per repository.
//!
//! Docker's registry gives every login all permissions. So the registry listens only on its pod's loopback address, and
//! the guard forwards the requests that a login allows:
//!
//! - the login of the Secret that requested the registry's login: all requests
//! - the login of a namespace, from its copy of the Secret ([`of_namespace`]): reading and writing the repositories of
//!   its Functions, and reading repositories without a Function. The login may also share blobs of its own repositories
//!   in one repository ([`SHARED_LAYERS`](crate::registry::SHARED_LAYERS)), from which other namespaces mount layers of
//!   base images
//!
//! The guard serves TLS. Nodes with an older containerd pull over plain HTTP from their own loopback address. The guard
//! responds to such requests on the same port, but only to reads, and only at a loopback address.
//!
//! Invariant: a request whose repository cannot be determined with certainty is refused. A forwarded request is rebuilt
//! from the checked parts. Invariant: logins and keys appear neither in logs nor in responses.
//!
//! Not here: logins of users, and tokens. Docker's token protocol needs one address of the token server, but nodes and
//! builds use different addresses.

mod asked;
#[expect(clippy::disallowed_methods, reason = "it reads files")]
mod files;
mod logins;
#[expect(clippy::disallowed_methods, reason = "it reads files and speaks to the registry, with deadlines")]
mod serve;
mod shares;
mod verdict;

pub use files::ServeError;
pub use logins::of_namespace;
pub(super) use logins::{LOGINS, NAMESPACE_KEY};
pub use serve::{Options, serve};
