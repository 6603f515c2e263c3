//! Converts `metadata.managedFields` to entries and back.
//!
//! Invariant: decoding returns at most one entry per identity. Every entry owns a field. Encoded entries are sorted:
//! `Apply` before `Update`, then by time.

use serde_json::{Map, Value, json};

use super::fields::FieldSet;

/// The operation of a manager.
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
    /// Formats the manager for conflicts: `"hpa" with subresource "scale" using apps/v1`.
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

    /// Returns whether this is the entry of a manager. Versions distinguish only `Update` entries.
    pub(crate) fn is(&self, operation: Operation, manager: &str, subresource: &str, api_version: &str) -> bool {
        self.operation == operation
            && self.manager == manager
            && self.subresource == subresource
            && (operation == Operation::Apply || self.api_version == api_version)
    }
}

/// Maximum number of `Update` entries of an object. The oldest are merged.
const MOST_UPDATERS: usize = 10;
/// The manager of merged `Update` entries.
const ANCIENT: &str = "ancient-changes";

/// Parses `managedFields`; `None` if an entry is invalid.
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
            // Two entries have the same identity. As on a real server, the last one counts.
            Some(twin) => *twin = entry,
            None => entries.push(entry),
        }
    }
    Some(entries)
}

/// Returns whether the written `managedFields` resets all ownership: `[]` or `[{}]`.
pub(crate) fn is_reset(value: Option<&Value>) -> bool {
    match value.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Returns the value of `managedFields`; `None` if no field is owned.
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

/// Returns the time without fractions. RFC 3339 times in UTC sort as text.
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

/// Merges entries, oldest first. The first entry of each version collects the later ones.
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
