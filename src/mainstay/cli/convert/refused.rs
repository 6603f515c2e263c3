//! The values of a printed object that the agent refuses, by the parsers of the agent.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::converted::{Converted, Printed};
use crate::agent::{
    chart_problems, image_policy_problems, image_repository_problems, image_update_problems, oci_repository_problems,
};
use mainstay_api::{AlertSpec, GitRepositorySpec, ProviderSpec};
use mainstay_git::repository_problems;
use mainstay_gitsync::{git_sync_problems, receiver};
use mainstay_notification::{Identity, Selection, Target};

/// Returns the problems of an object: each begins with the field. Those that only the values of a Secret decide are
/// left out.
pub(super) fn problems(made: &Converted) -> Vec<String> {
    let object = &made.object;
    let at = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (at("namespace"), at("name"));
    let spec = &object["spec"];
    let problems = match made.kind {
        Printed::GitRepository => read(spec).map(|spec: GitRepositorySpec| repository_problems(&spec, namespace)),
        Printed::OciRepository => read(spec).map(|spec| oci_repository_problems(&spec, namespace)),
        Printed::HelmChart => read(spec).map(|spec| chart_problems(&spec, namespace)),
        Printed::GitSync => read(object).map(|sync| git_sync_problems(&sync)),
        Printed::Receiver => read(object).map(|one| receiver::problems(&one)),
        Printed::Provider => read(spec).map(|spec| of_provider(&spec, namespace, name)),
        Printed::Alert => read(spec).map(|spec| of_alert(&spec, namespace, name)),
        Printed::ImageRepository => read(spec).map(|spec| image_repository_problems(&spec, namespace)),
        Printed::ImagePolicy => read(spec).map(|spec| image_policy_problems(&spec)),
        Printed::ImageUpdateAutomation => read(spec).map(|spec| image_update_problems(namespace, name, &spec)),
    };
    problems.unwrap_or_default()
}

/// Splits a problem into its field and its text. The field is empty if the problem does not begin with one.
pub(super) fn field_of(problem: &str) -> (&str, &str) {
    let end = problem.find([':', ' ']).unwrap_or(problem.len());
    let (field, rest) = problem.split_at(end);
    match rest.strip_prefix(": ") {
        _ if !field.starts_with("spec.") => ("", problem),
        Some(text) => (field, text),
        None => (field, problem),
    }
}

fn read<S: DeserializeOwned>(value: &Value) -> Option<S> {
    serde_json::from_value(value.clone()).ok()
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
    fn receivers_git_syncs_and_git_repositories_are_checked_by_the_agent() {
        let sync = |field: &str, value: Value| {
            let source = json!({"kind": "OCIRepository", "name": "web"});
            let mut spec = json!({"interval": "1h", "path": "./deploy", "prune": true, "sourceRef": source});
            spec[field] = value;
            ("kustomize", "Kustomization", spec)
        };
        let receiver = |field: &str, value: Value| {
            let resources = json!([{"kind": "GitRepository", "name": "web"}]);
            let mut spec = json!({"type": "github", "secretRef": {"name": "hook"}, "resources": resources});
            spec[field] = value;
            ("notification", "Receiver", spec)
        };
        let repository = |url: &str| {
            ("source", "GitRepository", json!({"interval": "5m", "url": url, "secretRef": {"name": "web"}}))
        };
        let issuers =
            json!([{"issuerURL": "http://ci.example.com", "validations": [{"expression": "true", "message": "no"}]}]);
        for ((group, kind, spec), line) in [
            (
                sync("dependsOn", json!([{"name": "db", "readyExpr": "dep."}])),
                "to do    spec.dependsOn[0].readyExpr: the agent refuses the object: ",
            ),
            (
                receiver("secretRef", Value::Null),
                "to do    spec.secretRef: the agent refuses the object: spec.secretRef must name a Secret",
            ),
            (
                receiver("resourceFilter", json!("req.")),
                "to do    spec.resourceFilter: the agent refuses the object: line 1, column ",
            ),
            (
                receiver("oidcProviders", issuers),
                "to do    spec.oidcProviders: the agent refuses the object: spec.oidcProviders is only for the type",
            ),
            (repository("ssh://"), "to do    spec.url: the agent refuses the object: "),
            (repository("https://me:secret@git.example.com/web"), "to do    spec.url: the agent refuses the object: "),
        ] {
            let (made, to_do, text) = converted(group, kind, &spec);
            assert!(made == 1 && to_do > 0 && text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn an_issuer_without_encryption_is_lost_and_an_invalid_one_is_to_do() {
        let of_issuer = |issuer: &str| {
            let resources = json!([{"kind": "GitRepository", "name": "web"}]);
            let rules = json!([{"expression": "true", "message": "no"}]);
            let providers = json!([{"issuerURL": issuer, "validations": rules}]);
            let spec = json!({"type": "generic-oidc", "oidcProviders": providers, "resources": resources});
            let (made, _, text) = converted("notification", "Receiver", &spec);
            assert_eq!((made, text.matches("spec.oidcProviders[0].issuerURL: ").count()), (1, 1), "{text}");
            text
        };
        let text = of_issuer("http://ci.example.com");
        assert!(text.contains("lost     spec.oidcProviders[0].issuerURL: the agent reads keys over HTTPS"), "{text}");
        assert!(text.contains("1 lost"), "{text}");
        let text = of_issuer("https://me@ci.example.com");
        assert!(text.contains("to do    spec.oidcProviders[0].issuerURL: the agent refuses the object: "), "{text}");
        assert!(text.contains("0 lost"), "{text}");
    }

    #[test]
    fn fields_of_problems_are_found() {
        let of = |problem: &'static str| field_of(problem);
        assert_eq!(of("spec.url: is missing"), ("spec.url", "is missing"));
        assert_eq!(of("spec.type must be one"), ("spec.type", "spec.type must be one"));
        assert_eq!(of("the address: is none"), ("", "the address: is none"));
    }

    #[test]
    fn a_lost_requirement_is_reported_once() {
        let spec = json!({"url": "oci://ghcr.io/shop/web", "interval": "5m", "verify": {"provider": "notation"}});
        let (made, to_do, text) = converted("source", "OCIRepository", &spec);
        assert_eq!((made, to_do), (1, 0), "{text}");
    }
}
