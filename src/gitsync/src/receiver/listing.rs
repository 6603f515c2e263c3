//! Lists the objects that a delivery may look up, with their labels and annotations at that time.
//!
//! Invariant: the deliveries of a Receiver list one after the other, at most once per [`BETWEEN`]. A delivery takes at most
//! [`WITHIN`] and [`MOST_BYTES`] for its lists. The permits of the [`Context`] bound the lists of all Receivers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tokio::time::{sleep_until, timeout};

use super::context::{Context, Served};
use super::filter::Object;
use super::resolve::Resolved;
use super::sources::{Labels, SourceKind};
use mainstay_cluster::{Cluster, Kind, LabelSelector, Selection};
use mainstay_object::failure::chain;

/// Minimum time between two lists for one Receiver.
const BETWEEN: Duration = Duration::from_millis(100);
/// Maximum time until a delivery has its lists.
const WITHIN: Duration = Duration::from_secs(5);
/// Maximum size of the names, labels and annotations of a delivery's objects, in bytes.
const MOST_BYTES: usize = 4 << 20;

/// Lists the objects of the Receiver's spec. Fails with a message for the owner of the Receiver.
pub(super) async fn list(context: &Context, served: &Served) -> Result<Vec<Object>, String> {
    let listed = timeout(WITHIN, Box::pin(list_in_turn(context, served))).await;
    listed.unwrap_or_else(|_| Err(format!("the objects are not listed within {} s", WITHIN.as_secs())))
}

async fn list_in_turn(context: &Context, served: &Served) -> Result<Vec<Object>, String> {
    let mut last = served.listed.lock().await;
    if let Some(last) = *last {
        sleep_until((last + BETWEEN).into()).await;
    }
    // The semaphore is never closed.
    let _permit = context.lists.acquire().await.ok();
    *last = Some(Instant::now());
    let (mut objects, mut bytes) = (Vec::new(), 0);
    for (kind, labels) in served.receiver.sources.kinds() {
        bytes = list_kind(&context.cluster, &served.receiver, (kind, labels), bytes, &mut objects).await?;
    }
    // The order decides for which objects no steps are left.
    objects.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    Ok(objects)
}

/// Lists the objects of a kind. Returns the size of all objects.
async fn list_kind(
    cluster: &Cluster,
    receiver: &Resolved,
    (kind, labels): (SourceKind, Option<&Labels>),
    mut bytes: usize,
    objects: &mut Vec<Object>,
) -> Result<usize, String> {
    let served = served_kind(kind);
    let mut selection = Selection::default().within(&receiver.namespace);
    if let Some(selector) = labels.and_then(selector) {
        selection = selection.with_labels(selector);
    }
    let mut found = cluster.list_metadata(&served, selection);
    while let Some(item) = found.next().await {
        let metadata = match item {
            Ok(metadata) => metadata,
            // The cluster does not serve the kind.
            Err(error) if error.is_not_found() => break,
            Err(error) => {
                return Err(format!("the objects of kind {} cannot be listed: {}", kind.as_str(), chain(&error)));
            }
        };
        let Some(object) = selected(receiver, kind, &served, metadata, &mut bytes) else { continue };
        if bytes > MOST_BYTES {
            return Err(format!(
                "the names, labels and annotations of the selected objects have more than {} MiB: select fewer objects in \
                 spec.resources",
                MOST_BYTES >> 20
            ));
        }
        objects.push(object);
    }
    Ok(bytes)
}

/// Returns an object if the spec selects it, and adds its size.
fn selected(
    receiver: &Resolved,
    kind: SourceKind,
    served: &Kind,
    metadata: ObjectMeta,
    bytes: &mut usize,
) -> Option<Object> {
    let none = Labels::new();
    let name = metadata.name.clone()?;
    if !receiver.sources.include(kind, &name, Some(metadata.labels.as_ref().unwrap_or(&none))) {
        return None;
    }
    *bytes += size_of::<Object>() + name.len();
    let shown = if receiver.filter.is_some() {
        *bytes += [&metadata.labels, &metadata.annotations].into_iter().flatten().map(size).sum::<usize>();
        shown(served, kind, metadata)
    } else {
        Value::Null
    };
    Some(Object { kind, name, shown })
}

fn size(entries: &Labels) -> usize {
    entries.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Returns an object without its spec and status.
fn shown(served: &Kind, kind: SourceKind, metadata: ObjectMeta) -> Value {
    let ObjectMeta { name, namespace, uid, generation, labels, annotations, .. } = metadata;
    let mut shown = json!({
        "apiVersion": served.api_version(), "kind": kind.as_str(),
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "generation": generation},
    });
    // As in Flux, `has` is false for empty ones.
    for (field, entries) in [("labels", labels), ("annotations", annotations)] {
        if let Some(entries) = entries.filter(|entries| !entries.is_empty()) {
            shown["metadata"][field] = json!(entries);
        }
    }
    shown
}

/// Returns the selector of objects with all labels; `None` without labels.
fn selector(labels: &Labels) -> Option<LabelSelector> {
    let each = labels.iter().map(|(name, value)| LabelSelector::equals(name, value));
    each.reduce(|all, one| all.and(&one))
}

fn served_kind(kind: SourceKind) -> Arc<Kind> {
    let (group, plural) = match kind {
        SourceKind::GitRepository => ("serverless.kyma-project.io", "gitrepositories"),
        SourceKind::OciRepository => ("mainstay.dev", "ocirepositories"),
        SourceKind::HelmChart => ("mainstay.dev", "helmcharts"),
        SourceKind::ImageRepository => ("mainstay.dev", "imagerepositories"),
    };
    Arc::new(Kind::custom(group, "v1alpha1", kind.as_str(), plural, true))
}
