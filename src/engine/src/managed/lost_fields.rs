//! Lost fields: fields of a document that other managers took from Mainstay in a live object. A revert would restore
//! them. They are found without a request.
//!
//! Not here: changes after which Mainstay still owns the field, such as a different order or an apply under Mainstay's
//! name.

use serde_json::{Map, Value};

use super::collision::{is_item, is_nothing, keys_of, says};
use super::fields::{Fields, applied_by, readable};
use super::projection::{Difference, has_keys, last_writer, quoted_pair};
use mainstay_api::names::{ANNOTATION_PREFIX, MANAGER};

/// Returns the differences of `live` from `body` at paths that Mainstay no longer owns.
pub(super) fn lost_fields(body: &Value, live: &Value) -> Vec<Difference> {
    let mut walk = Walk { live, path: Vec::new(), found: Vec::new() };
    let ours = applied_by(live, MANAGER);
    for (name, wanted) in body.as_object().into_iter().flatten() {
        let (at, field) = (live.get(name), format!("f:{name}"));
        let ours = ours.map(|ours| ours.get(&field).and_then(Value::as_object));
        match (name.as_str(), wanted) {
            ("apiVersion" | "kind" | "status", _) => {}
            ("metadata", Value::Object(wanted)) => {
                let wanted = wanted.iter().filter(|(name, _)| !["name", "namespace"].contains(&name.as_str()));
                let ours = ours.flatten();
                walk.within(field, |walk| {
                    for (name, wanted) in wanted {
                        walk.field(name, wanted, at, ours);
                    }
                });
            }
            _ => walk.within(field, |walk| walk.value(wanted, at, ours.flatten())),
        }
    }
    walk.found.dedup_by(|later, earlier| later.path == earlier.path);
    walk.found
}

/// A walk through a document, its live object, and Mainstay's fields in the live object.
struct Walk<'v> {
    live: &'v Value,
    path: Vec<String>,
    found: Vec<Difference>,
}

impl Walk<'_> {
    fn within(&mut self, key: String, walk: impl FnOnce(&mut Self)) {
        self.path.push(key);
        walk(self);
        self.path.pop();
    }

    fn field(&mut self, name: &str, wanted: &Value, parent: Option<&Value>, ours: Option<&Fields>) {
        let is_for_people = name.starts_with(ANNOTATION_PREFIX) && self.path == ["f:metadata", "f:annotations"];
        if is_for_people {
            return;
        }
        let key = format!("f:{name}");
        let ours = ours.and_then(|ours| ours.get(&key)).and_then(Value::as_object);
        self.within(key, |walk| walk.value(wanted, parent.and_then(|parent| parent.get(name)), ours));
    }

    /// Compares a value. `ours` are the fields in it that Mainstay owns: `None` if Mainstay owns none, empty if
    /// Mainstay owns the whole value.
    fn value(&mut self, wanted: &Value, live: Option<&Value>, ours: Option<&Fields>) {
        match (ours, wanted) {
            // If the whole value was taken, only its changed parts are reported.
            (None, Value::Object(fields)) if live.is_some_and(Value::is_object) || self.is_in_metadata() => {
                for (name, wanted) in fields {
                    self.field(name, wanted, live, None);
                }
            }
            (None, _) => self.lost(wanted, live),
            (Some(ours), _) if ours.is_empty() => {}
            (Some(ours), Value::Object(fields)) => {
                for (name, wanted) in fields {
                    self.field(name, wanted, live, Some(ours));
                }
            }
            (Some(ours), Value::Array(items)) => self.items(items, live, ours),
            (Some(_), _) => {}
        }
    }

    fn items(&mut self, items: &[Value], live: Option<&Value>, ours: &Fields) {
        let keys = ours.keys().filter_map(|key| Some((key, keys_of(key)?))).collect::<Vec<(&String, Map<_, _>)>>();
        for item in items.iter().filter(|item| item.is_object()) {
            let Some((key, keys)) = keys.iter().find(|(_, keys)| is_item(item, keys)) else {
                self.lost(item, None);
                continue;
            };
            let live = live.and_then(Value::as_array).and_then(|all| all.iter().find(|item| has_keys(item, keys)));
            let inside = ours.get(*key).and_then(Value::as_object);
            self.within((*key).clone(), |walk| walk.value(item, live, inside));
        }
    }

    /// Whether the walk is in the metadata. Labels and annotations are reported one by one.
    fn is_in_metadata(&self) -> bool {
        self.path.first().is_some_and(|first| first == "f:metadata")
    }

    fn lost(&mut self, wanted: &Value, live: Option<&Value>) {
        let is_empty = is_nothing(wanted) || wanted.as_object().is_some_and(Map::is_empty);
        if is_empty || live.is_some_and(|live| says(live, wanted)) {
            return;
        }
        let path = self.path.iter().map(String::as_str).collect::<Vec<_>>();
        let who = last_writer(self.live, &path);
        let (found, restored) = quoted_pair(live, Some(wanted));
        self.found.push(Difference { path: readable(&path), found, restored, who });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const THEIRS: &str = "kubectl-edit";

    /// Returns a live object in which Mainstay owns `ours` and another manager owns `theirs`.
    fn live(mut object: Value, ours: &Value, theirs: &Value) -> Value {
        let time = "2030-01-01T00:00:00Z";
        object["metadata"]["managedFields"] = json!([
            {"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsV1": ours},
            {"manager": THEIRS, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsV1": theirs},
        ]);
        object
    }

    /// Compares the differences, each as `path: found → wanted (who)`.
    fn check(body: &Value, live: &Value, expected: &[&str]) {
        let text = |d: Difference| format!("{}: {} → {} ({})", d.path, d.found, d.restored, d.who.unwrap_or_default());
        assert_eq!(lost_fields(body, live).into_iter().map(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn names_lost_fields_with_both_values_and_their_manager() {
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"team": "x", "y/z": "1"}},
            "data": {"a": "1", "b": "2", "c": "3"},
        });
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1", "b": "9"},
        });
        let ours = json!({"f:data": {"f:a": {}}});
        let live = live(object, &ours, &json!({"f:data": {"f:b": {}}}));
        let expected = [
            "data.b: \"9\" → \"2\" (kubectl-edit)",
            "data.c: absent → \"3\" ()",
            "metadata.labels.team: absent → \"x\" ()",
            "metadata.labels[y/z]: absent → \"1\" ()",
        ];
        check(&body, &live, &expected);
    }

    #[test]
    fn follows_items_of_lists_by_their_keys_and_names_a_list_that_lost_one() {
        let body =
            json!({"spec": {"containers": [{"name": "web", "image": "a", "env": [{"name": "A", "value": "1"}]}]}});
        let item = |image: Value| json!({"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": image}});
        let theirs = json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {"f:image": {}}}}});
        let object = json!({"spec": {"containers": [{"name": "sidecar"}, {"name": "web", "image": "b"}]}});
        let mut ours = json!({"f:spec": {"f:containers": item(json!({}))}});
        let fields = ours.pointer_mut("/f:spec/f:containers/k:{\"name\":\"web\"}").unwrap();
        fields.as_object_mut().unwrap().remove("f:image");
        fields["f:env"] = json!({"k:{\"name\":\"B\"}": {".": {}}});
        let expected = [
            "spec.containers[name=\"web\"].image: \"b\" → \"a\" (kubectl-edit)",
            "spec.containers[name=\"web\"].env: absent → {\"name\":\"A\",\"value\":\"1\"} ()",
        ];
        let mut found = lost_fields(&body, &live(object.clone(), &ours, &theirs));
        found.sort_by_key(|difference| std::cmp::Reverse(difference.path.clone()));
        let text = |d: Difference| format!("{}: {} → {} ({})", d.path, d.found, d.restored, d.who.unwrap_or_default());
        assert_eq!(found.into_iter().map(text).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn owned_fields_do_not_differ_after_defaulting_by_the_server() {
        let body = json!({"spec": {"cpu": "1000m", "empty": {}, "none": null, "tags": ["b", "a"]}});
        let object = json!({"spec": {"cpu": "1", "tags": ["a", "b"], "theirs": 1}});
        check(&body, &live(object, &json!({"f:spec": {"f:cpu": {}, "f:tags": {}}}), &json!({})), &[]);
    }
}
