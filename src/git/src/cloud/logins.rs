//! The logins and keys that identities have got, in memory.
//!
//! Invariant: neither a login nor a key is shown, and each is erased when it is dropped.

use std::sync::Arc;

use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use super::CloudIdentity;
use super::google::GkeCluster;
use super::place::Place;
use super::signature::Keys;
use crate::connection::digest;
use crate::issued::{Digest, Issued};
use crate::{Credentials, Secret};

/// A login, which is erased when it is dropped.
#[derive(Clone)]
pub(super) struct Login {
    /// The user; `None` for a bearer token.
    pub(super) username: Option<String>,
    pub(super) secret: Zeroizing<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(…)")
    }
}

impl Login {
    pub(super) fn credentials(&self) -> Credentials {
        let secret = Secret::new(self.secret.to_string());
        match &self.username {
            Some(username) => Credentials::Basic { username: username.clone(), password: secret },
            None => Credentials::Bearer(secret),
        }
    }
}

/// Maximum number of tokens of keys of Google, in all and of one namespace. Their Secrets name the servers that issue them.
const KEY_TOKENS: usize = 1024;
const KEY_TOKENS_OF_ONE: usize = 50;

/// The logins of all identities.
#[derive(Debug)]
pub(crate) struct Clouds {
    pub(super) logins: Issued<Login>,
    pub(super) keys: Issued<Arc<Keys>>,
    /// The tokens of keys of Google.
    pub(super) key_tokens: Issued<Login>,
    pub(super) cluster: OnceCell<GkeCluster>,
}

impl Default for Clouds {
    fn default() -> Self {
        let (logins, keys) = (Issued::default(), Issued::default());
        let key_tokens = Issued::bounded(KEY_TOKENS, KEY_TOKENS_OF_ONE);
        Self { logins, keys, key_tokens, cluster: OnceCell::new() }
    }
}

/// Returns the key of a login in the cache.
pub(super) fn key(identity: &CloudIdentity, place: &Place) -> Digest {
    digest(identity.parts().into_iter().chain(place.parts()))
}
