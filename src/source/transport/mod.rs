//! How a remote is spoken to: HTTP with Git's smart protocol, or a local repository's files.
//!
//! `http` sends and follows, `packet` cuts the stream into packets, `advertisement` and `refs` ask what there is,
//! `fetch` asks for a commit, `pack` judges the pack while it arrives, `local` reads a repository in this file system.
//! Version 2 of the protocol is used wherever the server has it; version 0 otherwise.
//!
//! Deliberately not here: SSH. It will speak `refs` and `fetch` over a channel instead of over `http`, with the same
//! packets.

mod advertisement;
mod fetch;
mod http;
pub(super) mod local;
mod pack;
mod packet;
mod refs;

pub(super) use fetch::{Asked, Files, History, fetch_pack, hushed};
pub(super) use http::Http;
pub(super) use refs::{Negotiated, list_refs};
