//! The settings of an installation. Each setting is a flag of `install`, a value of the chart and of `--values`, and a
//! field of the objects.
//!
//! Flags are converted to values and override the values of the files. Tests compare this table with the schema of the
//! chart and with its documentation.

use serde_json::{Map, Value, json};

use super::arguments::Arguments;

/// A setting.
pub(super) struct Row {
    /// Path of the value.
    pub(super) value: &'static str,
    /// The flag.
    pub(super) flag: &'static str,
    /// Whether the schema checks the flag; some flags have their own parser.
    pub(super) checked: Checked,
    /// The field in the objects that the setting determines.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is compared with it"))]
    pub(super) lands: &'static str,
    given: fn(&Arguments) -> Result<Option<Value>, String>,
}

/// Whether the schema checks a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// The schema checks the flag.
    BySchema,
    /// The flag has its own parser.
    Elsewhere,
}

use Checked::{BySchema, Elsewhere};

/// All settings. Values that are missing here have no flag.
pub(super) const ROWS: &[Row] = &[
    row("git.url", "--git-url", Elsewhere, "GitRepository `spec.url`", |a| text(a.git_url.as_deref())),
    row("git.branch", "--git-branch", Elsewhere, "GitSync `spec.reference`", |a| text(a.git_branch.as_deref())),
    row("git.paths", "--git-path", Elsewhere, "a GitSync for each, `spec.baseDir`", |a| list(&a.git_path)),
    row("git.secret", "--git-secret", Elsewhere, "GitRepository `spec.auth.secretName`", |a| {
        text(a.git_secret.as_deref())
    }),
    // The command itself reads the file.
    row("git.knownHosts", "--known-hosts", Elsewhere, "ConfigMap `mainstay-known-hosts`", |_| Ok(None)),
    row("git.targetNamespace", "--target-namespace", Elsewhere, "GitSync `spec.targetNamespace`", |a| {
        text(a.target_namespace.as_deref())
    }),
    row("git.name", "--name", Elsewhere, "names of the GitRepository and the GitSync", |a| text(a.name.as_deref())),
    row("git.interval", "--interval", Elsewhere, "GitSync `spec.interval`", |a| {
        Ok(a.interval.map(|interval| json!(interval.to_string())))
    }),
    row("image", "--image", Elsewhere, "`image` of the containers", |a| text(a.image.as_deref())),
    row(
        "imagePullSecret",
        "--image-pull-secret",
        Elsewhere,
        "all pods, `imagePullSecrets`, and the pods of builds",
        |a| text(a.image_pull_secret.as_deref()),
    ),
    row("imagePullPolicy", "--image-pull-policy", BySchema, "all containers, `imagePullPolicy`", |a| {
        text(a.pods.image_pull_policy.as_deref())
    }),
    row("components", "--components", Elsewhere, "which objects there are", |a| list(&a.choice.component_names())),
    row("egressPolicy", "--egress-policy", Elsewhere, "NetworkPolicy `mainstay-egress`", |a| {
        Ok(a.choice.egress_policy.then_some(json!(true)))
    }),
    row("registry", "--registry", Elsewhere, "Deployment `serverless-docker-registry`", |a| {
        text(a.registry.as_deref())
    }),
    row("registryNetworks", "--registry-network", BySchema, "NetworkPolicy `serverless-docker-registry`", |a| {
        list(&a.registry_network)
    }),
    row("baseImages", "--base-images", Elsewhere, "agent, variable `MAINSTAY_BASE_IMAGES`", |a| {
        json_of(a.base_images.as_deref(), "it is not the expected JSON object")
    }),
    row("baseCA", "--base-ca", BySchema, "agent, variable `MAINSTAY_BASE_CA`", |a| text(a.base_ca.as_deref())),
    row("receiverURL", "--receiver-url", Elsewhere, "agent, variable `MAINSTAY_RECEIVER_URL`", |a| {
        Ok(a.receiver_url.as_ref().and_then(|url| url.known().map(|url| json!(url))))
    }),
    row("console.urls", "--console-url", BySchema, "console, argument `--url`", |a| list(&a.console_url)),
    row("console.clusterName", "--console-cluster-name", BySchema, "console, argument `--cluster-name`", |a| {
        text(a.console_cluster_name.as_deref())
    }),
    row("console.signIn", "--console-sign-in", BySchema, "console, argument `--sign-in`", |a| {
        text(a.console_sign_in.as_deref())
    }),
    row("console.oidc.issuer", "--console-oidc-issuer", BySchema, "console, argument `--oidc-issuer`", |a| {
        text(a.oidc.console_oidc_issuer.as_deref())
    }),
    row("console.oidc.clientID", "--console-oidc-client-id", BySchema, "console, argument `--oidc-client-id`", |a| {
        text(a.oidc.console_oidc_client_id.as_deref())
    }),
    row("console.oidc.scopes", "--console-oidc-scope", BySchema, "console, argument `--oidc-scope`", |a| {
        list(&a.oidc.console_oidc_scope)
    }),
    row("console.oidc.secret", "--console-oidc-secret", BySchema, "console, volume `oidc`", |a| {
        text(a.oidc.console_oidc_secret.as_deref())
    }),
    row("nats.server", "--nats", BySchema, "StatefulSet `mainstay-nats`", |a| text(a.nats.nats.as_deref())),
    row("nats.image", "--nats-image", BySchema, "StatefulSet `mainstay-nats`, `image`", |a| {
        text(a.nats.nats_image.as_deref())
    }),
    row("nats.url", "--nats-url", Elsewhere, "publishers and dispatchers, variable `MAINSTAY_NATS_URL`", |a| {
        text(a.nats.nats_url.as_deref())
    }),
    row("nats.credentials", "--nats-credentials", Elsewhere, "publishers and dispatchers, volume `credentials`", |a| {
        text(a.nats.nats_credentials.as_deref())
    }),
    row("nats.share", "--nats-share", BySchema, "publishers and dispatchers, argument `--nats-share`", |a| {
        text(a.nats.nats_share.as_deref())
    }),
    row("nats.replicas", "--nats-replicas", BySchema, "publishers and dispatchers, argument `--nats-replicas`", |a| {
        number(a.nats.nats_replicas)
    }),
    row("nats.publishers", "--event-publishers", BySchema, "publishers, `spec.replicas`", |a| {
        number(a.nats.event_publishers)
    }),
    row("nats.dispatchers", "--event-dispatchers", BySchema, "dispatchers, `spec.replicas`", |a| {
        number(a.nats.event_dispatchers)
    }),
    row("nats.drainJournal", "--drain-journal", Elsewhere, "Deployment `mainstay-eventing`", |a| {
        Ok(a.nats.drain_journal.then_some(json!(true)))
    }),
    row("crds", "--no-crds", Elsewhere, "the CustomResourceDefinitions", |a| Ok(a.no_crds.then_some(json!(false)))),
    row("v1alpha2", "--v1alpha2", Elsewhere, "the definition of Functions", |a| Ok(a.v1alpha2.then_some(json!(true)))),
    row("replicas", "--replicas", BySchema, "agent, `spec.replicas`", |a| {
        Ok(a.pods.replicas.map(|count| json!(count)))
    }),
    row("shards", "--shards", BySchema, "agent, argument `--shards` and `spec.replicas`", |a| {
        Ok(a.pods.shards.map(|count| json!(count)))
    }),
    row("resources", "--resources", BySchema, "the named container, `resources`", |a| resources(&a.pods.resources)),
    row("expect.gitSyncs", "--expect-gitsyncs", BySchema, "the agent's container, memory in `resources`", |a| {
        Ok(a.pods.expect_gitsyncs.map(|count| json!(count)))
    }),
    row("expect.objects", "--expect-objects", BySchema, "the agent's container, memory in `resources`", |a| {
        Ok(a.pods.expect_objects.map(|count| json!(count)))
    }),
    row("nodeSelector", "--node-selector", BySchema, "all pods, `nodeSelector`", |a| pairs(&a.pods.node_selector)),
    row("tolerations", "--toleration", BySchema, "all pods, `tolerations`", |a| {
        Ok((!a.pods.toleration.is_empty()).then(|| json!(a.pods.toleration)))
    }),
    row("priorityClassName", "--priority-class", BySchema, "all pods, `priorityClassName`", |a| {
        text(a.pods.priority_class.as_deref())
    }),
    row("affinity", "--affinity", BySchema, "the agent's pods, `affinity`", |a| {
        json_of(a.pods.affinity.as_deref(), "it is not JSON")
    }),
    row(
        "topologySpreadConstraints",
        "--topology-spread",
        BySchema,
        "the agent's pods, `topologySpreadConstraints`",
        |a| json_of(a.pods.topology_spread.as_deref(), "it is not JSON"),
    ),
    row("podLabels", "--pod-label", BySchema, "all pods, `metadata.labels`", |a| pairs(&a.pods.pod_label)),
    row("podAnnotations", "--pod-annotation", BySchema, "all pods, `metadata.annotations`", |a| {
        pairs(&a.pods.pod_annotation)
    }),
    row("allowNetworks", "--allow-network", BySchema, "agent, argument `--allow-network`", |a| {
        list(&a.pods.allow_network)
    }),
    row("extraArgs", "--extra-arg", BySchema, "agent, `args`", |a| list(&a.pods.extra_arg)),
    row("extraEnv", "--extra-env", BySchema, "agent, `env`", |a| pairs(&a.pods.extra_env)),
];

const fn row(
    value: &'static str,
    flag: &'static str,
    checked: Checked,
    lands: &'static str,
    given: fn(&Arguments) -> Result<Option<Value>, String>,
) -> Row {
    Row { value, flag, checked, lands, given }
}

impl Row {
    /// Returns whether the value of this row is at this path or contains it.
    fn has(&self, path: &str) -> bool {
        path.strip_prefix(self.value).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// Returns the row for the path of a value.
pub(super) fn of_value(path: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.has(path))
}

/// Returns the values of the flags, and adds invalid flags to `problems`.
pub(super) fn given(arguments: &Arguments, problems: &mut Vec<String>) -> Value {
    let mut values = json!({});
    for row in ROWS {
        match (row.given)(arguments) {
            Ok(Some(value)) => set(&mut values, row.value, value),
            Ok(None) => {}
            Err(why) => problems.push(format!("{}: {why}", row.flag)),
        }
    }
    values
}

/// Sets the value at a path.
pub(super) fn set(values: &mut Value, path: &str, value: Value) {
    let mut at = values;
    for name in path.split('.') {
        at = &mut at[name];
    }
    *at = value;
}

/// Returns the value at a path.
pub(super) fn get<'a>(values: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(values, |at, name| at.get(name))
}

type Given = Result<Option<Value>, String>;

#[expect(clippy::unnecessary_wraps, reason = "a row has either outcome")]
fn text(given: Option<&str>) -> Given {
    Ok(given.map(|text| json!(text)))
}

#[expect(clippy::unnecessary_wraps, reason = "a row has either outcome")]
fn number(given: Option<u32>) -> Given {
    Ok(given.map(|number| json!(number)))
}

#[expect(clippy::unnecessary_wraps, reason = "a row has either outcome")]
fn list(given: &[String]) -> Given {
    Ok((!given.is_empty()).then(|| json!(given)))
}

#[expect(clippy::unnecessary_wraps, reason = "a row has either outcome")]
fn pairs(given: &[(String, String)]) -> Given {
    let pairs: Map<String, Value> = given.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    Ok((!pairs.is_empty()).then_some(Value::Object(pairs)))
}

fn json_of(given: Option<&str>, what: &str) -> Given {
    let read = |text: &str| serde_json::from_str(text).map_err(|error| format!("{what}: {error}"));
    given.map(read).transpose()
}

/// Parses flags with amounts such as `CONTAINER.requests.cpu=100m`; `none` removes a default.
fn resources(given: &[(String, String)]) -> Given {
    let mut all = json!({});
    for (path, amount) in given {
        let names: Vec<&str> = path.splitn(3, '.').collect();
        let [container, kind, resource] = names[..] else {
            return Err(format!("{path:?} must have the form CONTAINER.requests.cpu or CONTAINER.limits.memory"));
        };
        all[container][kind][resource] = if amount == "none" { Value::Null } else { json!(amount) };
    }
    Ok((!given.is_empty()).then_some(all))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::install::schema::Schema;

    /// Values without a flag.
    const WITHOUT_FLAG: [&str; 2] = ["createNamespace", "global"];

    #[test]
    fn every_value_of_the_schema_has_a_row() {
        let schema = Schema::of_chart().paths();
        for path in &schema {
            assert!(WITHOUT_FLAG.contains(&&**path) || of_value(path).is_some(), "{path} has no row");
        }
        for row in ROWS {
            assert!(schema.iter().any(|path| row.has(path)), "{} is not in the schema", row.value);
        }
        let flags: BTreeSet<_> = ROWS.iter().map(|row| row.flag).collect();
        assert_eq!(flags.len(), ROWS.len(), "each flag once");
    }

    #[test]
    fn the_readme_of_the_chart_has_every_row() {
        let readme = include_str!("../../../../manifests/chart/README.md");
        for Row { value, flag, lands, .. } in ROWS {
            let row = readme.lines().find(|line| line.starts_with(&format!("| `{value}` | ")));
            let row = row.unwrap_or_else(|| panic!("README.md of the chart has no row for {value}"));
            assert!(
                row.contains(&format!("| `{flag}` ")) && row.ends_with(&format!("| {lands} |")),
                "{row}: {flag}, {lands}"
            );
        }
    }

    #[test]
    fn resources_are_written_by_container() {
        let pair = |text: &str| text.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let read = |texts: &[&str]| resources(&texts.iter().map(|text| pair(text)).collect::<Vec<_>>());
        let expected = json!({"mainstay": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"cpu": null}}});
        assert_eq!(read(&["mainstay.requests.nvidia.com/gpu=1", "mainstay.limits.cpu=none"]), Ok(Some(expected)));
        assert!(read(&["mainstay.memory=1Gi"]).is_err());
        assert_eq!(read(&[]), Ok(None));
    }
}
