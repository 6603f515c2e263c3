//! CustomResourceDefinitions and their resources.

use serde_json::{Value, json};

use crate::world::{claim, condition, managers, rv};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn sized() -> Value {
    json!({
        "type": "object", "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        },
    })
}

#[test]
fn a_definition_is_completed_and_established() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        let crd = w.get(&custom.crd).await.ok();
        assert_eq!(crd["spec"]["names"]["singular"], "widget");
        assert_eq!(crd["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(crd["status"]["acceptedNames"]["kind"], "Widget");
        assert_eq!(condition(&crd, "NamesAccepted"), "True");
        assert_eq!(crd["metadata"]["generation"], 1);
    });
}

#[test]
fn a_definition_must_be_named_after_its_resource() {
    claim(async |w| {
        let body = json!({
            "metadata": {"name": "wrong.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        w.post(CRDS, body).await.invalid("FieldValueInvalid", "metadata.name");
    });
}

#[test]
fn a_definition_needs_a_structural_schema_and_one_storage_version() {
    claim(async |w| {
        let group = format!("{}.example.com", w.ns);
        let version = |name: &str, schema: Value| json!({"name": name, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let body = |versions: Value| {
            json!({
                "metadata": {"name": format!("widgets.{group}")},
                "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": versions},
            })
        };
        let untyped = json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}});
        w.post(CRDS, body(json!([version("v1", untyped)]))).await.refused_like(422, "Invalid", "");
        let fine = json!({"type": "object"});
        let two = body(json!([version("v1", fine.clone()), version("v2", fine)]));
        w.post(CRDS, two).await.refused_like(422, "Invalid", "");
        let none = body(json!([{"name": "v1", "served": true, "storage": true}]));
        w.post(CRDS, none).await.refused_like(422, "Invalid", "");
    });
}

#[test]
fn custom_resources_are_pruned_and_defaulted() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        let body = custom.widget("a", json!({"size": 3, "bogus": 1, "items": [{"n": "x", "extra": 1}]}));
        let answer = w.post(&custom.path, body).await.code(201);
        assert_eq!(answer.body["spec"], json!({"size": 3, "mode": "a", "items": [{"n": "x"}]}));
        let mut warnings = answer.warnings();
        warnings.sort();
        assert_eq!(
            warnings,
            ["299 - \"unknown field \\\"spec.bogus\\\"\"", "299 - \"unknown field \\\"spec.items[0].extra\\\"\""]
        );
        let strict = custom.widget("b", json!({"size": 3, "bogus": 1, "items": [{"n": "x", "extra": 1}]}));
        let message = "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.bogus\", unknown field \"spec.items[0].extra\"";
        w.post(&format!("{}?fieldValidation=Strict", custom.path), strict).await.refused(400, "BadRequest", message);
    });
}

#[test]
fn custom_resources_are_validated_with_causes() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        let causes = async |spec: Value| w.post(&custom.path, custom.widget("a", spec)).await.code(422).causes();
        assert_eq!(causes(json!({})).await, ["FieldValueRequired spec.size: Required value"]);
        let wrong = causes(json!({"size": "x"})).await;
        assert!(
            wrong[0].starts_with("FieldValueTypeInvalid spec.size: ")
                && wrong[0].ends_with("spec.size in body must be of type integer: \"string\""),
            "{wrong:?}"
        );
        let big = causes(json!({"size": 11})).await;
        assert!(
            big[0].starts_with("FieldValueInvalid spec.size: ")
                && big[0].ends_with("spec.size in body should be less than or equal to 10"),
            "{big:?}"
        );
        let mode = causes(json!({"size": 1, "mode": "z"})).await;
        assert_eq!(
            mode[0],
            "FieldValueNotSupported spec.mode: Unsupported value: \"z\": supported values: \"a\", \"b\""
        );
    });
}

#[test]
fn rules_are_evaluated() {
    claim(async |w| {
        let schema = json!({
            "type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "self.min <= self.max", "message": "min must not exceed max"},
                {"rule": "!has(oldSelf.max) || self.max >= oldSelf.max", "message": "max must not shrink"},
            ],
        });
        let custom = w.custom(schema, json!({})).await;
        let answer = w.post(&custom.path, custom.widget("a", json!({"min": 2, "max": 1}))).await.code(422);
        let causes = answer.causes();
        assert!(
            causes[0].starts_with("FieldValueInvalid spec: Invalid value: ")
                && causes[0].ends_with("min must not exceed max"),
            "{causes:?}"
        );
        w.post(&custom.path, custom.widget("a", json!({"min": 1, "max": 5}))).await.code(201);
        let answer = w.merge(&custom.at("a"), json!({"spec": {"max": 4}})).await.code(422);
        assert!(answer.causes()[0].ends_with("max must not shrink"), "{}", answer.text);
    });
}

#[test]
fn replacing_a_custom_resource_needs_a_version() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        w.post(&custom.path, custom.widget("a", json!({"size": 1}))).await.code(201);
        let answer = w.put(&custom.at("a"), custom.widget("a", json!({"size": 2}))).await.code(422);
        assert_eq!(
            answer.causes(),
            ["FieldValueInvalid metadata.resourceVersion: Invalid value: 0: must be specified for an update"]
        );
    });
}

#[test]
fn custom_resources_name_their_kind_in_bodies() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        let bare = json!({"metadata": {"name": "a"}, "spec": {"size": 1}});
        w.post(&custom.path, bare).await.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn without_a_status_subresource_status_is_data() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        let mut body = custom.widget("a", json!({"size": 1}));
        body["status"] = json!({"x": 1});
        let made = w.post(&custom.path, body).await.code(201).body;
        assert_eq!(made["status"]["x"], 1);
        w.get(&format!("{}/status", custom.at("a"))).await.code(404);
        let after = w.merge(&custom.at("a"), json!({"status": {"x": 2}})).await.ok();
        assert_eq!(after["metadata"]["generation"], 2);
    });
}

#[test]
fn with_a_status_subresource_both_sides_are_isolated() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({"subresources": {"status": {}}})).await;
        let mut body = custom.widget("a", json!({"size": 1}));
        body["status"] = json!({"x": 1});
        let made = w.post(&custom.path, body).await.code(201).body;
        assert_eq!(made["status"], Value::Null);
        let patch = json!({"metadata": {"labels": {"l": "1"}}, "spec": {"size": 9}, "status": {"x": 2}});
        let after = w.merge(&format!("{}/status", custom.at("a")), patch).await.code(200).body;
        assert_eq!((&after["status"]["x"], &after["spec"]["size"]), (&json!(2), &json!(1)));
        assert_eq!(after["metadata"]["labels"], Value::Null, "not even metadata");
        assert_eq!(after["metadata"]["generation"], 1);
        assert!(managers(&after).contains(&"conformance/Update/status".to_owned()), "{:?}", managers(&after));
        let mut main = after.clone();
        main["status"] = json!({"x": 3});
        main["spec"]["size"] = 2.into();
        let after = w.put(&custom.at("a"), main).await.code(200).body;
        assert_eq!((&after["status"]["x"], &after["metadata"]["generation"]), (&json!(2), &json!(2)));
    });
}

#[test]
fn labels_do_not_count_as_a_generation() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({"subresources": {"status": {}}})).await;
        w.post(&custom.path, custom.widget("a", json!({"size": 1}))).await.code(201);
        let after = w.merge(&custom.at("a"), json!({"metadata": {"labels": {"l": "1"}}})).await.ok();
        assert_eq!(after["metadata"]["generation"], 1);
    });
}

#[test]
fn a_scale_subresource_reads_and_writes_the_declared_paths() {
    claim(async |w| {
        let schema = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
        let version = json!({"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}});
        let custom = w.custom(schema, version).await;
        w.post(&custom.path, custom.widget("a", json!({"replicas": 2}))).await.code(201);
        let scale = w.get(&format!("{}/scale", custom.at("a"))).await.ok();
        assert_eq!(
            (&scale["kind"], &scale["apiVersion"], &scale["spec"]["replicas"]),
            (&json!("Scale"), &json!("autoscaling/v1"), &json!(2))
        );
        w.merge(&format!("{}/scale", custom.at("a")), json!({"spec": {"replicas": 5}})).await.code(200);
        assert_eq!(w.get(&custom.at("a")).await.ok()["spec"]["replicas"], 5);
    });
}

#[test]
fn printer_columns_are_printed() {
    claim(async |w| {
        let columns = json!({"additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ]});
        let custom = w.custom(sized(), columns).await;
        w.post(&custom.path, custom.widget("a", json!({"size": 3}))).await.code(201);
        let table = w.get_as(&custom.path, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
        let columns: Vec<(&str, i64)> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (c["name"].as_str().unwrap(), c["priority"].as_i64().unwrap()))
            .collect();
        assert_eq!(columns, [("Name", 0), ("Size", 0), ("Mode", 1), ("Age", 0)]);
        let cells = &table["rows"][0]["cells"];
        assert_eq!((&cells[0], &cells[1], &cells[2]), (&json!("a"), &json!(3), &json!("a")));
        assert!(cells[3].as_str().unwrap().ends_with('s'), "{cells}");
    });
}

#[test]
fn custom_resources_are_applied_by_their_list_types() {
    claim(async |w| {
        let schema = json!({
            "type": "object",
            "properties": {
                "atomic": {"type": "array", "items": {"type": "string"}},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                    "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "v": {"type": "string"}}},
                },
            },
        });
        let custom = w.custom(schema, json!({})).await;
        let one = json!({"set": ["a"], "map": [{"n": "x", "v": "1"}], "atomic": ["p"]});
        w.apply(&custom.at("a"), "m1", custom.widget("a", one)).await.code(201);
        let two = json!({"set": ["b"], "map": [{"n": "y", "v": "2"}]});
        let after = w.apply(&custom.at("a"), "m2", custom.widget("a", two)).await.code(200).body;
        assert_eq!(after["spec"]["set"], json!(["a", "b"]));
        assert_eq!(after["spec"]["map"], json!([{"n": "x", "v": "1"}, {"n": "y", "v": "2"}]));
        let answer = w.apply(&custom.at("a"), "m2", custom.widget("a", json!({"atomic": ["q"]}))).await;
        answer.refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"m1\": .spec.atomic");
    });
}

#[test]
fn an_unknown_group_is_a_plain_404() {
    claim(async |w| {
        let answer = w.get("/apis/nothing.example.com/v1/namespaces/x/widgets").await.code(404);
        assert_eq!(answer.text.trim(), "404 page not found");
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
        let known = w.get(&w.path("v1", "nothings")).await;
        known.refused(404, "NotFound", "the server could not find the requested resource");
    });
}

#[test]
fn deleting_a_definition_deletes_its_objects() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        let made = w.post(&custom.path, custom.widget("a", json!({"size": 1}))).await.code(201).body;
        let mut watch = w.watch(&format!("{}?watch=1&resourceVersion={}", custom.path, rv(&made))).await;
        w.delete(&custom.crd, json!({})).await.code(200);
        watch.expect(&[("DELETED", "a")]).await;
        w.until(&custom.crd, "the definition is gone", |a| a.code == 404).await;
        w.until(&custom.path, "the resource is no longer served", |a| a.code == 404).await;
    });
}

#[test]
fn a_changed_schema_takes_effect() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum", "value": 100}]);
        let after = w.json_patch(&custom.crd, patch).await.code(200).body;
        assert_eq!(after["metadata"]["generation"], 2);
        let mut made = w.post(&custom.path, custom.widget("a", json!({"size": 50}))).await;
        for _ in 0..100 {
            if made.code == 201 {
                break;
            }
            made = w.post(&custom.path, custom.widget("a", json!({"size": 50}))).await;
        }
        made.code(201);
    });
}

#[test]
fn objects_from_before_a_new_default_are_read_with_it() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        let made = w.post(&custom.path, custom.widget("a", json!({"size": 3}))).await.code(201).body;
        let patch = json!([{
            "op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/late",
            "value": {"type": "string", "default": "d"},
        }]);
        w.json_patch(&custom.crd, patch).await.code(200);
        let read = w.until(&custom.at("a"), "the new default shows", |a| a.body["spec"]["late"] == "d").await.body;
        assert_eq!(rv(&read), rv(&made), "reading is no write");
        let list = w.get(&custom.path).await.ok();
        assert_eq!(list["items"][0]["spec"]["late"], "d");
    });
}

#[test]
fn a_second_version_shows_the_same_objects() {
    claim(async |w| {
        let custom = w.custom(sized(), json!({})).await;
        w.post(&custom.path, custom.widget("a", json!({"size": 3}))).await.code(201);
        let crd = w.get(&custom.crd).await.ok();
        let mut version = crd["spec"]["versions"][0].clone();
        version["name"] = "v2".into();
        version["storage"] = false.into();
        let patch = json!([{"op": "add", "path": "/spec/versions/-", "value": version}]);
        w.json_patch(&custom.crd, patch).await.code(200);
        let path = format!("{}/a", w.path(&format!("{}/v2", custom.group), "widgets"));
        let shown = w.until(&path, "the new version is served", |a| a.code == 200).await.body;
        assert_eq!(shown["apiVersion"], format!("{}/v2", custom.group));
        assert_eq!(shown["spec"]["size"], 3);
    });
}

#[test]
fn the_identity_of_a_served_definition_does_not_change() {
    claim(async |w| {
        let custom = w.custom(json!({"type": "object"}), json!({})).await;
        for (patch, field, value) in [
            (json!({"spec": {"scope": "Cluster"}}), "spec.scope", "Cluster"),
            (json!({"spec": {"names": {"kind": "Other"}}}), "spec.names.kind", "Other"),
        ] {
            let why = format!("FieldValueInvalid {field}: Invalid value: \"{value}\": field is immutable");
            assert_eq!(w.merge(&custom.crd, patch).await.code(422).causes(), [why]);
        }
        let causes = w.merge(&custom.crd, json!({"spec": {"group": "x"}})).await.code(422).causes();
        let expected = [
            "FieldValueInvalid spec.group: Invalid value: \"x\": should be a domain with at least one dot",
            "FieldValueInvalid spec.group: Invalid value: \"x\": field is immutable",
        ];
        assert_eq!(causes, expected);
    });
}

#[test]
fn names_that_another_definition_has_are_not_accepted() {
    claim(async |w| {
        let custom = w.custom(json!({"type": "object"}), json!({})).await;
        let collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let definition = |plural: &str, kind: &str, short: &str| {
            json!({
                "metadata": {"name": format!("{plural}.{}", custom.group)},
                "spec": {
                    "group": custom.group, "scope": "Namespaced",
                    "names": {"plural": plural, "kind": kind, "shortNames": [short]},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
                },
            })
        };
        for (plural, kind, short, reason, taken, accepted) in [
            (
                "gizmos",
                "Gizmo",
                "wd",
                "ShortNamesConflict",
                "wd",
                json!({"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"}),
            ),
            (
                "clashes",
                "Widget",
                "cl",
                "ListKindConflict",
                "WidgetList",
                json!({"plural": "clashes", "shortNames": ["cl"], "kind": ""}),
            ),
        ] {
            let path = format!("{collection}/{plural}.{}", custom.group);
            w.forget_later(&path);
            w.post(collection, definition(plural, kind, short)).await.code(201);
            let judged = |a: &crate::world::Answer| !condition(&a.body, "NamesAccepted").is_empty();
            let judged = w.until(&path, "the names are judged", judged).await.body;
            assert_eq!(judged["status"]["acceptedNames"], accepted);
            let conditions = judged["status"]["conditions"].as_array().unwrap();
            let told = |kind: &str| {
                let found = conditions.iter().find(|c| c["type"] == kind).unwrap();
                (found["status"].clone(), found["reason"].clone(), found["message"].clone())
            };
            let message = format!("\"{taken}\" is already in use");
            assert_eq!(told("NamesAccepted"), (json!("False"), json!(reason), json!(message)));
            let message = "not all names are accepted";
            assert_eq!(told("Established"), (json!("False"), json!("NotAccepted"), json!(message)));
            let answer = w.get(&w.path(&custom.api_version, plural)).await.code(404);
            assert_eq!(answer.text.trim(), "404 page not found");
        }
    });
}

#[test]
fn a_null_where_none_is_allowed_counts_as_missing() {
    claim(async |w| {
        let schema = json!({"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer"}, "name": {"type": "string"}, "mode": {"type": "string", "default": "a"},
            "may": {"type": "string", "nullable": true},
        }});
        let custom = w.custom(schema, json!({})).await;
        let spec = json!({"size": 1, "name": null, "mode": null, "may": null});
        let made = w.post(&custom.path, custom.widget("a", spec)).await.code(201).body;
        assert_eq!(made["spec"], json!({"size": 1, "mode": "a", "may": null}));
        let answer = w.post(&custom.path, custom.widget("b", json!({"size": null}))).await.code(422);
        assert_eq!(answer.causes(), ["FieldValueRequired spec.size: Required value"]);
    });
}

#[test]
fn faults_of_a_schema_that_all_versions_share_are_those_of_the_definition() {
    claim(async |w| {
        let refused = async |spec: Value| {
            let group = format!("{}.example.com", w.ns);
            let schema = json!({"type": "object", "properties": {"spec": spec}});
            let definition = json!({
                "metadata": {"name": format!("widgets.{group}")},
                "spec": {
                    "group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
                },
            });
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
            w.post(path, definition).await.code(422).causes()
        };
        let at = "spec.validation.openAPIV3Schema.properties[spec]";
        let causes = refused(json!({"type": "object", "properties": {"a": {}}})).await;
        let why = "Required value: must not be empty for specified object fields";
        assert_eq!(causes, [format!("FieldValueRequired {at}.properties[a].type: {why}")]);
        let rule = |rule: &str| json!({"type": "object", "properties": {"size": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": rule}]});
        let shown = |rule: &str| {
            format!(
                "Invalid value: {{\"Rule\":\"{rule}\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}"
            )
        };
        let at = format!("FieldValueInvalid {at}.x-kubernetes-validations[0].rule");
        let why = "compilation failed: ERROR: <input>:1:5: undefined field 'bogus'\n | self.bogus > 1\n | ....^";
        let causes = refused(rule("self.bogus > 1")).await;
        assert_eq!(causes, [format!("{at}: {}: {why}", shown("self.bogus \\u003e 1"))]);
        let why = "compilation failed: ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(self)\n | ...^";
        assert_eq!(refused(rule("foo(self)")).await, [format!("{at}: {}: {why}", shown("foo(self)"))]);
    });
}
