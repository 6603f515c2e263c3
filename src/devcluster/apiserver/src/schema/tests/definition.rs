//! Valid and invalid definitions.

use serde_json::Value;

use super::{show, yaml};
use crate::schema::validate_definition;

fn definition() -> Value {
    yaml("
metadata: {name: widgets.x.io}
spec:
  group: x.io
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}
")
}

fn with(pointer: &str, value: &str) -> String {
    let mut definition = definition();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    definition.pointer_mut(parent).unwrap()[key] = yaml(value);
    show(&validate_definition(&definition, None))
}

#[test]
fn a_plain_definition_is_allowed() {
    assert_eq!(show(&validate_definition(&definition(), None)), "");
}

#[test]
fn heads_are_judged() {
    let cases = [
        (
            "/metadata/name",
            "gadgets.x.io",
            "metadata.name: Invalid value: \"gadgets.x.io\": must be spec.names.plural+\".\"+spec.group (Invalid)",
        ),
        (
            "/spec/scope",
            "Galaxy",
            "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\" (NotSupported)",
        ),
        (
            "/spec/names/listKind",
            "Widget",
            "spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same (Invalid)",
        ),
        ("/spec/names/kind", "''", "spec.names.kind: Required value (Required)"),
        (
            "/spec/versions/0/additionalPrinterColumns",
            "[{name: A, type: text, jsonPath: .a}]",
            "spec.versions[0].additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of boolean,date,integer,number,string (Invalid)",
        ),
        (
            "/spec/versions/0/subresources",
            "{scale: {specReplicasPath: .a, statusReplicasPath: .status.r}}",
            "spec.versions[0].subresources.scale.specReplicasPath: Invalid value: \".a\": should be a json path under .spec (Invalid)",
        ),
    ];
    for (pointer, value, expected) in cases {
        assert_eq!(with(pointer, value), expected, "{pointer}");
    }
    assert!(
        with("/spec/versions/0/storage", "false").contains("must have exactly one version marked as storage version")
    );
    assert!(with("/spec/group", "apps.k8s.io").contains("api-approved.kubernetes.io"));
}

#[test]
fn schemas_must_be_structural() {
    let root = "spec.validation.openAPIV3Schema";
    let cases = [
        ("{}", "type: Required value: must not be empty at the root (Required)"),
        (
            "{type: array, items: {type: string}}",
            "type: Invalid value: \"array\": must be object at the root (Invalid)",
        ),
        (
            "{type: object, properties: {a: {}}}",
            "properties[a].type: Required value: must not be empty for specified object fields (Required)",
        ),
        ("{type: object, properties: {a: {x-kubernetes-preserve-unknown-fields: true}}}", ""),
        (
            "{type: object, properties: {a: {type: array}}}",
            "properties[a].items: Required value: must be specified (Required)",
        ),
        (
            "{type: object, properties: {a: {type: array, items: {}}}}",
            "properties[a].items.type: Required value: must not be empty for specified array items (Required)",
        ),
        (
            "{type: object, properties: {a: {type: text}}}",
            "properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\" (NotSupported)",
        ),
        (
            "{type: object, properties: {a: {type: string}}, additionalProperties: {type: string}}",
            "additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive (Forbidden)",
        ),
        (
            "{type: object, properties: {a: {type: object, $ref: b}}}",
            "properties[a].$ref: Forbidden: $ref is not supported (Forbidden)",
        ),
        (
            "{type: object, properties: {a: {type: string, anyOf: [{type: string}]}}}",
            "properties[a].anyOf[0].type: Forbidden: must be empty to be structural (Forbidden)",
        ),
        (
            "{type: object, properties: {a: {x-kubernetes-int-or-string: true, anyOf: [{type: string}, {type: integer}]}}}",
            "",
        ),
        (
            "{type: object, properties: {a: {type: array, x-kubernetes-list-type: map, items: {type: object}}}}",
            "properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map (Required)",
        ),
        (
            "{type: object, properties: {a: {type: integer, default: x}}}",
            "properties[a].default: Invalid value: \"string\": spec.validation.openAPIV3Schema.properties[a].default in body must be of type integer: \"string\" (TypeInvalid)",
        ),
        (
            "{type: object, properties: {a: {type: object, default: {b: 1}}}}",
            "properties[a].default: Invalid value: {\"b\":1}: must not have unknown fields (Invalid)",
        ),
        (
            "{type: object, properties: {metadata: {type: object, properties: {labels: {type: object}}}}}",
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified (Forbidden)",
        ),
    ];
    for (schema, expected) in cases {
        let expected = if expected.is_empty() { String::new() } else { format!("{root}.{expected}") };
        assert_eq!(with("/spec/versions/0/schema/openAPIV3Schema", schema), expected, "{schema}");
    }
    assert!(
        with("/spec/versions/0/schema", "null")
            .starts_with("spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required")
    );
}

#[test]
fn patterns_and_rules_must_compile() {
    let schema = "{type: object, properties: {a: {type: string, pattern: '('}}}";
    assert!(
        with("/spec/versions/0/schema/openAPIV3Schema", schema)
            .contains("must be a valid regular expression, but isn't")
    );
    let schema = "{type: object, properties: {a: {type: string, x-kubernetes-validations: [{rule: self.nope == 1}]}}}";
    assert_eq!(with("/spec/versions/0/schema/openAPIV3Schema", schema), "");
    let schema = "{type: object, properties: {a: {type: object, x-kubernetes-validations: [{rule: self.nope == 1}]}}}";
    assert!(with("/spec/versions/0/schema/openAPIV3Schema", schema).contains("undefined field 'nope'"));
}
