//! Round trips of Functions between their versions.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{Unsaid, Version, convert};
use mainstay_api::function_v1alpha2::Form;
use mainstay_api::names::ONLY_V1ALPHA1;
use mainstay_api::{Function, function_v1alpha2 as v1alpha2};

fn into(object: &Value, to: Version) -> Value {
    let mut object = object.clone();
    convert(&mut object, to);
    object
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

/// Checks the conversion of a spec in both directions.
fn check(older: &str, newer: &str) {
    let with = |version: &str, spec: &str| {
        json!({"apiVersion": format!("serverless.kyma-project.io/{version}"), "kind": "Function",
            "metadata": {"name": "f", "labels": {"a": "b"}}, "spec": yaml(spec), "status": {"source": "s", "runtime": "nodejs22"}})
    };
    let (older, newer) = (with("v1alpha1", older), with("v1alpha2", newer));
    assert_eq!(into(&older, Version::V1alpha2), newer);
    assert_eq!(into(&newer, Version::V1alpha1), older);
    serde_json::from_value::<Function>(older).unwrap();
    serde_json::from_value::<v1alpha2::Function>(newer).unwrap();
}

#[test]
fn each_field_has_its_place_in_the_other_version() {
    check(
        "source: code
deps: '{}'
runtime: nodejs22
runtimeImageOverride: i@sha256:1
env: [{name: A, value: b}]
resources: {limits: {cpu: 1, memory: 1Gi}}
profile: XL
buildResources: {requests: {cpu: 0.5}}
buildProfile: fast
minReplicas: 1
maxReplicas: 3
replicas: 2
labels: {a: b}
annotations: {c: d}
template: {labels: {e: f}}
secretMounts: [{secretName: s, mountPath: /s}]",
        "source: {inline: {source: code, dependencies: '{}'}}
runtime: nodejs22
runtimeImageOverride: i@sha256:1
env: [{name: A, value: b}]
resourceConfiguration:
  function: {profile: XL, resources: {limits: {cpu: 1, memory: 1Gi}}}
  build: {profile: fast, resources: {requests: {cpu: 0.5}}}
scaleConfig: {minReplicas: 1, maxReplicas: 3}
replicas: 2
labels: {a: b}
annotations: {c: d}
template: {labels: {e: f}}
secretMounts: [{secretName: s, mountPath: /s}]",
    );
}

#[test]
fn a_repository_is_named_or_described() {
    check(
        "{type: git, source: repo, reference: main, baseDir: /}",
        "source: {gitRepository: {name: repo, reference: main, baseDir: /}}",
    );
    check(
        "type: git
source: ''
gitRepository: {url: 'https://h/r.git', auth: {type: basic, secretName: s}}
reference: main
baseDir: /",
        "source: {gitRepository: {url: 'https://h/r.git', auth: {type: basic, secretName: s}, reference: main, baseDir: /}}",
    );
}

#[test]
fn fields_without_effect_stay_in_the_annotation() {
    let older = json!({"apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function", "metadata": {"name": "f"},
        "spec": {"type": "inline", "source": "code", "reference": "main", "baseDir": "/", "gitRepository": {"url": "u"}}});
    let newer = into(&older, Version::V1alpha2);
    assert_eq!(newer["spec"], json!({"source": {"inline": {"source": "code"}}}));
    let said = r#"{"baseDir":"/","gitRepository":{"url":"u"},"reference":"main","type":"inline"}"#;
    assert_eq!(newer["metadata"], json!({"name": "f", "annotations": {ONLY_V1ALPHA1: said}}));
    assert_eq!(into(&newer, Version::V1alpha1), older);
}

/// No annotation can set a field that has an effect.
#[test]
fn a_forged_annotation_is_one_like_any_other() {
    let bad = [
        r#"{"type":"git"}"#,
        r#"{"type":"git","gitRepository":{"url":"file:///etc"}}"#,
        r#"{"deps":"{\"evil\":\"1\"}"}"#,
        r#"{"source":"evil"}"#,
        r#"{"runtime":"evil"}"#,
        r#"{"reference":5}"#,
        r#"{"reference": "main"}"#,
        r#"{"reference":"main","baseDir":"/"}"#,
        r#"{"reference":"a","reference":"b"}"#,
        r#"{"reference":null}"#,
        r#"{"annotation":"x"}"#,
        r#"{"gitRepository":{"url":5}}"#,
        r#"{"gitRepository":{"url":"u","auth":{"type":"basic"}}}"#,
        "{}",
        "[]",
        "null",
        "",
        "\u{0}",
    ];
    for text in bad {
        let newer = json!({"apiVersion": "serverless.kyma-project.io/v1alpha2", "kind": "Function",
            "metadata": {"annotations": {ONLY_V1ALPHA1: text}}, "spec": {"source": {"inline": {"source": "code"}}}});
        let older = into(&newer, Version::V1alpha1);
        assert_eq!(older["spec"], json!({"source": "code"}), "{text}");
        assert_eq!(older["metadata"], newer["metadata"], "{text}");
        assert_eq!(into(&older, Version::V1alpha2), newer, "{text}");
    }
    // A field of the right type that has no effect is accepted.
    assert!(Unsaid::read(r#"{"deps":"x"}"#, Form::Git).is_some());
    assert!(Unsaid::read(r#"{"reference":"x"}"#, Form::Git).is_none());
}

/// A webhook that defaults the object in the other version must not make it valid.
#[test]
fn two_sources_are_left_for_the_schema_to_refuse() {
    for source in [json!({"inline": {"source": "s"}, "gitRepository": {"name": "r"}}), json!({}), json!(5)] {
        let newer = json!({"apiVersion": "serverless.kyma-project.io/v1alpha2", "kind": "Function",
            "spec": {"source": source, "scaleConfig": {"minReplicas": 1}}});
        let older = into(&newer, Version::V1alpha1);
        assert!(serde_json::from_value::<Function>(older.clone()).is_err(), "{older}");
        assert_eq!(into(&older, Version::V1alpha2), newer);
    }
}

#[test]
fn a_spec_that_is_no_object_stays_for_the_schema_to_refuse() {
    for spec in [json!(5), json!("s"), json!([{}]), Value::Null] {
        let older = json!({"apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function", "spec": spec});
        assert_eq!(into(&older, Version::V1alpha2)["spec"], spec);
    }
}

#[test]
fn values_that_the_schema_refuses_are_converted_without_a_panic() {
    for spec in [
        json!(null),
        json!(5),
        json!({}),
        json!({"source": 5}),
        json!({"source": null, "type": 7, "scaleConfig": [], "resourceConfiguration": "x"}),
        json!({"source": {"inline": 3, "gitRepository": []}}),
        json!({"source": {"inline": {}, "gitRepository": {}}}),
        json!({"type": "git", "source": {}, "gitRepository": "x", "deps": []}),
    ] {
        for (from, to) in [("v1alpha1", Version::V1alpha2), ("v1alpha2", Version::V1alpha1)] {
            for metadata in
                [json!(null), json!(1), json!({"annotations": 1}), json!({"annotations": {ONLY_V1ALPHA1: 1}})]
            {
                let object = json!({"apiVersion": format!("serverless.kyma-project.io/{from}"), "spec": spec, "metadata": metadata});
                assert_eq!(into(&object, to)["metadata"], metadata);
            }
        }
    }
    let other = json!({"apiVersion": "v1", "kind": "Secret", "spec": {"source": "s"}});
    assert_eq!(into(&other, Version::V1alpha2), other);
}

/// Any string, or a string with a special meaning.
fn texts() -> impl Strategy<Value = String> {
    let telling = select(vec!["", "git", "inline", "{}", "/", "null", "{\"deps\":\"x\"}", "{\"type\":\"inline\"}"]);
    prop_oneof![telling.prop_map(str::to_owned), "\\PC{0,8}", any::<String>()]
}

/// The annotation: none, any string, or one in this module's format for either form, with some nesting.
fn annotations() -> impl Strategy<Value = Option<String>> {
    let unsaid = |annotation: Option<String>| {
        let text = || proptest::option::of(texts());
        (text(), text(), text(), text(), proptest::option::of(repositories())).prop_map(
            move |(kind, deps, reference, base_dir, own)| {
                let git_repository = own.and_then(|own| serde_json::from_value(own).ok());
                Some(Unsaid { kind, deps, reference, base_dir, git_repository, annotation: annotation.clone() }.write())
            },
        )
    };
    let leaf = proptest::option::of(texts());
    leaf.prop_recursive(3, 8, 1, move |inner| inner.prop_flat_map(unsaid).boxed())
}

fn repositories() -> impl Strategy<Value = Value> {
    let auth = select(vec![
        Value::Null,
        json!({"type": "basic", "secretName": "s"}),
        json!({"type": "key", "secretName": ""}),
    ]);
    (proptest::option::of(texts()), auth).prop_map(|(url, auth)| without_none(json!({"url": url, "auth": auth})))
}

fn without_none(mut value: Value) -> Value {
    value.as_object_mut().unwrap().retain(|_, field| !field.is_null());
    value
}

/// Fields that are the same in both versions.
fn shared() -> impl Strategy<Value = Value> {
    let maps = || select(vec![Value::Null, json!({}), json!({"a": "b"}), json!({"mainstay.dev/v1alpha1": "{}"})]);
    let template = select(vec![Value::Null, json!({"labels": {"a": "b"}}), json!({"annotations": {"c": "d"}})]);
    let env = select(vec![
        Value::Null,
        json!([]),
        json!([{"name": "A", "value": ""}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]),
    ]);
    let mounts = select(vec![Value::Null, json!([]), json!([{"secretName": "s", "mountPath": "/m"}])]);
    let number = || proptest::option::of(any::<i64>());
    (proptest::option::of(texts()), env, number(), maps(), maps(), template, mounts).prop_map(
        |(runtime, env, replicas, labels, annotations, template, mounts)| {
            without_none(json!({"runtime": runtime, "env": env, "replicas": replicas, "labels": labels,
                "annotations": annotations, "template": template, "secretMounts": mounts}))
        },
    )
}

fn resources() -> impl Strategy<Value = Value> {
    select(vec![
        Value::Null,
        json!({}),
        json!({"limits": {"cpu": 1, "memory": "1Gi"}}),
        json!({"requests": {"cpu": 0.5}, "limits": {}}),
    ])
}

fn metadata(annotation: Option<&String>, other: bool) -> Value {
    let mut annotations = serde_json::Map::new();
    annotations.extend(annotation.map(|text| (ONLY_V1ALPHA1.to_owned(), json!(text))));
    annotations.extend(other.then(|| ("other".to_owned(), json!("x"))));
    let mut metadata = json!({"name": "f", "managedFields": [{"manager": "m"}], "labels": {"serverless.kyma-project.io/function-resources-preset": "XL"}});
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    metadata
}

/// Any object that the schema of `v1alpha1` accepts.
fn older() -> impl Strategy<Value = Value> {
    let text = || proptest::option::of(texts());
    let sizes = (
        resources(),
        text(),
        resources(),
        text(),
        proptest::option::of(any::<i64>()),
        proptest::option::of(any::<i64>()),
    );
    let source = (texts(), proptest::option::of(texts()), text(), text(), text(), proptest::option::of(repositories()));
    (shared(), source, sizes, annotations(), any::<bool>()).prop_map(|(mut spec, source, sizes, annotation, other)| {
        let (source, kind, deps, reference, base_dir, own) = source;
        // An empty repository is an empty section of Functions in Git.
        let own = own.filter(|own| own.as_object().is_some_and(|own| !own.is_empty()) || kind.as_deref() != Some("git"));
        let (resources, profile, build, build_profile, min, max) = sizes;
        let own = without_none(json!({"source": source, "type": kind, "deps": deps, "reference": reference, "baseDir": base_dir,
            "gitRepository": own, "resources": resources, "profile": profile, "buildResources": build,
            "buildProfile": build_profile, "minReplicas": min, "maxReplicas": max}));
        spec.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        json!({"apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function", "metadata": metadata(annotation.as_ref(), other), "spec": spec})
    })
}

/// Any object that the schema of `v1alpha2` accepts, without empty sections.
fn newer() -> impl Strategy<Value = Value> {
    let text = || proptest::option::of(texts());
    let inline = (texts(), text())
        .prop_map(|(source, deps)| json!({"inline": without_none(json!({"source": source, "dependencies": deps}))}));
    let git = (repositories(), proptest::option::of("\\PC{1,8}"), text(), text()).prop_map(
        |(own, name, reference, base_dir)| {
            let mut git = without_none(json!({"name": name, "reference": reference, "baseDir": base_dir}));
            git.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            json!({"gitRepository": git})
        },
    );
    let section = || {
        (text(), resources())
            .prop_map(|(profile, resources)| without_none(json!({"profile": profile, "resources": resources})))
    };
    let number = || proptest::option::of(any::<i64>());
    let scale =
        (number(), number()).prop_map(|(min, max)| without_none(json!({"minReplicas": min, "maxReplicas": max})));
    let filled = |section: Value| if section.as_object().unwrap().is_empty() { Value::Null } else { section };
    (shared(), prop_oneof![inline, git], section(), section(), scale, annotations(), any::<bool>()).prop_map(
        move |(mut spec, source, function, build, scale, annotation, other)| {
            let resources = filled(without_none(json!({"function": filled(function), "build": filled(build)})));
            let own = without_none(json!({"source": source, "resourceConfiguration": resources, "scaleConfig": filled(scale)}));
            spec.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            json!({"apiVersion": "serverless.kyma-project.io/v1alpha2", "kind": "Function", "metadata": metadata(annotation.as_ref(), other), "spec": spec})
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn there_and_back_a_function_is_the_same(object in older()) {
        let newer = into(&object, Version::V1alpha2);
        prop_assert!(serde_json::from_value::<v1alpha2::Function>(newer.clone()).is_ok());
        let known = ["runtime", "source", "env", "resourceConfiguration", "scaleConfig", "replicas", "labels", "annotations", "template", "secretMounts"];
        prop_assert!(newer["spec"].as_object().unwrap().keys().all(|field| known.contains(&field.as_str())), "{newer}");
        prop_assert_eq!(into(&newer, Version::V1alpha1), object);
    }

    #[test]
    fn back_and_there_a_function_is_the_same(object in newer()) {
        let older = into(&object, Version::V1alpha1);
        let read = serde_json::from_value::<Function>(older.clone());
        prop_assert!(read.is_ok(), "{older}");
        prop_assert_eq!(into(&older, Version::V1alpha2), object);
    }
}
