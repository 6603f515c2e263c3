//! Requests tokens of ServiceAccounts, with which their identity is proved to other systems.
//!
//! Invariant: a token has one audience, so the API server does not accept it unless it is that audience.
//! Invariant: no error contains a part of a token.

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Error};
use super::kind::{Kind, Scope};
use super::request::{Call, JSON};
use mainstay_object::Secret;

/// Validity of a token. API servers issue none that ends sooner.
const VALID: Duration = Duration::from_secs(600);

#[derive(Deserialize)]
struct Review {
    status: Issued,
}

#[derive(Deserialize)]
struct Issued {
    token: String,
}

impl Cluster {
    /// Requests a token of the ServiceAccount with this name and uid for an audience. It is valid for ten minutes.
    ///
    /// # Errors
    /// The ServiceAccount does not exist, or the agent may not request its tokens.
    pub async fn service_account_token(
        &self,
        namespace: &str,
        (name, uid): (&str, &str),
        audience: &str,
    ) -> Result<Secret<String>, Error> {
        let kind = Kind::fixed("v1", "ServiceAccount", "serviceaccounts", Scope::Namespaced);
        let call = Call::object(Attempt::RequestToken, Verb::Create, &kind, Some(namespace), name, Some("token"))?;
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": {"uid": uid}, "spec": {"audiences": [audience], "expirationSeconds": VALID.as_secs()},
        });
        let call = call.with(Method::POST, JSON, body.to_string());
        let answer = self.ask(&call).await?;
        let review: Review = serde_json::from_slice(&answer).map_err(|error| call.failed(error))?;
        Ok(Secret::new(review.status.token))
    }
}
