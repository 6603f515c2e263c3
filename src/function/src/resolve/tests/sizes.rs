//! Numbers of pods, CPU and memory: presets, bounds and defaults.

use super::*;
use crate::Builder;

/// Formats CPU and memory as `requests -> limits`.
fn sizes(resources: &Resources) -> String {
    let mut text = String::new();
    for part in [&resources.requests, &resources.limits] {
        let part = part.as_ref().unwrap();
        write!(text, "{}/{} ", part.get("cpu").unwrap(), part.get("memory").unwrap()).unwrap();
    }
    text.trim().to_owned()
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
    assert_eq!(sizes(&found.build_resources), "200m/200Mi 1100m/1100Mi");
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
    assert_eq!(sizes(&found.resources), "10m/16Mi 25m/64Mi");
    assert_eq!(sizes(&found.build_resources), "400m/400Mi 700m/700Mi");
}

#[test]
fn a_build_requests_what_it_uses_unless_a_preset_or_a_builder_is_chosen() {
    let mut settings = settings();
    let of = |settings: &Settings, labels: &[(&str, &str)]| {
        let found = resolve(&function(NODE, labels), settings, &Credentials::new(settings, [])).unwrap();
        sizes(&found.build_resources)
    };
    let normal = "700m/700Mi 1100m/1100Mi";
    assert_eq!(of(&settings, &[]), "200m/200Mi 1100m/1100Mi");
    assert_eq!(of(&settings, &[(names::BUILD_RESOURCES_PRESET, "normal")]), normal);
    settings.builder = Builder::Kaniko;
    assert_eq!(of(&settings, &[]), normal);
    // An operator's own presets or default preset are used unchanged.
    for (variable, value) in [
        ("WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_DEFAULT_PRESET", "normal"),
        (
            "WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_PRESETS_MAP",
            r#"{"normal":{"requestCpu":"700m","requestMemory":"700Mi","limitCpu":"1100m","limitMemory":"1100Mi"}}"#,
        ),
    ] {
        let variables = [(variable.to_owned(), value.to_owned())];
        let settings = Settings::from_env(Settings::default(), variables).unwrap();
        assert_eq!(of(&settings, &[]), normal, "{variable}");
    }
}

const PYTHON: &str = "source: 'def main(event, context): return 1'\nruntime: python312\n";

#[test]
fn the_limit_of_memory_of_a_preset_is_at_least_what_the_runtime_needs() {
    let of = |spec: &str, preset: &str| {
        let found = ok_with(spec, &[(names::FUNCTION_RESOURCES_PRESET, preset)]);
        assert_eq!(warnings(&found), Vec::<&str>::new(), "nobody has asked for less");
        sizes(&found.resources)
    };
    assert_eq!(of(PYTHON, "XS"), "10m/16Mi 25m/48Mi");
    assert_eq!(of(PYTHON, "S"), "25m/32Mi 50m/64Mi");
    assert_eq!(of(PYTHON, "M"), "50m/64Mi 100m/128Mi");
    assert_eq!(of(NODE, "S"), "25m/32Mi 50m/64Mi");
    // The operator's own presets are raised too, in any unit.
    let mut settings = settings();
    let little = ResourcesPreset {
        request_memory: Some("20000000".into()),
        limit_memory: Some("50e6".into()),
        ..ResourcesPreset::default()
    };
    settings.resources.all.insert("little".into(), little);
    let labels = [(names::FUNCTION_RESOURCES_PRESET, "little")];
    let found = resolve(&function(PYTHON, &labels), &settings, &Credentials::new(&settings, [])).unwrap();
    assert_eq!(sizes(&found.resources), "50m/20000000 100m/48Mi");
}

#[test]
fn a_limit_of_memory_below_what_the_runtime_needs_is_kept_with_a_warning() {
    let labels = [(names::FUNCTION_RESOURCES_PRESET, "XS")];
    let with = |resources: &str| {
        let found = ok_with(&format!("{PYTHON}resources: {resources}"), &labels);
        let reported = found.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        (sizes(&found.resources), reported)
    };
    let (sized, reported) = with("{limits: {memory: 32Mi}}");
    assert_eq!(sized, "10m/16Mi 25m/32Mi");
    let words = "MemoryLow: spec.resources.limits.memory is 32Mi, but runtime python312 needs 48Mi: ";
    assert!(reported.starts_with(words) && !reported.contains('\n'), "{reported}");
    assert_eq!(with("{requests: {memory: 16Mi}, limits: {memory: 16Mi}}").0, "10m/16Mi 25m/16Mi");
    let unsaid = [
        ("{limits: {memory: 48Mi}}", "10m/16Mi 25m/48Mi"),
        ("{limits: {memory: '0'}}", "10m/16Mi 25m/48Mi"),
        ("{requests: {memory: 16Mi}}", "10m/16Mi 25m/48Mi"),
        ("{requests: {memory: 1Gi}}", "10m/1Gi 25m/1Gi"),
    ];
    for (resources, expected) in unsaid {
        assert_eq!(with(resources), (expected.to_owned(), String::new()), "{resources}");
    }
    // A limit below the operator's minimum is refused.
    let update = refused(&format!("{PYTHON}resources: {{limits: {{memory: 15Mi}}}}"));
    assert!(update.contains("limits memory(15Mi) should be higher than minimal value (16Mi)"), "{update}");
}

#[test]
fn an_unknown_preset_falls_back_to_the_default_with_a_warning() {
    let found = ok_with(NODE, &[(names::FUNCTION_RESOURCES_PRESET, "huge"), (names::REPLICAS_PRESET, "")]);
    assert_eq!(sizes(&found.resources), "50m/64Mi 100m/128Mi");
    assert_eq!(warnings(&found), ["PresetUnknown"]);
    assert!(found.warnings[0].message.contains("\"huge\""), "{}", found.warnings[0].message);
}

#[test]
fn missing_values_of_a_preset_come_from_the_default() {
    let mut settings = settings();
    let partial =
        ResourcesPreset { limit_cpu: Some("300m".into()), request_cpu: Some("0".into()), ..Default::default() };
    settings.resources.all.insert("partial".into(), partial);
    settings.replicas.all.insert("many".into(), ReplicasPreset { min: None, max: Some(7) });
    let labels = [(names::FUNCTION_RESOURCES_PRESET, "partial"), (names::REPLICAS_PRESET, "many")];
    let found = resolve(&function(NODE, &labels), &settings, &Credentials::new(&settings, [])).unwrap();
    assert_eq!(sizes(&found.resources), "50m/64Mi 300m/128Mi");
    assert_eq!((found.replicas.min, found.replicas.max), (1, 7));
}

#[test]
fn a_missing_number_of_pods_is_adjusted_to_the_given_one() {
    assert_eq!(with_replicas("minReplicas: 3", &[]), (3, 3));
    assert_eq!(with_replicas("maxReplicas: 3", &[]), (1, 3));
    assert_eq!(with_replicas("minReplicas: 7", &[(names::REPLICAS_PRESET, "L")]), (7, 7));
    assert_eq!(with_replicas("minReplicas: 2", &[(names::REPLICAS_PRESET, "L")]), (2, 5));
    let mut settings = settings();
    settings.replicas.all.insert("S".into(), ReplicasPreset { min: Some(4), max: Some(9) });
    let found = resolve(&function(&format!("{NODE}maxReplicas: 2"), &[]), &settings, &Credentials::default()).unwrap();
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
    assert_eq!(found.resources.limits.unwrap().get("nvidia.com/gpu"), Some(&Amount::from("1")));
    let requests = found.resources.requests.unwrap();
    let requested = ["ephemeral-storage", "nvidia.com/gpu"].map(|name| requests.get(name).unwrap().to_string());
    assert_eq!(requested, ["2Gi", "1"], "what is not requested is requested as it is limited");
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
fn refuses_invalid_quantities() {
    let update = refused(&format!("{NODE}resources: {{requests: {{cpu: much, memory: [1]}}}}"));
    assert!(update.contains("invalid value: quantities must match the regular expression"), "{update}");
    assert!(update.contains("spec.resources.requests.cpu\nit is \"much\""), "{update}");
    assert!(update.contains("spec.resources.requests.memory\nit is \"[1]\""), "{update}");
}

#[test]
fn a_number_that_is_set_holds_whatever_the_bounds_say() {
    let of = |spec: &str| {
        let found = ok(&format!("{NODE}{spec}"));
        (found.replicas.fixed(), warnings(&found).concat())
    };
    assert_eq!(of(""), (Some(1), String::new()));
    assert_eq!(of("maxReplicas: 3"), (None, String::new()));
    assert_eq!(of("replicas: 3"), (Some(3), String::new()));
    assert_eq!(of("replicas: 0"), (Some(0), String::new()));
    assert_eq!(of("minReplicas: 1\nmaxReplicas: 1\nreplicas: 3"), (Some(3), String::new()));
    assert_eq!(of("maxReplicas: 3\nreplicas: 7"), (Some(7), "ScalingOff".to_owned()));
    assert_eq!(refused(&format!("{NODE}replicas: -1")), "invalid value: replicas(-1) is less than 0: spec.replicas");
    assert!(refused(&format!("{NODE}replicas: 2147483648")).contains("is more than 2147483647: spec.replicas"));
}

#[test]
fn none_at_all_where_the_operator_allows_it() {
    let settings = Settings { min_replicas: 0, ..settings() };
    let spec = format!("{NODE}minReplicas: 0\nmaxReplicas: 0");
    let found = resolve(&function(&spec, &[]), &settings, &Credentials::new(&settings, [])).unwrap();
    assert_eq!(found.replicas.fixed(), Some(0));
}

#[test]
fn refuses_invalid_numbers_of_pods() {
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
