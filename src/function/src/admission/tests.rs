//! Compares the webhooks with [`resolve`] on the same Functions.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::convert::{Version, convert};
use super::review::Verdict;
use super::{default, validate};
use crate::{BaseImage, Credentials, ResolvedFunction, Settings, resolve, text};
use mainstay_api::{Function, GitRepository};

fn settings() -> Settings {
    Settings { base_images: [("*".to_owned(), BaseImage::Scratch)].into(), ..Settings::default() }
}

fn read(object: &Value) -> Function {
    serde_json::from_value(object.clone()).unwrap()
}

fn function(spec: Value, labels: Value) -> Value {
    let metadata = json!({"name": "hello", "namespace": "default", "uid": "u", "labels": labels});
    json!({"apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function", "metadata": metadata, "spec": spec})
}

/// Returns the object after the defaulting webhook.
fn defaulted(new: &Value, old: Option<&Value>) -> Value {
    let mut object = new.clone();
    match default::function(&read(new), old.map(read).as_ref(), &settings()) {
        Verdict::Patched(operations) => {
            let patch: json_patch::Patch = serde_json::from_value(Value::from(operations)).unwrap();
            json_patch::patch(&mut object, &patch).unwrap();
        }
        Verdict::Allowed | Verdict::Explained(_) => {}
        denied @ Verdict::Denied { .. } => panic!("{denied:?}"),
    }
    object
}

fn resolved(object: &Value) -> Result<ResolvedFunction, String> {
    let settings = settings();
    resolve(&read(object), &settings, &Credentials::new(&settings, [])).map_err(|violations| text(&violations))
}

/// Marks every field of the spec as applied by a manager.
fn owned(mut object: Value) -> Value {
    fn fields(value: &Value) -> Value {
        let all = value.as_object().into_iter().flatten();
        all.map(|(key, value)| (format!("f:{key}"), fields(value))).collect::<serde_json::Map<_, _>>().into()
    }
    let fields = json!({"f:spec": fields(&object["spec"])});
    object["metadata"]["managedFields"] =
        json!([{"manager": "mainstay", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
    object
}

/// Returns a later state of a defaulted object: `spec` is applied now, the other fields stay.
fn applied_again(live: &Value, spec: Value, labels: Value) -> Value {
    let mut object = owned(function(spec, labels));
    let managed = object["metadata"]["managedFields"].clone();
    let mut whole = live.clone();
    json_patch::merge(&mut whole, &object.take());
    whole["metadata"]["managedFields"] = managed;
    whole
}

fn pods(object: &Value) -> String {
    let (spec, resources) = (&object["spec"], |section: &str| {
        let of = |part: &str, name: &str| object["spec"][section][part][name].as_str().unwrap_or("-").to_owned();
        format!(
            "{}/{} {}/{}",
            of("requests", "cpu"),
            of("requests", "memory"),
            of("limits", "cpu"),
            of("limits", "memory")
        )
    });
    format!(
        "{} {}-{} {} | {}",
        spec["runtime"].as_str().unwrap_or("-"),
        spec["minReplicas"],
        spec["maxReplicas"],
        resources("resources"),
        resources("buildResources")
    )
}

/// The examples of Kyma's documentation, with Mainstay's default runtime.
#[test]
fn defaults_are_those_of_kyma() {
    let build = "200m/200Mi 1100m/1100Mi";
    let replicas = "serverless.kyma-project.io/replicas-preset";
    let resources = "serverless.kyma-project.io/function-resources-preset";
    let builds = "serverless.kyma-project.io/build-resources-preset";
    for (spec, labels, expected) in [
        (json!({}), json!({}), format!("nodejs22 1-1 50m/64Mi 100m/128Mi | {build}")),
        (
            json!({"runtime": "python312"}),
            json!({replicas: "L"}),
            format!("python312 1-5 50m/64Mi 100m/128Mi | {build}"),
        ),
        (
            json!({}),
            json!({resources: "XL", builds: "fast"}),
            "nodejs22 1-1 200m/256Mi 400m/512Mi | 1100m/1100Mi 1700m/1700Mi".into(),
        ),
        (json!({}), json!({resources: "huge"}), format!("nodejs22 1-1 50m/64Mi 100m/128Mi | {build}")),
        (json!({"maxReplicas": 4}), json!({}), format!("nodejs22 1-4 50m/64Mi 100m/128Mi | {build}")),
        (json!({"minReplicas": 3}), json!({}), format!("nodejs22 3-3 50m/64Mi 100m/128Mi | {build}")),
        (
            json!({"resources": {"limits": {"cpu": "20m"}}}),
            json!({}),
            format!("nodejs22 1-1 20m/64Mi 20m/128Mi | {build}"),
        ),
        (
            json!({"resources": {"requests": {"memory": "1Gi"}}}),
            json!({}),
            format!("nodejs22 1-1 50m/1Gi 100m/1Gi | {build}"),
        ),
        (
            json!({"resources": {"requests": {"cpu": "0"}}}),
            json!({}),
            format!("nodejs22 1-1 50m/64Mi 100m/128Mi | {build}"),
        ),
    ] {
        let mut whole = json!({"source": "x"});
        json_patch::merge(&mut whole, &spec);
        let object = defaulted(&function(whole, labels.clone()), None);
        assert_eq!(pods(&object), expected, "{spec} {labels}");
    }
}

#[test]
fn a_default_follows_what_it_was_chosen_for_and_nothing_else() {
    let label = "serverless.kyma-project.io/function-resources-preset";
    let live = defaulted(&owned(function(json!({"source": "x"}), json!({}))), None);
    let build = "200m/200Mi 1100m/1100Mi";
    // A different preset is chosen.
    let large = applied_again(&live, json!({"source": "x"}), json!({label: "L"}));
    assert_eq!(pods(&defaulted(&large, Some(&live))), format!("nodejs22 1-1 100m/128Mi 200m/256Mi | {build}"));
    // The limit is below the defaulted request.
    let low = json!({"source": "x", "resources": {"limits": {"memory": "60Mi"}}});
    let low = defaulted(&applied_again(&live, low, json!({})), Some(&live));
    assert_eq!(pods(&low), format!("nodejs22 1-1 50m/60Mi 100m/60Mi | {build}"));
    assert!(resolved(&low).is_ok());
    // A value that kubectl applied stays, even without a change in the patch.
    let mut kept = large.clone();
    let said = json!({"spec": {"resources": {"requests": {"cpu": "50m"}}}}).to_string();
    kept["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": said});
    assert_eq!(pods(&defaulted(&kept, Some(&live))), format!("nodejs22 1-1 50m/128Mi 200m/256Mi | {build}"));
    // Changed presets of an updated agent do not affect unchanged fields.
    let mut odd = live.clone();
    odd["spec"]["resources"]["limits"]["cpu"] = "123m".into();
    let edited = applied_again(&odd, json!({"source": "y"}), json!({"team": "a"}));
    assert_eq!(pods(&defaulted(&edited, Some(&odd))), format!("nodejs22 1-1 50m/64Mi 123m/128Mi | {build}"));
}

#[test]
fn the_runtime_that_a_function_was_built_with_is_its_default() {
    let mut live = function(json!({"source": "x"}), json!({}));
    live["status"] = json!({"runtime": "python312"});
    let mut edited = live.clone();
    edited["spec"]["source"] = "y".into();
    edited["status"] = json!({"runtime": "nodejs24"});
    assert_eq!(defaulted(&edited, Some(&live))["spec"]["runtime"], "python312");
    assert_eq!(defaulted(&edited, None)["spec"]["runtime"], "nodejs22", "a new object has no status");
}

#[test]
fn an_update_that_asks_for_nothing_else_is_not_judged() {
    let settings = settings();
    let judge = |new: &Value, old: &Value| validate::function(&read(new), Some(&read(old)), None, &settings);
    // The object has no field managers, as after a write by an old release.
    let old = function(json!({"source": " "}), json!({}));
    let mut new = defaulted(&old, Some(&old));
    new["metadata"]["labels"] = json!({"team": "a"});
    assert_ne!(new["spec"], old["spec"]);
    assert_eq!(judge(&new, &old), Verdict::Allowed);
    let (old, mut new) = (owned(old), owned(function(json!({"source": " "}), json!({}))));
    new = defaulted(&new, Some(&old));
    assert_eq!(judge(&new, &old), Verdict::Allowed);
    new["spec"]["deps"] = "{".into();
    assert!(matches!(judge(&new, &old), Verdict::Denied { .. }));
    new["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(judge(&new, &old), Verdict::Allowed);
}

/// Managed fields of `v1alpha2` use the paths of that version.
#[test]
fn an_update_in_the_other_version_is_judged() {
    let written = |min: i64| {
        let spec =
            json!({"source": "x", "minReplicas": min, "maxReplicas": 2, "resources": {"limits": {"cpu": "90m"}}});
        let mut object = function(spec, json!({}));
        let fields = json!({"f:spec": {
            "f:source": {"f:inline": {"f:source": {}}}, "f:scaleConfig": {"f:minReplicas": {}, "f:maxReplicas": {}},
            "f:resourceConfiguration": {"f:function": {"f:resources": {"f:limits": {"f:cpu": {}}}}},
        }});
        object["metadata"]["managedFields"] = json!([{"manager": "kubectl", "operation": "Update",
            "apiVersion": "serverless.kyma-project.io/v1alpha2", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
        object
    };
    let judged = validate::function(&read(&written(5)), Some(&read(&written(1))), None, &settings());
    assert!(matches!(judged, Verdict::Denied { .. }), "{judged:?}");
    // A value from the user stays when a different preset is chosen.
    let mut labelled = written(1);
    labelled["metadata"]["labels"] = json!({"serverless.kyma-project.io/function-resources-preset": "XL", "serverless.kyma-project.io/replicas-preset": "XL"});
    let complete = defaulted(&labelled, Some(&written(1)));
    assert_eq!(
        (&complete["spec"]["maxReplicas"], &complete["spec"]["resources"]["limits"]["cpu"]),
        (&json!(2), &json!("90m"))
    );
}

#[test]
fn a_generated_name_is_judged_by_its_beginning() {
    let judge = |prefix: &str| {
        let mut object = function(json!({"source": "x"}), json!({}));
        object["metadata"] = json!({"generateName": prefix, "namespace": "default"});
        validate::function(&read(&object), None, None, &settings())
    };
    assert_eq!(judge("hello-"), Verdict::Allowed);
    assert_eq!(judge(&"a".repeat(100)), Verdict::Allowed, "the server shortens it");
    assert!(matches!(judge("1-"), Verdict::Denied { .. }));
}

#[test]
fn repositories_are_judged_as_they_are_opened() {
    let text = |spec: Value| {
        let object = json!({"metadata": {"name": "r"}, "spec": spec});
        let repository: GitRepository = serde_json::from_value(object).unwrap();
        match validate::repository(&repository, None) {
            Verdict::Allowed => "allowed".to_owned(),
            Verdict::Denied { code: 400, text } => text,
            other => format!("{other:?}"),
        }
    };
    let key = json!({"type": "key", "secretName": "s"});
    assert_eq!(text(json!({"url": "https://github.com/o/r.git"})), "allowed");
    assert_eq!(text(json!({"url": "git@github.com:o/r.git", "auth": key})), "allowed");
    assert_eq!(text(json!({"url": " "})), "validation failed: missing field(s): spec.url");
    for (spec, expected) in [
        (json!({"url": "git@github.com:o/r.git"}), "spec.auth"),
        (json!({"url": "git@github.com:o/r.git", "auth": {"type": "basic", "secretName": "s"}}), "spec.auth"),
        (json!({"url": "https://github.com/o/r.git", "auth": key}), "spec.auth"),
        (json!({"url": "ftp://h/r"}), "spec.url"),
    ] {
        let text = text(spec.clone());
        assert!(text.starts_with("validation failed: ") && text.ends_with(expected), "{spec}: {text}");
    }
    let both = text(json!({"url": "git@h:o/r.git", "auth": {"type": "basic", "secretName": " "}}));
    assert!(both.lines().count() == 2 && both.ends_with("missing field(s): spec.auth.secretName"), "{both}");
    let secret = text(json!({"url": "https://user:hunter2@h/r.git"}));
    assert!(secret.contains("user name or password") && !secret.contains("hunter2"), "{secret}");
}

fn amounts() -> impl Strategy<Value = Value> {
    let amount =
        prop::sample::select(vec![None, Some("0"), Some("9m"), Some("10m"), Some("16Mi"), Some("1Gi"), Some("x")]);
    (amount.clone(), amount, prop::option::of(Just("1Gi"))).prop_map(|(cpu, memory, storage)| {
        let all = [("cpu", cpu), ("memory", memory), ("ephemeral-storage", storage)];
        all.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), Value::from(amount?)))).collect()
    })
}

fn resources() -> impl Strategy<Value = Option<Value>> {
    let part = || prop::option::of(amounts());
    prop::option::of((part(), part()).prop_map(|(requests, limits)| {
        let all = [("requests", requests), ("limits", limits)];
        all.into_iter().filter_map(|(part, amounts)| Some((part.to_owned(), amounts?))).collect()
    }))
}

fn any_function() -> impl Strategy<Value = Value> {
    let one_of = |all: Vec<Option<Value>>| prop::sample::select(all);
    let number = || one_of(vec![None, Some(json!(-1)), Some(json!(0)), Some(json!(1)), Some(json!(2)), Some(json!(9))]);
    let strings =
        |all: &[&str]| one_of(std::iter::once(None).chain(all.iter().map(|text| Some(json!(text)))).collect());
    let fields = (
        prop::sample::select(vec![" ", "x", "repo", ""]),
        strings(&["", "git", "inline", "other"]),
        strings(&["", "{", "{}", "{\"a\":1}", "requests"]),
        strings(&["", "nodejs22", "python312", "nodejs10", "cobol"]),
        strings(&["main", " "]),
        strings(&["/", "../x"]),
        (number(), number()),
        (resources(), resources()),
        one_of(vec![
            None,
            Some(json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])),
            Some(json!([{"name": "FUNC_PORT"}])),
            Some(json!([{"name": "1A", "valueFrom": {}}])),
            Some(
                json!([{"name": "B", "valueFrom": {"secretKeyRef": {"name": "serverless-registry-config", "key": "k"}}}]),
            ),
        ]),
        one_of(vec![None, Some(json!({"a": "b"})), Some(json!({"should BE": "not OK"}))]),
        (
            prop::option::of(prop::sample::select(vec!["XS", "M", "XL", "none"])),
            one_of(vec![
                None,
                Some(json!({})),
                Some(json!({"url": "https://git.example.com/r"})),
                Some(json!({"url": "git@git.example.com:r"})),
                Some(json!({"url": "https://git.example.com/r", "auth": {"type": "basic", "secretName": "git"}})),
                Some(
                    json!({"url": "https://h/r", "auth": {"type": "basic", "secretName": "serverless-registry-config"}}),
                ),
                Some(json!({"auth": {"type": "key", "secretName": " "}})),
            ]),
        ),
    );
    fields.prop_map(
        |(source, kind, deps, runtime, reference, base, scale, sizes, env, labels, (preset, repository))| {
            let all = [
                ("type", kind),
                ("deps", deps),
                ("runtime", runtime),
                ("reference", reference),
                ("baseDir", base),
                ("minReplicas", scale.0),
                ("maxReplicas", scale.1),
                ("resources", sizes.0),
                ("buildResources", sizes.1),
                ("env", env),
                ("labels", labels),
                ("gitRepository", repository),
            ];
            let mut spec: serde_json::Map<_, _> =
                all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
            spec.insert("source".into(), source.into());
            let presets = ["replicas", "function-resources", "build-resources"];
            let label = |of: &str| format!("serverless.kyma-project.io/{of}-preset");
            let labels = preset.iter().flat_map(|name| presets.map(|of| (label(of), Value::from(*name))));
            function(spec.into(), labels.collect::<serde_json::Map<_, _>>().into())
        },
    )
}

proptest! {
    #[test]
    fn admission_and_the_controller_accept_the_same(object in any_function()) {
        let judged = validate::function(&read(&object), None, None, &settings());
        match resolved(&object) {
            Ok(_) => prop_assert_eq!(judged, Verdict::Allowed),
            Err(why) => {
                let text = format!("validation failed: {why}");
                prop_assert_eq!(judged, Verdict::Denied { code: 400, text });
            }
        }
    }

    #[test]
    fn both_versions_admit_the_same(object in any_function()) {
        let mut other = object.clone();
        convert(&mut other, Version::V1alpha2);
        convert(&mut other, Version::V1alpha1);
        let judged = |object: &Value| validate::function(&read(object), None, None, &settings());
        prop_assert_eq!(judged(&other), judged(&object));
        prop_assert_eq!(resolved(&other), resolved(&object));
    }

    #[test]
    fn a_function_resolves_to_the_same_with_its_defaults(object in any_function()) {
        let whole = defaulted(&object, None);
        prop_assert_eq!(resolved(&whole), resolved(&object));
        prop_assert_eq!(&defaulted(&whole, None), &whole, "once is enough");
        let live = owned(object);
        let whole = defaulted(&live, None);
        prop_assert_eq!(&defaulted(&whole, Some(&whole)), &whole, "and an update that changes nothing changes nothing");
    }
}
