//! Tokens of GitHub Apps: asked for once for all remotes of an installation, and kept until shortly before they end.
//!
//! Invariant: at most one request for a token of an installation is under way.
//! Invariant: a token that a server has refused is not used again.
//! Invariant: a token is kept for the App and the API that gave it; nothing is kept of the App's key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::Secret;
use crate::error::Fault;

/// How long before its end a token is replaced.
const BEFORE_END: Duration = Duration::from_secs(300);

/// A token of an installation.
#[derive(Clone, Debug)]
struct Token {
    text: Secret<String>,
    /// When it is replaced.
    until: Timestamp,
}

type Place = Arc<tokio::sync::Mutex<Option<Token>>>;

/// The tokens of all installations.
#[derive(Debug, Default)]
pub(crate) struct AppTokens(Mutex<HashMap<[u8; 32], Place>>);

impl AppTokens {
    /// The token of an App, by its digest: the one that is kept, or one that is asked for.
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

    /// The server has refused the token of an App.
    pub(crate) fn refused(&self, app: [u8; 32]) {
        self.0.lock().remove(&app);
    }

    fn place(&self, app: [u8; 32]) -> Place {
        let mut places = self.0.lock();
        if !places.contains_key(&app) {
            let now = Timestamp::now();
            // One that is locked is in use.
            places.retain(|_, place| {
                place.try_lock().map_or(true, |token| token.as_ref().is_some_and(|token| now < token.until))
            });
        }
        Arc::clone(places.entry(app).or_default())
    }
}
