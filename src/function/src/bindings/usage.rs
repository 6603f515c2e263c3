//! The needed fields of a ServiceBindingUsage and of a ServiceBinding.

use jiff::Timestamp;
use serde_json::Value;

use mainstay_api::names::{AGENT_MANAGER, BINDINGS_MANAGER, MANAGER};

/// The name of the UsageKind of Functions.
pub(super) const FUNCTIONS: &str = "serverless-function";

/// A ServiceBindingUsage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) uid: String,
    pub(super) created: Option<Timestamp>,
    pub(super) is_terminating: bool,
    /// Name of the ServiceBinding, in the same namespace.
    pub(super) binding: String,
    /// Name of the UsageKind.
    pub(super) kind: String,
    /// Name of the object that uses the binding.
    pub(super) user: String,
    /// Prefix of the environment variable for each key of the Secret.
    pub(super) prefix: String,
    /// UIDs of the usage's owners.
    pub(super) owners: Vec<String>,
    /// The usage's condition `Ready`.
    pub(super) said: Option<Said>,
    /// Whether another controller wrote the usage's status.
    pub(super) is_foreign: bool,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) since: String,
}

/// A ServiceBinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) uid: String,
    /// Name of the binding's Secret.
    pub(super) secret: String,
    pub(super) is_ready: bool,
    /// Whether the broker is still working on the binding.
    pub(super) is_busy: bool,
    pub(super) is_terminating: bool,
}

/// Maximum length of a string in characters. Names are shorter, so a cut string is never a name.
const MOST: usize = 1024;
/// Maximum number of owners that are read.
const MOST_OWNERS: usize = 64;

fn text(object: &Value, path: &str) -> String {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default().chars().take(MOST).collect()
}

/// Returns namespace and name.
pub(super) fn name_of(live: &Value) -> (String, String) {
    (text(live, "/metadata/namespace"), text(live, "/metadata/name"))
}

fn ready(live: &Value) -> Option<&Value> {
    let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready")
}

impl Usage {
    /// Reads a live object.
    pub(super) fn of(live: &Value) -> Self {
        let said = ready(live).map(|condition| Said {
            status: text(condition, "/status"),
            reason: text(condition, "/reason"),
            message: text(condition, "/message"),
            since: text(condition, "/lastTransitionTime"),
        });
        let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
        Self {
            uid: text(live, "/metadata/uid"),
            created: text(live, "/metadata/creationTimestamp").parse().ok(),
            is_terminating: !live["metadata"]["deletionTimestamp"].is_null(),
            binding: text(live, "/spec/serviceBindingRef/name"),
            kind: text(live, "/spec/usedBy/kind"),
            user: text(live, "/spec/usedBy/name"),
            prefix: text(live, "/spec/parameters/envPrefix/name"),
            owners: owners.take(MOST_OWNERS).map(|owner| text(owner, "/uid")).collect(),
            is_foreign: said.is_some() && status_is_foreign(live),
            said,
        }
    }

    /// Whether the usage was reported as in use.
    pub(super) fn is_true(&self) -> bool {
        self.said.as_ref().is_some_and(|said| said.status == "True")
    }
}

/// Whether another controller wrote the status. An apply by a user or a GitSync may contain a status too.
fn status_is_foreign(live: &Value) -> bool {
    let managers = live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let mut of_status = managers.filter(|entry| !entry["fieldsV1"]["f:status"].is_null());
    of_status.any(|entry| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        ![AGENT_MANAGER, BINDINGS_MANAGER, MANAGER].contains(&manager) && !manager.starts_with("kubectl")
    })
}

impl Binding {
    /// Reads a live object.
    pub(super) fn of(live: &Value) -> Self {
        let (name, secret) = (text(live, "/metadata/name"), text(live, "/spec/secretName"));
        Self {
            uid: text(live, "/metadata/uid"),
            secret: if secret.is_empty() { name } else { secret },
            is_ready: ready(live).is_some_and(|condition| condition["status"] == "True"),
            is_busy: live.pointer("/status/asyncOpInProgress").and_then(Value::as_bool).unwrap_or_default(),
            is_terminating: !live["metadata"]["deletionTimestamp"].is_null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with_status_of(manager: &str) -> Usage {
        let fields = json!([{"manager": manager, "fieldsV1": {"f:status": {"f:conditions": {}}}}]);
        Usage::of(&json!({
            "metadata": {"name": "a", "managedFields": fields},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    #[test]
    fn a_status_is_foreign_if_another_controller_wrote_it() {
        assert!(with_status_of("service-binding-usage-controller").is_foreign);
        for known in ["mainstay-agent", "mainstay", "kubectl-client-side-apply"] {
            assert!(!with_status_of(known).is_foreign, "{known}");
        }
    }

    #[test]
    fn the_secret_of_a_binding_has_its_name_unless_another_is_given() {
        let of = |spec: Value| Binding::of(&json!({"metadata": {"name": "redis"}, "spec": spec})).secret;
        assert_eq!(of(json!({})), "redis");
        assert_eq!(of(json!({"secretName": "other"})), "other");
    }

    #[test]
    fn a_field_of_another_type_counts_as_absent() {
        let odd =
            Usage::of(&json!({"metadata": 1, "spec": {"usedBy": [], "parameters": "x"}, "status": {"conditions": 7}}));
        assert_eq!((odd.user, odd.said), (String::new(), None));
        assert!(!Binding::of(&json!({"status": {"conditions": {}, "asyncOpInProgress": "yes"}})).is_busy);
    }
}
