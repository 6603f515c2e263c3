//! Collisions: fields of other managers that the API server does not accept together with Mainstay's. They are removed.
//!
//! Server-side apply merges. A user may change the key of a list item, such as the port of a Service or the name of a
//! container, or replace a field of a union by a different one (`value` by `valueFrom`). Mainstay's apply removes only
//! fields that Mainstay owns, so it would add its own fields beside the user's. So the colliding fields are moved into
//! Mainstay's entry in `managedFields`. The next apply removes them and restores Mainstay's in one change of the
//! object.
//!
//! Invariant: only fields of users' tools and of managers that update are moved. A manager that applies would restore
//! its fields, and fields set by admission have no owner.
//! Invariant: fields that do not collide stay. Two kinds of collisions are known in advance: members of unions, and
//! Mainstay's list items under a different key. All others are derived from the server's refusal.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::fields::{Fields, add, applied_by};
use super::ownership::{is_kubectl, moved};
use super::projection::has_keys;
use super::unions;
use mainstay_api::names::{HANDOVER_MANAGER, MANAGER};

/// Lists, each with a field that identifies an item under a different key. A server accepts only one port of a name,
/// and an image rarely runs twice in a pod.
const TELLING: [(&str, &str); 3] = [("ports", "name"), ("containers", "image"), ("initContainers", "image")];

/// Maximum age of a write that counts as part of the reverted edit.
const RECENT: SignedDuration = SignedDuration::from_secs(5);

/// Fields that collide with Mainstay's.
#[derive(Debug, PartialEq)]
pub(crate) struct Collision {
    /// The rewritten `managedFields`, with which Mainstay's next apply removes the colliding fields.
    pub(crate) entries: Value,
    /// The manager that wrote the fields; the latest if there are several.
    pub(crate) who: Option<String>,
}

/// Returns fields that are known to collide with the apply of `body`.
pub(crate) fn known(body: &Value, live: &Value, now: &str) -> Option<Collision> {
    // Without an earlier apply, Mainstay had no field to lose.
    applied_by(live, MANAGER)?;
    between(body, live, &Evidence::Known, now)
}

/// Returns fields that collide with the apply of `body`, which the server refused. `causes` are the fields in the
/// refusal, such as `spec.ports[1].name`.
pub(crate) fn refused(body: &Value, live: &Value, causes: &[&str], now: &str) -> Option<Collision> {
    let causes = causes.iter().filter(|cause| !cause.is_empty()).map(|cause| names(cause)).collect();
    between(body, live, &Evidence::Refused(causes), now)
}

/// Returns readable paths of `body` that Mainstay does not own in the live object.
pub(crate) fn lost(body: &Value, live: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let ours = Ours::of(live);
    for (name, wanted) in contents(body) {
        lost_in(wanted, ours.field(name), name.clone(), &mut found);
    }
    found
}

fn between(body: &Value, live: &Value, evidence: &Evidence, now: &str) -> Option<Collision> {
    let colliding = colliding(body, live, evidence, now);
    let api_version = api_version(body);
    let holds = |entry: &&Value| fields_of(entry).is_some_and(|fields| !part(fields, &colliding).is_empty());
    let last = strangers(live, api_version).filter(holds).max_by_key(|entry| entry["time"].as_str());
    let who = last.and_then(|entry| entry["manager"].as_str()).map(str::to_owned);
    let of = |entry: &Value| is_strangers(entry, api_version);
    let entries = moved(live.pointer("/metadata/managedFields")?, api_version, now, of, |f| part(f, &colliding))?;
    Some(Collision { entries, who })
}

/// The evidence that a field collides.
enum Evidence {
    /// The field is in a union with one of Mainstay's fields, or in Mainstay's list item under a different key.
    Known,
    /// The server refused the apply because of these fields. An empty list means that any field may be the cause.
    Refused(Vec<Vec<String>>),
}

impl Evidence {
    /// Whether a refusal may concern the field at `path`. This is so if the refusal reports this field, a parent of the
    /// field or a field inside of it, or reports no field at all.
    fn concerns(causes: &[Vec<String>], path: &[&str]) -> bool {
        causes.is_empty() || causes.iter().any(|cause| cause.iter().zip(path).all(|(one, other)| one == other))
    }
}

/// Returns the names of the fields along a path in a refusal, without list positions and keys.
fn names(path: &str) -> Vec<String> {
    path.split('.').map(|part| part.split('[').next().unwrap_or_default().to_owned()).collect()
}

/// Mainstay's fields in a part of an object.
#[derive(Clone, Copy)]
enum Ours<'f> {
    All,
    Some(&'f Fields),
    Nothing,
}

impl<'f> Ours<'f> {
    fn of(live: &'f Value) -> Self {
        applied_by(live, MANAGER).map_or(Self::Nothing, Self::Some)
    }

    fn at(self, key: &str) -> Self {
        match self {
            Self::Some(fields) => match fields.get(key).and_then(Value::as_object) {
                Some(inside) if inside.is_empty() => Self::All,
                Some(inside) => Self::Some(inside),
                None => Self::Nothing,
            },
            whole => whole,
        }
    }

    fn field(self, name: &str) -> Self {
        self.at(&format!("f:{name}"))
    }

    /// Returns Mainstay's fields in an item of a list with keys.
    fn item(self, wanted: &Value) -> Self {
        let Self::Some(fields) = self else { return self };
        let key = fields.keys().find(|key| keys_of(key).is_some_and(|keys| is_item(wanted, &keys)));
        key.map_or(Self::Nothing, |key| self.at(key))
    }

    fn is_nothing(self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// Returns the fields of an object without its metadata, which never collide.
pub(super) fn contents(body: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = body.as_object().into_iter().flatten();
    fields.filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()))
}

pub(super) fn api_version(body: &Value) -> &str {
    body["apiVersion"].as_str().unwrap_or_default()
}

pub(super) fn fields_of(entry: &Value) -> Option<&Fields> {
    entry.get("fieldsV1")?.as_object()
}

/// Returns the entries of an object whose fields may be moved.
fn strangers<'v>(live: &'v Value, api_version: &'v str) -> impl Iterator<Item = &'v Value> {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().filter(move |entry| is_strangers(entry, api_version))
}

/// Whether the fields of an entry may be moved.
pub(super) fn is_strangers(entry: &Value, api_version: &str) -> bool {
    let manager = entry["manager"].as_str().unwrap_or_default();
    entry["apiVersion"] == api_version
        && entry.get("subresource").is_none_or(|subresource| subresource == "")
        && ![MANAGER, HANDOVER_MANAGER].contains(&manager)
        && (entry["operation"] == "Update" || is_kubectl(manager))
}

/// Returns the fields that are in both `fields` and `taken`. An empty node in `taken` stands for all of its content.
pub(super) fn part(fields: &Fields, taken: &Fields) -> Fields {
    let mut both = Fields::new();
    for (key, inside) in taken {
        let (Some(theirs), Some(inside)) = (fields.get(key), inside.as_object()) else { continue };
        if inside.is_empty() {
            both.insert(key.clone(), theirs.clone());
        } else if let Some(theirs) = theirs.as_object() {
            let inside = part(theirs, inside);
            if !inside.is_empty() {
                both.insert(key.clone(), Value::Object(inside));
            }
        }
    }
    both
}

/// Returns fields of other managers that collide with Mainstay's. An empty node stands for all of its content.
fn colliding(body: &Value, live: &Value, evidence: &Evidence, now: &str) -> Fields {
    let (mut theirs, mut recent) = (Fields::new(), Fields::new());
    let since = now.parse::<Timestamp>().ok().and_then(|now| now.checked_sub(RECENT).ok());
    for entry in strangers(live, api_version(body)) {
        let Some(fields) = fields_of(entry) else { continue };
        add(&mut theirs, fields);
        let at = entry["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        if at.is_some_and(|at| since.is_some_and(|since| at >= since)) {
            add(&mut recent, fields);
        }
    }
    let (mut taken, ours) = (Fields::new(), Ours::of(live));
    for (name, wanted) in contents(body) {
        let key = format!("f:{name}");
        if let (Some(theirs), Some(live)) = (theirs.get(&key).and_then(Value::as_object), live.get(name)) {
            let recent = recent.get(&key).and_then(Value::as_object);
            let is_builtin = unions::is_builtin(api_version(body));
            let search = Search { evidence, is_builtin, path: vec![name], recent };
            put(&mut taken, &key, search.inside(wanted, live, ours.field(name), theirs));
        }
    }
    taken
}

fn put(taken: &mut Fields, key: &str, inside: Fields) {
    if !inside.is_empty() {
        taken.insert(key.to_owned(), Value::Object(inside));
    }
}

/// A position in the search for colliding fields.
struct Search<'a> {
    evidence: &'a Evidence,
    /// Whether the kind is a built-in kind of Kubernetes.
    is_builtin: bool,
    /// Names of the fields on the path to this position.
    path: Vec<&'a str>,
    /// Fields that other managers wrote here recently.
    recent: Option<&'a Fields>,
}

impl<'a> Search<'a> {
    fn field(&self, key: &str, name: &'a str) -> Self {
        Search { path: self.path.iter().copied().chain([name]).collect(), ..self.item(key) }
    }

    fn item(&self, key: &str) -> Self {
        let recent = self.recent.and_then(|recent| recent.get(key)?.as_object());
        Search { path: self.path.clone(), recent, ..*self }
    }

    fn inside(&self, wanted: &Value, live: &Value, ours: Ours<'_>, theirs: &'a Fields) -> Fields {
        match (wanted, live) {
            (Value::Object(wanted), Value::Object(live)) => self.structure(wanted, live, ours, theirs),
            (Value::Array(wanted), Value::Array(live)) => self.list(wanted, live, ours, theirs),
            _ => Fields::new(),
        }
    }

    fn structure(
        &self,
        wanted: &Map<String, Value>,
        live: &Map<String, Value>,
        ours: Ours<'_>,
        theirs: &'a Fields,
    ) -> Fields {
        let is_lost = |(name, value): &(&String, &Value)| !is_nothing(value) && ours.field(name).is_nothing();
        let lost = wanted.iter().filter(is_lost).map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        let mut taken = Fields::new();
        for (key, inside) in theirs {
            let Some(name) = key.strip_prefix("f:") else { continue };
            let Some(live) = live.get(name) else { continue };
            match (wanted.get(name), inside.as_object()) {
                (Some(wanted), Some(inside)) if !is_nothing(wanted) => {
                    put(&mut taken, key, self.field(key, name).inside(wanted, live, ours.at(key), inside));
                }
                _ if self.excludes(&lost, name) => {
                    taken.insert(key.clone(), json!({}));
                }
                _ => {}
            }
        }
        taken
    }

    /// Whether a field of another manager excludes one of Mainstay's lost fields.
    fn excludes(&self, lost: &[&str], name: &str) -> bool {
        match self.evidence {
            Evidence::Known => self.is_builtin && lost.iter().any(|lost| unions::exclude(lost, name)),
            Evidence::Refused(causes) => {
                let path = self.path.iter().copied().chain([name]).collect::<Vec<_>>();
                !lost.is_empty() && Evidence::concerns(causes, &path)
            }
        }
    }

    fn list(&self, wanted: &[Value], live: &[Value], ours: Ours<'_>, theirs: &'a Fields) -> Fields {
        let lost = wanted.iter().filter(|item| ours.item(item).is_nothing()).collect::<Vec<_>>();
        let has_lost = || wanted.iter().any(|item| is_lost_in(item, ours.item(item)));
        let (mut taken, mut others) = (Fields::new(), Vec::new());
        for (key, inside) in theirs {
            let (Some(keys), Some(inside)) = (keys_of(key), inside.as_object()) else { continue };
            let Some(live) = live.iter().find(|item| has_keys(item, &keys)) else { continue };
            if let Some(wanted) = wanted.iter().find(|item| is_item(item, &keys)) {
                put(&mut taken, key, self.item(key).inside(wanted, live, ours.at(key), inside));
                continue;
            }
            // If the manager does not own the item itself, a different manager or admission created the item.
            if inside.contains_key(".") {
                others.push((key, keys, live));
            }
        }
        match self.evidence {
            Evidence::Known => {
                let edited = lost.iter().filter_map(|lost| self.edited(lost, &others));
                taken.extend(edited.map(|key| (key.to_owned(), json!({}))));
            }
            Evidence::Refused(causes) if Evidence::concerns(causes, &self.path) && has_lost() => {
                taken.extend(others.iter().map(|(key, ..)| ((*key).clone(), json!({}))));
            }
            Evidence::Refused(_) => {}
        }
        taken
    }

    /// Returns the key of the added item that is Mainstay's lost item under a different key, if any. At least half of
    /// the item's other fields must be equal. If only one field is equal, it may be a coincidence, as with the value of
    /// a variable. Then the item must be the only recent one, or the field must be one of [`TELLING`].
    fn edited<'k>(&self, ours: &Value, others: &[(&'k String, Map<String, Value>, &Value)]) -> Option<&'k str> {
        let is_telling = |(list, field): &(&str, &str)| {
            self.path.last() == Some(list) && ours.get(field).is_some_and(|value| !value.is_null())
        };
        let enough = if TELLING.iter().any(is_telling) { 1 } else { 2 };
        let alike = others.iter().filter_map(|(key, keys, live)| {
            let (same, all) = same_fields(ours, live, keys);
            (same > 0 && 2 * same >= all).then_some((same, key.as_str()))
        });
        let alike = alike.collect::<Vec<_>>();
        let best = alike.iter().max()?;
        let is_recent = || self.recent.is_some_and(|recent| recent.contains_key(best.1));
        (best.0 >= enough || (alike.len() == 1 && is_recent())).then_some(best.1)
    }
}

/// Whether an apply of this value would set no field.
pub(super) fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Whether Mainstay does not own all of `wanted`.
fn is_lost_in(wanted: &Value, ours: Ours<'_>) -> bool {
    let mut found = Vec::new();
    lost_in(wanted, ours, String::new(), &mut found);
    !found.is_empty()
}

fn lost_in(wanted: &Value, ours: Ours<'_>, path: String, found: &mut Vec<String>) {
    match (ours, wanted) {
        (Ours::Nothing, _) => found.extend((!is_nothing(wanted)).then_some(path)),
        (Ours::Some(_), Value::Object(fields)) => {
            for (name, value) in fields {
                lost_in(value, ours.field(name), format!("{path}.{name}"), found);
            }
        }
        (Ours::Some(_), Value::Array(items)) => {
            for item in items.iter().filter(|item| item.is_object()) {
                lost_in(item, ours.item(item), path.clone(), found);
            }
            found.dedup();
        }
        (Ours::All | Ours::Some(_), _) => {}
    }
}

/// Returns the keys of an item: `k:{"name":"web"}`.
pub(super) fn keys_of(key: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(key.strip_prefix("k:")?).ok()
}

/// Whether an item of a document has these keys. The item may omit keys with a default; only the default of `protocol`
/// is known.
pub(super) fn is_item(wanted: &Value, keys: &Map<String, Value>) -> bool {
    let is_default =
        |(name, value): (&String, &Value)| name != "protocol" || value == "TCP" || wanted.get(name).is_some();
    has_keys(wanted, keys) && keys.iter().all(is_default)
}

/// Returns how many fields of Mainstay's item have the same value in the live item, and how many there are. Omits the
/// item's keys.
fn same_fields(ours: &Value, live: &Value, keys: &Map<String, Value>) -> (usize, usize) {
    let fields = ours.as_object().into_iter().flatten().filter(|(name, _)| !keys.contains_key(*name));
    fields.fold((0, 0), |(same, all), (name, value)| {
        let is_same = live.get(name).is_some_and(|live| says(live, value));
        (same + usize::from(is_same), all + 1)
    })
}

/// Whether a live value contains the desired one. Additional live fields may be defaults.
pub(super) fn says(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(name, value)| live.get(name).is_some_and(|live| says(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| says(live, wanted))
        }
        _ => live == wanted,
    }
}

#[cfg(test)]
mod tests;
