//! What stands before the registry that `mainstay install` brings: it decides who may read and write which repository.
//!
//! Docker's registry knows one kind of user: whoever has a login may do everything. So the registry listens only on the
//! loopback address of its pod, and the guard passes on what a login allows:
//!
//! - the login of the Secret that asks for one: everything
//! - the login of a namespace, which its copy of the Secret has ([`of_namespace`]): to read and write the repositories of its Functions, and to read
//!   repositories that are no Function's; and to share a blob of its own in one repository
//!   ([`SHARED_LAYERS`](crate::registry::SHARED_LAYERS)), from which others mount it: a layer of a base image
//!
//! The guard serves TLS. Nodes with an older containerd pull over plain HTTP from their own loopback address, so that is
//! answered on the same port: reads only, and only under a loopback address.
//!
//! Invariant: a request whose repository is not certain is refused. What is passed on is put together anew from what was
//! judged.
//! Invariant: no login and no key is logged, nor in an answer.
//!
//! Deliberately absent: logins of users, and tokens. Docker's token protocol needs one address for its token server, while
//! nodes and builds reach the registry under different ones.

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
