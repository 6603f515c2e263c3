//! Manual changes of managed objects, as listed in the statuses of GitSyncs.
//!
//! Not here: values of Secrets, because the status contains none.

use jiff::Timestamp;
use serde_json::Value;

use crate::field::{text_at, time_at};
use crate::objects_cluster::ObjectsCluster;
use crate::text::{SHORT, lasted, plain};
use mainstay_object::{hide_changed_logins, hide_logins};

/// Maximum number of changes of a GitSync.
const MOST: usize = 40;

/// The outcome of a manual change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The change was reverted after this time in milliseconds.
    Reverted(i64),
    /// The change remains in the cluster, for this reason.
    Remains(String),
}

/// A changed field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) path: String,
    /// The value in the repository and the value after the change, if they are known.
    pub(crate) values: Option<(String, String)>,
}

/// A manual change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) when: Option<Timestamp>,
    pub(crate) object: String,
    pub(crate) cluster: ObjectsCluster,
    pub(crate) who: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) end: End,
}

impl Edit {
    /// Returns the approximate memory of the change in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let field = |field: &Field| {
            let values = field.values.as_ref().map_or(0, |(restored, found)| restored.len() + found.len());
            size_of::<Field>() + field.path.len() + values
        };
        let end = if let End::Remains(reason) = &self.end { reason.len() } else { 0 };
        size_of::<Self>() + self.object.len() + self.who.len() + end + self.fields.iter().map(field).sum::<usize>()
    }

    /// Returns the outcome of the change in words.
    pub(crate) fn end_text(&self) -> String {
        match &self.end {
            End::Reverted(millis) => format!("reverted after {}", lasted(*millis)),
            End::Remains(reason) => format!("remains: {reason}"),
        }
    }
}

/// Returns the changes that the status of a GitSync lists.
pub(crate) fn of_status(live: &Value) -> Vec<Edit> {
    let cluster = ObjectsCluster::of(live);
    let list = |pointer: &str| live.pointer(pointer).and_then(Value::as_array).into_iter().flatten().take(MOST);
    let reverted = list("/status/lastReverts").map(|one| {
        let millis = one.pointer("/latencyMs").and_then(Value::as_i64).unwrap_or_default();
        edit(one, cluster, "/when", End::Reverted(millis))
    });
    let remaining =
        list("/status/drifted").map(|one| edit(one, cluster, "/since", End::Remains(text_at(one, "/reason", SHORT))));
    remaining.chain(reverted).collect()
}

/// Returns the path of a field. Keys of items may be URLs with logins.
fn path(field: &str) -> String {
    plain(&hide_logins(field), SHORT)
}

fn edit(one: &Value, cluster: ObjectsCluster, time: &str, end: End) -> Edit {
    let list = |pointer: &str| one.pointer(pointer).and_then(Value::as_array).into_iter().flatten().take(MOST);
    let changes: Vec<Field> = list("/changes")
        .map(|change| {
            let text = |name: &str| change.get(name).and_then(Value::as_str).unwrap_or_default();
            // The login of a URL is hidden before a text is cut, which could end within the login.
            let (found, restored) = hide_changed_logins(text("found"), text("restored"));
            let values = Some((plain(&restored, SHORT), plain(&found, SHORT)));
            Field { path: path(text("field")), values }
        })
        .collect();
    let named = list("/fields").filter_map(Value::as_str).map(path);
    let others = named.filter(|path| changes.iter().all(|change| change.path != *path));
    let others: Vec<Field> = others.map(|path| Field { path, values: None }).collect();
    Edit {
        when: time_at(one, time),
        object: text_at(one, "/object", SHORT),
        cluster,
        who: text_at(one, "/who", SHORT),
        fields: changes.into_iter().chain(others).collect(),
        end,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_shows_no_login_of_a_url_also_if_it_is_cut() {
        let url = |login: &str| format!("\"https://{login}@host\"");
        let change = json!({"field": "spec.url", "found": url("a:hunter2"), "restored": url(&"x".repeat(2 * SHORT))});
        let status = json!({"drifted": [{"object": "ConfigMap shop/a", "changes": [change]}]});
        let edits = of_status(&json!({ "status": status }));
        let values = edits[0].fields[0].values.clone().unwrap();
        assert_eq!(values, (url("(hidden-after)"), url("(hidden-before)")));
    }

    #[test]
    fn the_path_of_a_field_shows_no_login_of_a_url() {
        let field = |login: &str| format!("spec.urls[=\"https://{login}@host\"]");
        let other = format!("{}.name", field("b:hunter2"));
        let change = json!({"field": field("a:hunter2"), "found": "1", "restored": "2"});
        let one = json!({"object": "ConfigMap shop/a", "changes": [change], "fields": [field("a:hunter2"), other]});
        let edits = of_status(&json!({"status": {"drifted": [one]}}));
        let paths: Vec<&str> = edits[0].fields.iter().map(|field| &*field.path).collect();
        assert_eq!(paths, [field("(hidden)"), format!("{}.name", field("(hidden)"))]);
    }
}
