//! A trace for the web page, read with the permissions of its user.
//!
//! Invariant: a trace contains values of a Secret only in the part of the object itself, which the page hides.

use jiff::Timestamp;
use serde_json::Value;

use super::{decisions::decisions, next, origin, text, timeline};
use crate::cli::{Error, syncs};
use mainstay_api::git_sync::Change;
use mainstay_cluster::Cluster;
use mainstay_console::{FieldManager, Manager, Trace};
use mainstay_engine::managed::{
    ManifestPart,
    fields::{entries, paths},
};
use mainstay_object::{Key, hide_logins};

/// Maximum number of inventories to read. The label of an object names the right GitSync, whose inventory is read
/// first.
const INVENTORIES: usize = 20;
/// Maximum memory of these inventories, in bytes. It is a part of the memory of the page.
const INVENTORY_BYTES: usize = 8 << 20;
/// Maximum number of field managers, and of fields of each manager.
const MANAGERS: usize = 30;
const FIELDS: usize = 200;

/// Returns the trace of an object.
pub(in crate::cli) async fn of(cluster: &Cluster, asked: Key) -> Result<Trace, Error> {
    let kind = cluster.preferred_kind(&asked.group, &asked.kind).await?;
    let kind = kind.ok_or_else(|| Error::UnknownKind(asked.kind.to_string()))?;
    let namespace = asked.namespace.clone().unwrap_or_default();
    let extent = origin::Extent { inventories: INVENTORIES, bytes: INVENTORY_BYTES };
    let mut trace = origin::of(cluster, &namespace, &kind, asked, extent).await?;
    let moments = timeline::of(cluster, &mut trace).await?;
    let next = next::next(&trace, Timestamp::now());
    let live = trace.live.as_ref().filter(|_| trace.owners.is_empty());
    let status = trace.manager.as_ref().and_then(|found| found.sync.status.as_ref());
    let decisions = status.map(|status| decisions(trace.object(), status)).unwrap_or_default();
    let manager = trace.manager.as_ref().map(|found| Manager {
        git_sync: syncs::key(&found.sync),
        repository: text::repository(found),
        commit: found.sync.status.as_ref().and_then(|status| status.applied_commit.clone()),
        file: text::file(found),
        path: text::path(found),
        applied: live.and_then(text::applied),
        part: live.and_then(|live| part(&trace, live)),
        status: found.sync.status.as_ref().and_then(|status| serde_json::to_value(status).ok()).unwrap_or_default(),
    });
    Ok(Trace {
        health: text::health_of(&trace).filter(|_| live.is_some()),
        field_managers: live.map(managers).unwrap_or_default(),
        manager,
        owners: trace.owners,
        next: hide_logins(&next.text).into_owned(),
        decisions: decisions.into_iter().map(|one| (one.when, hide_logins(&one.text).into_owned())).collect(),
        moments: moments.into_iter().map(|moment| (moment.at, moment.what)).collect(),
        notes: trace.notes,
    })
}

/// Returns the part of the object that its manifest sets.
fn part(trace: &origin::Trace, live: &Value) -> Option<mainstay_console::ManifestPart> {
    let status = trace.manager.as_ref()?.sync.status.as_ref();
    let name = trace.asked.to_string();
    let drifted = status.and_then(|status| status.drifted.iter().find(|one| one.object == name));
    manifest_part(live, drifted.map(|one| one.changes.as_slice()).unwrap_or_default())
}

/// Returns the part of a live object that its manifest sets, with these changes undone.
pub(in crate::cli) fn manifest_part(live: &Value, changes: &[Change]) -> Option<mainstay_console::ManifestPart> {
    let part = ManifestPart::of(live, changes)?;
    let unknown = part.unknown.iter().map(|field| hide_logins(field).into_owned()).collect();
    Some(mainstay_console::ManifestPart { wanted: part.wanted, found: part.found, unknown })
}

fn managers(live: &Value) -> Vec<FieldManager> {
    let of = |entry: mainstay_engine::managed::fields::Entry<'_>| {
        let mut fields = paths(entry.fields);
        let more = fields.len().saturating_sub(FIELDS);
        fields.truncate(FIELDS);
        let fields = fields.iter().map(|field| hide_logins(field).into_owned()).collect();
        FieldManager {
            name: entry.manager.to_owned(),
            operation: entry.operation.to_owned(),
            subresource: entry.subresource.to_owned(),
            time: entry.time.parse().ok(),
            fields,
            more,
        }
    };
    entries(live).take(MANAGERS).map(of).collect()
}
