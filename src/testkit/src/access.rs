//! Waits for the authorizer of a real API server.
//!
//! The authorizer learns of a changed role or binding through a watch. A request that follows the change immediately may
//! still be decided by the previous permissions. The embedded cluster decides by the stored objects, so it needs no wait.

use std::time::{Duration, Instant};

use devcluster::{Action, Call};
use serde_json::{Value, json};

use super::server::TestServer;
use super::world::World;
use crate::PATIENCE;

const GROUP: &str = "authorization.k8s.io/v1";
/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Returns a review of a rule's first verb and resource, for a ServiceAccount. An empty namespace means all namespaces.
fn review((home, account): (&str, &str), namespace: &str, rule: &Value) -> Value {
    let first = |field: &str| rule[field][0].as_str().unwrap_or_default().to_owned();
    let whole = first("resources");
    let (resource, subresource) = whole.split_once('/').unwrap_or((whole.as_str(), ""));
    let attributes = json!({
        "verb": first("verbs"), "group": first("apiGroups"), "resource": resource, "subresource": subresource,
        "namespace": namespace, "name": first("resourceNames"),
    });
    let spec = json!({"user": format!("system:serviceaccount:{home}:{account}"), "resourceAttributes": attributes});
    json!({"apiVersion": GROUP, "kind": "SubjectAccessReview", "spec": spec})
}

impl World {
    /// Waits until the API server allows a ServiceAccount, given as namespace and name, what these rules of a role grant
    /// in a namespace. An empty namespace means all namespaces.
    #[track_caller]
    pub fn until_allowed(&self, account: (&str, &str), namespace: &str, rules: &Value) {
        self.until_decided(account, namespace, rules, true);
    }

    /// Waits until the API server no longer allows a ServiceAccount what these rules of a role granted in a namespace.
    #[track_caller]
    pub fn until_denied(&self, account: (&str, &str), namespace: &str, rules: &Value) {
        self.until_decided(account, namespace, rules, false);
    }

    #[track_caller]
    fn until_decided(&self, account: (&str, &str), namespace: &str, rules: &Value, is_allowed: bool) {
        if matches!(self.server, TestServer::Embedded(_)) {
            return;
        }
        let began = Instant::now();
        for rule in rules.as_array().unwrap() {
            let review = review(account, namespace, rule);
            while self.is_allowed(&review) != is_allowed {
                let wanted = if is_allowed { "allowed" } else { "denied" };
                assert!(began.elapsed() < PATIENCE, "not {wanted} within {PATIENCE:?}: {}", review["spec"]);
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    #[track_caller]
    fn is_allowed(&self, review: &Value) -> bool {
        let call = Call::new(GROUP, "subjectaccessreviews", "", "", Action::Create(review.clone()));
        self.write_as("test", call)["status"]["allowed"] == true
    }
}
