//! The projection of a live object onto Mainstay's fields: the values at the paths that `managedFields` assign to
//! Mainstay. The store keeps only the digest of the projection. Two digests show whether one of Mainstay's fields
//! changed.
//!
//! Rules: a missing path has the value "absent". A path that was applied as an empty map, list or null has only two
//! values, "container or absent" and "something else"; otherwise additions of other managers would be in it. In a union
//! these are "container, or no other member". In lists with keys and in sets, the relative order of Mainstay's items is
//! part of the projection. Annotations `mainstay.dev/…` are not, because users set them on live objects.
//!
//! Invariant: objects that differ only in fields of other managers, or in fields that the server maintains, have the
//! same projection.

use std::collections::HashMap;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::autoscaler::is_at_zero;
use super::fields::{Fields, REPLICAS, applied_by, entries, readable};
use super::unions;
use mainstay_api::names::{ANNOTATION_PREFIX, MANAGER};
use mainstay_object::{Digest, Mask, hide_changed_logins, hide_logins};

/// Maximum length of a quoted value, in bytes.
const LONGEST_VALUE: usize = 200;

/// The value at one of Mainstay's paths.
#[derive(Clone, Debug, PartialEq)]
enum Leaf {
    /// The value, or its absence.
    Value(Option<Value>),
    /// A container that Mainstay applied empty, and whether it is still a container.
    Container { intact: bool },
    /// The order of Mainstay's items in a list with keys or in a set.
    Order(Vec<String>),
}

/// The paths that Mainstay applied as empty containers, joined with [`SEPARATOR`]; usually none.
pub type EmptyContainers = Box<[Box<str>]>;

/// Separates the keys of a path. No field name can contain this character.
const SEPARATOR: &str = "\u{1f}";

/// Returns the digest of Mainstay's fields in `live`; `None` if Mainstay has no entry in `managedFields`.
pub fn digest(live: &Value, empty_containers: &EmptyContainers) -> Option<Digest> {
    let fields = applied_by(live, MANAGER)?;
    let mut hasher = Sha256::new();
    let mut add = |path: &[&str], leaf: Leaf| {
        for key in path {
            hasher.update(key.as_bytes());
            hasher.update([0]);
        }
        match leaf {
            Leaf::Value(None) => hasher.update([1]),
            Leaf::Value(Some(value)) => {
                hasher.update([2]);
                // Writing to a hasher cannot fail, and a value that was parsed from JSON can be serialized.
                let _ = serde_json::to_writer(Writer(&mut hasher), &value);
            }
            Leaf::Container { intact } => hasher.update([3, u8::from(intact)]),
            Leaf::Order(keys) => {
                hasher.update([4]);
                for key in keys {
                    hasher.update(key.as_bytes());
                    hasher.update([0]);
                }
            }
        }
        hasher.update([0xff]);
    };
    walk(fields, Some(live), empty_containers, &mut Vec::new(), &mut |path, leaf| {
        if !matches!(leaf, Leaf::Container { .. }) {
            add(path, leaf);
        }
    });
    // The first manager that adds to an empty container takes ownership of its path from Mainstay.
    for path in empty_containers {
        let path = path.split(SEPARATOR).collect::<Vec<_>>();
        let Some((last, before)) = path.split_last() else { continue };
        let parent = before.iter().try_fold(live, |value, key| child(Some(value), key).0);
        let container = container(child(parent, last).0, parent, last);
        if container == (Leaf::Container { intact: false }) {
            add(&path, container);
        }
    }
    let full = hasher.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&full[..16]);
    Some(Digest::from_bytes(half))
}

struct Writer<'a>(&'a mut Sha256);

impl std::io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the paths that were applied as empty containers, according to the sent body.
pub fn empty_containers(answer: &Value, sent: &Value) -> EmptyContainers {
    let mut found = Vec::new();
    if let Some(fields) = applied_by(answer, MANAGER) {
        empty_containers_in(fields, sent, &mut Vec::new(), &mut found);
    }
    found.into()
}

fn empty_containers_in<'f>(fields: &'f Fields, sent: &'f Value, path: &mut Vec<String>, found: &mut Vec<Box<str>>) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    // Another manager may have taken them from Mainstay.
    let fields_sent = sent.as_object().into_iter().flatten().map(|(name, value)| (format!("f:{name}"), value));
    let taken = fields_sent.filter(|(key, value)| is_empty(value) && !fields.contains_key(key));
    let ours = fields.iter().filter_map(|(key, _)| Some((key.clone(), child(Some(sent), key).0?)));
    for (key, value) in ours.chain(taken).filter(|(key, _)| key != ".") {
        let inside = fields.get(&key).and_then(Value::as_object).filter(|inside| !inside.is_empty());
        path.push(key);
        match inside {
            Some(inside) => empty_containers_in(inside, value, path, found),
            None if is_empty(value) => found.push(path.join(SEPARATOR).into_boxed_str()),
            None => {}
        }
        path.pop();
    }
}

/// One of Mainstay's paths at which two states of an object differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Readable path.
    pub path: String,
    /// The value before, as compact JSON cut to 200 bytes, or `absent`.
    pub found: String,
    /// The value after, in the same form.
    pub restored: String,
    /// The last writer of the path in the state before, according to `managedFields`.
    pub who: Option<String>,
}

/// Returns the differences between two states at Mainstay's paths in `restored`. Includes the replica count of an
/// autoscaled workload that was at 0 and no longer is.
pub fn differences(found: &Value, restored: &Value, empty_containers: &EmptyContainers) -> Vec<Difference> {
    let Some(fields) = applied_by(restored, MANAGER) else { return Vec::new() };
    let collect = |value: &Value| {
        let mut leaves = Vec::new();
        walk(fields, Some(value), empty_containers, &mut Vec::new(), &mut |path, leaf| {
            let path = path.iter().map(|&key| key.to_owned()).collect::<Vec<_>>();
            leaves.push(((path, matches!(leaf, Leaf::Order(_))), leaf));
        });
        leaves
    };
    let before = collect(found).into_iter().collect::<HashMap<_, _>>();
    let mut all = Vec::new();
    for (place, after) in collect(restored) {
        // A single remaining item has no order. Missing items are reported one by one.
        let Some(before) = before.get(&place).filter(|before| **before != after) else { continue };
        let (path, _) = place;
        let keys = path.iter().map(String::as_str).collect::<Vec<_>>();
        let order = matches!(after, Leaf::Order(_));
        let (found_value, restored_value) = quote(before, &after);
        all.push(Difference {
            path: if order { format!("{} (order)", readable(&keys)) } else { readable(&keys) },
            found: found_value,
            restored: restored_value,
            who: if order { None } else { last_writer(found, &keys) },
        });
    }
    // A missing item also lacks its fields, but only the item is reported.
    all.dedup_by(|later, earlier| {
        let inside = later.path.strip_prefix(&earlier.path);
        earlier.found == "absent" && inside.is_some_and(|rest| rest.starts_with(['.', '[']))
    });
    let count = readable(&REPLICAS);
    if is_at_zero(found) && !is_at_zero(restored) && all.iter().all(|known| known.path != count) {
        let who = last_writer(found, &REPLICAS);
        let (found, restored) = quoted_pair(value_at(found, &REPLICAS), value_at(restored, &REPLICAS));
        all.push(Difference { path: count, found, restored, who });
    }
    all
}

/// Returns the manager that owns `path`, other than Mainstay's applies; the latest if there are several.
pub(crate) fn last_writer(object: &Value, path: &[&str]) -> Option<String> {
    entries(object)
        .filter(|e| !(e.manager == MANAGER && e.operation == "Apply"))
        .filter(|e| super::fields::owns(e.fields, path))
        .max_by_key(|e| e.time)
        .map(|e| e.manager.to_owned())
}

/// Returns two leaves of the same path as texts.
fn quote(found: &Leaf, restored: &Leaf) -> (String, String) {
    match (found, restored) {
        (Leaf::Value(found), Leaf::Value(restored)) => quoted_pair(found.as_ref(), restored.as_ref()),
        (Leaf::Order(found), Leaf::Order(restored)) => quoted_orders(found, restored),
        _ => (quote_one(found), quote_one(restored)),
    }
}

fn quote_one(leaf: &Leaf) -> String {
    match leaf {
        Leaf::Value(value) => quoted_pair(value.as_ref(), None).0,
        Leaf::Container { intact: true } => "present".to_owned(),
        Leaf::Container { intact: false } => "replaced".to_owned(),
        Leaf::Order(keys) => quoted_orders(keys, &[]).0,
    }
}

/// Returns two orders of items. Keys of items may be URLs with logins.
fn quoted_orders(found: &[String], restored: &[String]) -> (String, String) {
    let name = |keys: &[String], at: usize| keys.get(at).map(|key| readable(&[key]));
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for at in 0..found.len().max(restored.len()) {
        match (name(found, at), name(restored, at)) {
            (Some(one), Some(other)) => {
                let (one, other) = hide_changed_logins(&one, &other);
                before.push(one);
                after.push(other);
            }
            (one, other) => {
                before.extend(one.map(|one| hide_logins(&one).into_owned()));
                after.extend(other.map(|other| hide_logins(&other).into_owned()));
            }
        }
    }
    (shortened(before.join(" ")), shortened(after.join(" ")))
}

/// Returns the two values of a change as compact JSON cut to 200 bytes, or `absent`. Logins of URLs are hidden, because users
/// who may not read the object may read the status. A changed login is marked.
pub(crate) fn quoted_pair(found: Option<&Value>, restored: Option<&Value>) -> (String, String) {
    let (found, restored) = Mask { is_confidential: false, secrets: &[] }.apply(found, restored);
    let quoted = |value: Option<Value>| value.map_or_else(|| "absent".to_owned(), |value| shortened(value.to_string()));
    (quoted(found), quoted(restored))
}

/// Returns the value at a path of a field set.
pub(crate) fn value_at<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, key| child(Some(value), key).0)
}

fn shortened(text: String) -> String {
    let cut = mainstay_api::conditions::cut(&text, LONGEST_VALUE);
    if cut.len() < text.len() { format!("{cut}…") } else { text }
}

fn walk<'f>(
    fields: &'f Fields,
    live: Option<&Value>,
    empty_containers: &EmptyContainers,
    path: &mut Vec<&'f str>,
    visit: &mut dyn FnMut(&[&'f str], Leaf),
) {
    let mut order: Vec<(usize, &str)> = Vec::new();
    for (key, inside) in fields {
        if is_for_people(path, key) {
            continue;
        }
        let (child, at) = child(live, key);
        if let Some(at) = at {
            order.push((at, key));
        }
        path.push(key);
        match inside.as_object() {
            Some(inside) if key != "." && !inside.is_empty() => walk(inside, child, empty_containers, path, visit),
            _ => visit(path, leaf(child, live, path, empty_containers)),
        }
        path.pop();
    }
    if order.len() > 1 {
        order.sort_unstable();
        visit(path, Leaf::Order(order.into_iter().map(|(_, key)| key.to_owned()).collect()));
    }
}

fn leaf(value: Option<&Value>, parent: Option<&Value>, path: &[&str], empty_containers: &EmptyContainers) -> Leaf {
    if path.last() == Some(&".") {
        // Only the presence of the node counts, not the content that others add to it.
        return Leaf::Value(value.map(|_| Value::Bool(true)));
    }
    if !empty_containers.is_empty() && empty_containers.contains(&path.join(SEPARATOR).into_boxed_str()) {
        return container(value, parent, path.last().copied().unwrap_or_default());
    }
    Leaf::Value(value.cloned())
}

/// Returns the state of a container that Mainstay applied empty. A missing member of a union counts as replaced if
/// another member exists.
fn container(value: Option<&Value>, parent: Option<&Value>, key: &str) -> Leaf {
    let name = key.strip_prefix("f:").unwrap_or_default();
    let is_replaced = || {
        let others = parent.and_then(Value::as_object).into_iter().flatten();
        others.into_iter().any(|(other, _)| unions::exclude(name, other))
    };
    let intact = value.map_or_else(|| !is_replaced(), |v| v.is_object() || v.is_array() || v.is_null());
    Leaf::Container { intact }
}

/// Returns the child of `live` at `key`, and its position if it is an item of a list.
pub(crate) fn child<'v>(live: Option<&'v Value>, key: &str) -> (Option<&'v Value>, Option<usize>) {
    let Some((kind, name)) = key.split_once(':') else { return (live, None) };
    match kind {
        "f" => (live.and_then(|v| v.get(name)), None),
        "k" => {
            let Ok(keys) = serde_json::from_str::<Map<String, Value>>(name) else { return (None, None) };
            item(live, |item| has_keys(item, &keys))
        }
        "v" => {
            let Ok(wanted) = serde_json::from_str::<Value>(name) else { return (None, None) };
            item(live, |item| *item == wanted)
        }
        _ => (None, None),
    }
}

fn item(list: Option<&Value>, is: impl Fn(&Value) -> bool) -> (Option<&Value>, Option<usize>) {
    let Some(list) = list.and_then(Value::as_array) else { return (None, None) };
    match list.iter().position(is) {
        Some(at) => (Some(&list[at]), Some(at)),
        None => (None, None),
    }
}

/// Whether an item has these keys. A sent item may omit keys with a default, such as a port's protocol.
pub(crate) fn has_keys(item: &Value, keys: &Map<String, Value>) -> bool {
    let mut some = false;
    keys.iter().all(|(name, wanted)| match item.get(name) {
        Some(value) => {
            some = true;
            value == wanted
        }
        None => true,
    }) && some
}

fn is_for_people(path: &[&str], key: &str) -> bool {
    path == ["f:metadata", "f:annotations"] && key.strip_prefix("f:").is_some_and(|k| k.starts_with(ANNOTATION_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns an object with an entry of Mainstay for `fields`.
    fn object(body: Value, fields: Value) -> Value {
        let mut object = body;
        object["metadata"]["managedFields"] =
            json!([{"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields}]);
        object
    }

    fn of(body: Value, fields: Value) -> Option<Digest> {
        digest(&object(body, fields), &EmptyContainers::default())
    }

    #[test]
    fn detects_changed_missing_and_lost_fields() {
        let fields = json!({"f:data": {"f:a": {}}});
        let was = of(json!({"data": {"a": "1"}}), fields.clone());
        assert_ne!(was, of(json!({"data": {"a": "2"}}), fields.clone()));
        assert_ne!(was, of(json!({"data": {}}), fields.clone()));
        assert_ne!(was, of(json!({"data": {"a": "1"}}), json!({"f:data": {}})));
        assert_eq!(digest(&json!({"data": {"a": "1"}}), &EmptyContainers::default()), None);
    }

    #[test]
    fn ignores_fields_of_others() {
        let fields = json!({"f:data": {"f:a": {}}});
        let was = of(json!({"data": {"a": "1"}}), fields.clone());
        assert_eq!(was, of(json!({"data": {"a": "1", "b": "2"}, "status": {"x": 1}}), fields));
    }

    #[test]
    fn counts_the_relative_order_of_our_own_items_only() {
        let fields = json!({"f:env": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}});
        let list = |names: &[&str]| json!({"env": names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()});
        let was = of(list(&["a", "b"]), fields.clone());
        assert_eq!(was, of(list(&["x", "a", "y", "b"]), fields.clone()));
        assert_ne!(was, of(list(&["b", "a"]), fields));
    }

    #[test]
    fn counts_a_container_that_we_applied_empty_as_container_or_absent() {
        let fields = json!({"f:metadata": {"f:annotations": {}}});
        let sent = json!({"metadata": {"annotations": {}}});
        let answer = object(json!({"metadata": {}}), fields.clone());
        let empty_containers = empty_containers(&answer, &sent);
        assert_eq!(empty_containers.len(), 1);
        let theirs = object(json!({"metadata": {"annotations": {"x": "y"}}}), fields);
        assert_eq!(digest(&answer, &empty_containers), digest(&theirs, &empty_containers));
        let taken = object(json!({"metadata": {"annotations": {"x": "y"}}}), json!({}));
        assert_eq!(digest(&answer, &empty_containers), digest(&taken, &empty_containers));
    }

    #[test]
    fn detects_another_member_of_a_union_instead_of_an_empty_one() {
        let fields = json!({"f:volume": {".": {}, "f:name": {}, "f:emptyDir": {}}});
        let sent = json!({"volume": {"name": "a", "emptyDir": {}}});
        let answer = object(sent.clone(), fields);
        let empty_containers = empty_containers(&answer, &sent);
        let left = json!({"f:volume": {".": {}, "f:name": {}}});
        let with = |volume: Value| digest(&object(json!({"volume": volume}), left.clone()), &empty_containers);
        assert_eq!(digest(&answer, &empty_containers), with(json!({"name": "a", "emptyDir": {"medium": "Memory"}})));
        assert_ne!(digest(&answer, &empty_containers), with(json!({"name": "a", "hostPath": {"path": "/"}})));
    }

    #[test]
    fn never_counts_annotations_for_people() {
        let fields = json!({"f:metadata": {"f:annotations": {"f:mainstay.dev/prune": {}, "f:x": {}}}});
        let with = |v: &str| json!({"metadata": {"annotations": {"mainstay.dev/prune": v, "x": "1"}}});
        assert_eq!(of(with("a"), fields.clone()), of(with("b"), fields));
    }

    #[test]
    fn reports_path_values_and_writer_of_a_difference() {
        let restored = object(
            json!({"spec": {"containers": [{"name": "web", "image": "a"}]}}),
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}}}),
        );
        let mut found = json!({"spec": {"containers": [{"name": "web", "image": "b"}]}, "metadata": {"managedFields": [
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:00:00Z",
             "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {"f:image": {}}}}}}]}});
        let expected = Difference {
            path: r#"spec.containers[name="web"].image"#.into(),
            found: r#""b""#.into(),
            restored: r#""a""#.into(),
            who: Some("kubectl-edit".into()),
        };
        assert_eq!(differences(&found, &restored, &EmptyContainers::default()), [expected]);
        found["spec"]["containers"] = json!([]);
        let gone = differences(&found, &restored, &EmptyContainers::default());
        assert_eq!(gone.iter().map(|d| d.path.as_str()).collect::<Vec<_>>(), [r#"spec.containers[name="web"]"#]);
    }

    #[test]
    fn reports_missing_items_without_an_order() {
        let items =
            json!({"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}});
        let fields = json!({"f:env": items, "f:selector": {}});
        let restored = object(json!({"env": [{"name": "a"}, {"name": "b"}], "selector": "x"}), fields);
        let found = json!({"env": [{"name": "b"}], "selector": "x"});
        let paths =
            differences(&found, &restored, &EmptyContainers::default()).into_iter().map(|d| d.path).collect::<Vec<_>>();
        assert_eq!(paths, [r#"env[name="a"]"#]);
    }

    #[test]
    fn a_changed_login_of_a_url_is_marked_and_not_shown() {
        let fields = json!({"f:spec": {"f:url": {}, "f:same": {}}});
        let of = |login: &str| json!({"spec": {"url": format!("https://{login}@h"), "same": "https://u:hunter2@h"}});
        let restored = object(of("u:hunter2"), fields);
        let all = differences(&of("u:hunter3"), &restored, &EmptyContainers::default());
        let texts = all.iter().map(|d| (&*d.path, &*d.found, &*d.restored)).collect::<Vec<_>>();
        let marked = ("spec.url", r#""https://(hidden-before)@h""#, r#""https://(hidden-after)@h""#);
        assert_eq!(texts, [marked]);
        let whole = |login: &str| json!([{"url": format!("https://{login}@h")}]);
        let (found, restored) = quoted_pair(Some(&whole("a")), Some(&whole("b")));
        assert_eq!(found, r#"[{"url":"https://(hidden-before)@h"}]"#);
        assert_eq!(restored, r#"[{"url":"https://(hidden-after)@h"}]"#);
        assert_eq!(quoted_pair(None, Some(&json!(1))), ("absent".to_owned(), "1".to_owned()));
        let key = |login: &str| json!({format!("https://{login}@h"): "1"});
        let (found, restored) = quoted_pair(Some(&key("u:hunter2")), Some(&key("u:pa hunter2")));
        assert_eq!(found, r#"{"https://(hidden-before)@h":"1"}"#);
        assert_eq!(restored, r#"{"https://(hidden-after)@h":"1"}"#);
        let long = key(&"x".repeat(2 * LONGEST_VALUE));
        assert_eq!(quoted_pair(Some(&long), None).0, r#"{"https://(hidden)@h":"1"}"#);
    }

    #[test]
    fn the_order_of_urls_shows_no_login() {
        let keys = |logins: [&str; 2]| logins.map(|login| format!("v:\"https://{login}@h\"")).to_vec();
        let (found, restored) = quoted_orders(&keys(["u:hunter2", "u:hunter3"]), &keys(["u:hunter3", "u:hunter2"]));
        assert_eq!(found, r#"[="https://(hidden-before)@h"] [="https://(hidden-before)@h"]"#);
        assert_eq!(restored, r#"[="https://(hidden-after)@h"] [="https://(hidden-after)@h"]"#);
    }
}
