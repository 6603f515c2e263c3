//! The values of a printed object that the agent refuses, by the parsers of the agent.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::{
    chart_problems, image_policy_problems, image_repository_problems, image_update_problems, oci_repository_problems,
};
use mainstay_api::{AlertSpec, ProviderSpec};
use mainstay_notification::{Identity, Selection, Target};

/// Returns the problems of an object: each begins with the field. Kinds without a parser for the whole spec have none.
pub(super) fn problems(object: &Value) -> Vec<String> {
    let at = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (at("namespace"), at("name"));
    let spec = &object["spec"];
    let problems = match object["kind"].as_str() {
        Some("OCIRepository") => read(spec).map(|spec| oci_repository_problems(&spec, namespace)),
        Some("HelmChart") => read(spec).map(|spec| chart_problems(&spec, namespace)),
        Some("ImageRepository") => read(spec).map(|spec| image_repository_problems(&spec, namespace)),
        Some("ImagePolicy") => read(spec).map(|spec| image_policy_problems(&spec)),
        Some("ImageUpdateAutomation") => read(spec).map(|spec| image_update_problems(namespace, name, &spec)),
        Some("Provider") => read(spec).map(|spec| of_provider(&spec, namespace, name)),
        Some("Alert") => read(spec).map(|spec| of_alert(&spec, namespace, name)),
        _ => None,
    };
    problems.unwrap_or_default()
}

fn read<S: DeserializeOwned>(spec: &Value) -> Option<S> {
    serde_json::from_value(spec.clone()).ok()
}

/// Returns the problems of a Provider, except those that only the values of its Secret decide.
fn of_provider(spec: &ProviderSpec, namespace: &str, name: &str) -> Vec<String> {
    let identity = Identity { namespace, name, uid: "", labels: None };
    let mut problems = Target::new(spec, &identity, None).err().unwrap_or_default();
    if spec.secret_ref.is_some() {
        let is_open = |problem: &str| {
            ["spec.secretRef: ", "spec.certSecretRef: ", "spec.address: is missing"]
                .iter()
                .any(|start| problem.starts_with(start))
                || problem.contains(" of the Secret: ")
        };
        problems.retain(|problem| !is_open(problem));
    }
    problems
}

/// Returns the problems of an Alert. Sources in other namespaces have their own note.
fn of_alert(spec: &AlertSpec, namespace: &str, name: &str) -> Vec<String> {
    let identity = Identity { namespace, name, uid: "", labels: None };
    Selection::new(spec, &identity, true).err().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::convert::document::Document;
    use crate::cli::convert::fields::Fate;
    use crate::cli::convert::flux;

    /// Converts an object of Flux. Returns the number of printed objects, of lines `to do`, and the report.
    fn converted(group: &str, kind: &str, spec: &Value) -> (usize, usize, String) {
        let object = json!({
            "apiVersion": format!("{group}.toolkit.fluxcd.io/v1"), "kind": kind,
            "metadata": {"name": "web", "namespace": "shop"}, "spec": spec,
        });
        let conversion = flux::convert(&[Document::of(object)], None);
        (conversion.objects.len(), conversion.count(Fate::ToDo), conversion.text())
    }

    #[test]
    fn values_that_the_agent_refuses_are_to_do() {
        let oci = |field: &str, value: Value| {
            let mut spec = json!({"url": "oci://ghcr.io/shop/web", "interval": "5m"});
            spec[field] = value;
            ("source", "OCIRepository", spec)
        };
        let provider = |field: &str, value: Value| {
            let mut spec =
                json!({"type": "gitlab", "address": "https://gitlab.com/shop/web", "secretRef": {"name": "token"}});
            spec[field] = value;
            ("notification", "Provider", spec)
        };
        let identities = json!([{"issuer": "(", "subject": "web"}]);
        for ((group, kind, spec), line) in [
            (
                oci("interval", json!("5s")),
                "to do    spec.interval: the agent refuses the object: must be at least 10s",
            ),
            (oci("timeout", json!("10m")), "to do    spec.timeout: the agent refuses the object: must be between"),
            (
                oci("verify", json!({"provider": "cosign", "matchOIDCIdentity": identities})),
                "to do    spec.verify.matchOIDCIdentity[0].issuer: the agent refuses the object: is not a regular",
            ),
            (provider("timeout", json!("90s")), "to do    spec.timeout: the agent refuses the object: must be between"),
            (
                provider("address", json!("https://gitlab.com/shop")),
                "to do    spec.address: the agent refuses the object: ",
            ),
            (
                provider("commitStatusExpr", json!("event.")),
                "to do    spec.commitStatusExpr: the agent refuses the object: ",
            ),
        ] {
            let (made, to_do, text) = converted(group, kind, &spec);
            assert_eq!((made, to_do), (1, 1), "{text}");
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn values_of_a_secret_are_not_guessed() {
        let slack = json!({"type": "slack", "channel": "ops", "secretRef": {"name": "slack"}});
        let (_, to_do, text) = converted("notification", "Provider", &slack);
        assert_eq!(to_do, 0, "{text}");
        let open = json!({"type": "slack", "channel": "ops"});
        let (_, to_do, text) = converted("notification", "Provider", &open);
        assert!(to_do == 1 && text.contains("spec.address: the agent refuses the object: is missing"), "{text}");
    }

    #[test]
    fn a_lost_requirement_is_reported_once() {
        let spec = json!({"url": "oci://ghcr.io/shop/web", "interval": "5m", "verify": {"provider": "notation"}});
        let (made, to_do, text) = converted("source", "OCIRepository", &spec);
        assert_eq!((made, to_do), (1, 0), "{text}");
    }
}
