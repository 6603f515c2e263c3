//! How a remote is spoken to: HTTP or SSH with Git's smart protocol, or a local repository's files.
//!
//! `http` sends and follows, `ssh` connects and runs the server's command, `body` reads what either answers, `packet` cuts
//! it into packets, `advertisement` and `refs` ask what there is, `fetch` asks for a commit, `pack` judges the pack while
//! it arrives, `local` reads a repository in this file system.
//! Version 2 of the protocol is used wherever the server has it; version 0 otherwise.
//!
//! Deliberately not here: `git://`, which neither hides nor proves anything.

mod advertisement;
mod body;
mod fetch;
mod http;
pub(super) mod local;
mod pack;
mod packet;
mod refs;
mod ssh;

pub(super) use fetch::{Asked, Files, History, fetch_pack, hushed};
pub(super) use http::Http;
pub(super) use refs::{Negotiated, list_refs};
pub(super) use ssh::Ssh;

use super::ssh_address::SshAddress;

/// A remote that is not on this machine, and the client for it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Http(&'a Http, &'a reqwest::Url),
    Ssh(&'a Ssh, &'a SshAddress),
}
