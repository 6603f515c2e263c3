//! Lists the live objects of the cluster that a commit needs.
//!
//! Invariant: the objects cost one metadata LIST per kind. With a ServiceAccount, which may have permissions in some
//! namespaces only, they cost one LIST per kind and namespace. Few objects of a kind are listed by name. There is never
//! a GET per object.
//!
//! Not here: the choice of the objects (`observe`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::Timestamp;

use super::plan::Live;
use mainstay_cluster::{Cluster, Error, Kind, Selection};
use mainstay_engine::managed::Desired;
use mainstay_object::Key;

/// Maximum number of concurrent lists.
const AT_ONCE: usize = 8;
/// Maximum number of objects of a kind that are listed by name.
const NAMED: usize = 4;

/// The live objects that were found.
pub(super) type Seen = HashMap<Key, Live>;
/// Objects that the server refused to show, with the error.
type Unseen = Vec<(HashSet<Key>, Error)>;

/// Reads live objects. Also returns the objects of kinds that may not be listed, with the error. The owner of such an
/// object is unknown, so it cannot be applied.
pub(super) async fn live(cluster: &Cluster, desired: &[&Arc<Desired>], label: &str) -> Result<(Seen, Unseen), Error> {
    let mut kinds = BTreeMap::new();
    for object in desired {
        let kind = &object.kind;
        // A ServiceAccount may have permissions in some namespaces only.
        let namespace = cluster.acts_as().and(object.key.namespace.as_ref());
        let id = (&kind.group, &kind.version, &kind.kind, namespace);
        kinds.entry(id).or_insert_with(|| (Arc::clone(kind), HashSet::new())).1.insert(object.key.clone());
    }
    let lists = stream::iter(kinds.into_values().flat_map(by_name)).map(|(kind, keys)| async move {
        let found = of_kind(cluster, &kind, &keys, label).await;
        (keys, found)
    });
    let mut lists = lists.buffer_unordered(AT_ONCE);
    let (mut seen, mut unseen) = (Seen::new(), Unseen::new());
    while let Some((keys, found)) = lists.next().await {
        match found {
            Ok(found) => seen.extend(found),
            Err(error) if error.is_forbidden() => unseen.push((keys, error)),
            Err(error) => return Err(error),
        }
    }
    Ok((seen, unseen))
}

async fn of_kind(
    cluster: &Cluster,
    kind: &Arc<Kind>,
    keys: &HashSet<Key>,
    label: &str,
) -> Result<HashMap<Key, Live>, Error> {
    let mut found = HashMap::new();
    let mut list = cluster.list_metadata(kind, narrowest(kind, keys));
    while let Some(meta) = list.next().await {
        let meta = match meta {
            Ok(meta) => meta,
            // The CRD of the kind is in this commit and not applied yet.
            Err(error) if error.is_not_found() => break,
            Err(error) => return Err(error),
        };
        let key = kind.key(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
        if keys.contains(&key) {
            found.insert(key, Live::of(&meta, label, Timestamp::now()));
        }
    }
    Ok(found)
}

/// Splits a list of few objects of a kind into one list each: the server finds an object by name without a scan.
fn by_name((kind, keys): (Arc<Kind>, HashSet<Key>)) -> Vec<(Arc<Kind>, HashSet<Key>)> {
    if keys.len() > NAMED {
        return vec![(kind, keys)];
    }
    keys.into_iter().map(|key| (Arc::clone(&kind), HashSet::from([key]))).collect()
}

/// Returns the smallest list that shows all of these objects.
fn narrowest(kind: &Kind, keys: &HashSet<Key>) -> Selection {
    let mut namespaces = keys.iter().map(|key| key.namespace.as_deref());
    let first = namespaces.next().flatten();
    if let [only] = keys.iter().collect::<Vec<_>>().as_slice() {
        return Selection::named(only.namespace.as_deref(), &only.name).metadata_only();
    }
    match first.filter(|first| kind.namespaced && namespaces.all(|other| other == Some(first))) {
        Some(namespace) => Selection::default().within(namespace),
        None => Selection::default(),
    }
}
