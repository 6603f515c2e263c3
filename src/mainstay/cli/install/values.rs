//! The values of an installation: the defaults of the chart, then files, then flags.
//!
//! Values are merged as in Helm: objects key by key, other values as a whole, and `null` removes a value.
//!
//! Not here: reading the files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::nats::Nats;
use super::schema::Schema;
use super::table::{self, Checked, ROWS};

/// The chart's default values.
const DEFAULTS: &str = include_str!("../../../../manifests/chart/values.yaml");

/// A file of `--values`.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// The name of the file in messages.
    pub(super) name: String,
    /// The document in the file.
    pub(super) values: Value,
}

/// All values, each with its default.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Values {
    pub(super) git: Git,
    pub(super) image: String,
    pub(super) image_pull_secret: String,
    pub(super) image_pull_policy: String,
    pub(super) components: Vec<String>,
    pub(super) egress_policy: bool,
    pub(super) registry: String,
    pub(super) registry_networks: Vec<String>,
    pub(super) base_images: Map<String, Value>,
    #[serde(rename = "baseCA")]
    pub(super) base_ca: String,
    #[serde(rename = "receiverURL")]
    pub(super) receiver_url: String,
    pub(super) console: Console,
    pub(super) nats: Nats,
    pub(super) crds: bool,
    pub(super) v1alpha2: bool,
    pub(super) replicas: u32,
    pub(super) shards: u32,
    pub(super) resources: BTreeMap<String, Value>,
    pub(super) expect: Expect,
    pub(super) node_selector: BTreeMap<String, String>,
    pub(super) tolerations: Vec<Value>,
    pub(super) priority_class_name: String,
    pub(super) affinity: Map<String, Value>,
    pub(super) topology_spread_constraints: Vec<Value>,
    pub(super) pod_labels: BTreeMap<String, String>,
    pub(super) pod_annotations: BTreeMap<String, String>,
    pub(super) allow_networks: Vec<String>,
    pub(super) extra_args: Vec<String>,
    pub(super) extra_env: BTreeMap<String, Value>,
}

/// Expected load of the agent; 0 means that the number is unknown.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Expect {
    pub(super) git_syncs: u64,
    pub(super) objects: u64,
}

/// The console.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Console {
    urls: Vec<String>,
    cluster_name: String,
    sign_in: String,
    oidc: Oidc,
}

/// The issuer that signs users of the console in.
#[derive(Clone, Debug, Deserialize)]
struct Oidc {
    issuer: String,
    #[serde(rename = "clientID")]
    client_id: String,
    scopes: Vec<String>,
    secret: String,
}

impl Console {
    /// Returns the arguments of `mainstay console`. A default is omitted.
    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = self.urls.iter().map(|url| format!("--url={url}")).collect();
        if !self.cluster_name.is_empty() {
            arguments.push(format!("--cluster-name={}", self.cluster_name));
        }
        if self.sign_in != "form" {
            arguments.push(format!("--sign-in={}", self.sign_in));
        }
        if self.sign_in == "oidc" {
            let Oidc { issuer, client_id, scopes, secret } = &self.oidc;
            arguments.extend([format!("--oidc-issuer={issuer}"), format!("--oidc-client-id={client_id}")]);
            arguments.extend(scopes.iter().map(|scope| format!("--oidc-scope={scope}")));
            if !secret.is_empty() {
                arguments.push("--oidc-credentials=/etc/oidc".to_owned());
            }
        }
        arguments
    }

    /// Returns the problems of the issuer.
    pub(super) fn problems(&self) -> Vec<String> {
        let Oidc { issuer, client_id, scopes, secret } = &self.oidc;
        if self.sign_in == "oidc" {
            let needed = [("--console-oidc-issuer", issuer), ("--console-oidc-client-id", client_id)];
            let missing = needed.into_iter().filter(|(_, value)| value.is_empty());
            return missing.map(|(flag, _)| format!("--console-sign-in oidc needs {flag}; add it")).collect();
        }
        let is_given = ![issuer, client_id, secret].iter().all(|value| value.is_empty()) || !scopes.is_empty();
        let useless = "the issuer of the console needs --console-sign-in oidc; add it, or remove --console-oidc-…";
        if is_given { vec![useless.to_owned()] } else { Vec::new() }
    }

    /// Sets the values in a Deployment of the console.
    pub(super) fn choose(&self, deployment: &mut Value) {
        let add = |deployment: &mut Value, list: &str, more: Vec<Value>| {
            if let Some(list) = deployment.pointer_mut(list).and_then(Value::as_array_mut) {
                list.extend(more);
            }
        };
        let arguments = self.arguments().into_iter().map(Value::from).collect();
        add(deployment, "/spec/template/spec/containers/0/args", arguments);
        if self.sign_in == "oidc" && !self.oidc.secret.is_empty() {
            let mount = json!({"name": "oidc", "mountPath": "/etc/oidc", "readOnly": true});
            add(deployment, "/spec/template/spec/containers/0/volumeMounts", vec![mount]);
            let volume = json!({"name": "oidc", "secret": {"secretName": self.oidc.secret, "defaultMode": 288}});
            add(deployment, "/spec/template/spec/volumes", vec![volume]);
        }
    }
}

/// The followed repository.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Git {
    pub(super) url: String,
    pub(super) branch: String,
    pub(super) paths: Vec<String>,
    pub(super) secret: String,
    pub(super) known_hosts: String,
    pub(super) target_namespace: String,
    pub(super) name: String,
    pub(super) interval: String,
}

/// The values of an installation, with the origin of each value.
#[derive(Debug)]
pub(super) struct Given {
    /// All values, including defaults.
    pub(super) values: Values,
    files: Vec<File>,
    flags: Value,
}

impl Given {
    /// Merges files and flags over the defaults. Fails with all problems of the files, or of the flags.
    pub(super) fn merge(
        arguments: &Arguments,
        files: Vec<File>,
        known_hosts: Option<&str>,
    ) -> Result<Self, Vec<String>> {
        let schema = Schema::of_chart();
        let mut problems = Vec::new();
        for file in &files {
            let mut values = file.values.clone();
            without_nulls(&mut values);
            problems.extend(schema.problems(&values).into_iter().map(|problem| format!("{}: {problem}", file.name)));
        }
        let mut flags = table::given(arguments, &mut problems);
        if let Some(known_hosts) = known_hosts {
            table::set(&mut flags, "git.knownHosts", json!(known_hosts));
        }
        problems.extend(flaws(&schema, &flags));
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut merged = defaults();
        for values in files.iter().map(|file| &file.values).chain([&flags]) {
            json_patch::merge(&mut merged, values);
        }
        let mut whole = defaults();
        complete(&mut whole, merged);
        match serde_json::from_value(whole) {
            Ok(values) => Ok(Self { values, files, flags }),
            Err(error) => Err(vec![format!("the values cannot be used: {error}")]),
        }
    }

    /// Returns whether a flag or a file sets this value.
    pub(super) fn names(&self, path: &[&str]) -> bool {
        let all = self.files.iter().map(|file| &file.values).chain([&self.flags]);
        let mut named = all.filter_map(|values| path.iter().try_fold(values, |at, name| at.get(name)));
        named.next().is_some()
    }

    /// Returns a problem that begins with a flag. If a value of a file caused the problem, the flag is replaced with
    /// that file and value.
    pub(super) fn located(&self, problem: &str) -> String {
        let is_about = |flag: &str| {
            problem.strip_prefix(flag).is_some_and(|rest| !rest.starts_with(|c: char| c == '-' || c.is_alphanumeric()))
        };
        let row = ROWS.iter().find(|row| is_about(row.flag));
        let from = row.filter(|row| table::get(&self.flags, row.value).is_none()).and_then(|row| {
            let named = |file: &&File| table::get(&file.values, row.value).is_some_and(|value| !value.is_null());
            Some((row, self.files.iter().rev().find(named)?))
        });
        match from {
            Some((row, file)) => format!("{}: {}, as {problem}", file.name, row.value),
            None => problem.to_owned(),
        }
    }
}

/// Returns the problems that the schema finds in flags without their own parser.
fn flaws(schema: &Schema, flags: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let mut values = flags.clone();
    without_nulls(&mut values);
    for problem in schema.problems(&values) {
        let (path, why) = problem.split_once(": ").unwrap_or_default();
        if let Some(row) = table::of_value(path).filter(|row| row.checked == Checked::BySchema) {
            problems.push(format!("{} ({path}): {why}", row.flag));
        }
    }
    problems
}

fn defaults() -> Value {
    serde_yaml::from_str(DEFAULTS).expect("a test reads the defaults of the chart")
}

/// Restores the default of a removed top-level value. Removed amounts and labels inside of a value stay removed.
fn complete(whole: &mut Value, values: Value) {
    let Value::Object(values) = values else { return };
    for (name, value) in values {
        match (&mut whole[&name], value) {
            (Value::Object(old), Value::Object(new)) if name == "git" => old.extend(new),
            (old, new) => *old = new,
        }
    }
}

fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(without_nulls);
    }
}

/// Parses the content of a file: one YAML document, or none.
pub(super) fn parse(text: &str) -> Result<Value, serde_yaml::Error> {
    // The type `serde_yaml::Value` refuses duplicate keys.
    let document: serde_yaml::Value = serde_yaml::from_str(text)?;
    let values: Option<Value> = serde_yaml::from_value(document)?;
    Ok(values.unwrap_or_else(|| json!({})))
}

/// Returns the values for flags without files.
#[cfg(test)]
pub(super) fn of_flags(arguments: &Arguments) -> Result<Given, Vec<String>> {
    Given::merge(arguments, Vec::new(), None)
}
