//! Lists the objects that a delivery may look up, with their labels and annotations at that time.
//!
//! Invariant: the deliveries of a Receiver list one after the other, at most once per [`BETWEEN`], and share a list
//! ([`SharedList`](super::shared_list::SharedList)). A delivery waits at most [`WITHIN`].
//! Invariant: a delivery that waits for a permit keeps no older list, whose permit it would wait for.
//! Invariant: the permits of the [`Context`] bound the lists of all Receivers, and [`Tally`] bounds each of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tokio::time::{sleep_until, timeout};

use super::context::{Context, Served};
use super::filter::Object;
use super::resolve::Resolved;
use super::shared_list::{Listed, Shared, Waiting};
use super::sources::{Labels, SourceKind};
use mainstay_api::{GitRepository, HelmChart, ImageRepository, OciRepository};
use mainstay_cluster::{Cluster, Kind, LabelSelector, Selection};
use mainstay_object::failure::chain;

/// Minimum time between two lists for one Receiver.
const BETWEEN: Duration = Duration::from_millis(100);
/// Maximum time until a delivery has its lists.
const WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of objects that a delivery lists, with those that the Receiver does not select.
const MOST_OBJECTS: usize = 5000;
/// Maximum size of the names, labels and annotations of these objects, in bytes.
const MOST_LISTED: usize = 16 << 20;
/// Maximum memory of the selected objects, in bytes.
const MOST_KEPT: usize = 4 << 20;
/// Memory of an object for a filter without its labels and annotations, in bytes.
const EACH_SHOWN: usize = 2 << 10;
/// Memory of a node of a map, in bytes, and the minimum number of its entries.
const NODE: (usize, usize) = (640, 5);
/// Memory of the name and the value of an entry besides their length, in bytes.
const ENTRY: usize = 32;

/// The remedy for too many objects.
const REMEDY: &str = "name fewer kinds in spec.resources, or one entry with matchLabels for each kind";

/// Lists the objects of the Receiver's spec. Fails with a message for the owner of the Receiver.
pub(super) async fn list(context: &Context, served: &Served) -> Shared {
    let waiting = served.shared.wait(Instant::now());
    let listed = timeout(WITHIN, Box::pin(list_in_turn(context, served, &waiting))).await;
    listed.unwrap_or_else(|_| Err(format!("the objects are not listed within {} s", WITHIN.as_secs())))
}

async fn list_in_turn(context: &Context, served: &Served, waiting: &Waiting<'_>) -> Shared {
    let _listing = served.listing.lock().await;
    if let Some(shared) = waiting.newest() {
        return shared;
    }
    let last = *served.listed.lock();
    if let Some(last) = last {
        sleep_until((last + BETWEEN).into()).await;
    }
    let turn = context.lists.acquire(&served.receiver.namespace).await;
    let began = Instant::now();
    *served.listed.lock() = Some(began);
    let objects = list_kinds(&context.cluster, &served.receiver).await;
    let shared = objects.map(|objects| Arc::new(Listed::new(objects, turn)));
    waiting.share(began, shared.clone());
    shared
}

async fn list_kinds(cluster: &Cluster, receiver: &Resolved) -> Result<Vec<Object>, String> {
    let (mut objects, mut tally) = (Vec::new(), Tally::default());
    for of_kind in receiver.sources.kinds() {
        list_kind(cluster, receiver, of_kind, &mut tally, &mut objects).await?;
    }
    // The order decides for which objects no steps are left.
    objects.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    Ok(objects)
}

/// Lists the objects of a kind.
async fn list_kind(
    cluster: &Cluster,
    receiver: &Resolved,
    (kind, labels): (SourceKind, Option<&Labels>),
    tally: &mut Tally,
    objects: &mut Vec<Object>,
) -> Result<(), String> {
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
        tally.list(&metadata)?;
        if let Some(object) = selected(receiver, kind, &served, metadata, tally)? {
            objects.push(object);
        }
    }
    Ok(())
}

/// Returns an object if the spec selects it.
fn selected(
    receiver: &Resolved,
    kind: SourceKind,
    served: &Kind,
    metadata: ObjectMeta,
    tally: &mut Tally,
) -> Result<Option<Object>, String> {
    let none = Labels::new();
    let Some(name) = metadata.name.clone() else { return Ok(None) };
    if !receiver.sources.include(kind, &name, Some(metadata.labels.as_ref().unwrap_or(&none))) {
        return Ok(None);
    }
    let shown = if receiver.filter.is_some() {
        tally.keep(shown_size(&metadata))?;
        shown(served, kind, metadata)
    } else {
        tally.keep(size_of::<Object>() + ENTRY + name.len())?;
        Value::Null
    };
    Ok(Some(Object { kind, name, shown }))
}

/// The objects of a delivery so far.
#[derive(Debug, Default)]
struct Tally {
    objects: usize,
    listed: usize,
    kept: usize,
}

impl Tally {
    /// Adds a listed object.
    fn list(&mut self, metadata: &ObjectMeta) -> Result<(), String> {
        self.objects += 1;
        self.listed += text_size(metadata);
        if self.objects > MOST_OBJECTS {
            return Err(format!("this namespace has more than {MOST_OBJECTS} objects to select from: {REMEDY}"));
        }
        if self.listed > MOST_LISTED {
            let most = MOST_LISTED >> 20;
            return Err(format!(
                "the names, labels and annotations of the objects to select from have more than {most} MiB: {REMEDY}"
            ));
        }
        Ok(())
    }

    /// Adds the memory of a selected object.
    fn keep(&mut self, bytes: usize) -> Result<(), String> {
        self.kept += bytes;
        if self.kept > MOST_KEPT {
            return Err(format!(
                "the selected objects, with labels and annotations, take more than {} MiB of memory: select fewer objects \
                 in spec.resources",
                MOST_KEPT >> 20
            ));
        }
        Ok(())
    }
}

fn maps(metadata: &ObjectMeta) -> impl Iterator<Item = &Labels> {
    [&metadata.labels, &metadata.annotations].into_iter().flatten()
}

/// Returns the size of the name, labels and annotations of an object, in bytes.
fn text_size(metadata: &ObjectMeta) -> usize {
    let texts = maps(metadata).flatten().map(|(name, value)| name.len() + value.len());
    metadata.name.as_ref().map_or(0, String::len) + texts.sum::<usize>()
}

/// Returns the memory of an object for a filter, in bytes.
fn shown_size(metadata: &ObjectMeta) -> usize {
    let (node, entries) = NODE;
    let maps = maps(metadata).map(|map| node * (map.len() / entries + 1) + ENTRY * map.len());
    EACH_SHOWN + text_size(metadata) + maps.sum::<usize>()
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
    Arc::new(match kind {
        SourceKind::GitRepository => Kind::of::<GitRepository>(),
        SourceKind::OciRepository => Kind::of::<OciRepository>(),
        SourceKind::HelmChart => Kind::of::<HelmChart>(),
        SourceKind::ImageRepository => Kind::of::<ImageRepository>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(name: &str, annotation: &str) -> ObjectMeta {
        let entries = |value: &str| Some(Labels::from([("key".to_owned(), value.to_owned())]));
        ObjectMeta {
            name: Some(name.to_owned()),
            labels: entries("web"),
            annotations: entries(annotation),
            ..ObjectMeta::default()
        }
    }

    /// Returns the number of objects of a size that a delivery lists, and the error for the next one.
    fn most(mut add: impl FnMut(&mut Tally) -> Result<(), String>) -> (usize, String) {
        let mut tally = Tally::default();
        for number in 0.. {
            if let Err(why) = add(&mut tally) {
                return (number, why);
            }
        }
        unreachable!("an error follows")
    }

    #[test]
    fn objects_that_are_not_selected_count_too() {
        let (number, why) = most(|tally| tally.list(&metadata("web", "1")));
        assert_eq!(number, MOST_OBJECTS);
        assert_eq!(
            why,
            "this namespace has more than 5000 objects to select from: name fewer kinds in spec.resources, or one entry with \
             matchLabels for each kind"
        );
        let large = metadata("web", &"x".repeat(200_000));
        let (number, why) = most(|tally| tally.list(&large));
        assert_eq!(number, (16 << 20) / 200_012);
        assert!(
            why.starts_with("the names, labels and annotations of the objects to select from have more than 16 MiB: ")
        );
    }

    #[test]
    fn an_object_for_a_filter_counts_with_the_memory_of_its_maps() {
        let small = metadata("web", "1");
        assert!(shown_size(&small) >= (2 << 10) + 2 * 640);
        let (number, why) = most(|tally| tally.keep(shown_size(&small)));
        assert!((1000..2000).contains(&number), "{number}");
        assert_eq!(
            why,
            "the selected objects, with labels and annotations, take more than 4 MiB of memory: select fewer objects in \
             spec.resources"
        );
        let entries = |number: usize| (0..number).map(|number| (number.to_string(), String::new())).collect::<Labels>();
        let many = |number| ObjectMeta { labels: Some(entries(number)), ..ObjectMeta::default() };
        assert!(shown_size(&many(1000)) - shown_size(&many(0)) >= 1000 * 640 / 5, "each entry takes memory");
    }
}
