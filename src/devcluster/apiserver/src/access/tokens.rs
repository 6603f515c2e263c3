//! ServiceAccount tokens: signed, with an audience and an expiry, and bound to objects.
//!
//! Tokens are JSON Web Tokens under a key that the server generates when it starts ([`signer`](super::signer)). Other
//! programs can verify them with the public key at `/openid/v1/jwks`.
//!
//! Invariant: an accepted token was signed by this server and has not expired. Its ServiceAccount and its bound Pod,
//! Secret or Node still exist with the same UID.

use super::user::User;
use crate::{server::Server, store::Key};
use jiff::Timestamp;
use serde_json::Value;

/// The issuer of tokens, and the audience of the API server.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Tolerated clock skew, in seconds.
const LEEWAY: i64 = 60;

/// An accepted token.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The user of the token.
    pub user: User,
    /// The audiences of the token.
    pub audiences: Vec<String>,
}

/// Why a token was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// This server did not sign the token.
    Unknown,
    /// The token has expired or a bound object is gone.
    Invalid(String),
}

/// Checks a token, except for its audience.
pub fn check(server: &Server, token: &str, now: Timestamp) -> Result<Accepted, Rejected> {
    let claims = server.signer().and_then(|signer| signer.verify(token)).ok_or(Rejected::Unknown)?;
    let text = crate::verbs::text;
    let invalid = |why: &str| Err(Rejected::Invalid(why.to_owned()));
    let now = now.as_second();
    if claims["exp"].as_i64().is_none_or(|exp| exp + LEEWAY < now) {
        return invalid("service account token has expired");
    }
    if claims["nbf"].as_i64().is_some_and(|nbf| nbf - LEEWAY > now) {
        return invalid("service account token is not valid yet");
    }
    let bound = &claims["kubernetes.io"];
    let namespace = text(bound, "/namespace");
    let (name, uid) = (text(bound, "/serviceaccount/name"), text(bound, "/serviceaccount/uid"));
    let lives = |storage: &str, namespace: &str, reference: &Value| {
        let stored = server.store().get(storage, &Key::new(namespace, text(reference, "/name")));
        stored.is_some_and(|stored| stored.uid == text(reference, "/uid"))
    };
    if !lives("serviceaccounts", namespace, &bound["serviceaccount"]) {
        return Err(Rejected::Invalid(format!("serviceaccounts {name:?} not found")));
    }
    let mut user = User::service_account(namespace, name, uid);
    let mut note = |name: &str, value: String| {
        user.extra.insert(format!("authentication.kubernetes.io/{name}"), vec![value]);
    };
    note("credential-id", format!("JTI={}", text(&claims, "/jti")));
    for (field, storage) in [("pod", "pods"), ("secret", "secrets"), ("node", "nodes")] {
        let reference = &bound[field];
        if reference.is_null() {
            continue;
        }
        let place = if field == "node" { "" } else { namespace };
        // A pod's token also names the pod's node, but stays valid without the node.
        let depends = field != "node" || bound["pod"].is_null();
        if depends && !lives(storage, place, reference) {
            return invalid("service account token has been invalidated");
        }
        if field != "secret" {
            note(&format!("{field}-name"), text(reference, "/name").to_owned());
            note(&format!("{field}-uid"), text(reference, "/uid").to_owned());
        }
    }
    let audiences = claims["aud"].as_array().into_iter().flatten();
    Ok(Accepted { user, audiences: audiences.filter_map(Value::as_str).map(ToOwned::to_owned).collect() })
}
