//! A Git remote becomes a [`Snapshot`]: a commit, the ids of its trees, and its files, immutable.
//!
//! A remote is asked for its references ([`Source::lookup`]); when one moved, the commit is brought into one mirror
//! per remote ([`Source::fetch`]) and read there as blobs. HTTP, SSH and the Git protocol are spoken here and not
//! by libgit2, which indexes packs and reads objects: so every wait has a deadline without holding a thread, an unchanged
//! remote costs one small request, and a pack is judged before it is unpacked.
//!
//! Invariant: no repository is cloned. A lookup transfers names, a fetch the files of one commit and nothing of what was
//! before it, as far as the server can leave that out; once for all who read the remote.
//! Invariant: there is no work tree; nothing that a repository contains becomes a path, a link or a program here.
//! Invariant: credentials go to the host they were given for and to no other, and stand in no error, log, file or path.
//! Invariant: whatever a server sends costs at most the [`Limits`] and ends by the [`Deadlines`] with an error.
//!
//! Invariant: an SSH server is told nothing before its host key was found to be one that is known for it.
//!
//! Deliberately not here: when to look again (the agent's), what the files mean (`manifest`).

mod abbreviation;
mod address;
mod auth;
mod error;
mod id;
mod known_hosts;
#[expect(clippy::disallowed_methods, reason = "mirrors are directories")]
mod mirror;
mod objects;
mod pem;
mod poll;
mod readers;
mod reference;
#[expect(clippy::disallowed_methods, reason = "a question to a remote has a deadline")]
mod remote;
mod repositories;
#[expect(clippy::disallowed_methods, reason = "looking through a history has a deadline")]
mod search;
mod settings;
#[expect(clippy::disallowed_methods, reason = "what blocks runs on a thread of its own")]
mod slots;
mod snapshot;
mod ssh_address;
mod ssh_fault;
mod ssh_key;
#[expect(clippy::disallowed_methods, reason = "mirrors are directories")]
mod sweep;
#[expect(clippy::disallowed_methods, reason = "bringing a commit has a deadline")]
mod transfer;
#[expect(clippy::disallowed_methods, reason = "it speaks to remotes, with deadlines")]
mod transport;
mod turns;
#[expect(clippy::disallowed_methods, reason = "it looks at the directory of a repository")]
mod watch;

pub use crate::object::Secret;
pub use address::RemoteUrl;
pub use auth::{Credentials, credentials, supported};
pub use error::{Error, Fault, Sent};
pub use id::{BlobId, Commit, TreeId};
pub use readers::{Reader, ReaderKind};
pub use reference::{BaseDir, Found, Reference};
pub use remote::{Remote, Source, Traffic};
pub use repositories::Repositories;
pub use settings::{Deadlines, Limits, MOST_THREADS, Settings};
pub use snapshot::{Entry, EntryKind, Snapshot};
pub use ssh_fault::SshFault;
pub use ssh_key::{KEY_FIELDS, SshIdentity};
pub use watch::{LocalWatch, watch_local};
