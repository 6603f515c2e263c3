//! Collisions with Mainstay's fields, and fields that stay beside them.

use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

/// Returns Mainstay's fields after the collision, or null without one.
fn taken(found: Option<Collision>) -> Value {
    let Some(Collision { entries, .. }) = found else { return Value::Null };
    let entries = entries.as_array().unwrap().clone();
    let ours = entries.into_iter().find(|entry| entry["manager"] == MANAGER && entry["operation"] == "Apply");
    ours.unwrap()["fieldsV1"].clone()
}

fn object(spec: &Value, ours: &Value, theirs: &Value) -> Value {
    json!({"metadata": {"managedFields": [entry(MANAGER, "Apply", ours), theirs]}, "spec": spec})
}

fn body(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

fn item(keys: &Value, more: &[&str]) -> Value {
    let mut fields = json!({".": {}});
    let names = keys.as_object().unwrap().keys().map(String::as_str).chain(more.iter().copied());
    names.for_each(|name| fields[format!("f:{name}")] = json!({}));
    json!({format!("k:{keys}"): fields})
}

const EDIT: (&str, &str) = ("kubectl-edit", "Update");

/// A Service with Mainstay's port 80 and the port and label of another manager.
fn port(ours: &Value, theirs: &Value, by: (&str, &str)) -> (Value, Value) {
    let fields = json!({
        "f:metadata": {"f:labels": {"f:theirs": {}}},
        "f:spec": {"f:ports": item(&json!({"port": theirs["port"], "protocol": theirs["protocol"]}), &["name"])},
    });
    let live = object(&json!({"ports": [theirs]}), &json!({"f:spec": {"f:type": {}}}), &entry(by.0, by.1, &fields));
    (body(&json!({"type": "ClusterIP", "ports": [ours]})), live)
}

#[test]
fn our_item_under_another_key_is_removed() {
    let (ours, theirs) =
        (json!({"name": "http", "port": 80}), json!({"name": "http", "port": 81, "protocol": "TCP", "targetPort": 80}));
    let (body, live) = port(&ours, &theirs, EDIT);
    let found = known(&body, &live, NOW);
    assert_eq!(found.as_ref().and_then(|found| found.who.as_deref()), Some("kubectl-edit"));
    let expected = json!({"f:type": {}, "f:ports": item(&json!({"port": 81, "protocol": "TCP"}), &["name"])});
    assert_eq!(taken(found), json!({"f:spec": expected}), "and their label stays theirs");
    let another = json!({"name": "more", "port": 81, "protocol": "TCP"});
    let (body, live) = port(&ours, &another, EDIT);
    assert_eq!(known(&body, &live, NOW), None, "another item need not collide");
    assert_ne!(refused(&body, &live, &["spec.ports[1].name"], NOW), None, "unless the server says so");
    assert_eq!(refused(&body, &live, &["spec.type"], NOW), None, "of it");
    assert_ne!(refused(&body, &live, &[], NOW), None);
}

#[test]
fn an_item_with_equal_fields_stays_unless_the_edit_wrote_it() {
    let wanted = body(&json!({"type": "a", "env": [{"name": "DEBUG", "value": "true"}]}));
    let check = |names: &[&str], time: &str| {
        let (mut env, mut theirs) = (Vec::new(), json!({}));
        for name in names {
            env.push(json!({"name": name, "value": "true"}));
            theirs[format!(r#"k:{{"name":"{name}"}}"#)] = json!({".": {}, "f:name": {}, "f:value": {}});
        }
        let mut entry = entry(EDIT.0, EDIT.1, &json!({"f:spec": {"f:env": theirs}}));
        entry["time"] = time.into();
        known(&wanted, &object(&json!({"env": env}), &json!({"f:spec": {"f:type": {}}}), &entry), NOW).is_some()
    };
    assert!(check(&["DEBUG_1"], NOW), "a variable that was renamed");
    assert!(!check(&["FEATURE"], "2025-12-31T23:59:00Z"), "one that was there before ours was lost");
    assert!(!check(&["FEATURE", "ANOTHER"], NOW), "two of which either may be it, or none");
}

#[test]
fn one_lost_item_removes_only_one_other() {
    let wanted = json!([{"name": "web", "image": "a", "command": ["x"]}]);
    let added = json!([{"name": "b", "image": "a"}, {"name": "c", "image": "a", "command": ["x"]}]);
    let mut theirs = item(&json!({"name": "b"}), &["image"]);
    theirs[r#"k:{"name":"c"}"#] = json!({".": {}, "f:name": {}, "f:image": {}, "f:command": {}});
    let theirs = json!({"f:spec": {"f:containers": theirs}});
    let live =
        object(&json!({"containers": added}), &json!({"f:spec": {"f:type": {}}}), &entry(EDIT.0, EDIT.1, &theirs));
    let body = body(&json!({"type": "a", "containers": wanted}));
    let expected = json!({"f:type": {}, "f:containers": item(&json!({"name": "c"}), &["image", "command"])});
    assert_eq!(taken(known(&body, &live, NOW)), json!({"f:spec": expected}));
}

#[test]
fn fields_of_custom_resources_collide_only_after_a_refusal() {
    let (ours, theirs) = (json!({"f:spec": {"f:type": {}}}), json!({"f:spec": {"f:secret": {}}}));
    let mut live = object(&json!({"type": "a", "secret": "s"}), &ours, &entry("some-operator", "Update", &theirs));
    let mut body = body(&json!({"type": "a", "image": "i"}));
    assert_ne!(known(&body, &live, NOW), None, "two sources of a volume");
    for entry in live["metadata"]["managedFields"].as_array_mut().unwrap() {
        entry["apiVersion"] = "example.com/v1".into();
    }
    body["apiVersion"] = "example.com/v1".into();
    assert_eq!(known(&body, &live, NOW), None);
    assert_ne!(refused(&body, &live, &["spec.secret"], NOW), None);
}

#[test]
fn a_protocol_that_is_left_out_is_the_default() {
    let (ours, theirs) = (json!({"name": "dns", "port": 53}), json!({"name": "dns", "port": 53, "protocol": "UDP"}));
    let (body, live) = port(&ours, &theirs, EDIT);
    assert_ne!(known(&body, &live, NOW), None);
    let (body, live) = port(&json!({"name": "dns", "port": 53, "protocol": "UDP"}), &theirs, EDIT);
    assert_eq!(known(&body, &live, NOW), None, "it is the item that is wanted");
}

#[test]
fn only_fields_of_people_and_updating_managers_are_moved() {
    let (ours, theirs) = (json!({"name": "http", "port": 80}), json!({"name": "http", "port": 81, "protocol": "TCP"}));
    for (manager, operation, makes_way) in [
        ("kubectl", "Apply", true),
        ("kubectl-client-side-apply", "Update", true),
        ("some-controller", "Update", true),
        ("argocd", "Apply", false),
        (MANAGER, "Update", false),
    ] {
        let (body, live) = port(&ours, &theirs, (manager, operation));
        assert_eq!(known(&body, &live, NOW).is_some(), makes_way, "{manager} {operation}");
        assert_eq!(refused(&body, &live, &[], NOW).is_some(), makes_way, "{manager} {operation}");
    }
    let (body, mut live) = port(&ours, &theirs, EDIT);
    live["metadata"]["managedFields"][1]["fieldsV1"]["f:spec"]["f:ports"] =
        json!({r#"k:{"port":81,"protocol":"TCP"}"#: {"f:targetPort": {}}});
    assert_eq!(known(&body, &live, NOW), None, "admission or somebody else made the item");
}

#[test]
fn owned_fields_are_not_removed() {
    let spec = json!({"ports": [{"name": "http", "port": 80}]});
    let live = json!({"ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "x", "port": 81, "protocol": "TCP"}]});
    let ours = json!({"f:spec": {"f:ports": item(&json!({"port": 80, "protocol": "TCP"}), &["name"])}});
    let theirs = json!({"f:spec": {"f:ports": item(&json!({"port": 81, "protocol": "TCP"}), &["name"])}});
    let live = object(&live, &ours, &entry(EDIT.0, EDIT.1, &theirs));
    let body = body(&spec);
    assert_eq!((known(&body, &live, NOW), refused(&body, &live, &[], NOW)), (None, None));
    assert_eq!(lost(&body, &live), Vec::<String>::new());
}

/// Returns Mainstay's fields of a container after another manager wrote `theirs` into it.
fn in_container(theirs: &Value, by: (&str, &str), refused_for: Option<&str>) -> Value {
    let wanted = json!({"name": "web", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "probe": {"httpGet": {"port": 80}, "period": 5}, "odd": {"one": 1}});
    let found = json!({"name": "web", "command": ["x"],
        "env": [{"name": "A", "valueFrom": {"f": "g"}}, {"name": "B", "value": "9"}],
        "probe": {"exec": {"command": ["x"]}, "period": 5, "delay": 1}, "odd": {"other": 2}});
    let containers = |inside: &Value| json!({"f:spec": {"f:containers": {r#"k:{"name":"web"}"#: inside}}});
    let left = json!({".": {}, "f:name": {}, "f:env": {r#"k:{"name":"A"}"#: {".": {}, "f:name": {}}},
        "f:probe": {"f:period": {}}});
    let live = object(&json!({"containers": [found]}), &containers(&left), &entry(by.0, by.1, &containers(theirs)));
    let body = body(&json!({"containers": [wanted]}));
    let found = match refused_for {
        None => known(&body, &live, NOW),
        Some(cause) => refused(&body, &live, &[cause], NOW),
    };
    let ours = taken(found);
    if ours.is_null() { ours } else { ours["f:spec"]["f:containers"][r#"k:{"name":"web"}"#].clone() }
}

#[test]
fn only_fields_that_exclude_ours_are_removed() {
    let theirs = json!({
        "f:command": {},
        "f:env": {r#"k:{"name":"A"}"#: {"f:valueFrom": {}}, r#"k:{"name":"B"}"#: {"f:value": {}}},
        "f:probe": {"f:exec": {"f:command": {}}, "f:delay": {}},
        "f:odd": {"f:other": {}},
    });
    let mut expected = json!({
        ".": {}, "f:name": {},
        "f:env": {r#"k:{"name":"A"}"#: {".": {}, "f:name": {}, "f:valueFrom": {}}},
        "f:probe": {"f:exec": {"f:command": {}}, "f:period": {}},
    });
    assert_eq!(in_container(&theirs, EDIT, None), expected);
    assert_eq!(in_container(&theirs, ("argocd", "Apply"), None), Value::Null);
    let cause = "spec.containers[0].odd.other";
    expected["f:env"][r#"k:{"name":"A"}"#] = json!({".": {}, "f:name": {}});
    expected["f:probe"] = json!({"f:period": {}});
    expected["f:odd"] = json!({"f:other": {}});
    assert_eq!(in_container(&theirs, EDIT, Some(cause)), expected, "of what is not known the server says it");
}

#[test]
fn names_lost_fields() {
    let (body, live) = port(&json!({"name": "http", "port": 80}), &json!({"port": 81, "protocol": "TCP"}), EDIT);
    assert_eq!(lost(&body, &live), ["spec.ports"]);
}
