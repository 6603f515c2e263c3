//! Fields that users' tools added to an object, for owners that revert them (`spec.additions`).
//!
//! Server-side apply keeps the fields of other managers. Additions by these tools are moved into Mainstay's entry in
//! `managedFields`. The next apply omits them and therefore removes them. A tool is recognized only by the name of its
//! field manager: a controller named `kubectl` counts as a user's tool.
//!
//! Invariant: fields of controllers, admission webhooks and the API server stay, as do ignored fields and writes to a
//! subresource (`kubectl scale`, status).
//! Invariant: `kubectl rollout restart` is not an addition. The same holds for finalizers, owner references, replicas,
//! and labels and annotations `mainstay.dev/…`.
//!
//! Not here: the time of an addition. Fields from before Mainstay's first apply are removed, too.

use serde_json::Value;

use super::collision::Collision;
use super::desired::Desired;
use super::fields::{Fields, applied_by, readable, subtract};
use super::ownership::{is_kubectl, moved};
use super::projection::{Difference, quoted_pair, value_at};
use mainstay_api::names::{ANNOTATION_PREFIX, MANAGER, RESTARTED_AT};

/// Field managers of users' tools, besides `kubectl`.
const TOOLS: [&str; 10] =
    ["k9s", "Lens", "OpenLens", "Freelens", "node-fetch", "dashboard", "Mozilla", "headlamp", "helm", "Helm"];
/// Whether users' tools added fields to an object, given its [`Desired::view`].
pub(crate) fn are_in(desired: &Desired, view: &Value) -> bool {
    of(desired, view).any(|(_, added)| !added.is_empty())
}

/// Returns `collision` extended by the additions of tools; the next apply removes both.
pub(crate) fn with(collision: Option<Collision>, desired: &Desired, live: &Value, now: &str) -> Option<Collision> {
    let view = desired.view(live);
    let last = of(desired, &view).filter(|(_, added)| !added.is_empty());
    let Some((last, _)) = last.max_by_key(|(entry, _)| entry["time"].as_str().map(str::to_owned)) else {
        return collision;
    };
    let who = last["manager"].as_str().map(str::to_owned);
    let (Some(ours), Some(api_version)) = (applied_by(&view, MANAGER), own_version(&view)) else { return collision };
    let entries = collision.as_ref().map(|collision| &collision.entries);
    let Some(entries) = entries.or(live.pointer("/metadata/managedFields")) else { return collision };
    let moved = moved(entries, api_version, now, is_tools, |fields| added(desired, ours, fields));
    moved.map(|entries| Collision { entries, who }).or(collision)
}

/// Adds the additions of tools to the known differences, with their values in `found` and `restored`.
pub(crate) fn add_differences(known: &mut Vec<Difference>, desired: &Desired, found: &Value, restored: &Value) {
    for (entry, added) in of(desired, found) {
        let who = entry["manager"].as_str();
        outermost(&added, &mut Vec::new(), &mut |path| {
            let (found, restored, path) = (value_at(found, path), value_at(restored, path), readable(path));
            if found != restored && known.iter().all(|known| known.path != path) {
                let (found, restored) = quoted_pair(found, restored);
                known.push(Difference { path, found, restored, who: who.map(str::to_owned) });
            }
        });
    }
}

/// Returns the tools' entries in Mainstay's API version of the kind, with the additions of each. Empty before
/// Mainstay's first apply.
fn of<'v>(desired: &'v Desired, view: &'v Value) -> impl Iterator<Item = (&'v Value, Fields)> {
    let (ours, own) = (applied_by(view, MANAGER), own_version(view));
    let entries = view.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries
        .into_iter()
        .flatten()
        .filter(move |entry| is_tools(entry) && entry["apiVersion"].as_str() == own)
        .filter_map(move |entry| Some((entry, added(desired, ours?, entry.get("fieldsV1")?.as_object()?))))
}

/// Visits each field of a field set at its outermost path. An item of a list is visited as a whole.
pub(super) fn outermost<'f>(fields: &'f Fields, path: &mut Vec<&'f str>, visit: &mut dyn FnMut(&[&'f str])) {
    for (key, inside) in fields.iter().filter(|(key, _)| *key != ".") {
        path.push(key);
        let is_item = |inside: &Fields| !key.starts_with("f:") && inside.contains_key(".");
        match inside.as_object().filter(|inside| inside.keys().any(|key| key != ".") && !is_item(inside)) {
            Some(inside) => outermost(inside, path, visit),
            None => visit(path),
        }
        path.pop();
    }
}

fn own_version(view: &Value) -> Option<&str> {
    let entries = view.pointer("/metadata/managedFields").and_then(Value::as_array)?;
    let is_own = |entry: &&Value| entry["manager"] == MANAGER && entry["operation"] == "Apply" && is_of_object(entry);
    entries.iter().find(is_own)?["apiVersion"].as_str()
}

fn is_tools(entry: &Value) -> bool {
    let is_tool = |name: &str| TOOLS.contains(&name) || is_kubectl(name);
    entry["manager"].as_str().is_some_and(is_tool) && is_of_object(entry)
}

pub(super) fn is_of_object(entry: &Value) -> bool {
    entry.get("subresource").is_none_or(|subresource| subresource == "")
}

/// Returns the additions among the fields of a tool.
fn added(desired: &Desired, ours: &Fields, fields: &Fields) -> Fields {
    let mut taken = removable(fields);
    desired.leave_ignored(&mut taken);
    subtract(&taken, ours)
}

/// Returns the part of a field set that may be removed.
pub(super) fn removable(fields: &Fields) -> Fields {
    part(fields, &mut Vec::new())
}

/// Returns the part of a field set that may be removed. The part contains a node itself only if all of its fields may
/// be removed.
fn part<'f>(fields: &'f Fields, path: &mut Vec<&'f str>) -> Fields {
    let mut all = Fields::new();
    let mut is_whole = true;
    for (key, inside) in fields.iter().filter(|(key, _)| *key != ".") {
        let name = key.strip_prefix("f:");
        path.extend(name);
        let taken = match inside.as_object() {
            _ if name.is_some() && stays(path) => None,
            Some(inside) if !inside.is_empty() => {
                let taken = part(inside, path);
                is_whole &= taken.len() == inside.len();
                Some(Value::Object(taken)).filter(|taken| taken.as_object().is_some_and(|taken| !taken.is_empty()))
            }
            _ => Some(inside.clone()),
        };
        path.truncate(path.len() - usize::from(name.is_some()));
        is_whole &= taken.is_some();
        all.extend(taken.map(|taken| (key.clone(), taken)));
    }
    if let Some(itself) = fields.get(".").filter(|_| is_whole && !all.is_empty()) {
        all.insert(".".to_owned(), itself.clone());
    }
    all
}

/// Whether the field at this path, without list items, is never removed.
fn stays(path: &[&str]) -> bool {
    match path {
        ["status"] | ["spec", "replicas"] => true,
        ["metadata", field] => !["labels", "annotations"].contains(field),
        ["metadata", "labels" | "annotations", name] if name.starts_with(ANNOTATION_PREFIX) => true,
        [.., "annotations", name] => *name == RESTARTED_AT,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::managed::fixtures::desired;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn object(manager: &str, theirs: &Value) -> Value {
        let ours = json!({
            "f:metadata": {"f:labels": {"f:mainstay.dev/sync": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}},
        });
        let entry = |manager: &str, operation: &str, fields: &Value| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields});
        json!({"metadata": {"managedFields": [entry(MANAGER, "Apply", &ours), entry(manager, "Update", theirs)]}})
    }

    /// Checks which fields of a manager are removed.
    fn check_of(manager: &str, theirs: &Value, taken: &Value) {
        let (desired, live) = (desired(), object(manager, theirs));
        let added = of(&desired, &live).map(|(_, added)| Value::Object(added)).next().unwrap_or_else(|| json!({}));
        assert_eq!(added, *taken, "{manager}: {theirs}");
        assert_eq!(with(None, &desired, &live, NOW).is_some(), *taken != json!({}));
        assert_eq!(are_in(&desired, &live), *taken != json!({}));
    }

    fn check(theirs: Value, taken: Value) {
        check_of("kubectl-edit", &theirs, &taken);
    }

    #[test]
    fn additions_by_people_are_reverted_and_those_of_controllers_stay() {
        let label = json!({"f:metadata": {"f:labels": {"f:team": {}}}});
        for manager in ["kubectl", "kubectl-label", "kubectl-client-side-apply", "k9s", "helm"] {
            check_of(manager, &label, &label);
        }
        for manager in ["kube-controller-manager", "kubectlish", "vpa", "mainstay-handover", ""] {
            check_of(manager, &label, &json!({}));
        }
    }

    #[test]
    fn a_changed_login_of_a_url_is_reported_without_the_login() {
        let of = |login: &str| {
            let mut object = object("kubectl-edit", &json!({"f:spec": {"f:url": {}}}));
            object["spec"] = json!({"url": format!("https://{login}@h")});
            object
        };
        let mut known = Vec::new();
        add_differences(&mut known, &desired(), &of("u:hunter2"), &of("u:hunter3"));
        let texts = known.iter().map(|d| (&*d.found, &*d.restored)).collect::<Vec<_>>();
        assert_eq!(texts, [(r#""https://(hidden-before)@h""#, r#""https://(hidden-after)@h""#)]);
    }

    #[test]
    fn items_and_members_are_removed_as_a_whole_unless_we_own_them() {
        let env = json!({"f:env": {".": {}, "k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}}});
        let mut both = env.clone();
        both["f:image"] = json!({});
        let container = |fields: Value| json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": fields}}});
        check(container(both), container(env));
        let another =
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"log\"}": {".": {}, "f:name": {}, "f:image": {}}}}});
        check(another.clone(), another);
        check(container(json!({".": {}, "f:name": {}, "f:image": {}})), json!({}));
    }

    #[test]
    fn restarts_finalizers_replicas_and_our_own_annotations_stay() {
        let template =
            |annotations: Value| json!({"f:spec": {"f:template": {"f:metadata": {"f:annotations": annotations}}}});
        check(template(json!({".": {}, "f:kubectl.kubernetes.io/restartedAt": {}})), json!({}));
        check(
            template(json!({".": {}, "f:kubectl.kubernetes.io/restartedAt": {}, "f:x": {}})),
            template(json!({"f:x": {}})),
        );
        check(json!({"f:metadata": {"f:annotations": {".": {}, "f:mainstay.dev/reconcile": {}}}}), json!({}));
        check(json!({"f:metadata": {"f:finalizers": {"v:\"a/b\"": {}}, "f:ownerReferences": {}}}), json!({}));
        check(json!({"f:spec": {"f:replicas": {}}, "f:status": {"f:a": {}}}), json!({}));
        check(json!({"f:metadata": {"f:annotations": {".": {}}}}), json!({}));
    }
}
