//! Ownership after writes that are not applies.

use serde_json::{Value, json};

use super::{DEPLOYMENT, Story, config_map};

fn fields(story: &Story, at: usize) -> Value {
    story.live()["metadata"]["managedFields"][at]["fieldsV1"].clone()
}

#[test]
fn creation_owns_new_containers_themselves() {
    let mut story = Story::config_map();
    story.create("u", &config_map("{a: x}"));
    assert_eq!(fields(&story, 0), json!({"f:data": {".": {}, "f:a": {}}}));
}

#[test]
fn plain_structs_are_never_new_but_pointers_and_items_are() {
    let mut story = Story::of("apps/v1", "Deployment");
    let strategy = "spec:\n  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}\n  selector";
    story.create("u", &DEPLOYMENT.replace("spec:\n  selector", strategy));
    assert_eq!(
        fields(&story, 0)["f:spec"],
        json!({
            "f:selector": {},
            "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {
                    ".": {}, "f:name": {}, "f:image": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                }}},
            },
        })
    );
}

#[test]
fn a_changed_value_moves_to_its_writer() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x, b: y}")).patch("u", "data: {a: z}");
    story.owned("m Apply .data.b\n u Update .data.a");
    story.patch("w", "data: {a: q, c: d}").owned("m Apply .data.b\n w Update .data.a .data.c");
}

#[test]
fn a_removed_value_leaves_every_entry() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x, b: y}")).patch("u", "data: {a: null}").owned("m Apply .data.b");
}

#[test]
fn an_unchanged_write_takes_nothing() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x}")).patch("u", "data: {a: x}").written(1).owned("m Apply .data.a");
}

#[test]
fn untracked_objects_stay_untracked_until_an_apply() {
    let mut story = Story::config_map();
    story.create("u", &config_map("{a: x, b: y}"));
    story.update("u", |object| object["metadata"]["managedFields"] = json!([{}])).owned("");
    story.patch("w", "data: {c: z}").owned("");
    story.apply("m", &config_map("{a: x}"));
    story.owned("m Apply .data.a\n before-first-apply Update .data .data.a .data.b .data.c");
    story.refused(
        "m",
        &config_map("{b: q}"),
        409,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.b",
    );
}

#[test]
fn written_managed_fields_are_taken_over() {
    let mut story = Story::config_map();
    story.create("kubectl", &config_map("{a: x, b: y}"));
    story.update("kubectl", |object| {
        let entry = &mut object["metadata"]["managedFields"][0];
        entry["manager"] = "m".into();
        entry["operation"] = "Apply".into();
    });
    story.owned("m Apply .data .data.a .data.b");
    story.apply("m", &config_map("{a: x}")).has("/data", "{a: x}");
}

#[test]
fn unreadable_or_absent_managed_fields_keep_the_old_ones() {
    for written in [json!([{"manager": "m", "operation": "Bogus"}]), json!(null), json!([{"fieldsV1": 3}])] {
        let mut story = Story::config_map();
        story.create("u", &config_map("{a: x}"));
        story.update("w", |object| object["metadata"]["managedFields"] = written);
        story.owned("u Update .data .data.a");
    }
}

#[test]
fn subresource_writes_have_an_entry_of_their_own() {
    let mut story = Story::of("apps/v1", "Deployment");
    story.create("u", DEPLOYMENT).patch("kube/status", "status: {replicas: 1, conditions: [{type: Available}]}");
    let entry = &story.live()["metadata"]["managedFields"][1];
    assert_eq!(
        (&entry["subresource"], &entry["fieldsV1"]),
        (
            &json!("status"),
            &json!({"f:status": {"f:replicas": {}, "f:conditions": {".": {},
                "k:{\"type\":\"Available\"}": {".": {}, "f:type": {}}}}})
        )
    );
}

#[test]
fn entries_are_sorted_by_operation_time_and_name() {
    let mut story = Story::config_map();
    story.create("z", &config_map("{a: x}")).patch("b", "data: {b: x}").apply("y", &config_map("{c: x}"));
    story.apply("a", &config_map("{d: x}"));
    story.owned("y Apply .data.c\n a Apply .data.d\n z Update .data .data.a\n b Update .data.b");
}

#[test]
fn the_eleventh_updater_merges_the_oldest_into_ancient_changes() {
    let mut story = Story::config_map();
    story.create("u0", &config_map("{k0: x}"));
    for i in 1..12 {
        story.patch(&format!("u{i:02}"), &format!("data: {{k{i}: x}}"));
    }
    let owners = story.owners();
    assert_eq!(owners.lines().count(), 10, "{owners}");
    assert!(owners.starts_with("ancient-changes Update .data .data.k0 .data.k1 .data.k2\n"), "{owners}");
    assert!(owners.ends_with("u11 Update .data.k11"), "{owners}");
}
