//! Migration from client-side tools, and custom resources.

use serde_json::json;

use super::{Story, config_map, yaml};
use crate::schema::structural;

#[test]
fn kubectl_may_take_what_its_own_annotation_lists() {
    let annotated = |data: &str| {
        let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "x"}});
        let annotation = format!("kubectl.kubernetes.io/last-applied-configuration: '{last}'");
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c, annotations: {{{annotation}}}}}\ndata: {data}\n")
    };
    let mut story = Story::config_map();
    story.create("kubectl-client-side-apply", &annotated("{a: x, b: y}"));
    story.refused(
        "other",
        &config_map("{a: z}"),
        409,
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.a",
    );
    story.refused(
        "kubectl",
        &config_map("{a: z, b: q}"),
        409,
        "Apply failed with 2 conflicts: conflicts with \"kubectl-client-side-apply\" using v1:\n- .data.a\n- .data.b",
    );
    story.apply("kubectl", &config_map("{a: z}")).has("/data", "{a: z, b: y}");
}

fn widget() -> Story {
    let schema = yaml(
        "
type: object
properties:
  spec:
    type: object
    properties:
      size: {type: integer}
      tags: {type: array, items: {type: string}}
      zones: {type: array, items: {type: string}, x-kubernetes-list-type: set}
      parts:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name]
        items: {type: object, required: [name], properties: {name: {type: string}, count: {type: integer}}}
      sealed: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: string}}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true}
",
    );
    Story::with(structural(&schema, false).unwrap(), "x.io/v1")
}

fn spec(spec: &str) -> String {
    format!("apiVersion: x.io/v1\nkind: Widget\nmetadata: {{name: w}}\nspec: {spec}\n")
}

#[test]
fn custom_list_and_map_types_decide_what_is_owned() {
    let cases = [
        ("{size: 1}", ".spec.size"),
        ("{tags: [a, b]}", ".spec.tags"),
        ("{zones: [a]}", ".spec.zones[=\"a\"]"),
        (
            "{parts: [{name: p, count: 1}]}",
            ".spec.parts[name=\"p\"] .spec.parts[name=\"p\"].count .spec.parts[name=\"p\"].name",
        ),
        ("{sealed: {a: b}}", ".spec.sealed"),
        ("{free: {a: {b: 1, l: [1]}}}", ".spec.free.a .spec.free.a.b .spec.free.a.l"),
        ("{}", ".spec"),
    ];
    for (body, expected) in cases {
        widget().apply("m", &spec(body)).owned(&format!("m Apply {expected}"));
    }
}

#[test]
fn creation_of_a_custom_resource_owns_its_spec() {
    widget().create("u", &spec("{size: 1}")).owned("u Update .spec .spec.size");
}

#[test]
fn unknown_field_of_a_custom_resource_is_not_declared() {
    widget().refused(
        "m",
        &spec("{bogus: 1}"),
        500,
        "failed to create typed patch object (/w; x.io/v1, Kind=Widget): .spec.bogus: field not declared in schema",
    );
}

#[test]
fn free_maps_are_merged_key_by_key_and_their_lists_replaced() {
    let mut story = widget();
    story.apply("m", &spec("{free: {a: 1, l: [1, 2]}}")).apply("n", &spec("{free: {b: 2}}"));
    story.has("/spec/free", "{a: 1, b: 2, l: [1, 2]}");
    story.apply("m", &spec("{free: {l: [3]}}")).has("/spec/free", "{b: 2, l: [3]}");
}

#[test]
fn ownership_below_what_became_atomic_is_ownership_of_the_whole() {
    let mut story = widget();
    story.apply("m", &spec("{zones: [a, b], size: 1}")).apply("n", &spec("{zones: [c]}"));
    let sealed = yaml(
        "{type: object, properties: {spec: {type: object, properties: {size: {type: integer},
          zones: {type: array, items: {type: string}, x-kubernetes-list-type: atomic}}}}}",
    );
    story.schema = structural(&sealed, false).unwrap();
    story.refused(
        "m",
        &spec("{zones: [d], size: 1}"),
        409,
        "Apply failed with 1 conflict: conflict with \"n\": .spec.zones",
    );
    story.force("m", &spec("{zones: [d], size: 1}")).has("/spec/zones", "[d]").owned("m Apply .spec.size .spec.zones");
}
