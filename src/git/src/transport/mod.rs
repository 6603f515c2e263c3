//! Transports: Git's smart protocol over HTTP, SSH or TCP, or the files of a local repository.
//!
//! Connections: `names` resolves hosts, `dial` connects, `tunnel` connects through proxies. HTTP: `http` sends
//! requests, `endpoint` follows redirects, `http_fault` converts errors, `git`
//! connects to a daemon, and `ssh` runs the command on a server. Protocol: `body` reads responses, `packet` splits them
//! into packets, `advertisement` and `refs` request references, `fetch` requests a commit, `pack` checks the arriving
//! pack, and `push` sends one. `local` reads a local repository. `lines` connects to servers of other protocols. Version 2 of the protocol is used if the server supports it, otherwise
//! version 0.

mod advertisement;
mod body;
mod dial;
mod endpoint;
mod fetch;
#[cfg(any(test, feature = "fuzz"))]
pub(super) mod fuzz;
mod git;
mod http;
mod http_fault;
mod lfs;
mod lines;
pub(super) mod local;
mod names;
mod pack;
mod packet;
mod push;
mod refs;
mod ssh;
mod tunnel;
mod words;

pub(super) use fetch::{Files, History, PackRequest, fetch_pack, without_credentials};
pub(super) use git::GitWire;
pub(super) use http::{ClientPlace, HttpClients};
pub use lines::LineConnection;
pub(super) use names::{Names, on_behalf_of};
pub(super) use pack::Weight;
pub use push::PushTarget;
pub(super) use push::{PushAnswer, PushRequest, push_pack};
pub(super) use refs::{Negotiated, list_refs};
pub(super) use ssh::{KeyPlace, LanePlace, Ssh, SshWire};

use std::sync::Arc;

pub(super) use self::http::Http;

/// Maximum number of blocking threads for name resolution and opening keys, in addition to those with permits.
pub(super) const THREADS: usize = names::AT_ONCE + ssh::AT_ONCE;

/// The client for a remote that is not local.
#[derive(Debug)]
pub(super) enum Wire<'a> {
    Http(Arc<Http>, &'a reqwest::Url),
    Ssh(SshWire<'a>),
    Git(GitWire<'a>),
}
