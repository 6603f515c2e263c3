//! The rules of GitRepositories and APIRules for the web page.
//!
//! Invariant: the rules are those of the agent, so both report the same problems.

use std::sync::Arc;

use serde_json::Value;

use mainstay_api::{ApiRule, GitRepositorySpec};
use mainstay_console::ObjectRules;

/// Returns the rules.
pub(super) fn page_rules() -> ObjectRules {
    ObjectRules { git_repository: Arc::new(git_repository), api_rule: Arc::new(api_rule) }
}

fn git_repository(object: &Value) -> Result<(), String> {
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    let spec: GitRepositorySpec = serde_json::from_value(object["spec"].clone()).map_err(|error| error.to_string())?;
    let problems = mainstay_git::repository_problems(&spec, namespace);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn api_rule(object: &Value) -> Result<(), String> {
    let rule: ApiRule = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    mainstay_exposure::problems(&rule)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_repository_has_the_problems_that_the_agent_reports() {
        let of = |spec: Value| git_repository(&json!({"metadata": {"namespace": "shop"}, "spec": spec}));
        let auth = |kind: &str| json!({"type": kind, "secretName": "login"});
        let (http, ssh) = ("https://git.example.com/shop", "git@git.example.com:team/shop.git");
        assert_eq!(of(json!({"url": http})), Ok(()));
        assert_eq!(of(json!({"url": ssh, "auth": auth("key")})), Ok(()));
        for spec in [
            json!({"url": ""}),
            json!({"url": ssh}),
            json!({"url": ssh, "auth": auth("basic")}),
            json!({"url": http, "auth": auth("key")}),
            json!({"url": "https://user:hunter2@git.example.com/shop"}),
            json!(null),
        ] {
            let problem = of(spec.clone()).unwrap_err();
            assert!(!problem.is_empty() && !problem.contains("hunter2"), "{spec}: {problem}");
        }
    }

    #[test]
    fn an_api_rule_has_the_problems_that_no_setting_permits() {
        let of = |spec: Value| {
            let metadata = json!({"name": "web", "namespace": "shop"});
            let object = json!({
                "apiVersion": "gateway.kyma-project.io/v1beta1", "kind": "APIRule", "metadata": metadata, "spec": spec,
            });
            api_rule(&object)
        };
        let spec = |path: &str| {
            json!({
                "gateway": "kyma-system/kyma-gateway", "host": "web.example.com", "service": {"name": "web", "port": 80},
                "rules": [{"path": path, "methods": ["GET"], "accessStrategies": [{"handler": "noop"}]}],
            })
        };
        assert_eq!(of(spec("/.*")), Ok(()));
        assert!(of(spec("x|/.*")).is_err());
        assert!(of(json!({})).is_err());
    }
}
