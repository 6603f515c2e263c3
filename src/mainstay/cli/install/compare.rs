//! Finds settings of an existing installation that the new installation omits, and reports their removal. The
//! comparison is needed because `install` itself stores nothing.
//!
//! Like `helm upgrade` with files and `flux install`, the command is declarative: flags and values determine the
//! settings, and all other settings have their defaults. `kubectl apply` keeps settings of other clients that neither
//! the old nor the new command specified.
//!
//! Invariant: no value of an environment variable is printed.
//!
//! Not here: reading the cluster.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::values::Given;
use mainstay_api::names::{ANNOTATION_PREFIX, RESTARTED_AT};

/// The annotation in which `kubectl apply` stores the last applied document.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Fields of a pod that the API server completes, or that `manifests/` determine.
const NOT_CHOSEN: [&str; 15] = [
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsPolicy",
    "imagePullSecrets",
    "initContainers",
    "nodeSelector",
    "priorityClassName",
    "restartPolicy",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "tolerations",
];

/// A setting of a Deployment that a user has chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    /// The name of the setting in messages.
    what: String,
    /// The flag for the setting, if any.
    keep: Option<String>,
    /// The path of the setting's value; empty for an item of a list.
    path: Vec<String>,
    /// Whether an apply replaces another client's value of the setting.
    overwrites: Overwrites,
    /// The map or list that contains the setting, if that may be removed as a whole.
    within: Option<String>,
    /// The flag of an argument that is given only once. A different version may set a different value.
    once: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overwrites {
    Always,
    /// Only values that the same client applied before are removed.
    OwnOnly,
}

/// Returns notes about settings of a live Deployment that are removed, or kept only by chance.
pub(super) fn notes(live: &Value, new: &Value, given: &Given) -> Vec<String> {
    let name = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let object = format!("Deployment {}/{}", name(new, "namespace"), name(new, "name"));
    let last = live["metadata"]["annotations"][LAST_APPLIED].as_str().and_then(|text| serde_json::from_str(text).ok());
    let whats = |object: &Value| choices(object).into_iter().map(|choice| choice.what).collect::<BTreeSet<_>>();
    let (now, before) = (whats(new), last.as_ref().map(whats));
    let once: BTreeSet<_> = choices(new).into_iter().filter_map(|choice| choice.once).collect();
    let mut notes = Vec::new();
    for choice in choices(live) {
        let path: Vec<&str> = choice.path.iter().map(String::as_str).collect();
        let is_changed = choice.once.as_ref().is_some_and(|flag| once.contains(flag));
        if now.contains(&choice.what) || is_changed || !path.is_empty() && given.names(&path) {
            continue;
        }
        let stays = choice.overwrites == Overwrites::OwnOnly
            && !choice.within.as_ref().is_some_and(|within| goes_whole(within, last.as_ref(), new))
            && before.as_ref().is_some_and(|before| !before.contains(&choice.what));
        let what = &choice.what;
        notes.push(match (stays, &choice.keep) {
            (false, Some(keep)) => {
                format!("{object} has {what}, which this command does not set: it is removed; add {keep} to keep it")
            }
            (false, None) => format!(
                "{object} has {what}, which this command does not set: it is removed, and no flag keeps it; add it \
                 again with a kustomization or a patch"
            ),
            (true, Some(keep)) => format!(
                "{object} has {what} from another manager: `kubectl apply` leaves it; add {keep} to make it part of \
                 the installation"
            ),
            (true, None) => format!(
                "{object} has {what} from another manager: `kubectl apply` leaves it, and no flag \
                                     names it"
            ),
        });
    }
    notes
}

/// Returns whether an apply removes a map or list with all entries of other clients: it was applied before and is no
/// longer applied, or it is a list without keys.
fn goes_whole(within: &str, last: Option<&Value>, new: &Value) -> bool {
    let has = |object: &Value| object.pointer(within).is_some_and(|field| !field.is_null());
    last.is_some_and(has) && !has(new) || within.ends_with("/tolerations") && has(new)
}

/// Returns the labels and annotations of pods as settings.
fn of_pod_metadata(metadata: &Value) -> Vec<Choice> {
    let mut all = Vec::new();
    for (field, flag, value) in
        [("labels", "--pod-label", "podLabels"), ("annotations", "--pod-annotation", "podAnnotations")]
    {
        for (key, text) in texts(&metadata[field]) {
            // The agent and `kubectl rollout restart` write these annotations.
            if !key.starts_with(ANNOTATION_PREFIX) && key != RESTARTED_AT {
                let singular = field.trim_end_matches('s');
                let (what, keep) = (format!("the {singular} {key}={text} of pods"), format!("{flag} {key}={text}"));
                all.push(choice(what, keep, &[value, key], Overwrites::OwnOnly).within(&format!("metadata/{field}")));
            }
        }
    }
    all
}

/// Returns all settings of a Deployment that a flag, a value or a patch may have chosen.
fn choices(deployment: &Value) -> Vec<Choice> {
    let mut all = Vec::new();
    let template = &deployment["spec"]["template"];
    let is_agent = deployment["metadata"]["name"] == "mainstay";
    if let Some(replicas) = deployment["spec"]["replicas"].as_u64().filter(|_| is_agent) {
        all.push(choice(
            format!("{replicas} replicas"),
            format!("--replicas {replicas}"),
            &["replicas"],
            Overwrites::Always,
        ));
    }
    all.extend(of_pod_metadata(&template["metadata"]));
    let pod = &template["spec"];
    for (key, text) in texts(&pod["nodeSelector"]) {
        let (what, keep) = (format!("the node selector {key}={text}"), format!("--node-selector {key}={text}"));
        all.push(choice(what, keep, &["nodeSelector", key], Overwrites::OwnOnly).within("spec/nodeSelector"));
    }
    for toleration in items(&pod["tolerations"]) {
        let taint = taint(toleration);
        let (what, keep) = (format!("the toleration {taint}"), format!("--toleration {taint}"));
        all.push(choice(what, keep, &[], Overwrites::OwnOnly).within("spec/tolerations"));
    }
    if let Some(class) = pod["priorityClassName"].as_str() {
        let (what, keep) = (format!("the priority class {class}"), format!("--priority-class {class}"));
        all.push(choice(what, keep, &["priorityClassName"], Overwrites::OwnOnly));
    }
    for secret in items(&pod["imagePullSecrets"]).filter_map(|secret| secret["name"].as_str()) {
        let (what, keep) = (format!("the image pull Secret {secret}"), format!("--image-pull-secret {secret}"));
        all.push(choice(what, keep, &["imagePullSecret"], Overwrites::OwnOnly).within("spec/imagePullSecrets"));
    }
    for (field, flag) in [("affinity", "--affinity"), ("topologySpreadConstraints", "--topology-spread")] {
        if !pod[field].is_null() {
            let keep = format!("{flag} '{}'", pod[field]);
            all.push(choice(format!("{field} of pods"), keep, &[field], Overwrites::OwnOnly));
        }
    }
    for list in ["initContainers", "containers"] {
        items(&pod[list]).for_each(|container| of_container(container, &mut all));
    }
    for volume in items(&pod["volumes"]).filter_map(|volume| volume["name"].as_str()) {
        all.push(without_flag(format!("the volume {volume}")));
    }
    let others = pod.as_object().into_iter().flat_map(Map::keys);
    let others = others.filter(|field| !NOT_CHOSEN.contains(&&***field) && *field != "volumes");
    all.extend(
        others
            .filter(|field| *field != "topologySpreadConstraints")
            .map(|field| without_flag(format!("{field} of pods"))),
    );
    all
}

impl Choice {
    /// Sets the map or list in the pod's template that contains the setting.
    fn within(mut self, field: &str) -> Self {
        self.within = Some(format!("/spec/template/{field}"));
        self
    }
}

fn of_container(container: &Value, all: &mut Vec<Choice>) {
    let name = container["name"].as_str().unwrap_or_default();
    all.push(without_flag(format!("the container {name}")));
    for kind in ["requests", "limits"] {
        for (resource, amount) in container["resources"][kind].as_object().into_iter().flatten() {
            let amount = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            let at = format!("{name}.{kind}.{resource}={amount}");
            let path = ["resources", name, kind, resource];
            all.push(choice(format!("the resources {at}"), format!("--resources {at}"), &path, Overwrites::Always));
        }
    }
    let image = container["image"].as_str().unwrap_or_default();
    if let Some(policy) = container["imagePullPolicy"].as_str().filter(|policy| *policy != usual_policy(image)) {
        let (what, keep) = (format!("the pull policy {policy} of {name}"), format!("--image-pull-policy {policy}"));
        all.push(choice(what, keep, &["imagePullPolicy"], Overwrites::OwnOnly));
    }
    let is_agent = name == "mainstay";
    for argument in items(&container["args"]).filter_map(Value::as_str) {
        let what = format!("the argument {argument} of {name}");
        let (flag, _) = argument.split_once('=').unwrap_or((argument, ""));
        let (keep, path) = match flag {
            "--components" => (argument.to_owned(), &["components"][..]),
            "--shards" => (argument.to_owned(), &["shards"][..]),
            "--allow-network" | "--profile" | "--namespaces" => (argument.to_owned(), &[][..]),
            _ => (format!("--extra-arg={argument}"), &[][..]),
        };
        let mut argument = if is_agent { choice(what, keep, path, Overwrites::Always) } else { without_flag(what) };
        argument.overwrites = Overwrites::Always;
        argument.once = (!flag.starts_with("--allow-")).then(|| format!("{name} {flag}"));
        all.push(argument);
    }
    for variable in items(&container["env"]).filter_map(|variable| variable["name"].as_str()) {
        let what = format!("the variable {variable} of {name}");
        let keep = match variable {
            "MAINSTAY_RECEIVER_URL" => "--receiver-url".to_owned(),
            "MAINSTAY_BASE_IMAGES" => "--base-images".to_owned(),
            "MAINSTAY_BASE_CA" => "--base-ca".to_owned(),
            "MAINSTAY_IMAGE_PULL_SECRET" => "--image-pull-secret".to_owned(),
            _ => format!("--extra-env {variable}=…"),
        };
        all.push(if is_agent { choice(what, keep, &[], Overwrites::OwnOnly) } else { without_flag(what) });
    }
}

fn choice(what: String, keep: String, path: &[&str], overwrites: Overwrites) -> Choice {
    Choice {
        what,
        keep: Some(keep),
        path: path.iter().map(ToString::to_string).collect(),
        overwrites,
        within: None,
        once: None,
    }
}

fn without_flag(what: String) -> Choice {
    Choice { what, keep: None, path: Vec::new(), overwrites: Overwrites::OwnOnly, within: None, once: None }
}

/// Returns Kubernetes' default pull policy for an image.
fn usual_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let is_moving = !image.contains('@') && (!last.contains(':') || last.ends_with(":latest"));
    if is_moving { "Always" } else { "IfNotPresent" }
}

/// Formats a toleration like a taint.
fn taint(toleration: &Value) -> String {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let key = if text("key").is_empty() { "*" } else { text("key") };
    let value = if text("operator") == "Exists" { String::new() } else { format!("={}", text("value")) };
    let effect = if text("effect").is_empty() { String::new() } else { format!(":{}", text("effect")) };
    format!("{key}{value}{effect}")
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn texts(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    map.as_object().into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::install::{arguments::Arguments, values::of_flags};

    fn deployment(change: impl FnOnce(&mut Value)) -> Value {
        let mut object = json!({
            "metadata": {"name": "mainstay", "namespace": "home"},
            "spec": {"replicas": 1, "template": {
                "metadata": {"labels": {"app.kubernetes.io/name": "mainstay"}},
                "spec": {"volumes": [{"name": "data"}], "containers": [{
                    "name": "mainstay", "image": "mainstay:1", "args": ["agent"], "env": [{"name": "A", "value": "1"}],
                    "resources": {"limits": {"memory": "160Mi"}},
                }]},
            }},
        });
        change(&mut object);
        object
    }

    /// Returns the notes about a live Deployment, without their common beginning.
    fn notes_of(live: &Value, flags: &Arguments) -> Vec<String> {
        let new = deployment(|_| {});
        let notes = notes(live, &new, &of_flags(flags).unwrap());
        notes.iter().map(|note| note.strip_prefix("Deployment home/mainstay has ").unwrap().to_owned()).collect()
    }

    fn pod(object: &mut Value) -> &mut Value {
        &mut object["spec"]["template"]["spec"]
    }

    const GOES: &str = ", which this command does not set: it is removed; add ";

    #[test]
    fn says_of_each_choice_in_the_cluster_that_it_goes_and_which_flag_keeps_it() {
        assert_eq!(notes_of(&deployment(|_| {}), &Arguments::default()), [""; 0]);
        let mut completed = deployment(|_| {});
        for (field, value) in
            [("dnsPolicy", "ClusterFirst"), ("restartPolicy", "Always"), ("serviceAccount", "mainstay")]
        {
            pod(&mut completed)[field] = json!(value);
        }
        pod(&mut completed)["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
        completed["spec"]["template"]["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/restartedAt": "now"});
        assert_eq!(notes_of(&completed, &Arguments::default()), [""; 0], "what the API server sets is nobody's choice");

        let live = deployment(|live| {
            live["spec"]["replicas"] = json!(2);
            let pod = pod(live);
            pod["nodeSelector"] = json!({"k8s.io/pool": "infra"});
            pod["tolerations"] = json!([{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}]);
            pod["priorityClassName"] = json!("high");
            pod["hostAliases"] = json!([]);
            pod["containers"][0]["args"] = json!(["agent", "--audit-interval=2h", "--allow-network=10.0.0.0/8"]);
            pod["containers"][0]["env"] = json!([{"name": "A", "value": "2"}, {"name": "TOKEN", "value": "hunter2"}]);
            pod["containers"][0]["resources"]["limits"]["memory"] = json!("1Gi");
        });
        let said = notes_of(&live, &Arguments::default());
        assert_eq!(
            said,
            [
                format!("2 replicas{GOES}--replicas 2 to keep it"),
                format!("the node selector k8s.io/pool=infra{GOES}--node-selector k8s.io/pool=infra to keep it"),
                format!("the toleration a=b:NoSchedule{GOES}--toleration a=b:NoSchedule to keep it"),
                format!("the priority class high{GOES}--priority-class high to keep it"),
                format!(
                    "the resources mainstay.limits.memory=1Gi{GOES}--resources mainstay.limits.memory=1Gi to keep \
                         it"
                ),
                format!("the argument --audit-interval=2h of mainstay{GOES}--extra-arg=--audit-interval=2h to keep it"),
                format!(
                    "the argument --allow-network=10.0.0.0/8 of mainstay{GOES}--allow-network=10.0.0.0/8 to keep \
                         it"
                ),
                format!("the variable TOKEN of mainstay{GOES}--extra-env TOKEN=… to keep it"),
                "hostAliases of pods, which this command does not set: it is removed, and no flag keeps it; add it \
                 again with a kustomization or a patch"
                    .to_owned(),
            ]
        );
        assert!(!said.concat().contains("hunter2"));
    }

    #[test]
    fn a_default_that_this_version_changes_is_no_choice_of_a_user() {
        let with =
            |argument: &'static str| deployment(|one| pod(one)["containers"][0]["args"] = json!(["agent", argument]));
        let given = of_flags(&Arguments::default()).unwrap();
        assert_eq!(notes(&with("--mirror-budget=1Gi"), &with("--mirror-budget=2Gi"), &given), [""; 0]);
        let networks = notes(&with("--allow-network=10.0.0.0/8"), &with("--allow-network=10.1.0.0/16"), &given);
        assert_eq!(networks.len(), 1, "{networks:?}");
    }

    #[test]
    fn values_set_by_flags_change_without_a_note() {
        let mut flags = Arguments::default();
        flags.pods.replicas = Some(3);
        flags.pods.node_selector = vec![("k8s.io/pool".into(), "blue".into())];
        let live = deployment(|live| {
            live["spec"]["replicas"] = json!(2);
            pod(live)["nodeSelector"] = json!({"k8s.io/pool": "infra"});
        });
        assert_eq!(notes_of(&live, &flags), [""; 0]);
    }

    #[test]
    fn additions_of_others_stay_where_an_apply_leaves_them() {
        let last = deployment(|last| pod(last)["priorityClassName"] = json!("high"));
        let live = deployment(|live| {
            live["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
            live["spec"]["replicas"] = json!(2);
            pod(live)["priorityClassName"] = json!("high");
            pod(live)["nodeSelector"] = json!({"pool": "infra"});
        });
        assert_eq!(
            notes_of(&live, &Arguments::default()),
            [
                format!("2 replicas{GOES}--replicas 2 to keep it"),
                "the node selector pool=infra from another manager: `kubectl apply` leaves it; add --node-selector \
                 pool=infra to make \
                 it part of the installation"
                    .to_owned(),
                format!("the priority class high{GOES}--priority-class high to keep it"),
            ]
        );
        // Entries of other clients are removed with the whole map.
        let last = deployment(|last| pod(last)["nodeSelector"] = json!({"zone": "a"}));
        let live = deployment(|live| {
            live["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
            pod(live)["nodeSelector"] = json!({"pool": "infra", "zone": "a"});
        });
        let goes = ["pool=infra", "zone=a"]
            .map(|label| format!("the node selector {label}{GOES}--node-selector {label} to keep it"));
        assert_eq!(notes_of(&live, &Arguments::default()), goes);
    }
}
