//! Tokens of GitHub Apps. One token is used for all remotes of an installation, and cached until shortly before its
//! expiry.
//!
//! Invariant: at most one request for a token of an installation runs at a time.
//! Invariant: a token that a server has rejected is not used again.
//! Invariant: a token is cached per App and issuing API. No part of the App's key is cached.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::Secret;
use crate::error::Fault;

/// Time before its expiry at which a token is replaced.
const BEFORE_END: Duration = Duration::from_secs(300);

/// A token of an installation.
#[derive(Clone, Debug)]
struct Token {
    text: Secret<String>,
    /// When the token is replaced.
    until: Timestamp,
}

type Place = Arc<tokio::sync::Mutex<Option<Token>>>;

/// The tokens of all installations.
#[derive(Debug, Default)]
pub(crate) struct AppTokens(Mutex<HashMap<[u8; 32], Place>>);

impl AppTokens {
    /// Returns the token of an App, identified by the App's digest, from the cache or from the request `asked`.
    pub(crate) async fn get(
        &self,
        app: [u8; 32],
        asked: impl Future<Output = Result<(Secret<String>, Timestamp), Fault>>,
    ) -> Result<Secret<String>, Fault> {
        let place = self.place(app);
        let mut kept = place.lock().await;
        let now = Timestamp::now();
        if let Some(token) = kept.as_ref().filter(|token| now < token.until) {
            return Ok(token.text.clone());
        }
        *kept = None;
        let (text, ends) = asked.await?;
        let until = ends.checked_sub(BEFORE_END).unwrap_or(Timestamp::MIN);
        Ok(kept.insert(Token { text, until }).text.clone())
    }

    /// Drops the token of an App after a server has rejected it.
    pub(crate) fn refused(&self, app: [u8; 32]) {
        self.0.lock().remove(&app);
    }

    fn place(&self, app: [u8; 32]) -> Place {
        let mut places = self.0.lock();
        if !places.contains_key(&app) {
            let now = Timestamp::now();
            // A locked entry is in use and stays.
            places.retain(|_, place| {
                place.try_lock().map_or(true, |token| token.as_ref().is_some_and(|token| now < token.until))
            });
        }
        Arc::clone(places.entry(app).or_default())
    }
}
