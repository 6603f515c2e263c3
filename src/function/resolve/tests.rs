//! Every default and every rule, as a sentence with its boundary.

use std::fmt::Write as _;

use super::*;
use crate::api::Amount;
use crate::api::function::Resources;
use crate::function::presets::{ReplicasPreset, ResourcesPreset};

const NODE: &str = "source: 'module.exports = { main: () => 1 }'\nruntime: nodejs22\n";
const GIT: &str = "type: git\nsource: repo\nruntime: nodejs22\n";

fn settings() -> Settings {
    Settings { base_images: [("*".to_owned(), BaseImage::Scratch)].into(), ..Settings::default() }
}

/// A Function with this `spec` in YAML, and these labels.
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
    match resolve(&function(spec, labels), &settings()) {
        Ok(resolved) => resolved,
        Err(violations) => panic!("{}", text(&violations)),
    }
}

/// What is said about a Function that is refused.
fn refused(spec: &str) -> String {
    text(&resolve(&function(spec, &[]), &settings()).expect_err("it was not refused"))
}

fn refusal(function: &Function) -> String {
    text(&resolve(function, &settings()).expect_err("it was not refused"))
}

/// CPU and memory as `requests -> limits`.
fn sizes(resources: &Resources) -> String {
    let mut text = String::new();
    for part in [&resources.requests, &resources.limits] {
        let part = part.as_ref().unwrap();
        write!(text, "{}/{} ", part["cpu"], part["memory"]).unwrap();
    }
    text.trim().to_owned()
}

fn warnings(function: &ResolvedFunction) -> Vec<&'static str> {
    function.warnings.iter().map(|warning| warning.reason).collect()
}

fn names_of(env: &[EnvVar]) -> Vec<&str> {
    env.iter().map(|variable| variable.name.as_str()).collect()
}

fn with_replicas(spec: &str, labels: &[(&str, &str)]) -> (i64, i64) {
    let found = ok_with(&format!("{NODE}{spec}"), labels).replicas;
    (found.min, found.max)
}

#[test]
fn fills_in_the_default_presets_and_the_default_runtime() {
    let found = ok("source: x");
    assert_eq!(found.runtime.name, "nodejs22");
    assert_eq!((found.replicas.min, found.replicas.max), (1, 1));
    assert_eq!(sizes(&found.resources), "50m/64Mi 100m/128Mi");
    assert_eq!(sizes(&found.build_resources), "700m/700Mi 1100m/1100Mi");
    assert_eq!(found.code, Code::Inline { source: "x".into(), dependencies: "{}".into() });
    assert_eq!(warnings(&found), Vec::<&str>::new());
}

#[test]
fn labels_choose_the_presets() {
    let labels = [
        (names::REPLICAS_PRESET, "XL"),
        (names::FUNCTION_RESOURCES_PRESET, "XS"),
        (names::BUILD_RESOURCES_PRESET, "slow"),
    ];
    let found = ok_with(NODE, &labels);
    assert_eq!((found.replicas.min, found.replicas.max), (1, 10));
    assert_eq!(sizes(&found.resources), "10m/16Mi 25m/32Mi");
    assert_eq!(sizes(&found.build_resources), "400m/400Mi 700m/700Mi");
}

#[test]
fn an_unknown_preset_is_the_default_one_with_a_warning() {
    let found = ok_with(NODE, &[(names::FUNCTION_RESOURCES_PRESET, "huge"), (names::REPLICAS_PRESET, "")]);
    assert_eq!(sizes(&found.resources), "50m/64Mi 100m/128Mi");
    assert_eq!(warnings(&found), ["PresetUnknown"]);
    assert!(found.warnings[0].message.contains("\"huge\""), "{}", found.warnings[0].message);
}

#[test]
fn what_a_preset_lacks_comes_from_the_default_one() {
    let mut settings = settings();
    let partial =
        ResourcesPreset { limit_cpu: Some("300m".into()), request_cpu: Some("0".into()), ..Default::default() };
    settings.resources.all.insert("partial".into(), partial);
    settings.replicas.all.insert("many".into(), ReplicasPreset { min: None, max: Some(7) });
    let labels = [(names::FUNCTION_RESOURCES_PRESET, "partial"), (names::REPLICAS_PRESET, "many")];
    let found = resolve(&function(NODE, &labels), &settings).unwrap();
    assert_eq!(sizes(&found.resources), "50m/64Mi 300m/128Mi");
    assert_eq!((found.replicas.min, found.replicas.max), (1, 7));
}

#[test]
fn a_missing_number_of_pods_makes_room_for_the_given_one() {
    assert_eq!(with_replicas("minReplicas: 3", &[]), (3, 3));
    assert_eq!(with_replicas("maxReplicas: 3", &[]), (1, 3));
    assert_eq!(with_replicas("minReplicas: 7", &[(names::REPLICAS_PRESET, "L")]), (7, 7));
    assert_eq!(with_replicas("minReplicas: 2", &[(names::REPLICAS_PRESET, "L")]), (2, 5));
    let mut settings = settings();
    settings.replicas.all.insert("S".into(), ReplicasPreset { min: Some(4), max: Some(9) });
    let found = resolve(&function(&format!("{NODE}maxReplicas: 2"), &[]), &settings).unwrap();
    assert_eq!((found.replicas.min, found.replicas.max), (2, 2));
}

#[test]
fn a_missing_request_is_never_above_the_given_limit_and_a_missing_limit_never_below_the_request() {
    let with = |resources: &str| sizes(&ok(&format!("{NODE}resources: {resources}")).resources);
    assert_eq!(with("{limits: {cpu: 20m}}"), "20m/64Mi 20m/128Mi");
    assert_eq!(with("{requests: {memory: 1Gi}}"), "50m/1Gi 100m/1Gi");
    assert_eq!(with("{requests: {cpu: 0}, limits: {memory: '0'}}"), "50m/64Mi 100m/128Mi");
    assert_eq!(with("{requests: {cpu: 0.5}, limits: {cpu: 1}}"), "0.5/64Mi 1/128Mi");
    assert_eq!(with("{}"), "50m/64Mi 100m/128Mi");
}

#[test]
fn other_resources_pass_and_are_compared_too() {
    let found = ok(&format!("{NODE}resources: {{limits: {{ephemeral-storage: 2Gi, nvidia.com/gpu: 1}}}}"));
    assert_eq!(found.resources.limits.unwrap()["nvidia.com/gpu"], Amount::from("1"));
    assert_eq!(
        refused(&format!(
            "{NODE}resources: {{limits: {{ephemeral-storage: 1Gi}}, requests: {{ephemeral-storage: 2Gi}}}}"
        )),
        "invalid value: limits ephemeral-storage(1Gi) should be higher than requests ephemeral-storage(2Gi): \
         spec.resources.limits.ephemeral-storage"
    );
}

#[test]
fn refuses_requests_and_limits_below_the_minimum_and_takes_the_minimum() {
    assert_eq!(
        refused(&format!("{NODE}resources: {{requests: {{cpu: 9m, memory: 15Mi}}}}")),
        "invalid value: requests cpu(9m) should be higher than minimal value (10m): spec.resources.requests.cpu\n\
         invalid value: requests memory(15Mi) should be higher than minimal value (16Mi): \
         spec.resources.requests.memory"
    );
    ok(&format!("{NODE}resources: {{requests: {{cpu: 10m, memory: 16Mi}}, limits: {{cpu: 10m, memory: 16Mi}}}}"));
    assert_eq!(
        refused(&format!("{NODE}buildResources: {{limits: {{cpu: 199m}}, requests: {{cpu: 199m, memory: -1}}}}")),
        "invalid value: limits cpu(199m) should be higher than minimal value (200m): spec.buildResources.limits.cpu\n\
         invalid value: requests cpu(199m) should be higher than minimal value (200m): \
         spec.buildResources.requests.cpu\n\
         invalid value: requests memory(-1) should be higher than minimal value (200Mi): \
         spec.buildResources.requests.memory"
    );
    ok(&format!("{NODE}buildResources: {{limits: {{cpu: 200m, memory: 200Mi}}}}"));
}

#[test]
fn refuses_requests_above_limits_and_takes_equal_ones() {
    assert_eq!(
        refused(&format!("{NODE}resources: {{requests: {{cpu: 100m}}, limits: {{cpu: 50m}}}}")),
        "invalid value: limits cpu(50m) should be higher than requests cpu(100m): spec.resources.limits.cpu"
    );
    ok(&format!("{NODE}resources: {{requests: {{cpu: 1000m}}, limits: {{cpu: 1}}}}"));
}

#[test]
fn refuses_what_is_no_quantity() {
    let said = refused(&format!("{NODE}resources: {{requests: {{cpu: much, memory: [1]}}}}"));
    assert!(said.contains("invalid value: quantities must match the regular expression"), "{said}");
    assert!(said.contains("spec.resources.requests.cpu\nit is \"much\""), "{said}");
    assert!(said.contains("spec.resources.requests.memory\nit is \"[1]\""), "{said}");
}

#[test]
fn refuses_numbers_of_pods_that_cannot_be() {
    assert_eq!(
        refused(&format!("{NODE}minReplicas: 2\nmaxReplicas: 1")),
        "invalid value: maxReplicas(1) is less than minReplicas(2): spec.maxReplicas"
    );
    assert_eq!(
        refused(&format!("{NODE}minReplicas: 0\nmaxReplicas: 0")),
        "invalid value: maxReplicas(0) is less than the smallest allowed value(1): spec.maxReplicas\n\
         invalid value: minReplicas(0) is less than the smallest allowed value(1): spec.minReplicas"
    );
    assert_eq!(
        refused(&format!("{NODE}minReplicas: -1")),
        "invalid value: minReplicas(-1) is less than the smallest allowed value(1): spec.minReplicas"
    );
    assert!(refused(&format!("{NODE}maxReplicas: 2147483648")).contains("is more than 2147483647: spec.maxReplicas"));
    assert_eq!(with_replicas("minReplicas: 2147483647", &[]), (2_147_483_647, 2_147_483_647));
}

#[test]
fn takes_the_names_that_a_service_may_have_up_to_63_characters() {
    let named = |name: &str| {
        let mut function = function(NODE, &[]);
        function.metadata.name = Some(name.to_owned());
        function
    };
    resolve(&named(&"a".repeat(63)), &settings()).unwrap();
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
fn refuses_a_blank_source_and_tells_everything_that_is_missing_in_one_line() {
    assert_eq!(refused("source: \"  \\n\"\nruntime: nodejs22"), "missing field(s): spec.source");
    assert_eq!(
        refused("type: git\nsource: ''\nruntime: nodejs22\nbaseDir: '  '"),
        "missing field(s): spec.baseDir, spec.reference, spec.source"
    );
    assert_eq!(refused(GIT), "missing field(s): spec.baseDir, spec.reference");
}

#[test]
fn takes_inline_under_all_its_names_and_refuses_other_types() {
    for kind in ["", "type: ''\n", "type: inline\n"] {
        assert!(!ok(&format!("{NODE}{kind}")).is_git());
    }
    assert_eq!(
        refused(&format!("{NODE}type: oci")),
        "invalid value: type \"oci\" is neither \"inline\" nor \"git\": spec.type"
    );
}

#[test]
fn refuses_deps_that_are_not_a_json_object() {
    let with = |deps: &str| refused(&format!("{NODE}deps: {deps}"));
    let braces = "invalid value: deps should start with '{' and end with '}': spec.deps";
    assert_eq!(with("'{'"), braces);
    assert_eq!(with("'lodash'"), braces);
    assert_eq!(with("'[]'"), braces);
    assert!(with("'{ test }'").starts_with("invalid value: deps is not JSON: "));
    assert!(with("'{ test }'").ends_with(" at line 1 column 3: spec.deps"));
    // However deep it is: npm reads it, too.
    ok(&format!("{NODE}deps: '{{\"a\":{}1{}}}'", "[".repeat(5000), "]".repeat(5000)));
}

#[test]
fn all_ways_to_have_no_dependencies_are_the_same() {
    for deps in ["''", "'{}'", "' {} '", "\"{\\n}\"", "\" \\n\\t\"", "null"] {
        let found = ok(&format!("{NODE}deps: {deps}"));
        assert_eq!(found.code, ok(NODE).code, "{deps}");
    }
    let python = "source: 'def main(event, context): pass'\nruntime: python312\n";
    for deps in ["''", "\" \\n\\t\"", "null"] {
        assert_eq!(ok(&format!("{python}deps: {deps}")).code, ok(python).code, "{deps}");
    }
}

#[test]
fn takes_whatever_stands_in_the_deps_of_python() {
    let found = ok("source: x\nruntime: python312\ndeps: \"requests==2.25.1\\n\"");
    assert_eq!(found.code, Code::Inline { source: "x".into(), dependencies: "requests==2.25.1\n".into() });
}

#[test]
fn refuses_source_and_deps_that_fill_no_config_map_and_takes_one_mebibyte() {
    let python = |bytes: usize| {
        let mut function = function("source: x\nruntime: python312\ndeps: requests", &[]);
        function.spec.source = "#".repeat(bytes - "requests".len());
        function
    };
    resolve(&python(1024 * 1024), &settings()).unwrap();
    let said = refusal(&python(1024 * 1024 + 1));
    assert!(
        said.starts_with("invalid value: source and deps have 1048577 bytes together: spec.deps, spec.source"),
        "{said}"
    );
    // `{}` is written for a Node.js Function without dependencies, so it counts.
    let mut node = function(NODE, &[]);
    node.spec.source = "/".repeat(1024 * 1024 - 1);
    assert!(refusal(&node).contains("1048577 bytes"));
}

#[test]
fn refuses_a_runtime_that_there_is_none_of() {
    let found = resolve(&function("source: x\nruntime: cobol85", &[]), &settings()).unwrap_err();
    let said = text(&found);
    assert!(
        said.starts_with("invalid value: cannot find runtime: cobol85: spec.deps\nspec.runtime is one of "),
        "{said}"
    );
    assert_eq!(reason(&found), crate::api::function_conditions::Reason::RuntimeNotSupported);
    let git = refused("type: git\nsource: r\nruntime: cobol85\nbaseDir: /\nreference: main");
    assert!(git.starts_with("invalid value: cannot find runtime: cobol85: spec.runtime\n"), "{git}");
}

#[test]
fn a_deprecated_runtime_keeps_its_name_and_warns() {
    let found = ok("source: x\nruntime: nodejs12");
    assert_eq!(found.runtime.name, "nodejs12");
    assert!(found.runtime.runs_as != "nodejs12");
    assert_eq!(warnings(&found), ["RuntimeDeprecated"]);
    let variable = found.env.iter().find(|variable| variable.name == "FUNC_RUNTIME").unwrap();
    assert_eq!(variable.value.as_deref(), Some("nodejs12"));
}

#[test]
fn keeps_the_runtime_of_the_status_when_the_default_changes() {
    let settings = Settings { default_runtime: "python312".into(), ..settings() };
    let mut built = function("source: x", &[]);
    assert_eq!(resolve(&built, &settings).unwrap().runtime.name, "python312");
    built.status = serde_yaml::from_str("runtime: nodejs22").unwrap();
    assert_eq!(resolve(&built, &settings).unwrap().runtime.name, "nodejs22");
    built.status = serde_yaml::from_str("runtime: gone1").unwrap();
    assert_eq!(resolve(&built, &settings).unwrap().runtime.name, "python312");
    built.spec.runtime = Some("nodejs22".into());
    built.status = serde_yaml::from_str("runtime: python312").unwrap();
    assert_eq!(resolve(&built, &settings).unwrap().runtime.name, "nodejs22");
}

#[test]
fn says_that_a_runtime_has_no_base_image() {
    let found = resolve(&function(NODE, &[]), &Settings::default()).unwrap_err();
    assert_eq!(
        text(&found),
        "invalid value: no base image is configured for runtime nodejs22: spec.runtime\n\
         set MAINSTAY_BASE_IMAGES for the agent, or spec.runtimeImageOverride here"
    );
}

#[test]
fn takes_the_base_image_of_the_runtime_before_that_of_all_others() {
    let mut settings = settings();
    let base = BaseImage::parse(&format!("registry.local/node@sha256:{}", "0".repeat(64))).unwrap();
    settings.base_images.insert("nodejs22".into(), base.clone());
    assert_eq!(resolve(&function(NODE, &[]), &settings).unwrap().base, base);
    let python = function("source: x\nruntime: python312", &[]);
    assert_eq!(resolve(&python, &settings).unwrap().base, BaseImage::Scratch);
}

#[test]
fn honours_the_functions_own_base_image_and_refuses_what_is_none() {
    let image = "eu.gcr.io/kyma-project/function-runtime-nodejs16:v2";
    let found = ok(&format!("{NODE}runtimeImageOverride: {image}"));
    assert_eq!(found.base, BaseImage::Image(image.into()));
    for wrong in ["scratch", "oci:/etc", "--registry=/x", "a b", "a//b", "../x", "$(HOME)"] {
        assert_eq!(
            refused(&format!("{NODE}runtimeImageOverride: '{wrong}'")),
            format!("invalid value: \"{wrong}\" is not the name of an image: spec.runtimeImageOverride")
        );
    }
}

#[test]
fn puts_the_users_variables_first_and_ours_behind_them() {
    let found = ok(&format!("{NODE}env: [{{name: B, value: '1'}}, {{name: A}}]"));
    assert_eq!(names_of(&found.env), ["B", "A", "NODE_PATH", "FUNC_RUNTIME", "FUNC_HANDLER", "MOD_NAME", "FUNC_PORT"]);
    let value = |name: &str| found.env.iter().find(|v| v.name == name).and_then(|v| v.value.as_deref());
    assert_eq!(
        (value("FUNC_HANDLER"), value("MOD_NAME"), value("FUNC_PORT")),
        (Some("main"), Some("handler"), Some("8080"))
    );
}

#[test]
fn the_last_of_two_variables_counts_and_ours_win_with_a_warning() {
    let found = ok(&format!(
        "{NODE}env: [{{name: A, value: '1'}}, {{name: B}}, {{name: A, value: '2'}}, {{name: A, value: '3'}}]"
    ));
    assert_eq!(names_of(&found.env)[..2], ["B", "A"]);
    assert_eq!(found.env[1].value.as_deref(), Some("3"));
    assert_eq!(warnings(&found), ["EnvIgnored"]);
    let settings = Settings { reserved_env: Vec::new(), ..settings() };
    let own = function(&format!("{NODE}env: [{{name: FUNC_PORT, value: '1'}}]"), &[]);
    let found = resolve(&own, &settings).unwrap();
    let values: Vec<_> = found.env.iter().filter(|v| v.name == "FUNC_PORT").map(|v| v.value.as_deref()).collect();
    assert_eq!((values, warnings(&found)), (vec![Some("8080")], vec!["EnvIgnored"]));
}

#[test]
fn refuses_reserved_and_malformed_variables() {
    for name in ["FUNC_RUNTIME", "FUNC_HANDLER", "FUNC_PORT", "MOD_NAME", "NODE_PATH", "PYTHONPATH"] {
        assert_eq!(
            refused(&format!("{NODE}env: [{{name: {name}, value: x}}]")),
            format!("invalid key name \"{name}\": spec.env\nenv name is reserved for the serverless domain")
        );
    }
    for name in ["FUNC_TIMEOUT", "REQ_MB_LIMIT", "FUNC_MEMFILE_MAX", "func_port"] {
        ok(&format!("{NODE}env: [{{name: {name}, value: '1'}}]"));
    }
    assert_eq!(
        refused(&format!("{NODE}env: [{{name: 1A}}]")),
        "invalid key name \"1A\": spec.env\na valid environment variable name must consist of alphabetic characters, \
         digits, '_', '-', or '.', and must not start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or \
         'MyEnvName1', regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')"
    );
}

#[test]
fn refuses_a_variable_with_which_no_program_starts() {
    let with = |bytes: usize| {
        let mut function = function(&format!("{NODE}env: [{{name: A}}]"), &[]);
        function.spec.env.as_mut().unwrap()[0].value = Some("v".repeat(bytes));
        function
    };
    resolve(&with(128 * 1024 - 3), &settings()).unwrap();
    for bytes in [128 * 1024 - 2, 128 * 1024] {
        let said = refusal(&with(bytes));
        assert!(
            said.starts_with(&format!("invalid value: the value of env A has {bytes} bytes: spec.env\n")),
            "{said}"
        );
    }
}

#[test]
fn refuses_a_variable_without_exactly_one_origin() {
    let from = "valueFrom: {secretKeyRef: {name: s, key: k}}";
    ok(&format!("{NODE}env: [{{name: A, {from}}}]"));
    assert_eq!(
        refused(&format!("{NODE}env: [{{name: A, value: x, {from}}}]")),
        "invalid value: env A has both value and valueFrom: spec.env"
    );
    assert_eq!(
        refused(&format!("{NODE}env: [{{name: A, valueFrom: {{}}}}]")),
        "invalid value: env A has 0 sources in valueFrom instead of one: spec.env"
    );
}

#[test]
fn labels_of_pods_are_checked_and_never_hide_ours() {
    let said = refused(&format!("{NODE}labels: {{should BE not OK: x}}"));
    assert!(
        said.starts_with("invalid value: spec.labels: Invalid value: \"should BE not OK\": name part must"),
        "{said}"
    );
    assert!(said.ends_with(": spec.labels"), "{said}");
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
fn children_get_the_functions_labels_but_not_those_that_would_mislead() {
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
fn git_functions_name_a_repository_a_directory_and_a_reference() {
    let found = ok(&format!("{GIT}baseDir: /fn//hello/\nreference: feature/x\ndeps: '{{}}'"));
    let Code::Git { repository, reference, base_dir } = &found.code else { panic!("{:?}", found.code) };
    assert_eq!(
        (repository.as_str(), reference.to_string(), base_dir.to_string()),
        ("repo", "feature/x".into(), "/fn/hello".into())
    );
    assert_eq!(warnings(&found), ["DepsIgnored"]);
}

#[test]
fn refuses_what_cannot_be_found_in_a_repository() {
    let with = |base_dir: &str, reference: &str| refused(&format!("{GIT}baseDir: {base_dir}\nreference: {reference}"));
    assert!(with("../x", "main").contains("`..` is not allowed: spec.baseDir"), "{}", with("../x", "main"));
    assert!(with("/a/../../b", "main").ends_with(": spec.baseDir"));
    assert!(with("\"a\\nb\"", "main").contains("has control characters: spec.baseDir"));
    assert!(with("/", "a..b").ends_with(": spec.reference"), "{}", with("/", "a..b"));
    assert!(with("/", "'--upload-pack=x'").ends_with(": spec.reference"));
    let inline = refused("type: git\nsource: 'module.exports = 1'\nruntime: nodejs22\nbaseDir: /\nreference: main");
    assert!(inline.starts_with("invalid value: source is not the name of a GitRepository: spec.source\n"), "{inline}");
}

#[test]
fn tells_all_violations_at_once() {
    let said =
        refused("source: ''\nruntime: cobol85\ntype: x\nminReplicas: 0\nenv: [{name: FUNC_PORT}]\nlabels: {-: x}");
    assert_eq!(
        said.lines().filter(|line| line.starts_with("invalid") || line.starts_with("missing")).count(),
        6,
        "{said}"
    );
}
