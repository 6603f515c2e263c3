//! As whom requests are made.
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
}
