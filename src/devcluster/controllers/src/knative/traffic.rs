//! Resolves a Route's targets to Revisions and their shares.

use std::sync::Arc;

use serde_json::{Value, json};

use super::conditions::ready;
use devcluster_apiserver::object::text;

/// A Revision that receives requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) revision: String,
    pub(super) percent: u64,
    pub(super) tag: String,
    /// Whether the target follows the latest ready Revision.
    pub(super) is_latest: bool,
}

/// Why no target changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Blocked {
    fn failed(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    fn waiting(message: String) -> Self {
        Self { status: "Unknown", reason: "RevisionMissing", message }
    }
}

/// Looks up an object by name.
pub(super) type Lookup<'l> = &'l dyn Fn(&str) -> Option<Arc<Value>>;

/// Resolves the targets of a Route. One missing or unready target blocks all.
pub(super) fn targets(route: &Value, configuration: Lookup<'_>, revision: Lookup<'_>) -> Result<Vec<Target>, Blocked> {
    let list = route["spec"]["traffic"].as_array().into_iter().flatten();
    list.map(|target| {
        let pinned = text(target, "/revisionName");
        let name = if pinned.is_empty() {
            latest(text(target, "/configurationName"), configuration)?
        } else {
            pinned.to_owned()
        };
        let missing = || format!("Revision \"{name}\" referenced in traffic not found.");
        let Some(found) = revision(&name) else { return Err(Blocked::failed("RevisionMissing", missing())) };
        match ready(&found).map_or("Unknown", |ready| text(ready, "/status")) {
            "True" => {}
            "False" => {
                let message = format!("Revision \"{name}\" failed to become ready.");
                return Err(Blocked::failed("RevisionMissing", message));
            }
            _ => return Err(Blocked::waiting(format!("Revision \"{name}\" is not yet ready."))),
        }
        Ok(Target {
            revision: name,
            percent: target["percent"].as_u64().unwrap_or(0),
            tag: text(target, "/tag").to_owned(),
            is_latest: pinned.is_empty(),
        })
    })
    .collect()
}

/// Returns the latest ready Revision of a Configuration.
fn latest(name: &str, configuration: Lookup<'_>) -> Result<String, Blocked> {
    let Some(found) = configuration(name) else {
        let message = format!("Configuration \"{name}\" referenced in traffic not found.");
        return Err(Blocked::failed("ConfigurationMissing", message));
    };
    let newest = text(&found, "/status/latestReadyRevisionName");
    if !newest.is_empty() {
        return Ok(newest.to_owned());
    }
    if ready(&found).is_some_and(|ready| ready["status"] == "False") {
        let message = format!("Configuration \"{name}\" does not have any ready Revision.");
        return Err(Blocked::failed("RevisionMissing", message));
    }
    Err(Blocked::waiting(format!("Configuration \"{name}\" is waiting for a Revision to become ready.")))
}

/// Returns the targets for a Route's status.
pub(super) fn reported(targets: &[Target], url_of: &dyn Fn(&str) -> String) -> Value {
    let one = |target: &Target| {
        let mut reported = json!({
            "revisionName": target.revision, "percent": target.percent, "latestRevision": target.is_latest,
        });
        if !target.tag.is_empty() {
            reported["tag"] = target.tag.as_str().into();
            reported["url"] = url_of(&target.tag).into();
        }
        reported
    };
    targets.iter().map(one).collect()
}

/// Returns the shares of an address: of all targets for the untagged address, otherwise of the tag.
pub(super) fn splits(targets: &[Target], tag: &str, namespace: &str) -> Vec<Value> {
    let mut shares: Vec<(&str, u64)> = Vec::new();
    for target in targets.iter().filter(|target| tag.is_empty() || target.tag == tag) {
        let percent = if tag.is_empty() { target.percent } else { 100 };
        match shares.iter_mut().find(|(revision, _)| *revision == target.revision) {
            Some(share) => share.1 += percent,
            None if percent > 0 => shares.push((&target.revision, percent)),
            None => {}
        }
    }
    let split = |(revision, percent): (&str, u64)| {
        json!({
            "serviceName": revision, "serviceNamespace": namespace, "servicePort": 80, "percent": percent,
            "appendHeaders": {"Knative-Serving-Namespace": namespace, "Knative-Serving-Revision": revision},
        })
    };
    shares.into_iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves `traffic` with Revisions of these Ready statuses; `hello` is a Configuration with this latest ready
    /// Revision.
    fn find(traffic: Value, revisions: &[(&str, &str)], newest: &str, is_configuration_ready: &str) -> String {
        let conditions = |status: &str| json!([{"type": "Ready", "status": status}]);
        let configuration = |name: &str| {
            let status = json!({"latestReadyRevisionName": newest, "conditions": conditions(is_configuration_ready)});
            (name == "hello").then(|| Arc::new(json!({"status": status})))
        };
        let revision = |name: &str| {
            let (_, status) = revisions.iter().find(|(known, _)| *known == name)?;
            Some(Arc::new(json!({"status": {"conditions": conditions(status)}})))
        };
        match targets(&json!({"spec": {"traffic": traffic}}), &configuration, &revision) {
            Ok(targets) => {
                let all = targets.iter().map(|t| format!("{} {}", t.revision, t.percent));
                all.collect::<Vec<_>>().join(", ")
            }
            Err(blocked) => format!("{} {} {}", blocked.status, blocked.reason, blocked.message),
        }
    }

    fn latest() -> Value {
        json!([{"configurationName": "hello", "latestRevision": true, "percent": 100}])
    }

    #[test]
    fn the_newest_revision_that_is_ready_gets_the_requests() {
        assert_eq!(find(latest(), &[("hello-00002", "True")], "hello-00002", "True"), "hello-00002 100");
        let waits = "Unknown RevisionMissing Configuration \"hello\" is waiting for a Revision to become ready.";
        assert_eq!(find(latest(), &[], "", "Unknown"), waits);
        let none = "False RevisionMissing Configuration \"hello\" does not have any ready Revision.";
        assert_eq!(find(latest(), &[], "", "False"), none);
        let other = json!([{"configurationName": "other", "latestRevision": true, "percent": 100}]);
        let missing = "False ConfigurationMissing Configuration \"other\" referenced in traffic not found.";
        assert_eq!(find(other, &[], "", "True"), missing);
    }

    #[test]
    fn one_target_that_is_missing_or_not_ready_blocks_all() {
        let both = || {
            json!([{"configurationName": "hello", "latestRevision": true, "percent": 50},
                {"revisionName": "hello-00001", "percent": 50}])
        };
        let all = [("hello-00001", "True"), ("hello-00002", "True")];
        assert_eq!(find(both(), &all, "hello-00002", "True"), "hello-00002 50, hello-00001 50");
        let gone = "False RevisionMissing Revision \"hello-00001\" referenced in traffic not found.";
        assert_eq!(find(both(), &all[1..], "hello-00002", "True"), gone);
        let waits = "Unknown RevisionMissing Revision \"hello-00001\" is not yet ready.";
        assert_eq!(find(both(), &[("hello-00001", "Unknown"), all[1]], "hello-00002", "True"), waits);
        let failed = "False RevisionMissing Revision \"hello-00001\" failed to become ready.";
        assert_eq!(find(both(), &[("hello-00001", "False"), all[1]], "hello-00002", "True"), failed);
    }

    #[test]
    fn a_tag_has_an_address_of_its_own_with_all_of_its_requests() {
        let target = |revision: &str, percent, tag: &str| Target {
            revision: revision.to_owned(),
            percent,
            tag: tag.to_owned(),
            is_latest: false,
        };
        let all = [target("a", 90, ""), target("b", 10, "next"), target("c", 0, "old"), target("a", 0, "")];
        let shares = |tag: &str| {
            let splits = splits(&all, tag, "shop");
            let shares = splits.iter().map(|split| format!("{} {}", text(split, "/serviceName"), split["percent"]));
            shares.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shares(""), "a 90, b 10");
        assert_eq!(shares("next"), "b 100");
        assert_eq!(shares("old"), "c 100");
    }
}
