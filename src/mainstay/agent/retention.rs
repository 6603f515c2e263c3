//! Removes unused images from the in-cluster registry. The task lists the images in use, writes them into the ConfigMap
//! `mainstay-image-retention`, and restarts the registry's pod, whose init containers remove all other images.
//!
//! Invariant: without a complete list of images in use, no removal is requested. An image that a list misses was pushed
//! or found by a later build, so it is young, and young images stay. Tags of build Jobs stay at any age. Invariant: the
//! first check only records. A removed image was unused at two consecutive checks. Invariant: the registry is restarted
//! only if a relevant change occurred or removals are due. Invariant: between two checks there are no requests, and a
//! check without an in-cluster registry needs one request.
//!
//! Not here: which images are removed (`registry::retention`), and the removal (`mainstay registry sweep`). The agent
//! never connects to a registry; only its storage knows the age of identical images.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::notify::Notifier;
use mainstay_api::events::Reason;
use mainstay_api::names::{
    AGENT_MANAGER, BUILD_TAG, FUNCTION_CONTROLLER, IMAGE_RETENTION, INTERNAL_REGISTRY, MANAGED_BY, SWEEP,
};
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{
    Apply, Cluster, Event, EventType, Kind, LabelSelector, Part, Priority, Regarding, Scope, Selection,
};
use mainstay_function::registry::retention::{LivingFunction, Observed, Policy, Refusal, Report, Rules, Used};
use mainstay_function::{Context, Retention};
use mainstay_object::failure::chain;

/// Keys of the ConfigMap.
const POLICY: &str = "policy.json";
const REPORT: &str = "report.json";
/// Init containers of the registry's pod: one sweeps, the other collects garbage.
const SWEEPS: &str = "sweep";
const COLLECTS: &str = "collect";
/// Maximum time until the init containers of the registry's pod are done.
const REPORTED_WITHIN: Duration = Duration::from_secs(45 * 60);
/// Maximum time between checks of the clock, which may be changed.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// Delay after a failed check.
const AGAIN: Duration = Duration::from_secs(3600);
/// Maximum length of a problem in an Event's note, in bytes.
const MAX_PROBLEM: usize = 600;

/// Kinds of objects that use images.
const USERS: [(&str, &str, &str); 8] = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("v1", "ReplicationController", "replicationcontrollers"),
    ("batch/v1", "CronJob", "cronjobs"),
    ("batch/v1", "Job", "jobs"),
    // Pods are listed last, so that the list includes pods that are created in the meantime.
    ("v1", "Pod", "pods"),
];

/// Counters since the start of the agent.
#[derive(Debug, Default)]
pub(super) struct Counts {
    manifests: AtomicU64,
    bytes: AtomicU64,
    sweeps: AtomicU64,
    failures: AtomicU64,
    last: Mutex<Option<Timestamp>>,
}

/// The metrics of image removal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Images removed since the start.
    pub manifests: u64,
    /// Freed bytes, as far as they are known.
    pub bytes: u64,
    /// Sweeps since the start.
    pub sweeps: u64,
    /// Failed checks and sweeps since the start.
    pub failures: u64,
    /// Time of the last successful check, in seconds since 1970.
    pub last: Option<f64>,
}

impl Counts {
    /// Returns the current values.
    pub(super) fn gauges(&self) -> Gauges {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Gauges {
            manifests: value(&self.manifests),
            bytes: value(&self.bytes),
            sweeps: value(&self.sweeps),
            failures: value(&self.failures),
            last: self.last.lock().map(|at| at.as_millisecond() as f64 / 1000.0),
        }
    }
}

/// The reason why images were not removed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the used images are not known")]
    Observe(#[source] mainstay_cluster::Error),
    #[error("the used images cannot be stored")]
    Write(#[from] Refusal),
    #[error("the registry's pod was not restarted")]
    Ask(#[source] mainstay_cluster::Error),
    #[error(
        "the Deployment {INTERNAL_REGISTRY} has no container `{SWEEPS}`: it is from an earlier release; apply the \
         manifests of this release"
    )]
    NoContainer,
    #[error(
        "the registry's pod has not reported within {} minutes; `kubectl describe pod` says why",
        REPORTED_WITHIN.as_secs() / 60
    )]
    NoReport,
    #[error("{0}")]
    Reported(String),
}

/// The result of a check.
enum Outcome {
    /// There is no in-cluster registry, or it is not running.
    NoRegistry,
    /// No image can be removed, or it was the first check.
    Nothing,
    /// The registry was swept.
    Swept(Report),
}

/// Removes images by the operator's settings until `stop`. `known` is set once the settings are known.
pub(super) async fn keep(
    functions: Arc<Context>,
    mut known: watch::Receiver<Option<Vec<String>>>,
    notifier: Notifier,
    counts: Arc<Counts>,
    cluster: Cluster,
    namespace: String,
    stop: CancellationToken,
) {
    let running = async {
        if known.wait_for(Option::is_some).await.is_err() {
            return;
        }
        sleep(functions.settings().retention.settle).await;
        let keeper = Keeper { notifier, counts, cluster, namespace };
        keeper.follow(functions.settings_changes()).await;
    };
    stop.run_until_cancelled(running).await;
}

struct Keeper {
    notifier: Notifier,
    counts: Arc<Counts>,
    cluster: Cluster,
    namespace: String,
}

impl Keeper {
    async fn follow(&self, mut settings: watch::Receiver<Arc<mainstay_function::Settings>>) {
        // Time of the last check. Until the time is known, it is read from the ConfigMap.
        let mut last: Option<Timestamp> = None;
        loop {
            let retention = settings.borrow_and_update().retention.clone();
            let Some(schedule) = &retention.schedule else {
                if settings.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let now = Timestamp::now();
            let looked = match last {
                Some(last) => Some(last),
                None => self.last_look().await,
            };
            let due = looked.map_or(Some(now), |last| schedule.next(last));
            // A schedule always has a next time.
            let wait = due.map_or(LOOK_EVERY, |due| Duration::try_from(due.duration_since(now)).unwrap_or_default());
            last = looked;
            if !wait.is_zero() {
                tokio::select! {
                    () = sleep(wait.min(LOOK_EVERY)) => {}
                    changed = settings.changed() => if changed.is_err() { return },
                }
                continue;
            }
            let is_done = self.look(&retention).await;
            last = Some(Timestamp::now());
            if !is_done {
                sleep(AGAIN).await;
                last = looked;
            }
        }
    }

    /// Returns the recorded time of an earlier agent's last check.
    async fn last_look(&self) -> Option<Timestamp> {
        let map = self.map().await.ok().flatten()?;
        previous(&map).0.map(|policy| policy.at)
    }

    async fn map(&self) -> Result<Option<Value>, mainstay_cluster::Error> {
        self.cluster.get(&config_maps(), Some(&self.namespace), IMAGE_RETENTION).await
    }

    /// Checks once. Returns whether the schedule determines the next check.
    async fn look(&self, retention: &Retention) -> bool {
        let deployment = match self.cluster.get(&deployments(), Some(&self.namespace), INTERNAL_REGISTRY).await {
            Ok(Some(deployment)) => deployment,
            Ok(None) => return true,
            Err(error) => {
                tracing::warn!(why = chain(&error), "unused images stay: the registry cannot be read");
                return false;
            }
        };
        match self.sweep(&deployment, retention).await {
            Ok(Outcome::NoRegistry) => return true,
            Ok(Outcome::Nothing) => {}
            Ok(Outcome::Swept(report)) => {
                self.counts.sweeps.fetch_add(1, Ordering::Relaxed);
                self.counts.manifests.fetch_add(report.manifests, Ordering::Relaxed);
                self.counts.bytes.fetch_add(report.bytes.unwrap_or_default(), Ordering::Relaxed);
                let note = removed(&report);
                tracing::info!("{note}");
                self.emit(&deployment, EventType::Normal, Reason::ImagesRemoved, note);
                if let Some(problem) = report.problem {
                    self.fail(&deployment, &Error::Reported(problem));
                    return true;
                }
            }
            Err(error) => {
                self.fail(&deployment, &error);
                return matches!(error, Error::NoContainer | Error::Reported(_));
            }
        }
        *self.counts.last.lock() = Some(Timestamp::now());
        true
    }

    fn fail(&self, deployment: &Value, error: &Error) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let why = chain(error);
        tracing::warn!(why, "unused images stay");
        let end = (0..=MAX_PROBLEM.min(why.len())).rev().find(|at| why.is_char_boundary(*at)).unwrap_or_default();
        let note = format!("unused images stay: {}", &why[..end]);
        self.emit(deployment, EventType::Warning, Reason::ImagesNotRemoved, note);
    }

    async fn sweep(&self, deployment: &Value, retention: &Retention) -> Result<Outcome, Error> {
        if deployment["spec"]["replicas"] == 0 || !deployment["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Outcome::NoRegistry);
        }
        let containers = deployment["spec"]["template"]["spec"]["initContainers"].as_array();
        if !containers.into_iter().flatten().any(|container| container["name"] == SWEEPS) {
            return Err(Error::NoContainer);
        }
        let (before, report) = self.map().await.map_err(Error::Observe)?.map(|map| previous(&map)).unwrap_or_default();
        // The time before the list is taken. Images that are younger than this time are kept.
        let at = Timestamp::now();
        let observed = self.observe().await.map_err(Error::Observe)?;
        let rules = Rules { builds: retention.builds, grace: retention.grace };
        let policy = Policy::new(at.as_nanosecond().to_string(), at, rules, observed, before.as_ref());
        let text = policy.text()?;
        for namespace in policy.kept_namespaces() {
            tracing::warn!(
                namespace,
                "no image of this namespace's Functions is removed: its objects contain too many digests"
            );
        }
        let Some(before) = before else {
            self.write(deployment, &text, None).await.map_err(Error::Ask)?;
            return Ok(Outcome::Nothing);
        };
        if !policy.is_worth_a_sweep(&before, report.as_ref()) {
            return Ok(Outcome::Nothing);
        }
        self.write(deployment, &text, None).await.map_err(Error::Ask)?;
        let restart = json!({"spec": {"template": {"metadata": {"annotations": {SWEEP: policy.id}}}}});
        let kind = deployments();
        let patched = self.cluster.patch_merge(&kind, Some(&self.namespace), INTERNAL_REGISTRY, Part::Main, &restart);
        patched.await.map_err(Error::Ask)?;
        tracing::info!(sweep = policy.id, "the registry in the cluster is restarted to remove unused images");
        let report = timeout(REPORTED_WITHIN, self.report(deployment, &policy.id)).await;
        let report = report.map_err(|_| Error::NoReport)?;
        let written = serde_json::to_string(&report).unwrap_or_default();
        self.write(deployment, &text, Some(written)).await.map_err(Error::Ask)?;
        Ok(Outcome::Swept(report))
    }

    /// Returns the existing Functions, and all images in use.
    async fn observe(&self) -> Result<Observed, mainstay_cluster::Error> {
        let mut observed = Observed::default();
        let mut all = self.cluster.list(&Arc::new(mainstay_function::functions()), Selection::default());
        while let Some(function) = all.next().await {
            let function = function?;
            let tag = function["status"]["built"]["tag"].as_str();
            add(&mut [&mut observed.in_use, &mut observed.of_functions], &function, tag);
            let metadata = |name: &str| function["metadata"][name].as_str().unwrap_or_default().to_owned();
            observed.functions.push(LivingFunction {
                namespace: metadata("namespace"),
                name: metadata("name"),
                uid: metadata("uid"),
                generation: function["metadata"]["generation"].as_i64().unwrap_or_default(),
            });
        }
        for (version, kind, plural) in USERS {
            let kind = Arc::new(Kind::fixed(version, kind, plural, Scope::Namespaced));
            let mut all = self.cluster.list(&kind, Selection::default());
            while let Some(object) = all.next().await {
                let object = object?;
                let is_of_function = object["metadata"]["labels"][MANAGED_BY] == FUNCTION_CONTROLLER;
                if is_of_function && is_past(&object) {
                    continue;
                }
                let tag = object["metadata"]["annotations"][BUILD_TAG].as_str();
                if is_of_function {
                    add(&mut [&mut observed.in_use, &mut observed.of_functions], &object, tag);
                } else {
                    add(&mut [&mut observed.in_use], &object, tag);
                }
            }
        }
        Ok(observed)
    }

    /// Writes the ConfigMap. The registry's Deployment owns it.
    async fn write(
        &self,
        deployment: &Value,
        policy: &str,
        report: Option<String>,
    ) -> Result<(), mainstay_cluster::Error> {
        let metadata = &deployment["metadata"];
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"], "uid": metadata["uid"]});
        let mut map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": IMAGE_RETENTION, "namespace": self.namespace, "ownerReferences": [owner]},
            "data": {POLICY: policy},
        });
        if let Some(report) = report {
            map["data"][REPORT] = report.into();
        }
        let how = Apply::forced(AGENT_MANAGER);
        self.cluster.apply(&config_maps(), Some(&self.namespace), IMAGE_RETENTION, &map, how).await.map(drop)
    }

    /// Waits until the init containers of the sweep's pod are done.
    async fn report(&self, deployment: &Value, id: &str) -> Report {
        let labels = deployment["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(name, value)| Some(LabelSelector::equals(name, value.as_str()?)));
        let labels = labels.reduce(|all, one| all.and(&one));
        let selection = labels.map_or_else(Selection::default, Selection::by_labels).within(&self.namespace);
        let mut pods = self.cluster.states(&Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced)), selection);
        loop {
            if let Change::Changed { live: pod, .. } = pods.next().await
                && let Some(report) = reported(&pod, id)
            {
                return report;
            }
        }
    }

    fn emit(&self, deployment: &Value, kind: EventType, reason: Reason, note: String) {
        let deployments = deployments();
        self.notifier.publish(Event {
            regarding: Regarding {
                key: deployments.key(Some(&self.namespace), INTERNAL_REGISTRY),
                api_version: deployments.api_version(),
                uid: deployment["metadata"]["uid"].as_str().map(str::to_owned),
            },
            related: None,
            kind,
            priority: Priority::of(kind),
            about: None,
            reason: reason.into(),
            action: "RemoveImages".to_owned(),
            aggregation_key: note.clone(),
            note,
        });
    }
}

fn add(all: &mut [&mut Used], object: &Value, tag: Option<&str>) {
    for used in all {
        used.add(object);
        if let Some(tag) = tag {
            used.add_tag(tag);
        }
    }
}

/// Returns whether an object is an old ReplicaSet of a Function's Deployment. Only the agent sets the image of that
/// Deployment.
fn is_past(object: &Value) -> bool {
    let count = |pods: &Value| pods.as_i64().unwrap_or_default();
    object["kind"] == "ReplicaSet" && object["spec"]["replicas"] == 0 && count(&object["status"]["replicas"]) == 0
}

fn deployments() -> Kind {
    Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced)
}

fn config_maps() -> Kind {
    Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced)
}

/// Reads the last check from the ConfigMap. Unreadable data count as missing, so the next check only records.
fn previous(map: &Value) -> (Option<Policy>, Option<Report>) {
    let text = |key: &str| map["data"][key].as_str().unwrap_or_default();
    (Policy::read(text(POLICY)).ok(), serde_json::from_str(text(REPORT)).ok())
}

/// Returns a pod's report of a sweep; `None` until it is done.
fn reported(pod: &Value, id: &str) -> Option<Report> {
    if pod["metadata"]["annotations"][SWEEP] != *id {
        return None;
    }
    let ended = |name: &str| {
        let states = pod["status"]["initContainerStatuses"].as_array();
        let state = states.into_iter().flatten().find(|state| state["name"] == name)?;
        let ended = &state["state"]["terminated"];
        ended.is_object().then(|| ended["message"].as_str().unwrap_or_default())
    };
    let (swept, collected) = (ended(SWEEPS)?, ended(COLLECTS)?);
    let mut report = serde_json::from_str::<Report>(swept).unwrap_or_else(|_| Report {
        problem: Some(format!("the container `{SWEEPS}` of the registry's pod has left no report")),
        ..Report::default()
    });
    id.clone_into(&mut report.policy);
    if !collected.trim().is_empty() {
        report.bytes = None;
        report.problem.get_or_insert(format!("`registry garbage-collect` failed: {}", collected.trim()));
    }
    Some(report)
}

/// Returns a sentence about the result.
fn removed(report: &Report) -> String {
    let bytes = report.bytes.map_or_else(String::new, |bytes| format!(", {} MiB", bytes >> 20));
    format!(
        "removed {} unused images from the registry{bytes}; {} repositories are empty",
        report.manifests, report.repositories
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_that_of_the_pod_for_this_sweep_once_both_containers_are_done() {
        let pod = |sweep: &Value, collect: &Value| {
            json!({
                "metadata": {"annotations": {SWEEP: "7"}},
                "status": {"initContainerStatuses": [
                    {"name": "sweep", "state": sweep}, {"name": "collect", "state": collect}
                ]},
            })
        };
        let ended = |message: &str| json!({"terminated": {"exitCode": 0, "message": message}});
        let (running, report) = (json!({"running": {}}), r#"{"policy":"7","manifests":3,"bytes":2097152}"#);
        let of = |pod: &Value| reported(pod, "7").map(|report| (report.manifests, report.problem.unwrap_or_default()));
        assert_eq!(of(&pod(&ended(report), &running)), None);
        assert_eq!(reported(&pod(&ended(report), &ended("")), "8"), None);
        assert_eq!(of(&pod(&ended(report), &ended(""))), Some((3, String::new())));
        assert!(of(&pod(&ended("x"), &ended(""))).unwrap().1.contains("has left no report"));
        assert!(of(&pod(&ended(report), &ended("panic\n"))).unwrap().1.ends_with("failed: panic"));
        let report = reported(&pod(&ended(report), &ended("")), "7").unwrap();
        assert!(removed(&report).contains("3 unused images from the registry, 2 MiB"), "{}", removed(&report));
    }
}
