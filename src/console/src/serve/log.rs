//! Reads the pods of a Function and one of their logs.

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use super::watched::said;
use crate::field::text_at;
use crate::page::{Log, Pod};
use crate::text::{SHORT, plain};
use mainstay_api::names;
use mainstay_cluster::{Cluster, Kind, LogOptions, Scope, Selection};
use mainstay_object::Key;

/// Maximum number of pods on the page.
const PODS: usize = 100;
/// Number of lines of a log, and the maximum size of a log in bytes.
pub(super) const LINES: u32 = 300;
const BYTES: usize = 128 << 10;

/// Reads the pods of a Function, serving pods first.
pub(super) async fn pods(cluster: &Cluster, key: &Key) -> Result<Vec<Pod>, String> {
    let kind = std::sync::Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced));
    let selection = Selection::labelled(names::FUNCTION_NAME, &key.name);
    let selection = selection.within(key.namespace.as_deref().unwrap_or_default());
    let all: Vec<Value> =
        cluster.list(&kind, selection).take(PODS).try_collect().await.map_err(|error| said(&error))?;
    let mut pods: Vec<Pod> = all.iter().map(pod).collect();
    pods.sort_by(|a, b| (a.is_build, &a.name).cmp(&(b.is_build, &b.name)));
    Ok(pods)
}

fn pod(live: &Value) -> Pod {
    let containers = |pointer: &str| live.pointer(pointer).and_then(Value::as_array).into_iter().flatten().take(20);
    let all = containers("/spec/initContainers").chain(containers("/spec/containers"));
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    Pod {
        name: text_at(live, "/metadata/name", SHORT),
        phase: text_at(live, "/status/phase", SHORT),
        containers: all.map(|one| text_at(one, "/name", SHORT)).collect(),
        is_build: owners.clone().any(|owner| text_at(owner, "/kind", SHORT) == "Job"),
    }
}

/// Reads the last lines of the chosen log, or of the first pod's. Only the logs of these pods are read.
pub(super) async fn log(cluster: &Cluster, key: &Key, pods: &[Pod], pod: &str, container: &str) -> Option<Log> {
    let (pod, container) = chosen(pods, pod, container)?;
    let options = LogOptions { container: Some(container.clone()), tail: Some(LINES), ..LogOptions::default() };
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
    let lines = read.await.map_err(|error| said(&error)).map(|text| last(&text).to_owned());
    Some(Log { pod, container, lines })
}

/// Returns the pod and the container with these names, or by default the first pod and its last container. No other
/// pods can be selected.
pub(super) fn chosen(pods: &[Pod], pod: &str, container: &str) -> Option<(String, String)> {
    let chosen = pods.iter().find(|one| one.name == pod).or_else(|| pods.iter().find(|_| pod.is_empty()))?;
    let named = chosen.containers.iter().find(|one| *one == container);
    let container = named.or_else(|| chosen.containers.last())?;
    Some((chosen.name.clone(), container.clone()))
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
