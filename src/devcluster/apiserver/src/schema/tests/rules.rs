//! Rules on custom resources.

use serde_json::json;

use super::{findings, schema, show, yaml};
use crate::schema::{structural, validate};

#[test]
fn rules_judge_values() {
    let cases = [
        (
            "{type: integer, x-kubernetes-validations: [{rule: self <= 10, message: too much}]}",
            "11",
            "spec.f: Invalid value: too much (Invalid)",
        ),
        ("{type: integer, x-kubernetes-validations: [{rule: self <= 10, message: too much}]}", "10", ""),
        (
            "{type: integer, x-kubernetes-validations: [{rule: self <= 10}]}",
            "11",
            "spec.f: Invalid value: failed rule: self <= 10 (Invalid)",
        ),
        ("{type: number, x-kubernetes-validations: [{rule: self < 1.5}]}", "1", ""),
        ("{type: string, x-kubernetes-validations: [{rule: \"self.startsWith('a') && self.size() < 4\"}]}", "abc", ""),
        (
            "{type: string, x-kubernetes-validations: [{rule: \"self.matches('^[a-c]+$')\", message: m}]}",
            "abd",
            "spec.f: Invalid value: m (Invalid)",
        ),
        (
            "{type: string, x-kubernetes-validations: [{rule: self == 'a', messageExpression: \"'not ' + self\"}]}",
            "b",
            "spec.f: Invalid value: not b (Invalid)",
        ),
        (
            "{type: string, x-kubernetes-validations: [{rule: self == 'a', message: no, reason: FieldValueForbidden}]}",
            "b",
            "spec.f: Forbidden: no (Forbidden)",
        ),
        (
            "{type: object, properties: {a: {type: string}, b: {type: string}}, x-kubernetes-validations: [{rule: has(self.a) != has(self.b), message: either, fieldPath: .a}]}",
            "{a: x, b: y}",
            "spec.f.a: Invalid value: either (Invalid)",
        ),
        (
            "{type: object, properties: {a: {type: string}}, x-kubernetes-validations: [{rule: \"!has(self.a) || self.a == 'x'\"}]}",
            "{}",
            "",
        ),
        (
            "{type: array, items: {type: object, properties: {n: {type: integer}}}, x-kubernetes-validations: [{rule: 'self.all(i, i.n > 0)', message: positive}]}",
            "[{n: 1}, {n: 0}]",
            "spec.f: Invalid value: positive (Invalid)",
        ),
        (
            "{type: array, items: {type: integer, x-kubernetes-validations: [{rule: self > 0, message: positive}]}}",
            "[1, 0]",
            "spec.f[1]: Invalid value: positive (Invalid)",
        ),
        ("{type: string, enum: [a, b], x-kubernetes-validations: [{rule: \"self in ['a', 'b']\"}]}", "a", ""),
        (
            "{type: object, properties: {in-it: {type: string}, namespace: {type: string}}, x-kubernetes-validations: [{rule: \"self.in__dash__it == self.__namespace__\", message: same}]}",
            "{in-it: a, namespace: b}",
            "spec.f: Invalid value: same (Invalid)",
        ),
    ];
    for (field, value, expected) in cases {
        let schema = schema(&format!("{{f: {field}}}"));
        assert_eq!(findings(&schema, &format!("{{f: {value}}}")), expected, "{field} {value}");
    }
}

#[test]
fn transition_rules_need_both_sides() {
    let schema = schema("{f: {type: integer, x-kubernetes-validations: [{rule: self >= oldSelf, message: shrinks}]}}");
    let object = |f: u32| json!({"spec": {"f": f}});
    assert_eq!(show(&validate(&schema, &object(1), None)), "");
    assert_eq!(show(&validate(&schema, &object(1), Some(&json!({"spec": {}})))), "");
    assert_eq!(show(&validate(&schema, &object(2), Some(&object(1)))), "");
    assert_eq!(show(&validate(&schema, &object(1), Some(&object(2)))), "spec.f: Invalid value: shrinks (Invalid)");
}

#[test]
fn rules_are_not_run_on_mistyped_objects_and_that_is_said() {
    let schema = schema("{f: {type: integer, x-kubernetes-validations: [{rule: self > 0}]}, g: {type: string}}");
    assert_eq!(
        findings(&schema, "{f: 0, g: 1}"),
        "spec.g: Invalid value: \"integer\": spec.g in body must be of type string: \"integer\" (TypeInvalid)\n\
         <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
         correct the existing errors to complete validation (Invalid)"
    );
}

#[test]
fn a_rule_that_cannot_be_evaluated_fails_the_object() {
    let schema = schema(
        "{f: {type: object, properties: {a: {type: string}}, x-kubernetes-validations: [{rule: self.a == 'x', message: m}]}}",
    );
    assert_eq!(findings(&schema, "{f: {}}"), "spec.f: Invalid value: No such key: a evaluating rule: m (Invalid)");
}

#[test]
fn rules_that_make_no_sense_are_refused_with_the_definition() {
    let refused = |rule: &str| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": rule}]}}});
        let causes = structural(&schema, false).err().unwrap_or_default();
        let texts = causes.iter().map(|c| format!("{} {}", c.field, c.message));
        texts.collect::<Vec<_>>().join("; ")
    };
    let at = ".properties[spec].x-kubernetes-validations[0].rule";
    assert_eq!(refused(""), format!("{at} Required value: rule is not specified"));
    assert!(
        refused("self.b == 'x'").contains("ERROR: <input>:1:5: undefined field 'b'\n"),
        "{}",
        refused("self.b == 'x'")
    );
    assert!(refused("has(self.b)").contains("undefined field 'b'\n"));
    let shown = "{\"Rule\":\"self.a ==\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}";
    assert!(refused("self.a ==").starts_with(&format!("{at} Invalid value: {shown}: compilation failed: ")));
    assert!(refused("frobnicate(self)").contains("undeclared reference to 'frobnicate'"));
    assert!(refused("other.a == 'x'").contains("undeclared reference to 'other'"));
    assert!(refused(&"(".repeat(5000)).contains("must not nest deeper"));
    assert_eq!(refused("has(self.a) && self.a.size() > 1"), "");
}

#[test]
fn rules_at_the_root_see_the_name() {
    let schema =
        yaml("{type: object, x-kubernetes-validations: [{rule: \"self.metadata.name == 'only'\", message: one}]}");
    let schema = structural(&schema, false).unwrap();
    assert_eq!(
        show(&validate(&schema, &json!({"metadata": {"name": "w"}}), None)),
        "<nil>: Invalid value: one (Invalid)"
    );
    assert_eq!(show(&validate(&schema, &json!({"metadata": {"name": "only"}}), None)), "");
}
