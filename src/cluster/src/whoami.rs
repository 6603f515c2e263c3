//! Identifies the user of the agent's requests, and the ServiceAccount of a token.
//!
//! Not here: the permissions of that user.

use serde_json::{Value, json};

use super::apply::Persistence;
use super::connect::Cluster;
use super::error::Error;
use super::kind::{Kind, Scope};

impl Cluster {
    /// Returns the user name of the agent's requests; `None` if the API server does not return one.
    pub async fn user_name(&self) -> Result<Option<String>, Error> {
        let kind = Kind::fixed("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", Scope::Cluster);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = self.create(&kind, None, "self", &review, Persistence::Kept).await?;
        let name = answer.pointer("/status/userInfo/username").and_then(Value::as_str);
        Ok(name.filter(|name| !name.is_empty()).map(str::to_owned))
    }

    /// Returns namespace and name of a token's ServiceAccount; `None` if the token is invalid for this audience.
    pub async fn account_of_token(&self, token: &str, audience: &str) -> Result<Option<(String, String)>, Error> {
        let kind = Kind::fixed("authentication.k8s.io/v1", "TokenReview", "tokenreviews", Scope::Cluster);
        let spec = json!({"token": token, "audiences": [audience]});
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let answer = self.create(&kind, None, "token", &review, Persistence::Kept).await?;
        Ok(account(&answer["status"], audience))
    }
}

/// Returns the ServiceAccount of a review. A review without audiences is valid only for the API server's own audience.
fn account(status: &Value, audience: &str) -> Option<(String, String)> {
    let mut audiences = status["audiences"].as_array().into_iter().flatten();
    let is_valid = status["authenticated"] == true && audiences.any(|one| one == audience);
    let name = status["user"]["username"].as_str().filter(|_| is_valid)?;
    let (namespace, name) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    Some((namespace.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_a_service_account_if_it_is_valid_for_the_audience() {
        let of = |authenticated: bool, audiences: Value, user: &str| {
            let status = json!({"authenticated": authenticated, "audiences": audiences, "user": {"username": user}});
            account(&status, "events").map(|(namespace, name)| format!("{namespace} {name}"))
        };
        let user = "system:serviceaccount:team:web";
        assert_eq!(of(true, json!(["other", "events"]), user).as_deref(), Some("team web"));
        for status in [
            of(false, json!(["events"]), user),
            of(true, json!(["other"]), user),
            of(true, json!([]), user),
            of(true, json!(null), user),
            of(true, json!(["events"]), "jane"),
            of(true, json!(["events"]), "system:serviceaccount:team"),
        ] {
            assert_eq!(status, None);
        }
    }
}
