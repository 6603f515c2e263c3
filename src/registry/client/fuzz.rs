//! See [`crate::fuzz`].

use super::challenge::{Challenge, challenge};
use super::token::token_of;

/// What the headers of a refusal ask for.
pub(in crate::registry) fn asked(headers: &str) {
    if let Some(Challenge::Bearer { realm, .. }) = challenge(headers.lines()) {
        assert!(realm.len() <= headers.len(), "nothing is invented");
    }
}

/// What a token server answers.
pub(in crate::registry) fn token(body: &[u8]) {
    assert!(token_of(body).is_none_or(|(token, _)| !token.is_empty()), "a token is something");
}
