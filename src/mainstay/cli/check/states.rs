//! Reports the objects of Mainstay's kinds that do not work, from their conditions.
//!
//! Not here: the lookups of GitRepositories from this machine (`repository`), and the dependencies of GitSyncs
//! (`dependencies`).

use futures::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use super::dependencies::GitSyncs;
use super::repository::{Finding, wrong};
use crate::cli::Error;
use crate::cli::get::resource::{ALL, GIT_SYNCS, Resource};
use mainstay_api::conditions::{Reason, Type};
use mainstay_api::function_conditions;
use mainstay_cluster::{Cluster, Selection};
use mainstay_object::printable;

/// Returns a finding for each object of the namespace whose condition is False, and for each Receiver with a status. For
/// kinds that the cluster does not serve, or that must not be read, there is no finding. For a kind that cannot be listed
/// for another reason, there is one. A GitSync may wait for others, unless one of them does not exist or cannot be read.
pub(super) async fn findings(cluster: &Cluster, namespace: &str) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for resource in ALL {
        let Some(kind) = cluster.preferred_kind(resource.group, resource.kind).await? else { continue };
        let (mut git_syncs, mut waiting) = (GitSyncs::new(cluster, &kind), Vec::new());
        let mut objects = cluster.list(&kind, Selection::default().within(namespace));
        loop {
            match objects.try_next().await {
                Ok(Some(object)) => {
                    let found = finding(resource, namespace, &object);
                    let is_git_sync = resource == GIT_SYNCS;
                    let depends_on = is_git_sync.then(|| git_syncs.add(namespace, &object)).flatten();
                    match (found, depends_on) {
                        // All GitSyncs are listed before their dependencies are checked.
                        (Some(Err((text, _))), Some(depends_on)) => waiting.push((text, depends_on)),
                        (found, _) => findings.extend(found),
                    }
                }
                Ok(None) => break,
                Err(error) if error.is_forbidden() => break,
                Err(error) => {
                    let text = format!("{} of {namespace} cannot be listed: {}", kind.resource, error.cause_text());
                    let remedy = format!("kubectl -n {namespace} get {}", kind.resource);
                    findings.push(wrong(printable(&text), remedy));
                    break;
                }
            }
        }
        for (text, depends_on) in waiting {
            findings.extend(git_syncs.remedy(depends_on).await.map(|remedy| wrong(text, remedy)));
        }
    }
    Ok(findings)
}

/// Returns the conditions that say whether an object of a kind works.
fn deciding(kind: &str) -> Vec<&'static str> {
    match kind {
        "Function" => function_conditions::Type::ALL.map(function_conditions::Type::as_str).to_vec(),
        "APIRule" => vec![Type::Exposed.as_str()],
        _ => vec![Type::Ready.as_str()],
    }
}

fn finding(resource: Resource, namespace: &str, object: &Value) -> Option<Finding> {
    let name = printable(object["metadata"]["name"].as_str().unwrap_or_default());
    let conditions: Vec<Condition> = serde_json::from_value(object["status"]["conditions"].clone()).ok()?;
    let of = |name: &&str| conditions.iter().find(|condition| condition.type_ == **name);
    // The other conditions of a suspended GitSync describe the time before.
    if of(&Type::Suspended.as_str()).is_some_and(|suspended| suspended.status == "True") {
        return None;
    }
    let deciding = deciding(resource.kind);
    let known: Vec<&Condition> = deciding.iter().filter_map(of).collect();
    let subject = format!("{} {namespace}/{name}", resource.kind);
    if let Some(failed) = known.iter().find(|condition| is_failure(condition)) {
        let text = format!("{subject}: {}: {}", printable(&failed.reason), printable(&failed.message));
        let remedy = remedy(resource.kind, &failed.reason);
        return Some(if remedy.is_empty() { Err((text, None)) } else { wrong(text, remedy) });
    }
    let ready = known.first().filter(|_| resource.kind == "Receiver")?;
    Some(Ok(format!("{subject}: {}", printable(&ready.message))))
}

/// The reasons of conditions that are False while an object waits for a user or a time.
const WAITING: [Reason; 2] = [Reason::Suspended, Reason::WindowClosed];

/// Whether a condition says that an object does not work. A Receiver without its source stays ready.
fn is_failure(condition: &Condition) -> bool {
    let is = |reason: Reason| condition.reason == reason.name();
    is(Reason::SourceNotFound) || condition.status == "False" && !WAITING.into_iter().any(is)
}

/// Returns the remedy for a reason of a kind; empty if there is none.
fn remedy(kind: &str, reason: &str) -> &'static str {
    let of_function = || function_conditions::Reason::ALL.iter().find(|known| known.name() == reason);
    let of_others = || Reason::ALL.iter().find(|known| known.name() == reason);
    match kind {
        "Function" => of_function().map(|reason| reason.remedy()).unwrap_or_default(),
        _ => of_others().map(|reason| reason.remedy()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(kind: &str, condition: &str, status: &str, reason: &str) -> Option<Finding> {
        said_of(kind, &[(condition, status, reason)])
    }

    fn said_of(kind: &str, conditions: &[(&str, &str, &str)]) -> Option<Finding> {
        let resource = Resource::named(kind).unwrap();
        let written = |(condition, status, reason): &(&str, &str, &str)| {
            json!({
                "type": condition, "status": status, "reason": reason, "message": "why",
                "lastTransitionTime": "2026-03-02T08:00:00Z",
            })
        };
        let conditions: Vec<Value> = conditions.iter().map(written).collect();
        let object = json!({"metadata": {"name": "web"}, "status": {"conditions": conditions}});
        finding(resource, "shop", &object)
    }

    #[test]
    fn each_kind_that_does_not_work_has_a_finding_with_a_remedy() {
        for resource in ALL {
            let condition = deciding(resource.kind)[0];
            let reason = match resource.kind {
                "Function" => function_conditions::Reason::ALL[0].name(),
                _ => Reason::SpecInvalid.name(),
            };
            let expected = format!("{} shop/web: {reason}: why", resource.kind);
            let found = said(resource.kind, condition, "False", reason).unwrap().unwrap_err();
            assert_eq!(found.0, expected);
            if resource.kind != "Function" {
                assert_eq!(found.1.as_deref(), Some(Reason::SpecInvalid.remedy()));
            }
        }
    }

    #[test]
    fn objects_that_work_wait_or_are_suspended_are_left_out() {
        assert_eq!(said("Provider", "Ready", "True", "Sending"), None);
        assert_eq!(said("GitSync", "Ready", "Unknown", "Progressing"), None);
        assert_eq!(said("ImagePolicy", "Ready", "False", "Suspended"), None);
        assert_eq!(said("GitSync", "Drifted", "False", "NotDrifted"), None);
        assert_eq!(said("GitSync", "Ready", "False", "WindowClosed"), None);
        let failed = ("Ready", "False", "ApplyFailed");
        assert_eq!(said_of("GitSync", &[failed, ("Suspended", "True", "Suspended")]), None);
        assert!(said_of("GitSync", &[failed, ("Suspended", "False", "NotSuspended")]).is_some());
        assert_eq!(said("Receiver", "Ready", "True", "Receiving"), Some(Ok("Receiver shop/web: why".to_owned())));
        let without_source = said("Receiver", "Ready", "True", "SourceNotFound").unwrap().unwrap_err();
        assert_eq!(without_source.0, "Receiver shop/web: SourceNotFound: why");
    }
}
