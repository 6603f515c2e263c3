//! Environment variables.

use super::*;

fn names_of(env: &[EnvVar]) -> Vec<&str> {
    env.iter().map(|variable| variable.name.as_str()).collect()
}

#[test]
fn puts_the_users_variables_first_and_ours_behind_them() {
    let found = ok(&format!("{NODE}env: [{{name: B, value: '1'}}, {{name: A}}]"));
    let contract = ["FUNC_MEMORY_LIMIT", "SERVICE_NAMESPACE", "PUBLISHER_PROXY_ADDRESS", "TRACE_COLLECTOR_ENDPOINT"];
    let ours = [&["NODE_PATH", "FUNC_RUNTIME"][..], &contract, &["FUNC_HANDLER", "MOD_NAME", "FUNC_PORT"]].concat();
    assert_eq!(names_of(&found.env), [&["B", "A"], &ours[..]].concat());
    let value = |name: &str| found.env.iter().find(|v| v.name == name).and_then(|v| v.value.as_deref());
    assert_eq!(
        (value("FUNC_HANDLER"), value("MOD_NAME"), value("FUNC_PORT")),
        (Some("main"), Some("handler"), Some("8080"))
    );
}

#[test]
fn says_where_events_and_traces_go_and_how_much_memory_there_is_unless_the_user_does() {
    let memory = "resources: {limits: {memory: 300Mi}, requests: {memory: 200Mi}}\n";
    let settings = Settings {
        publisher: "http://events.local/publish".into(),
        trace_collector: "http://traces.local:4318/v1/traces".into(),
        ..settings()
    };
    let env = |spec: &str| {
        let found = resolve(&function(spec, &[]), &settings, &Credentials::new(&settings, [])).unwrap();
        assert_eq!(found.warnings, []);
        let value = |name: &str| {
            let mut all = found.env.iter().filter(|variable| variable.name == name);
            let value = all.next().and_then(|variable| variable.value.clone()).unwrap_or_default();
            assert!(all.next().is_none(), "{name}");
            value
        };
        ["FUNC_MEMORY_LIMIT", "SERVICE_NAMESPACE", "PUBLISHER_PROXY_ADDRESS", "TRACE_COLLECTOR_ENDPOINT"].map(value)
    };
    let [events, traces] = ["http://events.local/publish", "http://traces.local:4318/v1/traces"];
    assert_eq!(env(&format!("{NODE}{memory}")), ["300Mi", "default", events, traces]);
    let own = "env: [{name: PUBLISHER_PROXY_ADDRESS, value: mine}, {name: FUNC_MEMORY_LIMIT, value: '7'}]";
    assert_eq!(env(&format!("{NODE}{own}")), ["7", "default", "mine", traces]);
}

#[test]
fn the_last_duplicate_wins_and_ours_win_with_a_warning() {
    let found = ok(&format!(
        "{NODE}env: [{{name: A, value: '1'}}, {{name: B}}, {{name: A, value: '2'}}, {{name: A, value: '3'}}]"
    ));
    assert_eq!(names_of(&found.env)[..2], ["B", "A"]);
    assert_eq!(found.env[1].value.as_deref(), Some("3"));
    assert_eq!(warnings(&found), ["EnvIgnored"]);
    let settings = Settings { reserved_env: Vec::new(), ..settings() };
    let own = function(&format!("{NODE}env: [{{name: FUNC_PORT, value: '1'}}]"), &[]);
    let found = resolve(&own, &settings, &Credentials::new(&settings, [])).unwrap();
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
fn refuses_a_variable_that_is_too_long_for_a_program() {
    let with = |bytes: usize| {
        let mut function = function(&format!("{NODE}env: [{{name: A}}]"), &[]);
        function.spec.env.as_mut().unwrap()[0].value = Some("v".repeat(bytes));
        function
    };
    resolve(&with(128 * 1024 - 3), &settings(), &Credentials::new(&settings(), [])).unwrap();
    for bytes in [128 * 1024 - 2, 128 * 1024] {
        let update = refusal(&with(bytes));
        assert!(
            update.starts_with(&format!("invalid value: the value of env A has {bytes} bytes: spec.env\n")),
            "{update}"
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
