//! Strategic merge, merge and JSON patches.

use serde_json::{Value, json};

use super::yaml;
use crate::patch::{json, merge, strategic};
use crate::schema::builtin;

fn pod(containers: &str) -> String {
    format!("{{spec: {{containers: {containers}}}}}")
}

/// Patches a Pod.
fn patched(live: &str, patch: &str) -> Result<Value, (u16, String)> {
    strategic(&builtin("v1", "Pod").unwrap(), &yaml(live), &yaml(patch)).map_err(|s| (s.code, s.message))
}

#[test]
fn lists_are_merged_by_their_key_and_new_items_come_first() {
    let cases = [
        ("[{name: a, image: x}, {name: b}]", "[{name: b, image: y}]", "[{name: a, image: x}, {name: b, image: y}]"),
        ("[{name: a}, {name: b}]", "[{name: c}]", "[{name: c}, {name: a}, {name: b}]"),
        ("[{name: a}, {name: b}]", "[{name: b, tty: true}, {name: c}]", "[{name: a}, {name: b, tty: true}, {name: c}]"),
        ("[{name: a}, {name: b}]", "[{name: a, $patch: delete}]", "[{name: b}]"),
        ("[{name: a}, {name: b}]", "[{name: c}, {$patch: replace}]", "[{name: c}]"),
        ("[{name: a, image: x, tty: true}]", "[{name: a, image: z, tty: null}]", "[{name: a, image: z}]"),
        (
            "[{name: a, env: [{name: E, value: v}], command: [x, y]}]",
            "[{name: a, env: [{name: F, value: w}], command: [z]}]",
            "[{name: a, env: [{name: F, value: w}, {name: E, value: v}], command: [z]}]",
        ),
        (
            "[{name: a, ports: [{containerPort: 80, protocol: TCP}]}]",
            "[{name: a, ports: [{containerPort: 80, name: web}]}]",
            "[{name: a, ports: [{containerPort: 80, protocol: TCP, name: web}]}]",
        ),
    ];
    for (live, patch, expected) in cases {
        assert_eq!(patched(&pod(live), &pod(patch)), Ok(yaml(&pod(expected))), "{patch}");
    }
}

#[test]
fn element_order_decides_where_items_stand() {
    let live = pod("[{name: a}, {name: x}, {name: b}]");
    let cases = [
        ("{spec: {$setElementOrder/containers: [{name: b}, {name: a}]}}", "[{name: x}, {name: b}, {name: a}]"),
        (
            "{spec: {$setElementOrder/containers: [{name: a}, {name: n}, {name: b}], containers: [{name: n}]}}",
            "[{name: a}, {name: n}, {name: x}, {name: b}]",
        ),
        (
            "{spec: {$setElementOrder/containers: [{name: b}], containers: [{name: a, $patch: delete}]}}",
            "[{name: x}, {name: b}]",
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(patched(&live, patch), Ok(yaml(&pod(expected))), "{patch}");
    }
}

#[test]
fn maps_follow_directives() {
    let live = "{metadata: {labels: {a: x, b: y}, finalizers: [f/1, f/2]}, spec: {volumes: [{name: v, emptyDir: {}}]}}";
    let cases = [
        ("{metadata: {labels: {$patch: replace, c: z}}}", "/metadata/labels", "{c: z}"),
        ("{metadata: {labels: {$patch: delete}}}", "/metadata/labels", "{}"),
        ("{metadata: {labels: {a: null}}}", "/metadata/labels", "{b: y}"),
        ("{metadata: {labels: {$retainKeys: [a]}}}", "/metadata/labels", "{a: x}"),
        ("{metadata: {$deleteFromPrimitiveList/finalizers: [f/1]}}", "/metadata/finalizers", "[f/2]"),
        ("{metadata: {finalizers: [f/3]}}", "/metadata/finalizers", "[f/3, f/1, f/2]"),
        ("{metadata: {finalizers: [f/2]}}", "/metadata/finalizers", "[f/1, f/2]"),
        (
            "{spec: {volumes: [{$retainKeys: [name, configMap], name: v, configMap: {name: c}}]}}",
            "/spec/volumes",
            "[{name: v, configMap: {name: c}}]",
        ),
        ("{metadata: {annotations: {a: b, c: null}}}", "/metadata/annotations", "{a: b}"),
        ("{spec: {tolerations: [{key: k}]}}", "/spec/tolerations", "[{key: k}]"),
    ];
    for (patch, pointer, expected) in cases {
        assert_eq!(patched(live, patch).unwrap().pointer(pointer), Some(&yaml(expected)), "{patch}");
    }
}

#[test]
fn a_map_with_a_directive_is_left_out_where_there_is_nothing_to_merge_it_with() {
    let live = pod("[{name: a}]");
    for directive in ["delete", "replace", "merge"] {
        let patch = format!("{{spec: {{nodeSelector: {{$patch: {directive}, a: b}}}}}}");
        assert_eq!(patched(&live, &patch).unwrap().pointer("/spec/nodeSelector"), None, "{patch}");
    }
}

#[test]
fn malformed_patches_are_refused() {
    let live = pod("[{name: a}, {name: b}]");
    let cases = [
        (pod("[{image: zz}]"), 500, "map: map[image:zz] does not contain declared merge key: name"),
        (pod("[{name: a, $patch: explode}]"), 500, "unknown patch type: explode in map: map[$patch:explode name:a]"),
        ("{spec: {$patch: explode}}".to_owned(), 500, "unknown patch type: explode in map: map[$patch:explode]"),
        ("{spec: {$retainKeys: [a], b: 1}}".to_owned(), 400, "invalid patch format of retainKeys"),
        ("{spec: {$setElementOrder/containers: a}}".to_owned(), 400, "invalid patch format of setElementOrder list"),
    ];
    for (patch, code, text) in cases {
        assert_eq!(patched(&live, &patch), Err((code, text.to_owned())), "{patch}");
    }
}

#[test]
fn merge_patches_replace_lists_and_remove_nulls() {
    let object = merge(&yaml("{a: {b: 1, c: 2}, l: [1, 2]}"), &yaml("{a: {b: null, d: 3}, l: [3], n: null}"));
    assert_eq!(object, json!({"a": {"c": 2, "d": 3}, "l": [3]}));
}

#[test]
fn json_patches_do_all_or_nothing() {
    let live = json!({"data": {"a": "x"}, "list": [1, 2]});
    let ok = [
        ("[{op: add, path: /data/b, value: y}]", json!({"data": {"a": "x", "b": "y"}, "list": [1, 2]})),
        ("[{op: remove, path: /list/0}]", json!({"data": {"a": "x"}, "list": [2]})),
        ("[{op: replace, path: /data/new, value: z}]", json!({"data": {"a": "x", "new": "z"}, "list": [1, 2]})),
        (
            "[{op: test, path: /data/a, value: x}, {op: add, path: /list/-, value: 3}]",
            json!({"data": {"a": "x"}, "list": [1, 2, 3]}),
        ),
    ];
    for (patch, expected) in ok {
        assert_eq!(json(&live, &yaml(patch)), Ok(expected), "{patch}");
    }
    for patch in ["[{op: test, path: /data/a, value: q}]", "[{op: remove, path: /data/no}]", "[{op: fly, path: /a}]"] {
        let status = json(&live, &yaml(patch)).err().unwrap();
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{patch}");
        assert_eq!(status.message, "the server rejected our request due to an error in our request");
        assert_eq!(status.body()["details"], json!({}));
    }
    assert_eq!(json(&live, &yaml("{op: add}")).err().map(|s| s.code), Some(400));
}

#[test]
fn doubling_copies_are_refused() {
    let live = json!({"a": ["x"]});
    let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let patch = Value::Array(vec![double; 64]);
    assert_eq!(json(&live, &patch).err().map(|s| s.code), Some(422));
}
