//! Carries a plan out: writes the inventory, applies stage by stage, deletes, and releases.
//!
//! Invariant: the inventory is written before the first object that it does not list is created.
//! Invariant: one object's failure holds back nothing but what needs it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::observe::config_maps;
use super::plan::{Expect, Step};
use super::prune::{Deletion, Unproven, may_delete};
use crate::api::names::{AGENT_MANAGER, INVENTORY_KEY, INVENTORY_LABEL, SYNC_LABEL};
use crate::cluster::{Apply, Cluster, Error, Guard, Kind, Part, Persistence, Propagation, Removal};
use crate::drift::{Drift, Intent, Put};
use crate::managed::inventory::{Entry, Inventory, Shard};
use crate::managed::{Desired, released};
use crate::object::{Digest, Key, Owner, is_established, prune_order};

/// Applies in flight at once.
const AT_ONCE: usize = 16;
/// Tries of a deletion whose object changes under it.
const TRIES: usize = 3;
/// How long a definition may take to be established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest name of an inventory's ConfigMap.
const LONGEST_NAME: usize = 253;

/// What became of one object.
#[derive(Debug)]
pub(super) enum Applied {
    /// It was applied.
    Done(Put),
    /// It was refused.
    Failed(Error),
    /// It was refused because a field differs that cannot be changed.
    Immutable(Error),
}

/// What became of an object that left.
#[derive(Debug)]
pub(super) enum Pruned {
    /// It is gone, or is not ours any more: it leaves the inventory.
    Gone {
        /// Whether we deleted it.
        deleted: bool,
    },
    /// It is being deleted.
    Terminating,
    /// It is kept, for a reason.
    Kept(&'static str),
    /// The deletion was refused.
    Failed(Error),
}

/// Writes those ConfigMaps of an inventory that differ from what `written` says, which is updated.
pub(super) async fn write_inventory(
    cluster: &Cluster,
    owner: &InventoryOwner<'_>,
    shards: &[Shard],
    written: &mut BTreeMap<usize, Digest>,
) -> Result<(), Error> {
    for shard in shards {
        let digest = Digest::of(&shard.content);
        if written.get(&shard.index) == Some(&digest) {
            continue;
        }
        let name = owner.config_map(shard.index);
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": owner.namespace, "labels": {INVENTORY_LABEL: owner.label},
                "ownerReferences": [{
                    "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "name": owner.name, "uid": owner.uid,
                }],
            },
            "binaryData": {INVENTORY_KEY: STANDARD.encode(&shard.content)},
        });
        cluster.apply(&config_maps(), Some(owner.namespace), &name, &body, Apply::forced(AGENT_MANAGER)).await?;
        written.insert(shard.index, digest);
    }
    Ok(())
}

/// Whose inventory it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct InventoryOwner<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) label: &'a str,
}

impl InventoryOwner<'_> {
    fn config_map(&self, index: usize) -> String {
        let name = format!("mainstay-inventory-{}-{index}", self.name);
        if name.len() <= LONGEST_NAME {
            return name;
        }
        format!("mainstay-inventory-{}-{index}", Digest::of(self.name.as_bytes()))
    }
}

/// Applies one stage, many objects at a time; `done` hears of each as it is answered.
pub(super) async fn stage(drift: &Drift, owner: &Owner, steps: Vec<Step>, mut done: impl FnMut(Arc<Desired>, Applied)) {
    let puts = stream::iter(steps).map(|step| async move {
        drift.yield_to_reverts().await;
        let desired = Arc::clone(&step.desired);
        let (only_version, take_over, exists) = match step.expect {
            Expect::Ours => (None, None, true),
            Expect::Absent => (None, None, false),
            Expect::Version { version, take_over } => (Some(version), take_over, true),
        };
        let intent = Intent { owner: owner.clone(), desired: step.desired, only_version, take_over, exists };
        let applied = match drift.put(intent).await {
            Ok(put) => settle(drift.cluster(), &desired, put).await,
            Err(error) if error.is_invalid() && is_immutable(drift.cluster(), &desired).await => {
                Applied::Immutable(error)
            }
            Err(error) => Applied::Failed(error),
        };
        (desired, applied)
    });
    let mut puts = puts.buffer_unordered(AT_ONCE);
    while let Some((desired, applied)) = puts.next().await {
        done(desired, applied);
    }
}

/// Whether a refused change is one of a field that cannot be changed: the object could be created as it is, if it were
/// not there already. Texts and causes of the refusals vary too much to tell.
async fn is_immutable(cluster: &Cluster, desired: &Desired) -> bool {
    let mut body = desired.body();
    if desired.key.is("", "Service")
        && let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut)
    {
        // A new Service could not have the addresses that the old one holds.
        spec.retain(|field, _| field != "clusterIP" && field != "clusterIPs");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
    let created = cluster.create(&desired.kind, namespace, name, &body, Persistence::DryRun).await;
    created.is_err_and(|error| error.is_already_exists())
}

/// Waits until a definition is established; what needs it comes in a later stage.
async fn settle(cluster: &Cluster, desired: &Arc<Desired>, put: Put) -> Applied {
    if !desired.key.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        return Applied::Done(put);
    }
    let mut waited = Duration::ZERO;
    let mut answer = put.answer.clone();
    while !is_established(&answer) && waited < ESTABLISHED_WITHIN {
        tokio::time::sleep(LOOK_EVERY).await;
        waited += LOOK_EVERY;
        match cluster.get(&desired.kind, None, &desired.key.name).await {
            Ok(Some(live)) => answer = live,
            Ok(None) => {}
            Err(error) => return Applied::Failed(error),
        }
    }
    cluster.kinds_changed();
    Applied::Done(put)
}

/// Deletes what left, the last stage first; `done` hears of each.
pub(super) async fn prune(
    drift: &Drift,
    label: &str,
    leaving: Vec<(Key, Entry)>,
    unproven: Unproven,
    mut done: impl FnMut(Key, Pruned),
) {
    let mut leaving = leaving.into_iter().peekable();
    while let Some(first) = leaving.next() {
        let turn = prune_order(&first.0);
        let mut together = vec![first];
        while let Some(next) = leaving.next_if(|(key, _)| prune_order(key) == turn) {
            together.push(next);
        }
        let deletions = stream::iter(together).map(|(key, entry)| async move {
            // A revert that began before the object left must not follow its deletion.
            let _lock = drift.lock(&key).await;
            let pruned = delete(drift.cluster(), label, &key, &entry, unproven).await.unwrap_or_else(Pruned::Failed);
            (key, pruned)
        });
        let mut deletions = deletions.buffer_unordered(AT_ONCE);
        while let Some((key, pruned)) = deletions.next().await {
            done(key, pruned);
        }
    }
}

async fn kind_of(cluster: &Cluster, key: &Key, entry: &Entry) -> Result<Option<Arc<Kind>>, Error> {
    let version =
        if key.group.is_empty() { entry.version.to_string() } else { format!("{}/{}", key.group, entry.version) };
    match cluster.kind(&version, &key.kind).await? {
        Some(kind) => Ok(Some(kind)),
        None => cluster.preferred_kind(&key.group, &key.kind).await,
    }
}

async fn delete(cluster: &Cluster, label: &str, key: &Key, entry: &Entry, unproven: Unproven) -> Result<Pruned, Error> {
    // A kind that is no longer served has no objects.
    let Some(kind) = kind_of(cluster, key, entry).await? else { return Ok(Pruned::Gone { deleted: false }) };
    let namespace = key.namespace.as_deref();
    let mut tries = 0;
    loop {
        let Some(meta) = cluster.get_metadata(&kind, namespace, &key.name).await? else {
            return Ok(Pruned::Gone { deleted: false });
        };
        match may_delete(&meta, label, entry, unproven, Timestamp::now()) {
            Deletion::Allowed => {}
            Deletion::UnderWay => return Ok(Pruned::Terminating),
            Deletion::NotOurs => return Ok(Pruned::Gone { deleted: false }),
            Deletion::Kept(why) => return Ok(Pruned::Kept(why)),
        }
        let guard = Guard {
            uid: Some(meta.uid.as_deref().unwrap_or_default()),
            resource_version: meta.resource_version.as_deref(),
        };
        match cluster.delete(&kind, namespace, &key.name, guard, Propagation::Background).await {
            Ok(Removal::Terminating) => return Ok(Pruned::Terminating),
            Ok(Removal::Gone | Removal::Absent) => return Ok(Pruned::Gone { deleted: true }),
            Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Which of these objects carry our label, or may: those that cannot be read.
pub(super) async fn still_ours(drift: &Drift, label: &str, inventory: &Inventory, keys: &[Key]) -> HashSet<Key> {
    let listed = keys.iter().filter_map(|key| Some((key.clone(), inventory.0.get(key)?.clone())));
    let looks = stream::iter(listed.collect::<Vec<_>>()).map(|(key, entry)| async move {
        let carries = carries(drift.cluster(), label, &key, &entry).await;
        (key, carries.unwrap_or(true))
    });
    let looked = looks.buffer_unordered(AT_ONCE);
    looked.filter_map(|(key, is_ours)| std::future::ready(is_ours.then_some(key))).collect().await
}

async fn carries(cluster: &Cluster, label: &str, key: &Key, entry: &Entry) -> Result<bool, Error> {
    let Some(kind) = kind_of(cluster, key, entry).await? else { return Ok(false) };
    let meta = cluster.get_metadata(&kind, key.namespace.as_deref(), &key.name).await?;
    Ok(meta.and_then(|meta| meta.labels?.remove(SYNC_LABEL)).as_deref() == Some(label))
}

/// Makes an object nobody's: takes off our label and our ownership, and changes nothing else in it.
pub(super) async fn release(drift: &Drift, label: &str, key: &Key, entry: &Entry) -> Result<(), Error> {
    let _lock = drift.lock(key).await;
    let cluster = drift.cluster();
    let Some(kind) = kind_of(cluster, key, entry).await? else { return Ok(()) };
    let namespace = key.namespace.as_deref();
    let mut tries = 0;
    loop {
        let Some(meta) = cluster.get_metadata(&kind, namespace, &key.name).await? else { return Ok(()) };
        let ours = meta.labels.as_ref().and_then(|labels| labels.get(SYNC_LABEL)).is_some_and(|value| value == label);
        if !ours {
            return Ok(());
        }
        let fields = serde_json::to_value(meta.managed_fields.unwrap_or_default()).unwrap_or_default();
        let pointer = SYNC_LABEL.replace('~', "~0").replace('/', "~1");
        let operations = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "replace", "path": "/metadata/managedFields", "value": released(&fields)},
            {"op": "remove", "path": format!("/metadata/labels/{pointer}")},
        ]);
        match cluster.patch_json(&kind, namespace, &key.name, Part::Main, &operations).await {
            Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
            Err(error) if error.is_not_found() => return Ok(()),
            other => return other.map(drop),
        }
    }
}

/// Deletes the ConfigMaps of an inventory.
pub(super) async fn delete_inventory(
    cluster: &Cluster,
    owner: &InventoryOwner<'_>,
    written: &BTreeMap<usize, Digest>,
) -> Result<(), Error> {
    let last = written.keys().last().copied().unwrap_or(0);
    for index in 0..=last {
        let name = owner.config_map(index);
        cluster.delete(&config_maps(), Some(owner.namespace), &name, Guard::default(), Propagation::Background).await?;
    }
    Ok(())
}
