//! Apply against apply, and against the schema.

use serde_json::json;

use super::{DEPLOYMENT, Story, config_map, yaml};

#[test]
fn creates_and_owns_what_was_applied() {
    let mut story = Story::config_map();
    story.apply("m1", &config_map("{a: x, b: y}")).owned("m1 Apply .data.a .data.b");
    let entry = &story.live()["metadata"]["managedFields"][0];
    assert_eq!(
        entry,
        &json!({"manager": "m1", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:01Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}})
    );
}

#[test]
fn identical_apply_writes_nothing_also_when_forced() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x}")).apply("m", &config_map("{a: x}")).force("m", &config_map("{a: x}"));
    story.written(1);
}

#[test]
fn dropped_field_is_pruned() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x, b: y}")).apply("m", &config_map("{a: x}"));
    story.has("/data", "{a: x}").owned("m Apply .data.a");
}

#[test]
fn dropping_the_last_key_drops_the_map() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x}")).apply("m", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}");
    story.has("/data", "absent").owned("");
}

#[test]
fn dropping_the_last_label_keeps_the_metadata() {
    let mut story = Story::config_map();
    story.apply("m", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {a: x}}, data: {a: x}}");
    story.live.as_mut().unwrap()["metadata"]["uid"] = "u".into();
    story.apply("m", &config_map("{a: x}")).has("/metadata/name", "c").has("/metadata/uid", "u");
    story.has("/metadata/labels", "absent");
    story.apply("m", "{apiVersion: v1, kind: ConfigMap, data: {a: x}}").has("/metadata/name", "c").written(2);
}

#[test]
fn same_value_is_shared_until_the_last_owner_drops_it() {
    let mut story = Story::config_map();
    story.apply("m1", &config_map("{a: x}")).apply("m2", &config_map("{a: x, b: y}"));
    story.owned("m1 Apply .data.a\n m2 Apply .data.a .data.b").written(2);
    story.apply("m2", &config_map("{b: y}")).has("/data", "{a: x, b: y}");
    story.apply("m1", &config_map("{}")).has("/data", "{b: y}").owned("m2 Apply .data.b\n m1 Apply .data");
}

#[test]
fn one_conflict_names_path_and_manager() {
    let mut story = Story::config_map();
    story.apply("m1", &config_map("{a: x}"));
    let status = story.try_apply("m2", &config_map("{a: y}"), false).err().unwrap();
    assert_eq!(
        status.body(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409,
            "reason": "Conflict", "message": "Apply failed with 1 conflict: conflict with \"m1\": .data.a",
            "details": {"causes": [
                {"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.a"}]}})
    );
}

#[test]
fn several_conflicts_are_grouped_by_manager() {
    let mut story = Story::config_map();
    story.apply("m1", &config_map("{a: x, b: x}")).apply("m2", &config_map("{a: x}"));
    story.refused(
        "m3",
        &config_map("{a: y, b: y}"),
        409,
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.a\n- .data.b\nconflicts with \"m2\":\n- .data.a",
    );
}

#[test]
fn conflicts_name_version_and_subresource_of_updates() {
    let mut story = Story::of("apps/v1", "Deployment");
    story.apply("m", DEPLOYMENT).patch("hpa/scale", "spec: {replicas: 5}").patch("ed", "spec: {paused: true}");
    let config = |more: &str| DEPLOYMENT.replace("spec:\n  selector", &format!("spec:\n  {more}\n  selector"));
    story.refused(
        "m",
        &config("replicas: 2"),
        409,
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas",
    );
    story.refused(
        "m",
        &config("paused: false"),
        409,
        "Apply failed with 1 conflict: conflict with \"ed\" using apps/v1: .spec.paused",
    );
}

#[test]
fn conflict_paths_show_list_keys() {
    let mut story = Story::of("apps/v1", "Deployment");
    story.apply("m", DEPLOYMENT);
    story.refused(
        "n",
        &DEPLOYMENT.replace("a:1", "a:2"),
        409,
        "Apply failed with 1 conflict: conflict with \"m\": .spec.template.spec.containers[name=\"a\"].image",
    );
    let config = DEPLOYMENT.replace("{containerPort: 80}", "{containerPort: 80, name: web}");
    story.force("n", &config).refused(
        "m",
        &DEPLOYMENT.replace("{containerPort: 80}", "{containerPort: 80, name: www}"),
        409,
        "Apply failed with 1 conflict: conflict with \"n\": \
         .spec.template.spec.containers[name=\"a\"].ports[containerPort=80,protocol=\"TCP\"].name",
    );
}

#[test]
fn force_moves_ownership_and_the_loser_may_then_drop_it() {
    let mut story = Story::config_map();
    story.apply("m1", &config_map("{a: x, k: v}")).force("m2", &config_map("{a: y}"));
    story.owned("m1 Apply .data.k\n m2 Apply .data.a").has("/data/a", "y");
    story.apply("m1", &config_map("{k: v}")).has("/data/a", "y");
}

#[test]
fn co_owner_changing_a_shared_value_conflicts() {
    let mut story = Story::config_map();
    story.apply("m1", &config_map("{a: x}")).apply("m2", &config_map("{a: x}"));
    story.refused("m1", &config_map("{a: y}"), 409, "Apply failed with 1 conflict: conflict with \"m2\": .data.a");
}

#[test]
fn update_of_the_same_name_is_another_manager() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x}")).patch("m", "data: {a: y}");
    story.owned("m Update .data.a");
    story.refused(
        "m",
        &config_map("{a: x}"),
        409,
        "Apply failed with 1 conflict: conflict with \"m\" using v1: .data.a",
    );
}

#[test]
fn field_that_an_updater_co_owns_stays_when_dropped() {
    let mut story = Story::config_map();
    story.create("u", &config_map("{a: x, b: y}")).apply("m", &config_map("{a: x}"));
    story.owned("m Apply .data.a\n u Update .data .data.a .data.b");
    story.apply("m", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}").has("/data", "{a: x, b: y}");
}

#[test]
fn entry_time_moves_only_with_a_change() {
    let time = |story: &Story| story.live()["metadata"]["managedFields"][0]["time"].clone();
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x}")).apply("m", &config_map("{a: x}"));
    assert_eq!(time(&story), "2026-01-01T00:00:01Z");
    story.apply("m", &config_map("{a: y}"));
    assert_eq!(time(&story), "2026-01-01T00:00:03Z");
}

#[test]
fn defaults_are_not_owned_and_dropping_their_field_is_free() {
    let mut story = Story::of("apps/v1", "Deployment");
    story.apply("m", &DEPLOYMENT.replace("spec:\n  selector", "spec:\n  replicas: 3\n  selector"));
    story.apply("m", DEPLOYMENT).has("/spec/replicas", "absent");
    story.owned(
        "m Apply .spec.selector .spec.template.metadata.labels.app \
         .spec.template.spec.containers[name=\"a\"] .spec.template.spec.containers[name=\"a\"].image \
         .spec.template.spec.containers[name=\"a\"].name \
         .spec.template.spec.containers[name=\"a\"].ports[containerPort=80,protocol=\"TCP\"] \
         .spec.template.spec.containers[name=\"a\"].ports[containerPort=80,protocol=\"TCP\"].containerPort",
    );
}

#[test]
fn defaulted_children_go_with_the_only_owned_sibling() {
    // The server completed a strategy that was applied as a bare type. Dropping the strategy removes the whole field.
    let mut story = Story::of("apps/v1", "Deployment");
    let with = DEPLOYMENT.replace("spec:\n  selector", "spec:\n  strategy: {type: RollingUpdate}\n  selector");
    story.apply("m", &with);
    story.live.as_mut().unwrap()["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": "25%"});
    story.apply("m", DEPLOYMENT).has("/spec/strategy", "absent");
}

#[test]
fn replicas_taken_by_scale_stay_as_scaled_when_dropped() {
    let mut story = Story::of("apps/v1", "Deployment");
    let with = DEPLOYMENT.replace("spec:\n  selector", "spec:\n  replicas: 3\n  selector");
    story.apply("m", &with).patch("hpa/scale", "spec: {replicas: 5}");
    story.apply("m", DEPLOYMENT).has("/spec/replicas", "5");
    assert!(story.owners().ends_with("hpa/scale Update .spec.replicas"), "{}", story.owners());
}

#[test]
fn selectors_are_atomic() {
    let mut story = Story::of("v1", "Service");
    let service = |selector: &str| {
        format!("{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {{selector: {selector}}}}}")
    };
    story.apply("m", &service("{a: x, b: y}")).owned("m Apply .spec.selector");
    story.apply("m", &service("{b: y}")).has("/spec/selector", "{b: y}");
    story.refused("n", &service("{c: z}"), 409, "Apply failed with 1 conflict: conflict with \"m\": .spec.selector");
}

#[test]
fn null_owns_its_path_and_becomes_empty_in_a_map() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: null}")).owned("m Apply .data.a").has("/data", "{a: ''}");
}

#[test]
fn server_metadata_in_the_configuration_is_passed_over() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x}"));
    story.live.as_mut().unwrap()["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    story.apply(
        "m",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, creationTimestamp: null, uid: u}, data: {a: x}}",
    );
    story.written(1).has("/metadata/creationTimestamp", "'2026-01-01T00:00:00Z'").has("/metadata/uid", "absent");
}

#[test]
fn reset_paths_are_neither_written_nor_owned() {
    let schema = crate::schema::builtin("apps/v1", "Deployment").unwrap();
    let cx = super::ApplyContext {
        schema: &schema,
        api_version: "apps/v1",
        manager: "m",
        subresource: "",
        force: false,
        now: "2026-01-01T00:00:00Z",
        reset: &[&["status"]],
    };
    let object = super::apply(&cx, None, &yaml(&format!("{DEPLOYMENT}\nstatus: {{replicas: 7}}\n"))).unwrap();
    assert_eq!(object.get("status"), None);
    assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"].get("f:status"), None);
}

#[test]
fn misfits_are_500_with_the_converters_words() {
    let prefix = "failed to create typed patch object (/c; /v1, Kind=ConfigMap): ";
    let cases = [
        ("{n: 5}", ".data.n: expected string, got &value.valueUnstructured{Value:5}"),
        ("[a, b]", ".data: expected map, got &{[a b]}"),
        (
            "{n: 5, o: true}",
            "errors:\n  .data.n: expected string, got &value.valueUnstructured{Value:5}\n  .data.o: expected string, got &value.valueUnstructured{Value:true}",
        ),
    ];
    for (data, expected) in cases {
        Story::config_map().refused("m", &config_map(data), 500, &format!("{prefix}{expected}"));
    }
    let bogus = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, bogus: 1}";
    Story::config_map().refused("m", bogus, 500, &format!("{prefix}.bogus: field not declared in schema"));
    let duplicate = DEPLOYMENT.replace("- {name: a,", "- {name: a}\n      - {name: a,");
    Story::of("apps/v1", "Deployment").refused(
        "m",
        &duplicate,
        500,
        "failed to create typed patch object (/d; apps/v1, Kind=Deployment): \
         .spec.template.spec.containers: duplicate entries for key [name=\"a\"]",
    );
    let typed = DEPLOYMENT.replace("spec:\n  selector", "spec:\n  replicas: many\n  selector");
    Story::of("apps/v1", "Deployment").refused(
        "m",
        &typed,
        500,
        "failed to create typed patch object (/d; apps/v1, Kind=Deployment): \
         .spec.replicas: expected numeric (int or float), got string",
    );
}

#[test]
fn managed_fields_in_the_configuration_are_refused() {
    let config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, managedFields: []}}";
    Story::config_map().refused("m", config, 400, "metadata.managedFields must be nil");
}

#[test]
fn another_spelling_of_a_quantity_is_a_change_only_for_others() {
    let pod =
        |cpu: &str| DEPLOYMENT.replace("image: a:1,", &format!("image: a:1, resources: {{limits: {{cpu: '{cpu}'}}}},"));
    let mut story = Story::of("apps/v1", "Deployment");
    story.apply("m", &pod("1"));
    story.refused(
        "n",
        &pod("1000m"),
        409,
        "Apply failed with 1 conflict: conflict with \"m\": .spec.template.spec.containers[name=\"a\"].resources.limits.cpu",
    );
}

#[test]
fn an_applied_object_that_lost_a_value_gets_it_back() {
    let mut story = Story::config_map();
    story.apply("m", &config_map("{a: x, b: y}")).patch("u", "data: {a: null}");
    story.owned("m Apply .data.b").apply("m", &config_map("{a: x, b: y}")).has("/data", "{a: x, b: y}");
    story.owned("m Apply .data.a .data.b");
}
