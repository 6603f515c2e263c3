//! Reads the pods of an object and one of their logs.
//!
//! Invariant: only the log of a pod of the object is read, with the permissions of the user.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::Value;

use super::read::{self, Found};
use super::watched::said;
use crate::facts::Containers;
use crate::field::{text_at, time_at};
use crate::filter::Query;
use crate::page::{Container, Log, Pod};
use crate::row::FleetKind;
use crate::selector::{JOB_NAME, job_of, selector_of};
use crate::text::{SHORT, plain};
use mainstay_api::names;
use mainstay_cluster::{Cluster, Error, Kind, LabelSelector, LogOptions, Scope, Selection};
use mainstay_object::Key;

/// Maximum number of pods on the page.
const PODS: usize = 100;
/// Maximum number of containers of each type of a pod.
const CONTAINERS: usize = 20;
/// Maximum number of Jobs of a CronJob whose pods are on the page. These are the last ones.
const JOBS: usize = 50;
/// Number of lines of a log, and the maximum size of a log in bytes.
pub(super) const LINES: u32 = 300;
const BYTES: usize = 128 << 10;

/// The log that a page asks for. Empty names stand for the first pod and its default container.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) is_previous: bool,
}

impl Wanted {
    pub(super) fn of(query: &Query) -> Self {
        Self {
            pod: query.get("pod").to_owned(),
            container: query.get("container").to_owned(),
            is_previous: query.get("previous") == "true",
        }
    }
}

/// Reads the pods of a Function, serving pods first.
pub(super) async fn pods(cluster: &Cluster, key: &Key) -> Result<Vec<Pod>, String> {
    let mut pods = selected(cluster, key, LabelSelector::equals(names::FUNCTION_NAME, &key.name)).await?;
    pods.sort_by(|a, b| (a.is_build, &a.name).cmp(&(b.is_build, &b.name)));
    Ok(pods)
}

/// Reads the pods of an object, which are those that its selector selects, or itself. `None` if objects of its kind
/// have no pods.
pub(super) async fn pods_of(cluster: &Cluster, key: &Key, live: &Value) -> Option<Result<Vec<Pod>, String>> {
    if key.is("", "Pod") {
        return Some(Ok(vec![pod(live, Timestamp::now())]));
    }
    let is_cron_job = key.is("batch", "CronJob");
    let selector = if is_cron_job {
        match jobs_of(cluster, key, live).await {
            Ok(Some(selector)) => selector,
            Ok(None) => return Some(Ok(Vec::new())),
            Err(error) => return Some(Err(said(&error))),
        }
    } else {
        selector_of(live)?
    };
    let pods = selected(cluster, key, LabelSelector::written(&selector)).await;
    Some(pods.map(|mut pods| {
        for pod in &mut pods {
            pod.is_build = false;
        }
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        // The name of a CronJob's Job contains its time, so the last run comes first.
        if is_cron_job {
            pods.reverse();
        }
        pods
    }))
}

/// Returns the selector of the pods of a CronJob's Jobs; `None` without a Job.
async fn jobs_of(cluster: &Cluster, key: &Key, live: &Value) -> Result<Option<String>, Error> {
    let Some(namespace) = key.namespace.as_deref().filter(|namespace| !namespace.is_empty()) else { return Ok(None) };
    let kind = Arc::new(Kind::fixed("batch/v1", "Job", "jobs", Scope::Namespaced));
    let all = cluster.list(&kind, Selection::default().within(namespace));
    let own = all.try_filter_map(|job| std::future::ready(Ok(job_of(live, &job))));
    let mut names: Vec<String> = own.try_collect().await?;
    names.sort_unstable();
    let last = &names[names.len().saturating_sub(JOBS)..];
    Ok((!names.is_empty()).then(|| format!("{JOB_NAME} in ({})", last.join(","))))
}

/// Reads an object, and its pods.
pub(super) async fn pods_by_key(cluster: &Cluster, key: &Key) -> Result<Vec<Pod>, String> {
    if *key == FleetKind::Function.key(key.namespace.as_deref().unwrap_or_default(), &key.name) {
        return pods(cluster, key).await;
    }
    match read::object(cluster, key).await {
        Found::There(live) => pods_of(cluster, key, &live).await.unwrap_or_else(|| Ok(Vec::new())),
        Found::Missing(why) | Found::Forbidden(why) | Found::Failed(why) => Err(why),
    }
}

async fn selected(cluster: &Cluster, key: &Key, labels: LabelSelector) -> Result<Vec<Pod>, String> {
    // Without a namespace, the pods of all namespaces would be selected.
    let Some(namespace) = key.namespace.as_deref().filter(|namespace| !namespace.is_empty()) else {
        return Ok(Vec::new());
    };
    let kind = Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced));
    let selection = Selection::by_labels(labels).within(namespace);
    let now = Timestamp::now();
    // Each pod is reduced as soon as it was read, because others may make it large.
    let found = cluster.list(&kind, selection).take(PODS).map_ok(|live| pod(&live, now));
    found.try_collect().await.map_err(|error| said(&error))
}

fn pod(live: &Value, read: Timestamp) -> Pod {
    let list = |pointer: &str| live.pointer(pointer).and_then(Value::as_array).into_iter().flatten().take(CONTAINERS);
    let of_all = |pointers: [&str; 3]| pointers.into_iter().flat_map(list).collect::<Vec<&Value>>();
    let statuses =
        of_all(["/status/initContainerStatuses", "/status/containerStatuses", "/status/ephemeralContainerStatuses"]);
    let containers = of_all(["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"]);
    let container = |one: &Value| {
        let name = text_at(one, "/name", SHORT);
        let status = statuses.iter().find(|status| text_at(status, "/name", SHORT) == name);
        let restarts = status.and_then(|status| status.get("restartCount")).and_then(Value::as_i64).unwrap_or(0);
        Container { name, restarts }
    };
    let main = list("/spec/containers").map(|one| text_at(one, "/name", SHORT));
    let annotated = text_at(live, "/metadata/annotations/kubectl.kubernetes.io~1default-container", SHORT);
    let default = main.clone().find(|name| *name == annotated).or_else(|| main.clone().next()).unwrap_or_default();
    Pod {
        name: text_at(live, "/metadata/name", SHORT),
        phase: text_at(live, "/status/phase", SHORT),
        counts: Containers::of(live),
        created: time_at(live, "/metadata/creationTimestamp"),
        read,
        containers: containers.into_iter().map(container).collect(),
        default,
        is_build: list("/metadata/ownerReferences").any(|owner| text_at(owner, "/kind", SHORT) == "Job"),
    }
}

/// Reads the last lines of the wanted log. Only the logs of these pods are read.
pub(super) async fn log(cluster: &Cluster, key: &Key, pods: &[Pod], wanted: &Wanted) -> Option<Log> {
    let (pod, container) = chosen(pods, wanted)?;
    let is_previous = wanted.is_previous;
    let options = LogOptions {
        container: Some(container.clone()),
        previous: is_previous,
        tail: Some(LINES),
        ..LogOptions::default()
    };
    let read = async {
        let mut lines = cluster.pod_log(key.namespace.as_deref().unwrap_or_default(), &pod, &options).await?;
        let mut text = String::new();
        while let Some(line) = lines.next().await {
            text.push_str(&plain(&line?, BYTES));
            text.push('\n');
            if text.len() > 2 * BYTES {
                break;
            }
        }
        Ok(text)
    };
    let lines = read.await.map_err(|error| refused(&error)).map(|text| last(&text).to_owned());
    Some(Log { pod, container, is_previous, lines })
}

/// Returns why a log was not read.
pub(super) fn refused(error: &Error) -> String {
    if error.is_forbidden() {
        format!("You may not read this log: that needs the verb `get` on pods/log. {}", said(error))
    } else {
        said(error)
    }
}

/// Returns the wanted pod and container, or by default the first pod and its default container. No other pods can be
/// selected.
pub(super) fn chosen(pods: &[Pod], wanted: &Wanted) -> Option<(String, String)> {
    let chosen =
        pods.iter().find(|one| one.name == wanted.pod).or_else(|| pods.iter().find(|_| wanted.pod.is_empty()))?;
    let named = |name: &str| chosen.containers.iter().find(|one| one.name == name);
    let container = named(&wanted.container).or_else(|| named(&chosen.default)).or_else(|| chosen.containers.last())?;
    Some((chosen.name.clone(), container.name.clone()))
}

/// Returns the last whole lines of a string, within the maximum size.
fn last(text: &str) -> &str {
    let mut from = text.len().saturating_sub(BYTES);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let end = &text[from..];
    if from == 0 { end } else { end.split_once('\n').map_or(end, |(_, rest)| rest) }
}
