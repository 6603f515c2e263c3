//! Stale defaults: members of unions that the server set and that exclude a field of the document. They are removed.
//!
//! The server sets `rollingUpdate` beside `type: RollingUpdate`, and then refuses to change the type to `Recreate`. An
//! apply removes only fields that its manager owns, and a default has no owner. So Mainstay takes over the default
//! first. A dry run cannot do this, so it omits the blocked fields ([`Withheld`]).
//!
//! Invariant: a field stays if it is desired, ignored, or owned by a manager that [`Reach`] excludes.
//! Invariant: only members of `unions` are removed, and only in built-in kinds of Kubernetes.

use serde_json::{Map, Value, json};

use super::collision::{Collision, api_version, contents, fields_of, is_item, is_nothing, is_strangers, keys_of, part};
use super::desired::Desired;
use super::fields::{Fields, add};
use super::ownership::{claimed, moved};
use super::projection::has_keys;
use super::unions;

/// The owners of the fields to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Fields without an owner.
    Nobodys,
    /// Also fields of other managers, because the server refused them beside Mainstay's.
    Strangers,
}

/// Returns `collision` extended by the stale defaults for an apply of `body`.
pub(crate) fn with(
    collision: Option<Collision>,
    reach: Reach,
    (desired, body): (&Desired, &Value),
    live: &Value,
    now: &str,
) -> Option<Collision> {
    let stale = found(reach, desired, body, live);
    if stale.is_empty() {
        return collision;
    }
    let (api_version, is_strangers) = (api_version(body), |entry: &Value| is_strangers(entry, api_version(body)));
    let entries = collision.as_ref().map(|collision| &collision.entries);
    let entries = entries.or(live.pointer("/metadata/managedFields"))?;
    let moved = moved(entries, api_version, now, is_strangers, |fields| part(fields, &stale));
    let Value::Array(entries) = moved.unwrap_or_else(|| entries.clone()) else { return collision };
    let who = collision.and_then(|collision| collision.who);
    Some(Collision { entries: claimed(entries, api_version, now, &stale), who })
}

/// Whether a stale default blocks a body.
pub(crate) fn are_in(desired: &Desired, body: &Value, live: &Value) -> bool {
    !found(Reach::Nobodys, desired, body, live).is_empty()
}

/// The fields that are withheld from a dry run because stale defaults block them. They are inserted into the response.
#[derive(Debug)]
pub(crate) struct Withheld {
    whole: Value,
    stale: Fields,
}

impl Withheld {
    /// Removes the blocked fields from a body; `None` if there are none.
    pub(crate) fn of(reach: Reach, desired: &Desired, body: &mut Value, live: &Value) -> Option<Self> {
        let stale = found(reach, desired, body, live);
        if stale.is_empty() {
            return None;
        }
        let whole = body.clone();
        at_members(&stale, body, &whole, &mut |at, wanted, name| {
            at.retain(|field, _| !wanted.contains_key(field) || !unions::exclude(field, name));
        });
        Some(Self { whole, stale })
    }

    /// Replaces the stale defaults in a response by the withheld fields.
    pub(crate) fn put_back(&self, answer: &mut Value) {
        at_members(&self.stale, answer, &self.whole, &mut |at, wanted, name| {
            at.remove(name);
            let withheld = wanted.iter().filter(|(field, _)| unions::exclude(field, name));
            at.extend(withheld.map(|(field, value)| (field.clone(), value.clone())));
        });
    }
}

/// A visitor of a structure. Its arguments are the structure, the desired fields, and the name of the stale member.
type Visit<'v> = dyn FnMut(&mut Map<String, Value>, &Map<String, Value>, &str) + 'v;

/// Visits the structures with a stale member.
fn at_members(stale: &Fields, value: &mut Value, whole: &Value, visit: &mut Visit<'_>) {
    for (key, inside) in stale {
        let below = inside.as_object().filter(|inside| !inside.is_empty());
        let at = match (key.strip_prefix("f:"), keys_of(key)) {
            (Some(name), _) if below.is_none() => {
                if let (Some(value), Some(whole)) = (value.as_object_mut(), whole.as_object()) {
                    visit(value, whole, name);
                }
                continue;
            }
            (Some(name), _) => value.get_mut(name).zip(whole.get(name)),
            (None, Some(keys)) => {
                let mut items = value.as_array_mut().into_iter().flatten();
                let wanted = whole.as_array().into_iter().flatten().find(|item| is_item(item, &keys));
                items.find(|item| has_keys(item, &keys)).zip(wanted)
            }
            (None, None) => None,
        };
        if let (Some((value, whole)), Some(below)) = (at, below) {
            at_members(below, value, whole, visit);
        }
    }
}

/// Returns the stale defaults that block a body, as a field set. An empty node stands for all of its content.
fn found(reach: Reach, desired: &Desired, body: &Value, live: &Value) -> Fields {
    if !unions::is_builtin(api_version(body)) {
        return Fields::new();
    }
    let (mut all, mut kept) = (Fields::new(), Fields::new());
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    for entry in entries.into_iter().flatten() {
        let Some(fields) = fields_of(entry) else { continue };
        add(&mut all, fields);
        if reach == Reach::Nobodys || !is_strangers(entry, api_version(body)) {
            add(&mut kept, fields);
        }
    }
    let mut stale = Fields::new();
    for (name, wanted) in contents(body) {
        let Some(live) = live.get(name) else { continue };
        let key = format!("f:{name}");
        let below = |fields: &Fields| fields.get(&key).and_then(Value::as_object).cloned().unwrap_or_default();
        put(&mut stale, &key, inside(wanted, live, &below(&all), &below(&kept)));
    }
    desired.leave_ignored(&mut stale);
    stale
}

fn put(stale: &mut Fields, key: &str, inside: Fields) {
    if !inside.is_empty() {
        stale.insert(key.to_owned(), Value::Object(inside));
    }
}

/// Searches a value. `all` are the owned fields in it, and `kept` the fields that may not be moved.
fn inside(wanted: &Value, live: &Value, all: &Fields, kept: &Fields) -> Fields {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => structure(wanted, live, all, kept),
        (Value::Array(wanted), Value::Array(live)) => list(wanted, live, all, kept),
        _ => Fields::new(),
    }
}

fn structure(wanted: &Map<String, Value>, live: &Map<String, Value>, all: &Fields, kept: &Fields) -> Fields {
    let mut stale = Fields::new();
    for (name, live) in live {
        let key = format!("f:{name}");
        let is_kept = kept.get(&key).is_some();
        match wanted.get(name).filter(|wanted| !is_nothing(wanted)) {
            Some(wanted) => {
                let below = |fields: &Fields| fields.get(&key).and_then(Value::as_object).cloned().unwrap_or_default();
                // A value that is owned as a whole contains no field without an owner.
                if !is_kept || !below(kept).is_empty() {
                    put(&mut stale, &key, inside(wanted, live, &below(all), &below(kept)));
                }
            }
            None if !is_kept && unions::gives_way(name, live, wanted) => {
                stale.insert(key, json!({}));
            }
            None => {}
        }
    }
    stale
}

fn list(wanted: &[Value], live: &[Value], all: &Fields, kept: &Fields) -> Fields {
    let mut stale = Fields::new();
    for (key, owned) in all {
        let Some(keys) = keys_of(key) else { continue };
        let (wanted, live) =
            (wanted.iter().find(|item| is_item(item, &keys)), live.iter().find(|item| has_keys(item, &keys)));
        if let (Some(wanted), Some(live), Some(owned)) = (wanted, live, owned.as_object()) {
            let kept = kept.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
            put(&mut stale, key, inside(wanted, live, owned, &kept));
        }
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::fixtures::desired;
    use mainstay_api::names::MANAGER;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsV1": {"f:spec": fields}})
    }

    fn body(spec: &Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    }

    fn live(spec: &Value, entries: &[Value]) -> Value {
        json!({"apiVersion": "apps/v1", "metadata": {"managedFields": entries}, "spec": spec})
    }

    fn stale(reach: Reach, wanted: &Value, found: &Value, entries: &[Value]) -> Value {
        let found = super::found(reach, &desired(), &body(wanted), &live(found, entries));
        found.get("f:spec").cloned().unwrap_or_default()
    }

    fn rolling() -> Value {
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}})
    }

    #[test]
    fn a_default_is_removed_unless_it_has_an_owner() {
        let recreate = json!({"strategy": {"type": "Recreate"}});
        let surge = json!({"f:strategy": {"f:rollingUpdate": {"f:maxSurge": {}}}});
        let gone = json!({"f:strategy": {"f:rollingUpdate": {}}});
        let ours = entry(MANAGER, "Apply", &json!({"f:strategy": {"f:type": {}}}));
        for (by, nobodys, strangers) in [
            (entry("other", "Update", &json!({"f:replicas": {}})), true, true),
            (entry("kubectl-edit", "Update", &surge), false, true),
            (entry("argocd", "Apply", &surge), false, false),
            // Mainstay owns the default, so the apply removes it without a takeover.
            (entry(MANAGER, "Apply", &surge), false, false),
        ] {
            let entries = [ours.clone(), by.clone()];
            for (reach, expected) in [(Reach::Nobodys, nobodys), (Reach::Strangers, strangers)] {
                let found = stale(reach, &recreate, &rolling(), &entries);
                assert_eq!(found, if expected { gone.clone() } else { Value::Null }, "{reach:?} {by}");
            }
        }
        assert_eq!(stale(Reach::Strangers, &json!({"replicas": 1}), &rolling(), &[]), Value::Null);
        assert_eq!(
            stale(Reach::Strangers, &json!({"strategy": {"type": "RollingUpdate"}}), &rolling(), &[]),
            Value::Null
        );
    }

    #[test]
    fn members_in_items_of_lists_are_found_by_their_keys() {
        let (wanted, found) = (
            json!({"volumes": [{"name": "a", "secret": {"secretName": "s"}}, {"name": "b"}]}),
            json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]}),
        );
        let item = |name: &str| (format!("k:{{\"name\":\"{name}\"}}"), json!({".": {}, "f:name": {}}));
        let volumes = Value::Object([item("a"), item("b")].into_iter().collect());
        let entries = [entry(MANAGER, "Apply", &json!({"f:volumes": volumes}))];
        let expected = json!({"f:volumes": {"k:{\"name\":\"a\"}": {"f:emptyDir": {}}}});
        assert_eq!(stale(Reach::Nobodys, &wanted, &found, &entries), expected);
        let (mut sent, mut answer) = (body(&wanted), live(&found, &entries));
        let withheld = Withheld::of(Reach::Nobodys, &desired(), &mut sent, &answer).unwrap();
        assert_eq!(sent["spec"]["volumes"], json!([{"name": "a"}, {"name": "b"}]));
        withheld.put_back(&mut answer);
        let volume = json!({"name": "a", "secret": {"secretName": "s"}});
        assert_eq!(answer["spec"]["volumes"], json!([volume, {"name": "b", "emptyDir": {}}]));
    }

    #[test]
    fn fields_of_custom_resources_stay() {
        let mut wanted = body(&json!({"strategy": {"type": "Recreate"}}));
        wanted["apiVersion"] = "argoproj.io/v1alpha1".into();
        assert!(!are_in(&desired(), &wanted, &live(&rolling(), &[])));
    }

    #[test]
    fn a_default_becomes_ours_beside_fields_of_other_managers() {
        let theirs = json!({"f:strategy": {"f:rollingUpdate": {"f:maxSurge": {}}}, "f:paused": {}});
        let entries = [entry("kubectl-edit", "Update", &theirs)];
        let (wanted, live) = (body(&json!({"strategy": {"type": "Recreate"}})), live(&rolling(), &entries));
        let made = with(None, Reach::Strangers, (&desired(), &wanted), &live, NOW).unwrap().entries;
        let fields = |at: usize| made[at]["fieldsV1"]["f:spec"].clone();
        assert_eq!((fields(0), &made[0]["manager"]), (json!({"f:paused": {}}), &json!("kubectl-edit")));
        assert_eq!(fields(1), json!({"f:strategy": {"f:rollingUpdate": {"f:maxSurge": {}}}}));
        assert_eq!(with(None, Reach::Nobodys, (&desired(), &wanted), &live, NOW), None);
    }
}
