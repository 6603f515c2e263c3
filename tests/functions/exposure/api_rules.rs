//! The objects of an APIRule: their creation, their changes and their deletion.

use super::*;

/// Checks that the Function of the tutorial is reachable only with the methods of its rule.
async fn is_called(gateway: &Gateway) {
    for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
        let own = format!("my-function.{NAMESPACE}.svc.cluster.local:80");
        let expected = (200, format!("Hello Serverless: {method} /a?b=c {own} {HOST}"));
        assert_eq!(ask(gateway, method, HOST, "/a?b=c").await, expected);
    }
    let missing = r#"{"error":{"code":404,"status":"Not Found","request":"7","message":"The requested resource could not be found"}}"#;
    let (status, body) = ask_with(gateway, Method::PATCH, HOST, "/", &[("x-request-id", "7")]).await;
    let as_json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!((status, as_json(&body)), (404, as_json(missing)));
    assert!(body.ends_with("}\n"), "{body}");
    assert_eq!(ask(gateway, Method::GET, "nobody.kyma.local", "/").await, (404, String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_exposed_as_in_the_tutorial() {
    let (world, gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    gateway.answers(HOST, "/", 200).await;
    if let Some(gateway) = &gateway.0 {
        is_called(gateway).await;
    }

    let service = world.all(SERVICES).pop().unwrap();
    let label = json!(format!("my-function.{NAMESPACE}"));
    assert_eq!(service["metadata"]["labels"]["apirule.gateway.kyma-project.io/v1alpha1"], label);
    assert_eq!(service["spec"]["http"][0]["match"][0]["uri"]["regex"], "/.*");
    let rule = world.all(RULES).pop().unwrap();
    assert_eq!(rule["spec"]["match"]["url"], format!("<http|https>://{HOST}</.*>"));

    // Manual changes and deletions are reverted.
    world.delete(SERVICES.0, SERVICES.1, &name(&service));
    world.delete(RULES.0, RULES.1, &name(&rule));
    world.until("they are made again", |w| w.all(SERVICES).len() == 1 && w.all(RULES).len() == 1).await;
    let edit = json!({"spec": {"authenticators": [{"handler": "unauthorized"}]}, "metadata": {"labels": null}});
    world.edit(RULES.0, RULES.1, &name(&rule), edit);
    let is_back = |w: &World| {
        let rule = w.all(RULES).pop().unwrap();
        rule["spec"]["authenticators"][0]["handler"] == "noop" && rule["metadata"]["labels"].is_object()
    };
    world.until("it is reverted", is_back).await;

    // Another handler and another path.
    world.change_rule(json!({"rules": [path("/open", &["GET"], "allow", json!({}))]}));
    world.until("its Rule is gone", |w| w.all(RULES).is_empty()).await;
    world.rule_is(SERVED.0, SERVED.1).await;
    if let Some(gateway) = &gateway.0 {
        let open = (200, format!("Hello Serverless: PATCH /open {HOST} {HOST}"));
        assert_eq!(ask(gateway, Method::PATCH, HOST, "/open").await, open);
    }
    gateway.is(Method::GET, HOST, "/", 404).await;

    // All objects are deleted with the APIRule.
    world.delete(API, "apirules", "my-function");
    gateway.answers(HOST, "/open", 404).await;
    world.until("nothing is left", |w| w.all(SERVICES).is_empty() && w.all(RULES).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_is_one_apirules_and_the_next_gets_it_at_once() {
    let (world, gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.api_rule_in(OTHER, "late", tutorial("my-function"));
    let taken = r#"Validation error: Attribute ".spec.service.host": This host is occupied by another Virtual Service"#;
    let condition = format!("False HostOccupied: {taken}");
    world.says_of(OTHER, "late", "ERROR SKIPPED SKIPPED", &condition).await;
    assert_eq!(world.rule_status(OTHER, "late")["APIRuleStatus"]["desc"], taken);
    assert_eq!(world.all(SERVICES).len(), 1);
    world.delete(API, "apirules", "my-function");
    world.says_of(OTHER, "late", SERVED.0, SERVED.1).await;
    let other = format!("my-function.{OTHER}.svc.cluster.local:80");
    gateway.answers(HOST, "/", 200).await;
    if let Some(gateway) = &gateway.0 {
        assert!(ask(gateway, Method::GET, HOST, "/").await.1.contains(&other));
    }

    // A VirtualService of another owner counts, too.
    let theirs = json!({
        "apiVersion": SERVICES.0, "kind": "VirtualService", "metadata": {"name": "theirs", "namespace": NAMESPACE}, "spec": {"hosts": ["free.kyma.local"], "http": []},
    });
    let mut free = tutorial("my-function");
    free["service"]["host"] = json!("FREE.kyma.local");
    world.create(SERVICES.0, SERVICES.1, NAMESPACE, theirs);
    world.api_rule(free);
    world.rule_is("ERROR SKIPPED SKIPPED", "False HostOccupied").await;
    world.delete(SERVICES.0, SERVICES.1, "theirs");
    world.rule_is(SERVED.0, SERVED.1).await;
    world.says_of(OTHER, "late", SERVED.0, SERVED.1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_change_keeps_the_last_valid_version_and_reverts_its_drift() {
    let (world, gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "foo", json!({}))]}));
    let why =
        r#"Validation error: Attribute ".spec.rules[0].accessStrategies[0].handler": Unsupported accessStrategy: foo"#;
    world.rule_is("ERROR SKIPPED SKIPPED", &format!("False Invalid: {why}\nThe last valid version")).await;
    gateway.is(Method::GET, HOST, "/", 200).await;
    let rule = name(&world.all(RULES)[0]);
    world.delete(RULES.0, RULES.1, &rule);
    world.until("it is made again", |w| w.all(RULES).len() == 1).await;
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "noop", json!({}))]}));
    world.rule_is(SERVED.0, SERVED.1).await;
    assert_eq!(world.rule_status(NAMESPACE, "my-function")["APIRuleStatus"], json!({"code": "OK"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_and_unchanged_exposure_costs_no_request() {
    let (world, _gateway) = exposing().await;
    let watches = |w: &World| {
        let counts = w.levers().counts();
        let watched = |name: &str| counts.iter().any(|c| c.verb == "watch" && c.resource.starts_with(name));
        (watched("apirules"), watched("virtualservices") || watched("rules"))
    };
    world.until("APIRules are watched", |w| watches(w).0).await;
    world.quiet().await;
    assert!(!watches(&world).1, "and nothing else for them");
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.quiet().await;
    let before = world.requests();
    // A change of an unrelated Service, or of the status of the agent's own Rule, causes no request.
    world.service(OTHER, "another", loopback());
    let rule = name(&world.all(RULES)[0]);
    let status = json!({"status": {"validation": {"valid": true}}});
    let call = Call::new(RULES.0, RULES.1, NAMESPACE, &rule, Action::Patch(Form::Merge, status));
    world.try_as("oathkeeper", call).unwrap();
    world.quiet().await;
    assert_eq!(world.requests(), before);
    assert_eq!(world.all(SERVICES).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_is_written_as_later_versions_are_is_served() {
    let (world, gateway) = exposing().await;
    let spec = json!({
        "host": HOST, "gateway": "kyma-system/kyma-gateway", "service": {"name": "my-function", "port": 80},
        "rules": [path("/a", &["GET"], "noop", json!({})), path("/a", &["POST"], "noop", json!({}))],
    });
    let newer = "gateway.kyma-project.io/v1beta1";
    let metadata = json!({"name": "my-function", "namespace": NAMESPACE});
    let rule = json!({"apiVersion": newer, "kind": "APIRule", "metadata": metadata, "spec": spec});
    world.create(newer, "apirules", NAMESPACE, rule);
    world.rule_is(SERVED.0, SERVED.1).await;
    gateway.answers(HOST, "/a", 200).await;
    gateway.is(Method::POST, HOST, "/a", 200).await;
    assert_eq!(world.all(RULES).len(), 2);
}
