//! Items with an identity, and their order.

use super::{DEPLOYMENT, Story};

fn pod(containers: &str) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: {containers}}}}}")
}

fn env(names: &str) -> String {
    let items: Vec<String> = names.chars().map(|n| format!("{{name: {n}, value: v}}")).collect();
    pod(&format!("[{{name: c, env: [{}]}}]", items.join(", ")))
}

fn env_of(story: &Story) -> String {
    let env = story.at("/spec/containers/0/env").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
    env.iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect()
}

fn reorder(story: &mut Story, names: &str) {
    story.update("someone", |pod| {
        let env = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        env.sort_by_key(|e| names.find(e["name"].as_str().unwrap()));
    });
}

#[test]
fn merges_items_by_key_and_keeps_the_appliers_order() {
    // Live order, applied order, expected order.
    let cases = [
        ("ab", "ab", "ab"),
        ("ba", "ab", "ab"),
        ("abx", "ab", "abx"),
        ("xab", "ab", "xab"),
        ("bxa", "ab", "xab"),
        ("ab", "anb", "anb"),
        ("ab", "nab", "nab"),
        ("ab", "abn", "abn"),
        ("axb", "ab", "axb"),
        ("bxay", "ab", "xayb"),
        ("xyz", "ab", "xyzab"),
        ("cba", "abc", "abc"),
        ("xcyba", "abc", "xyabc"),
    ];
    for (live, applied, expected) in cases {
        let mut story = Story::of("v1", "Pod");
        story.create("someone", &env(live)).force("m", &env(applied));
        assert_eq!(env_of(&story), expected, "live {live}, applied {applied}");
    }
}

#[test]
fn reordering_leaves_the_entry_and_reapplying_restores_the_order() {
    let mut story = Story::of("v1", "Pod");
    story.apply("m", &env("abc"));
    let owners = story.owners();
    reorder(&mut story, "cab");
    assert_eq!((env_of(&story).as_str(), story.owners()), ("cab", owners.clone()));
    story.written(2).apply("m", &env("abc")).written(3);
    assert_eq!((env_of(&story).as_str(), story.owners()), ("abc", owners));
}

#[test]
fn an_added_item_is_theirs_and_stays() {
    let mut story = Story::of("v1", "Pod");
    story.apply("m", &env("ab")).update("someone", |pod| {
        let env = pod["spec"]["containers"][0]["env"].as_array_mut().unwrap();
        env.insert(1, serde_json::json!({"name": "x", "value": "v"}));
    });
    let owners = story.owners();
    assert!(owners.ends_with(
        "someone Update .spec.containers[name=\"c\"].env[name=\"x\"] \
         .spec.containers[name=\"c\"].env[name=\"x\"].name .spec.containers[name=\"c\"].env[name=\"x\"].value"
    ));
    story.written(2).apply("m", &env("ab")).written(2);
    assert_eq!((env_of(&story).as_str(), story.owners()), ("axb", owners));
}

#[test]
fn reordering_an_atomic_list_takes_its_path() {
    let mut story = Story::of("v1", "Pod");
    story.apply("m", &pod("[{name: c, command: [a, b]}]"));
    story.update("someone", |pod| pod["spec"]["containers"][0]["command"] = serde_json::json!(["b", "a"]));
    story.owned(
        "m Apply .spec.containers[name=\"c\"] .spec.containers[name=\"c\"].name
         someone Update .spec.containers[name=\"c\"].command",
    );
}

#[test]
fn dropped_item_goes_even_if_another_owns_a_field_in_it() {
    // The applier owned the item itself (`.`). A manager that owns only a field inside does not keep the item.
    let mut story = Story::of("v1", "Pod");
    story.apply("m", &pod("[{name: c}, {name: d}]"));
    story.update("someone", |pod| pod["spec"]["containers"][1]["image"] = "i".into());
    story.apply("m", &pod("[{name: c}]")).has("/spec/containers", "[{name: c}]");
    story.owned("m Apply .spec.containers[name=\"c\"] .spec.containers[name=\"c\"].name");
}

#[test]
fn item_that_another_applied_too_loses_only_our_fields() {
    let mut story = Story::of("v1", "Pod");
    story.apply("m", &pod("[{name: c, image: i, tty: true}]")).apply("n", &pod("[{name: c, image: i}]"));
    story.apply("m", &pod("[{name: d}]")).has("/spec/containers", "[{name: c, image: i}, {name: d}]");
}

#[test]
fn ports_differ_by_their_defaulted_protocol() {
    let mut story = Story::of("v1", "Pod");
    story.apply("m", &pod("[{name: c, ports: [{containerPort: 53}]}]"));
    story.apply("n", &pod("[{name: c, ports: [{containerPort: 53, protocol: UDP}]}]"));
    story.has("/spec/containers/0/ports", "[{containerPort: 53}, {containerPort: 53, protocol: UDP}]");
    story.apply("m", &pod("[{name: c, ports: [{containerPort: 53, protocol: TCP}]}]"));
    story.has("/spec/containers/0/ports", "[{containerPort: 53, protocol: TCP}, {containerPort: 53, protocol: UDP}]");
}

#[test]
fn finalizers_are_a_set() {
    let with = |finalizers: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, finalizers: {finalizers}}}}}")
    };
    let mut story = Story::config_map();
    story.apply("m", &with("[a/x]")).apply("n", &with("[b/y]"));
    story.has("/metadata/finalizers", "[a/x, b/y]");
    story.owned("m Apply .metadata.finalizers[=\"a/x\"]\n n Apply .metadata.finalizers[=\"b/y\"]");
    story.apply("m", &with("[]")).has("/metadata/finalizers", "[b/y]");
}

#[test]
fn a_second_container_is_merged_beside_the_first() {
    let mut story = Story::of("apps/v1", "Deployment");
    story.apply("m", DEPLOYMENT).apply(
        "n",
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: {containers: [{name: side, image: s}]}}}}",
    );
    story.has("/spec/template/spec/containers/1", "{name: side, image: s}");
    story.apply("n", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, labels: {l: v}}}");
    story.has("/spec/template/spec/containers/1", "absent").has("/metadata/labels", "{l: v}");
}
