//! Tests every default and every rule, with boundary values.

use std::fmt::Write as _;

use super::*;
use crate::presets::{ReplicasPreset, ResourcesPreset};
use mainstay_api::Amount;
use mainstay_api::function::Resources;

mod code;
mod credentials;
mod env;
mod pods;
mod sizes;

const NODE: &str = "source: 'module.exports = { main: () => 1 }'\nruntime: nodejs22\n";
const GIT: &str = "type: git\nsource: repo\nruntime: nodejs22\n";

fn settings() -> Settings {
    Settings { base_images: [("*".to_owned(), BaseImage::Scratch)].into(), ..Settings::default() }
}

/// Returns a Function with this `spec` in YAML and these labels.
fn function(spec: &str, labels: &[(&str, &str)]) -> Function {
    let spec: FunctionSpec = serde_yaml::from_str(spec).unwrap();
    let mut function = Function::new("hello", spec);
    function.metadata.namespace = Some("default".into());
    function.metadata.uid = Some("11111111-2222-3333-4444-555555555555".into());
    function.metadata.generation = Some(3);
    function.metadata.labels = Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    function
}

fn ok(spec: &str) -> ResolvedFunction {
    ok_with(spec, &[])
}

fn ok_with(spec: &str, labels: &[(&str, &str)]) -> ResolvedFunction {
    match resolve(&function(spec, labels), &settings(), &Credentials::new(&settings(), [])) {
        Ok(resolved) => resolved,
        Err(violations) => panic!("{}", text(&violations)),
    }
}

/// Returns the message for a Function that is refused.
fn refused(spec: &str) -> String {
    text(
        &resolve(&function(spec, &[]), &settings(), &Credentials::new(&settings(), []))
            .expect_err("it was not refused"),
    )
}

fn refusal(function: &Function) -> String {
    text(&resolve(function, &settings(), &Credentials::new(&settings(), [])).expect_err("it was not refused"))
}

fn warnings(function: &ResolvedFunction) -> Vec<&'static str> {
    function.warnings.iter().map(|warning| warning.reason.as_str()).collect()
}

#[test]
fn accepts_service_names_of_up_to_63_characters() {
    let named = |name: &str| {
        let mut function = function(NODE, &[]);
        function.metadata.name = Some(name.to_owned());
        function
    };
    resolve(&named(&"a".repeat(63)), &settings(), &Credentials::default()).unwrap();
    assert_eq!(
        refusal(&named(&"a".repeat(64))),
        format!(
            "invalid value: metadata.name: Invalid value: \"{}\": must be no more than 63 characters: metadata.name",
            "a".repeat(64)
        )
    );
    assert_eq!(
        refusal(&named("1abc")),
        "invalid value: metadata.name: Invalid value: \"1abc\": a DNS-1035 label must consist of lower case \
         alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character \
         (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?'): metadata.name"
    );
    for name in ["a.b", "my_fn", "My"] {
        assert!(refusal(&named(name)).ends_with(": metadata.name"), "{name}");
    }
}

#[test]
fn labels_of_pods_are_checked_and_never_hide_ours() {
    let update = refused(&format!("{NODE}labels: {{should BE not OK: x}}"));
    assert!(
        update.starts_with("invalid value: spec.labels: Invalid value: \"should BE not OK\": name part must"),
        "{update}"
    );
    assert!(update.ends_with(": spec.labels"), "{update}");
    let spec = format!(
        "{NODE}labels: {{app: x, {}: other, {}: job, mainstay.dev/sync: a.b}}",
        names::FUNCTION_NAME,
        names::RESOURCE
    );
    let found = ok(&spec);
    assert_eq!(found.pod_labels["app"], "x");
    assert_eq!(found.pod_labels[names::FUNCTION_NAME], "hello");
    assert_eq!(found.pod_labels[names::RESOURCE], "deployment");
    assert!(!found.pod_labels.contains_key("mainstay.dev/sync"));
    assert_eq!(warnings(&found), ["LabelIgnored"; 3]);
}

#[test]
fn children_get_the_functions_labels_except_misleading_ones() {
    let labels = [
        ("team", "a"),
        (names::FUNCTION_UID, "forged"),
        (names::RESOURCE, "deployment"),
        (names::SYNC_LABEL, "default.apps"),
    ];
    let found = ok_with(NODE, &labels);
    assert_eq!(found.labels["team"], "a");
    assert_eq!(found.labels[names::FUNCTION_UID], "11111111-2222-3333-4444-555555555555");
    assert!(!found.labels.contains_key(names::RESOURCE), "build pods would be served");
    assert!(!found.labels.contains_key(names::SYNC_LABEL), "a GitSync would take the children for its own");
}

#[test]
fn reports_all_violations_at_once() {
    let update =
        refused("source: ''\nruntime: cobol85\ntype: x\nminReplicas: 0\nenv: [{name: FUNC_PORT}]\nlabels: {-: x}");
    assert_eq!(
        update.lines().filter(|line| line.starts_with("invalid") || line.starts_with("missing")).count(),
        6,
        "{update}"
    );
}
