//! As whom requests are made, and whose a token is.
//!
//! Deliberately absent: what that user may do.

use serde_json::{Value, json};

use super::apply::Persistence;
use super::connect::Cluster;
use super::error::Error;
use super::kind::{Kind, Scope};

impl Cluster {
    /// The name of the user that requests are made as, as the API server knows it; `None` if it says none.
    pub async fn user_name(&self) -> Result<Option<String>, Error> {
        let kind = Kind::fixed("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", Scope::Cluster);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = self.create(&kind, None, "self", &review, Persistence::Kept).await?;
        let name = answer.pointer("/status/userInfo/username").and_then(Value::as_str);
        Ok(name.filter(|name| !name.is_empty()).map(str::to_owned))
    }

    /// Namespace and name of the ServiceAccount that a token is of; `None` if it is not valid for this audience.
    pub async fn account_of_token(&self, token: &str, audience: &str) -> Result<Option<(String, String)>, Error> {
        let kind = Kind::fixed("authentication.k8s.io/v1", "TokenReview", "tokenreviews", Scope::Cluster);
        let spec = json!({"token": token, "audiences": [audience]});
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let answer = self.create(&kind, None, "token", &review, Persistence::Kept).await?;
        Ok(account(&answer["status"], audience))
    }
}

/// The ServiceAccount of a review. An answer that names no audience is about the API server's own.
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
