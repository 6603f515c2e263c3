//! The state that all requests share.

use std::sync::Arc;

use axum::Router;
use parking_lot::Mutex;
use ring::hmac;
use tokio_util::sync::CancellationToken;

use super::anonymous_bodies::AnonymousBodies;
use super::issuer::Issuer;
use super::openings::{Openings, Unjudged};
use super::row_memory::RowMemory;
use super::session::Session;
use crate::guard::Gate;
use crate::limited::LimitedLines;
use crate::readers::Readers;
use crate::session::Sessions;
use mainstay_cluster::{ApiServer, Cluster};

/// How users open sessions.
pub(super) enum Entry {
    Link(Cluster),
    Form(ApiServer),
    Issuer(Box<SignIn>),
    Proxy {
        server: ApiServer,
        /// The key from which the token of a user's forms is derived. The token depends on the user, because a proxy
        /// may later send a different token of the same user.
        key: hmac::Key,
    },
}

/// The issuer that signs users in, and the API server that trusts it.
pub(super) struct SignIn {
    pub(super) server: ApiServer,
    pub(super) issuer: Issuer,
    /// The key from which the secrets of attempts are derived.
    pub(super) key: hmac::Key,
    /// Limits the lines of the log about failed attempts.
    pub(super) failures: Mutex<LimitedLines>,
}

/// Why a request has no session.
pub(super) enum Nobody {
    NoSession,
    Refused,
    Failed(String),
    /// The API server has not judged the token.
    Unjudged(Unjudged),
}

impl From<Unjudged> for Nobody {
    fn from(unjudged: Unjudged) -> Self {
        Self::Unjudged(unjudged)
    }
}

impl Entry {
    pub(super) fn link(cluster: Cluster) -> Self {
        Self::Link(cluster)
    }

    pub(super) fn form(server: ApiServer) -> Self {
        Self::Form(server)
    }

    pub(super) fn issuer(server: ApiServer, issuer: Issuer, key: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
        Self::Issuer(Box::new(SignIn { server, issuer, key, failures: Mutex::default() }))
    }

    /// Returns whether users open their sessions on a page of this server, and close them there.
    pub(super) fn has_sign_in(&self) -> bool {
        matches!(self, Self::Form(_) | Self::Issuer(_))
    }

    pub(super) fn proxy(server: ApiServer, key: &str) -> Self {
        Self::Proxy { server, key: hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()) }
    }
}

/// The state that all requests share. It contains no data of a cluster.
pub(super) struct Shared {
    pub(super) entry: Entry,
    pub(super) gate: Gate,
    pub(super) cluster_name: String,
    pub(super) namespace: String,
    pub(super) readers: Readers,
    pub(super) port: u16,
    pub(super) sessions: Mutex<Sessions<Arc<Session>>>,
    pub(super) memory: RowMemory,
    pub(super) bodies: AnonymousBodies,
    pub(super) openings: Openings,
    pub(super) stop: CancellationToken,
    pub(super) router: Router,
}
