//! Pruning, defaulting and validation of custom resources.

use serde_json::json;

use super::{findings, schema, show, yaml};
use crate::schema::{apply_defaults, drop_unknown, structural, validate};

#[test]
fn undeclared_fields_are_pruned_unless_preserved() {
    let schema = schema(
        "{size: {type: integer}, free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: object}}},
          map: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}},
          list: {type: array, items: {type: object, properties: {a: {type: string}}}},
          pod: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}",
    );
    let mut object = yaml(
        "{apiVersion: x/v1, kind: W, metadata: {name: n, bad: 1}, other: 1, spec: {size: 1, bogus: 2,
          free: {any: {b: 1}, known: {gone: 1}}, map: {k: {a: x, b: y}}, list: [{a: x}, {extra: 1}],
          pod: {apiVersion: v1, kind: Pod, metadata: {name: p, bad: 1}, spec: {x: 1}}}}",
    );
    assert_eq!(
        drop_unknown(&schema, &mut object),
        [
            "metadata.bad",
            "other",
            "spec.bogus",
            "spec.free.known.gone",
            "spec.list[1].extra",
            "spec.map.k.b",
            "spec.pod.metadata.bad"
        ]
    );
    assert_eq!(object["spec"]["free"], json!({"any": {"b": 1}, "known": {}}));
    assert_eq!(object["spec"]["pod"]["spec"], json!({"x": 1}));
}

#[test]
fn defaults_fill_what_is_missing_or_null() {
    let schema = schema(
        "{size: {type: integer, default: 3}, maybe: {type: string, nullable: true, default: d},
          inner: {type: object, default: {}, properties: {a: {type: string, default: x}}},
          absent: {type: object, properties: {a: {type: string, default: x}}},
          list: {type: array, items: {type: object, properties: {p: {type: string, default: TCP}}}}}",
    );
    let mut object = yaml("{spec: {size: null, maybe: null, list: [{}, {p: UDP}]}}");
    apply_defaults(&schema, &mut object);
    assert_eq!(object, yaml("{spec: {size: 3, maybe: null, inner: {a: x}, list: [{p: TCP}, {p: UDP}]}}"));
    let mut object = yaml("{metadata: {}}");
    apply_defaults(&schema, &mut object);
    assert_eq!(object, yaml("{metadata: {}}"));
}

#[test]
fn findings_have_the_servers_words() {
    let cases = [
        (
            "{type: integer}",
            "x",
            "spec.f: Invalid value: \"string\": spec.f in body must be of type integer: \"string\" (TypeInvalid)",
        ),
        (
            "{type: integer}",
            "null",
            "spec.f: Invalid value: \"null\": spec.f in body must be of type integer: \"null\" (TypeInvalid)",
        ),
        (
            "{type: integer}",
            "1.5",
            "spec.f: Invalid value: \"number\": spec.f in body must be of type integer: \"number\" (TypeInvalid)",
        ),
        ("{type: integer, nullable: true}", "null", ""),
        ("{type: number}", "3", ""),
        ("{x-kubernetes-int-or-string: true}", "a", ""),
        ("{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}", "5", ""),
        (
            "{type: integer, maximum: 10}",
            "11",
            "spec.f: Invalid value: 11: spec.f in body should be less than or equal to 10 (Invalid)",
        ),
        (
            "{type: integer, minimum: 1}",
            "0",
            "spec.f: Invalid value: 0: spec.f in body should be greater than or equal to 1 (Invalid)",
        ),
        (
            "{type: integer, minimum: 1, exclusiveMinimum: true}",
            "1",
            "spec.f: Invalid value: 1: spec.f in body should be greater than 1 (Invalid)",
        ),
        (
            "{type: integer, multipleOf: 5}",
            "7",
            "spec.f: Invalid value: 7: spec.f in body should be a multiple of 5 (Invalid)",
        ),
        (
            "{type: string, enum: [a, b]}",
            "z",
            "spec.f: Unsupported value: \"z\": supported values: \"a\", \"b\" (NotSupported)",
        ),
        ("{type: string, maxLength: 2}", "abc", "spec.f: Too long: may not be more than 2 bytes (TooLong)"),
        (
            "{type: string, minLength: 2}",
            "a",
            "spec.f: Invalid value: \"a\": spec.f in body should be at least 2 chars long (Invalid)",
        ),
        (
            "{type: string, pattern: '^a+$'}",
            "b",
            "spec.f: Invalid value: \"b\": spec.f in body should match '^a+$' (Invalid)",
        ),
        (
            "{type: string, format: date-time}",
            "soon",
            "spec.f: Invalid value: \"soon\": spec.f in body must be of type date-time: \"soon\" (TypeInvalid)",
        ),
        ("{type: string, format: no-such-format}", "soon", ""),
        (
            "{type: array, items: {type: string}, minItems: 1}",
            "[]",
            "spec.f: Invalid value: []: spec.f in body should have at least 1 items (Invalid)",
        ),
        (
            "{type: array, items: {type: string}, maxItems: 1}",
            "[a, b]",
            "spec.f: Too many: 2: must have at most 1 item (TooMany)",
        ),
        (
            "{type: array, items: {type: string}}",
            "[a, 1]",
            "spec.f[1]: Invalid value: \"integer\": spec.f[1] in body must be of type string: \"integer\" (TypeInvalid)",
        ),
        (
            "{type: array, x-kubernetes-list-type: set, items: {type: string}}",
            "[a, b, a]",
            "spec.f[2]: Duplicate value: \"a\" (Duplicate)",
        ),
        (
            "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k], items: {type: object, required: [k], properties: {k: {type: string}, v: {type: string}}}}",
            "[{k: a, v: x}, {k: a, v: y}]",
            "spec.f[1]: Duplicate value: {\"k\":\"a\"} (Duplicate)",
        ),
        ("{type: object, required: [a], properties: {a: {type: string}}}", "{}", "spec.f.a: Required value (Required)"),
        (
            "{type: object, maxProperties: 1, additionalProperties: {type: string}}",
            "{a: x, b: y}",
            "spec.f: Too many: 2: must have at most 1 item (TooMany)",
        ),
        (
            "{type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}",
            "{a: x}",
            "",
        ),
        (
            "{type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}",
            "{a: x, b: y}",
            "<nil>: Invalid value: \"\": \"spec.f\" must validate one and only one schema (oneOf). Found 2 valid alternatives (Invalid)",
        ),
        (
            "{type: object, properties: {a: {type: string}}, not: {required: [a]}}",
            "{a: x}",
            "<nil>: Invalid value: \"\": \"spec.f\" must not validate the schema (not) (Invalid)",
        ),
        (
            "{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}",
            "{apiVersion: v1}",
            "spec.f.kind: Required value: must not be empty (Required)",
        ),
    ];
    for (field, value, expected) in cases {
        let schema = schema(&format!("{{f: {field}}}"));
        assert_eq!(findings(&schema, &format!("{{f: {value}}}")), expected, "{field} {value}");
    }
}

#[test]
fn unchanged_fields_are_not_validated_again() {
    let schema = schema("{a: {type: integer, maximum: 5}, b: {type: string}, l: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k],
        items: {type: object, required: [k], properties: {k: {type: string}, n: {type: integer, maximum: 5}}}}}");
    let object = |a: u32, b: &str, n: u32| json!({"spec": {"a": a, "b": b, "l": [{"k": "x", "n": n}]}});
    let old = object(9, "x", 9);
    assert_eq!(show(&validate(&schema, &object(9, "y", 9), Some(&old))), "");
    assert_eq!(
        show(&validate(&schema, &object(8, "x", 9), Some(&old))),
        "spec.a: Invalid value: 8: spec.a in body should be less than or equal to 5 (Invalid)"
    );
}

#[test]
fn a_root_that_preserves_keeps_everything() {
    let schema = structural(&yaml("{type: object}"), true).unwrap();
    let mut object = yaml("{apiVersion: x/v1, kind: W, metadata: {name: n}, any: {thing: [1]}}");
    assert_eq!(drop_unknown(&schema, &mut object), Vec::<String>::new());
    assert_eq!(object["any"]["thing"][0], 1);
}
