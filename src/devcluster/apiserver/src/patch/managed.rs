//! `metadata.managedFields` becomes entries, and entries become `metadata.managedFields`.
//!
//! Invariant: at most one entry per identity is read; entries own something; encoded, `Apply` stands before `Update`, then
//! older before newer.

use serde_json::{Map, Value, json};

use super::fields::FieldSet;

/// How a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// The fields that one manager owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
    pub time: Option<String>,
    pub fields: FieldSet,
}

impl Entry {
    /// The name in conflicts: `"hpa" with subresource "scale" using apps/v1`.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }

    /// Whether this is the manager of the given name. The version only tells `Update` entries apart.
    pub(crate) fn is(&self, operation: Operation, manager: &str, subresource: &str, api_version: &str) -> bool {
        self.operation == operation
            && self.manager == manager
            && self.subresource == subresource
            && (operation == Operation::Apply || self.api_version == api_version)
    }
}

/// The most `Update` entries an object keeps; older ones are merged.
const MOST_UPDATERS: usize = 10;
/// The manager that old `Update` entries are merged into.
const ANCIENT: &str = "ancient-changes";

/// Reads the value of `managedFields`; `None` when an entry makes no sense.
pub(crate) fn decode(value: Option<&Value>) -> Option<Vec<Entry>> {
    let Some(value) = value.filter(|v| !v.is_null()) else { return Some(Vec::new()) };
    let mut entries: Vec<Entry> = Vec::new();
    for raw in value.as_array()? {
        let text = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if text("fieldsType") != "FieldsV1" {
            return None;
        }
        let fields = match raw.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::default(),
            Some(fields) => FieldSet::decode(fields)?,
        };
        let entry = Entry {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: raw.get("time").and_then(Value::as_str).map(str::to_owned),
            fields,
        };
        let twin = entries.iter_mut().find(|e| e.is(operation, &entry.manager, &entry.subresource, &entry.api_version));
        match twin {
            // As on a real server the last one counts.
            Some(twin) => *twin = entry,
            None => entries.push(entry),
        }
    }
    Some(entries)
}

/// Whether a written `managedFields` asks to forget all ownership: `[]` or `[{}]`.
pub(crate) fn is_reset(value: Option<&Value>) -> bool {
    match value.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// The value of `managedFields`; `None` when nobody owns anything.
pub(crate) fn encode(mut entries: Vec<Entry>) -> Option<Value> {
    entries.retain(|e| !e.fields.is_empty());
    entries.sort_by(|a, b| {
        let order = |e: &Entry| (e.operation, seconds(e).to_owned());
        order(a).cmp(&order(b)).then_with(|| {
            (&a.manager, &a.api_version, &a.subresource).cmp(&(&b.manager, &b.api_version, &b.subresource))
        })
    });
    (!entries.is_empty()).then(|| entries.iter().map(encode_entry).collect())
}

fn encode_entry(entry: &Entry) -> Value {
    let mut value = json!({
        "manager": entry.manager,
        "operation": if entry.operation == Operation::Apply { "Apply" } else { "Update" },
        "apiVersion": entry.api_version,
        "fieldsType": "FieldsV1",
    });
    if let Value::Object(map) = &mut value {
        map.insert("fieldsV1".into(), entry.fields.encode());
        if let Some(time) = &entry.time {
            map.insert("time".into(), time.clone().into());
        }
        if !entry.subresource.is_empty() {
            map.insert("subresource".into(), entry.subresource.clone().into());
        }
    }
    value
}

/// Times are RFC 3339 in UTC, so that they sort as text; only whole seconds count.
fn seconds(entry: &Entry) -> &str {
    let time = entry.time.as_deref().unwrap_or_default();
    time.get(..19).unwrap_or(time)
}

/// Merges the oldest `Update` entries of each version until at most ten are left.
pub(crate) fn cap_updaters(entries: &mut Vec<Entry>) {
    let mut updaters: Vec<Entry> = Vec::new();
    entries.retain(|entry| {
        let keep = entry.operation == Operation::Apply;
        if !keep {
            updaters.push(entry.clone());
        }
        keep
    });
    if updaters.len() > MOST_UPDATERS {
        updaters.sort_by(|a, b| (seconds(a), &a.manager).cmp(&(seconds(b), &b.manager)));
        updaters = merge_oldest(updaters);
    }
    entries.append(&mut updaters);
}

/// Goes through the entries, oldest first. The first of a version waits; a second one joins it in the bucket.
fn merge_oldest(updaters: Vec<Entry>) -> Vec<Entry> {
    let mut length = updaters.len();
    let mut kept: Vec<Entry> = Vec::new();
    for entry in updaters {
        let partner = kept.iter_mut().find(|e| e.api_version == entry.api_version);
        match partner {
            Some(partner) if length > MOST_UPDATERS => {
                ANCIENT.clone_into(&mut partner.manager);
                partner.subresource.clear();
                partner.fields.unite(&entry.fields);
                partner.time = entry.time;
                length -= 1;
            }
            _ => kept.push(entry),
        }
    }
    kept
}
