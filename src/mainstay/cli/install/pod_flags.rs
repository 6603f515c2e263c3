//! The flags for pods.

use serde_json::{Value, json};

/// Settings of pods. Each flag has a value of the same meaning in `--values`.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Pods")]
pub(super) struct Pods {
    /// Number of agents: one leads, the others stand by [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub(super) replicas: Option<u32>,
    /// Number of agents that divide the GitSyncs among themselves, up to 64. More --replicas stand by [default: 0, one agent
    /// looks after all GitSyncs]
    #[arg(long, value_name = "NUMBER")]
    pub(super) shards: Option<u32>,
    /// Resources of a container, such as mainstay.limits.memory=320Mi; `none` removes a default. The containers are
    /// mainstay, renderer, guard, registry, sweep, collect, eventing, nats and console
    #[arg(long, value_name = "CONTAINER.KIND.RESOURCE=AMOUNT", value_parser = pair, value_delimiter = ',')]
    pub(super) resources: Vec<(String, String)>,
    /// Expected number of GitSyncs. Memory of the agent is set for that many, instead of 160Mi
    #[arg(long, value_name = "NUMBER")]
    pub(super) expect_gitsyncs: Option<u64>,
    /// Expected number of objects of all GitSyncs together, of 1 KiB each [default: 4 for each expected GitSync]
    #[arg(long, value_name = "NUMBER")]
    pub(super) expect_objects: Option<u64>,
    /// Label of the nodes that all pods of the installation run on; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, value_delimiter = ',')]
    pub(super) node_selector: Vec<(String, String)>,
    /// Node taint that all pods tolerate, in the form of `kubectl taint`, such as dedicated=infra:NoSchedule; without a
    /// value or an effect, any matches. May be repeated
    #[arg(long, value_name = "KEY[=VALUE][:EFFECT]", value_parser = toleration)]
    pub(super) toleration: Vec<Value>,
    /// PriorityClass of all pods; it must exist
    #[arg(long, value_name = "NAME")]
    pub(super) priority_class: Option<String>,
    /// Affinity of the agent's pods, in the form of a pod's `affinity`, as JSON
    #[arg(long, value_name = "JSON")]
    pub(super) affinity: Option<String>,
    /// Spread of several agents, as a JSON list of topologySpreadConstraints
    #[arg(long, value_name = "JSON")]
    pub(super) topology_spread: Option<String>,
    /// Additional label of all pods; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(super) pod_label: Vec<(String, String)>,
    /// Additional annotation of all pods; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub(super) pod_annotation: Vec<(String, String)>,
    /// Image pull policy: Always, IfNotPresent or Never
    #[arg(long, value_name = "POLICY")]
    pub(super) image_pull_policy: Option<String>,
    /// Private network, such as 10.20.0.0/16, that repositories of tenants may use; may be repeated
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(super) allow_network: Vec<String>,
    /// Additional argument of the agent, such as --extra-arg=--audit-interval=2h; may be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(super) extra_arg: Vec<String>,
    /// Additional environment variable of the agent, such as HTTPS_PROXY=http://proxy:3128; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) extra_env: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    if name.is_empty() { Err("write NAME=VALUE".to_owned()) } else { Ok((name.to_owned(), value.to_owned())) }
}

/// Parses a toleration of a taint: `KEY=VALUE:EFFECT`, `KEY:EFFECT`, `KEY=VALUE` or `KEY`; `*` is any key.
fn toleration(text: &str) -> Result<Value, String> {
    let (taint, effect) = match text.rsplit_once(':') {
        Some((taint, effect)) => (taint, Some(effect)),
        None => (text, None),
    };
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if effect.is_some_and(|effect| !effects.contains(&effect)) {
        return Err(format!("an effect must be one of {}", effects.join(", ")));
    }
    let mut toleration = match taint.split_once('=') {
        Some(("", _)) | None if taint.is_empty() || taint.starts_with('=') => {
            return Err("write KEY=VALUE:EFFECT, as `kubectl taint` does; * is any key".to_owned());
        }
        Some((key, value)) => json!({"key": key, "operator": "Equal", "value": value}),
        None if taint == "*" => json!({"operator": "Exists"}),
        None => json!({"key": taint, "operator": "Exists"}),
    };
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    Ok(toleration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toleration_is_written_as_a_taint() {
        for (text, expected) in [
            ("a=b:NoSchedule", json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"})),
            ("k8s.io/a:NoExecute", json!({"key": "k8s.io/a", "operator": "Exists", "effect": "NoExecute"})),
            ("a=b", json!({"key": "a", "operator": "Equal", "value": "b"})),
            ("a", json!({"key": "a", "operator": "Exists"})),
            ("*", json!({"operator": "Exists"})),
        ] {
            assert_eq!(toleration(text), Ok(expected), "{text}");
        }
        for wrong in ["", "=b", ":NoSchedule", "a:Never", "a=b:"] {
            assert!(toleration(wrong).is_err(), "{wrong}");
        }
    }
}
