//! Labels, annotations and Secrets of the pods, and presets in the spec.

use super::*;
use crate::PodKeys;

#[test]
fn a_profile_comes_before_the_label() {
    let label = [(names::FUNCTION_RESOURCES_PRESET, "S"), (names::BUILD_RESOURCES_PRESET, "slow")];
    let limits = |resources: &Resources| resources.limits.as_ref().unwrap().get("cpu").unwrap().0.clone();
    let found = ok_with(&format!("{NODE}profile: XL\nbuildProfile: fast"), &label);
    assert_eq!((limits(&found.resources), limits(&found.build_resources)), ("400m".into(), "1700m".into()));
    let found = ok_with(&format!("{NODE}profile: ''\nbuildProfile: ''"), &label);
    assert_eq!((limits(&found.resources), limits(&found.build_resources)), ("50m".into(), "700m".into()));
    let found = ok_with(&format!("{NODE}profile: XXL\nbuildProfile: quick"), &label);
    assert_eq!(warnings(&found), ["PresetUnknown", "PresetUnknown"]);
    assert!(found.warnings[0].message.starts_with("spec.profile names the preset \"XXL\""), "{:?}", found.warnings);
    assert!(
        found.warnings[1].message.starts_with("spec.buildProfile names the preset \"quick\""),
        "{:?}",
        found.warnings
    );
}

#[test]
fn the_former_names_count_after_the_others() {
    let found = ok(&format!(
        "{NODE}labels: {{a: '1'}}
annotations: {{b: '1', mainstay.dev/x: y}}
template: {{labels: {{a: '2', c: '2'}}, annotations: {{b: '2', Note: any text}}}}"
    ));
    assert_eq!((&*found.pod_labels["a"], &*found.pod_labels["c"]), ("1", "2"));
    let annotations = [("Note", "any text"), ("b", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(found.pod_annotations, annotations.into());
    assert_eq!(warnings(&found), ["AnnotationIgnored"]);
    assert_eq!(
        refused(&format!("{NODE}template: {{labels: {{a: -}}}}")).split(':').take(3).collect::<Vec<_>>(),
        ["invalid value", " spec.template.labels", " Invalid value"]
    );
    assert!(refused(&format!("{NODE}annotations: {{a b: ''}}")).contains("spec.annotations: Invalid value: \"a b\""));
    let long = refused(&format!("{NODE}annotations: {{a: {}}}", "x".repeat(1 << 18)));
    assert!(long.ends_with("the annotations have 262145 bytes, more than 131072: spec.annotations"), "{long}");
}

#[test]
fn mounts_secrets_at_places_of_their_own() {
    let found =
        ok(&format!("{NODE}secretMounts: [{{secretName: a, mountPath: /a/b}}, {{secretName: b, mountPath: /etc/b/}}]"));
    assert_eq!(found.secret_mounts.len(), 2);
    for (mounts, words) in [
        ("{secretName: A, mountPath: /a}", "\"A\" is not the name of a Secret"),
        ("{secretName: a, mountPath: ''}", "mountPath should not be empty"),
        ("{secretName: a, mountPath: /a}, {secretName: a, mountPath: /b}", "secretNames should be unique: a"),
        ("{secretName: a, mountPath: /a}, {secretName: b, mountPath: /a/}", "mountPath should be unique: /a/"),
        ("{secretName: a, mountPath: a}", "is not an absolute path"),
        ("{secretName: a, mountPath: /}", "is not an absolute path"),
        ("{secretName: a, mountPath: /a/../usr}", "is not an absolute path"),
        ("{secretName: a, mountPath: '/a:b'}", "is not an absolute path"),
        ("{secretName: a, mountPath: /kubeless}", "is a directory of the runtime"),
        ("{secretName: a, mountPath: /kubeless_rt/x}", "is a directory of the runtime"),
        ("{secretName: a, mountPath: /tmp/}", "is a directory of the runtime"),
        (
            "{secretName: serverless-registry-config, mountPath: /a}",
            "which holds the credentials for the image registry",
        ),
    ] {
        let text = refused(&format!("{NODE}secretMounts: [{mounts}]"));
        assert!(text.contains(words) && text.contains("spec.secretMounts"), "{mounts}: {text}");
    }
    let many = (0..33).map(|n| format!("{{secretName: s{n}, mountPath: /m{n}}}")).collect::<Vec<_>>().join(", ");
    assert!(refused(&format!("{NODE}secretMounts: [{many}]")).contains("33 Secrets are mounted, more than 32"));
}

#[test]
fn no_pod_has_a_key_that_the_operator_has_not_allowed() {
    let key = "sidecar.istio.io/userVolume";
    let message = format!("the operator of this cluster has not allowed the KIND {key} on pods: PATH\n");
    for (field, kind, path) in [
        (format!("labels: {{{key}: a}}"), "label", "spec.labels"),
        (format!("template: {{labels: {{{key}: a}}}}"), "label", "spec.template.labels"),
        (format!("annotations: {{{key}: a}}"), "annotation", "spec.annotations"),
        (format!("template: {{annotations: {{{key}: a}}}}"), "annotation", "spec.template.annotations"),
    ] {
        let text = refused(&format!("{NODE}{field}"));
        let expected = message.replace("KIND", kind).replace("PATH", path);
        assert!(text.contains(&expected) && text.contains("MAINSTAY_POD_KEYS=sidecar.istio.io/ in"), "{field}: {text}");
        let allowed = Settings { pod_keys: PodKeys::parse("*.istio.io/").unwrap(), ..settings() };
        let function = function(&format!("{NODE}{field}"), &[]);
        let found = resolve(&function, &allowed, &Credentials::new(&allowed, [])).unwrap();
        assert!(found.pod_labels.contains_key(key) || found.pod_annotations.contains_key(key), "{field}");
    }
}

/// All children have the Function's labels. Pods of builds have only the allowed labels.
#[test]
fn pods_of_builds_have_only_the_labels_that_the_operator_allows() {
    let found =
        ok_with(NODE, &[("azure.workload.identity/use", "true"), ("team", "a"), ("app.kubernetes.io/name", "x")]);
    assert_eq!(found.labels["azure.workload.identity/use"], "true");
    let keys: Vec<_> = found.build_labels.keys().map(String::as_str).collect();
    assert_eq!(keys, ["app.kubernetes.io/name", names::FUNCTION_NAME, names::MANAGED_BY, names::FUNCTION_UID, "team"]);
    assert!(!found.pod_labels.contains_key("azure.workload.identity/use"));
}
