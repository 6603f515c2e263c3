//! Turns a Git remote into a [`Snapshot`]: an immutable commit with the ids of its trees and its files.
//!
//! [`Source::lookup`] asks a remote for its references. After a change, [`Source::fetch`] transfers the commit into
//! the mirror of the remote, where its files are read as blobs.
//!
//! HTTP, SSH and the Git protocol are implemented here; libgit2 only indexes packs and reads objects. So every wait
//! has a deadline and blocks no thread, and an unchanged remote costs one small request. A pack is checked before it
//! is unpacked.
//!
//! Invariant: no repository is cloned. A lookup transfers reference names. A fetch transfers the files of one commit,
//! and its history only if the server cannot omit the history. All consumers of the remote share the fetch.
//! Invariant: there is no work tree. No content of a repository becomes a path, a link or a program here.
//! Invariant: credentials are sent only to their own host, and appear in no error, log, file or path.
//! Invariant: [`Limits`] bound the size of a response, and [`Deadlines`] its duration.
//! Invariant: nothing is sent to an SSH server before its host key is accepted.
//!
//! Not here: when to poll (the controllers), and the meaning of the files (`manifest`).
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod abbreviation;
mod access_fault;
mod address;
mod allowance;
mod ancestry;
mod archive;
#[expect(clippy::disallowed_methods, reason = "mirrors are directories")]
mod artifact;
mod auth;
mod budget;
mod cloud;
mod connection;
mod consumers;
mod egress;
mod entry;
mod error;
mod expression;
mod fair_queue;
mod followed_artifact;
mod found_commit;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod git_address;
mod github_app;
mod gitmodules;
mod hosts;
mod id;
mod in_vain;
#[expect(clippy::disallowed_methods, reason = "mirrors are directories")]
mod integrity;
#[expect(clippy::disallowed_methods, reason = "tokens end at a time")]
mod issued;
mod judgements;
mod jwt;
mod key_pair;
mod known_hosts;
#[expect(clippy::disallowed_methods, reason = "files of a mirror")]
mod large_files;
mod large_trees;
mod last_lookup;
mod lfs;
#[expect(clippy::disallowed_methods, reason = "files of a mirror")]
mod lfs_fetch;
#[expect(clippy::disallowed_methods, reason = "requests to a remote have a deadline")]
mod lookup;
mod lookup_due;
#[expect(clippy::disallowed_methods, reason = "mirrors are directories")]
mod mirror;
mod missing_directory;
mod objects;
#[expect(clippy::disallowed_methods, reason = "it sends requests, with deadlines")]
mod outbound;
mod path_flaw;
mod pem;
mod percent;
mod permits;
mod pinning;
mod pins;
mod poll;
mod private_host;
mod proxy;
#[expect(clippy::disallowed_methods, reason = "a push has a deadline")]
mod push;
mod pushes;
mod ref_list;
mod reference;
mod remote;
#[expect(clippy::disallowed_methods, reason = "the host keys are waited for, with a deadline")]
mod remotes;
mod repositories;
mod room;
#[expect(clippy::disallowed_methods, reason = "the search of a history has a deadline")]
mod search;
mod secret_field;
mod servers;
mod settings;
mod shared_host_keys;
mod skipped_trees;
mod snapshot;
mod spool;
mod ssh_address;
mod ssh_fault;
mod ssh_key;
#[expect(clippy::disallowed_methods, reason = "mirrors are directories")]
mod storage;
mod submodule_fetch;
#[expect(clippy::disallowed_methods, reason = "mirrors are directories")]
mod submodule_mirrors;
mod submodules;
mod sweep;
mod tls;
#[expect(clippy::disallowed_methods, reason = "a fetch has a deadline")]
mod transfer;
#[expect(clippy::disallowed_methods, reason = "it speaks to remotes, with deadlines")]
mod transport;
mod tree;
#[expect(clippy::disallowed_methods, reason = "what is signed is judged by the time at which that is done")]
mod trust;
mod verify;
mod version_range;
mod walk;
#[expect(clippy::disallowed_methods, reason = "it looks at the directory of a repository")]
mod watch;

pub use access_fault::AccessFault;
pub use address::RemoteUrl;
pub use ancestry::Ancestry;
pub use archive::{EntryRole, Root, entry_role};
pub use artifact::{ARTIFACT_BYTES, Downloading, Packed};
pub use auth::{Access, Credentials, access, fields, needs_identity, proxy_fields, repository_problems, supported};
pub use cloud::{
    Account, CLOUD_VARIABLES, CloudFault, CloudIdentity, CloudService, CloudSettings, GoogleKey, ServiceAccounts,
};
pub use connection::Connection;
pub use consumers::{Consumer, ConsumerKind};
pub use entry::{Entry, EntryKind, Found};
pub use error::{Error, Fault, Sent};
pub use expression::Expression;
pub use followed_artifact::Artifact;
pub use github_app::GithubApp;
pub use id::{BlobId, Commit, TreeId};
pub use key_pair::{KeyPair, PRIVATE_FIELD, PUBLIC_FIELD, PublicHalf, SEED_BYTES, holds_key, key_pair, public_half};
pub use known_hosts::{PUBLISHED, lists_host};
pub use last_lookup::LastLookup;
pub use lookup_due::LookupDue;
pub use mainstay_object::Secret;
pub use missing_directory::MissingDirectory;
pub use objects::CommitHeader;
pub use outbound::{Answer, HostCheck, Outbound};
pub use path_flaw::PathFlaw;
pub use permits::thread_time;
pub use pinning::{FirstUse, PinRequest, SupersededPins};
pub use pins::{pin, pin_for_now};
pub use push::{NewCommit, Pushed, Upload};
pub use pushes::{BETWEEN, Followed, PushReceiver, Pushes};
pub use reference::{BaseDir, Reference, ResolvedRef};
pub use remote::Remote;
pub use remotes::{Source, Traffic};
pub use repositories::Repositories;
pub use settings::{Deadlines, DefaultProxy, Limits, MAX_THREADS, Settings};
pub use shared_host_keys::SharedHostKeys;
pub use skipped_trees::SkippedTrees;
pub use snapshot::{Alone, Content, Snapshot};
pub use ssh_fault::SshFault;
pub use ssh_key::SshIdentity;
pub use transport::{LineConnection, PushTarget};
pub use verify::{CommitSigner, DOCUMENT_BYTES, DocumentSigners, SignatureFault, SigningFault, Verification};
pub use version_range::highest_version;
pub use watch::{LocalWatch, watch_local};
