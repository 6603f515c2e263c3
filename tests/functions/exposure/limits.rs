//! Limits of APIRules: for hostile rules, and for the paths of a namespace.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_apirules_harm_no_other_rule() {
    let (world, gateway) = exposing().await;
    world.api_rule_in(OTHER, "fine", tutorial("my-function"));
    world.says_of(OTHER, "fine", SERVED.0, SERVED.1).await;
    let many: Vec<Value> = (0..600).map(|at| path(&format!("/{at}"), &["GET"], "noop", json!({}))).collect();
    let nulls = json!({"trusted_issuers": [null, {"a": null}], "jwks_urls": null, "password": "hunter2"});
    let strange = |host: &str, rules: Value| {
        let mut spec = with_rules(rules);
        spec["service"]["host"] = json!(host);
        spec
    };
    let all = [
        (
            "many",
            strange("many.kyma.local", json!(many)),
            "False Invalid: Validation error: Attribute \".spec.rules\": more than 500 rules",
        ),
        ("nulls", strange("nulls.kyma.local", json!([path("/", &["GET"], "jwt", nulls)])), "False Invalid"),
        ("bracket", strange("[a_b.kyma.loca[l", json!([path("/.*", &["GET"], "noop", json!({}))])), ""),
        (
            "regex",
            strange("regex.kyma.local", json!([path("/(a+)+b|(((", &["GET"], "noop", json!({}))])),
            "False Invalid: Validation error: Attribute \".spec.rules[0].path\": not a path of this host",
        ),
        (
            "reach",
            strange("my-function.ky", json!([path("ma.local/.*", &["GET"], "noop", json!({}))])),
            "False Invalid: Multiple validation errors: ",
        ),
        (
            "slow",
            strange("slow.kyma.local", json!([path("/(a+)+b", &["GET"], "noop", json!({}))])),
            "False AuthNotSupported: .spec.rules[0] is not routed",
        ),
        (
            "blow",
            strange("blow.kyma.local", json!([path("/(a{1000}){1000}", &["GET"], "noop", json!({}))])),
            "False Invalid: Validation error: Attribute \".spec.rules[0].path\": not a valid path: column 3: it repeats too often",
        ),
    ];
    for (name, spec, _) in &all {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let rule = json!({"apiVersion": API, "kind": "APIRule", "metadata": metadata, "spec": spec});
        // The schema refuses some of the rules.
        let made = world.try_as("test", Call::new(API, "apirules", NAMESPACE, "", Action::Create(rule)));
        assert!(made.is_ok() || *name == "bracket", "{name}: {made:?}");
    }
    for (name, _, condition) in &all {
        if !condition.is_empty() {
            let is = |w: &World| w.rule_said(NAMESPACE, name).1.starts_with(condition);
            world
                .until_or(&format!("{name}: {condition}"), is, || format!("{:#}", world.rule_status(NAMESPACE, name)))
                .await;
        }
    }
    assert!(!world.rule_status(NAMESPACE, "nulls").to_string().contains("hunter2"));
    let long = format!("/{}", "a".repeat(8_000));
    gateway.is(Method::GET, "regex.kyma.local", &long, 404).await;
    gateway.is(Method::GET, "slow.kyma.local", &long, 404).await;
    gateway.is(Method::GET, "blow.kyma.local", &long, 404).await;
    gateway.is(Method::GET, HOST, "/", 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_paths_of_a_namespace_have_a_common_limit() {
    let (world, _gateway) = exposing().await;
    let spec = |host: &str, paths: usize| {
        let rules: Vec<Value> = (0..paths).map(|at| path(&format!("/{at}"), &["GET"], "noop", json!({}))).collect();
        let mut spec = with_rules(json!(rules));
        spec["service"]["host"] = json!(host);
        spec
    };
    for (name, host) in [("my-function", HOST), ("second", "second.kyma.local")] {
        world.api_rule_in(NAMESPACE, name, spec(host, 500));
        world.says_of(NAMESPACE, name, SERVED.0, SERVED.1).await;
    }
    world.api_rule_in(NAMESPACE, "third", spec("third.kyma.local", 2));
    let why = format!(
        "False Invalid: Validation error: Attribute \".spec.rules\": 2 paths with a guard exceed the limit of 1000 in a \
         namespace: the other APIRules of {NAMESPACE} have 1000."
    );
    world.until(&why, |w| w.rule_said(NAMESPACE, "third").1.starts_with(&why)).await;
    let mut open = spec("open.kyma.local", 1);
    open["rules"][0]["accessStrategies"] = json!([{"handler": "allow"}]);
    world.api_rule_in(NAMESPACE, "open", open);
    world.api_rule_in(OTHER, "other", spec("other.kyma.local", 2));
    for (namespace, name) in [(NAMESPACE, "open"), (OTHER, "other")] {
        world.says_of(namespace, name, SERVED.0, SERVED.1).await;
    }
    assert_eq!(world.all(RULES).len(), 1002);
    world.change_rule(spec(HOST, 1));
    world.says_of(NAMESPACE, "third", SERVED.0, SERVED.1).await;
    world.until("removed paths have no Rule", |w| w.all(RULES).len() == 505).await;
}
