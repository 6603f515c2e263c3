//! Transports: Git's smart protocol over HTTP, SSH or TCP, or the files of a local repository.
//!
//! `names` finds hosts, `app_token` gets tokens for Apps, `http` sends, `endpoint` follows, `http_fault` reads its errors, `dial` connects, `tunnel` asks a proxy to, `git` asks a daemon, `ssh` runs the server's command, `body` reads what either answers, `packet` cuts
//! it into packets, `advertisement` and `refs` ask what there is, `fetch` asks for a commit, `pack` judges the pack while
//! it arrives, `local` reads a repository in this file system.
//! Version 2 of the protocol is used wherever the server has it; version 0 otherwise.

mod advertisement;
mod app_token;
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
pub(super) mod local;
mod names;
mod pack;
mod packet;
mod refs;
mod ssh;
mod tunnel;
mod words;

pub(super) use app_token::AppTokens;
pub(super) use fetch::{Files, History, PackRequest, fetch_pack, without_credentials};
pub(super) use git::GitWire;
pub(super) use http::{ClientPlace, HttpClients};
pub(super) use names::{Names, on_behalf_of};
pub(super) use pack::Weight;
pub(super) use refs::{Negotiated, list_refs};
pub(super) use ssh::{KeyPlace, LanePlace, Ssh, SshWire};

use std::sync::Arc;

pub(super) use self::http::Http;

/// Blocking threads that looking up names and opening keys may take, beside the permits.
pub(super) const THREADS: usize = names::AT_ONCE + ssh::AT_ONCE;

/// A remote that is not on this machine, and the client for it.
#[derive(Debug)]
pub(super) enum Wire<'a> {
    Http(Arc<Http>, &'a reqwest::Url),
    Ssh(SshWire<'a>),
    Git(GitWire<'a>),
}
