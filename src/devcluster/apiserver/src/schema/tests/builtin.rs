//! Decoding of built-in kinds.

use serde_json::{Value, json};

use super::yaml;
use crate::schema::{builtin, check_types, drop_unknown, normalise};

#[test]
fn every_recorded_kind_has_a_schema_with_metadata() {
    for (version, kind) in
        [("v1", "Pod"), ("apps/v1", "Deployment"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")]
    {
        let schema = builtin(version, kind).unwrap();
        assert!(schema.field("metadata").unwrap().field("labels").is_some(), "{kind}");
    }
    assert!(builtin("apps/v1", "Pod").is_none());
}

#[test]
fn unknown_fields_are_dropped_and_named_with_their_place() {
    let mut pod = yaml(
        "
kind: Pod
bogus: 1
metadata: {labels: {any: thing}, nope: x}
spec:
  containers: [{name: a}, {name: b, imag: c, ports: [{containerPort: 1, prt: 2}]}]
  nodeSelector: {any: thing}
  volumes: [{name: v, emptyDir: {}, hostDir: {}}]
",
    );
    assert_eq!(
        drop_unknown(&builtin("v1", "Pod").unwrap(), &mut pod),
        [
            "bogus",
            "metadata.nope",
            "spec.containers[1].imag",
            "spec.containers[1].ports[0].prt",
            "spec.volumes[0].hostDir"
        ]
    );
    assert_eq!(pod["spec"]["containers"][1], json!({"name": "b", "ports": [{"containerPort": 1}]}));
    assert_eq!(pod["metadata"], json!({"labels": {"any": "thing"}}));
}

#[test]
fn schemaless_parts_of_definitions_are_kept() {
    let mut definition = yaml("
spec:
  versions:
  - name: v1
    schema: {openAPIV3Schema: {type: object, properties: {spec: {default: {a: {b: 1}}, enum: [1], x-kubernetes-list-type: set}}}}
");
    let before = definition.clone();
    let schema = builtin("apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap();
    assert_eq!(drop_unknown(&schema, &mut definition), Vec::<String>::new());
    assert_eq!(definition, before);
}

#[test]
fn wrong_types_are_reported_as_by_the_decoder() {
    let cases = [
        (
            "v1",
            "ConfigMap",
            "{data: {a: 1}}",
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "v1",
            "ConfigMap",
            "{data: [a]}",
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "apps/v1",
            "Deployment",
            "{spec: {replicas: x}}",
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1",
            "Deployment",
            "{spec: {replicas: 1.5}}",
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1",
            "Deployment",
            "{spec: 1}",
            "json: cannot unmarshal number into Go struct field Deployment.spec of type v1.DeploymentSpec",
        ),
        (
            "v1",
            "Pod",
            "{spec: {containers: [{image: true}]}}",
            "json: cannot unmarshal bool into Go struct field Container.spec.containers.image of type string",
        ),
        (
            "v1",
            "Pod",
            "{spec: {containers: {}}}",
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        ("v1", "Secret", "{data: {a: '%%%'}}", "illegal base64 data at input byte 0"),
        (
            "coordination.k8s.io/v1",
            "Lease",
            "{spec: {renewTime: '2026-01-01T00:00:00.5Z'}}",
            "parsing time \"2026-01-01T00:00:00.5Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \".5Z\" as \".000000\"",
        ),
        (
            "v1",
            "Pod",
            "{spec: {containers: [{resources: {limits: {cpu: lots}}}]}}",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ];
    for (version, kind, object, expected) in cases {
        let found = check_types(&builtin(version, kind).unwrap(), &yaml(object), kind);
        assert_eq!(found, Err(expected.to_owned()), "{object}");
    }
}

#[test]
fn right_types_decode() {
    let cases = [
        ("v1", "Service", "{spec: {ports: [{port: 80, targetPort: web}, {port: 81, targetPort: 8081}]}}"),
        ("v1", "Pod", "{spec: {containers: [{resources: {limits: {cpu: 2, memory: 1.5Gi, x.y/z: 1e3}}}]}}"),
        ("coordination.k8s.io/v1", "Lease", "{spec: {renewTime: '2026-01-01T00:00:00.000000Z'}}"),
        ("v1", "ConfigMap", "{metadata: {creationTimestamp: null, labels: null}, data: null}"),
    ];
    for (version, kind, object) in cases {
        assert_eq!(check_types(&builtin(version, kind).unwrap(), &yaml(object), kind), Ok(()), "{object}");
    }
}

#[test]
fn nulls_and_empty_collections_go_where_go_leaves_them_out() {
    let normal = |version: &str, kind: &str, object: &str| -> Value {
        let mut object = yaml(object);
        normalise(&builtin(version, kind).unwrap(), &mut object);
        object
    };
    assert_eq!(
        normal(
            "v1",
            "ConfigMap",
            "{metadata: {labels: {}, annotations: null, finalizers: []}, data: {a: null}, binaryData: {}}"
        ),
        yaml("{metadata: {}, data: {a: ''}}")
    );
    assert_eq!(
        normal(
            "v1",
            "Pod",
            "{spec: {volumes: [{name: v, emptyDir: {}}], nodeSelector: {}, containers: [{name: c, env: []}]}}"
        ),
        yaml("{spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: c}]}}")
    );
}

#[test]
fn documents_of_a_real_server_decode_unchanged() {
    let recorded: Value = serde_json::from_str(include_str!("../../../tests/data/defaults.json")).unwrap();
    for case in recorded.as_object().unwrap().values() {
        for object in [&case["sent"], &case["created"]] {
            let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
            let Some(schema) = builtin(version, kind) else { continue };
            let mut decoded = object.clone();
            assert_eq!(drop_unknown(&schema, &mut decoded), Vec::<String>::new(), "{kind}");
            assert_eq!(check_types(&schema, &decoded, kind), Ok(()), "{kind}");
            if *object == case["created"] {
                normalise(&schema, &mut decoded);
                assert_eq!(&decoded, object, "{kind}");
            }
        }
    }
}
