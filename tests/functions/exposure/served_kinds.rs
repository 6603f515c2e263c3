//! The kinds that the cluster serves decide which objects an APIRule gets, and which of its paths are routed.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_served_kinds_decide_and_may_change() {
    let mut world = world_with(&[]).await;
    world.service(NAMESPACE, "my-function", loopback());
    world.start();
    let closed = json!({"trusted_issuers": ["https://issuer.example.com"]});
    let rules = json!([path("/open", &["GET"], "noop", json!({})), path("/closed", &["GET"], "jwt", closed)]);
    world.api_rule(with_rules(rules));
    let none = "False NoRouteApi: no Istio and no Gateway API in this cluster";
    world.rule_is("ERROR SKIPPED SKIPPED", none).await;

    world.define(definition(ROUTES));
    let not_yet =
        "False AuthNotSupported: .spec.rules[1] is not routed: the Gateway API cannot check what it asks for (jwt)";
    world.rule_is("ERROR OK ERROR", not_yet).await;
    let route = world.all(ROUTES).pop().unwrap();
    let paths = &route["spec"]["rules"];
    assert_eq!((paths.as_array().unwrap().len(), &paths[0]["matches"][0]["path"]["value"]), (1, &json!("/open")));
    world.change_rule(json!({"rules": [path("/open", &["GET"], "noop", json!({}))]}));
    world.rule_is("ERROR ERROR OK", "Unknown NotAccepted: no gateway has accepted the route yet").await;
    let judge = |world: &World, status: &str, reason: &str| {
        let route = world.all(ROUTES).pop().unwrap();
        let condition = json!({
            "type": "Accepted", "status": status, "reason": reason, "observedGeneration": route["metadata"]["generation"],
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let parent = json!({
            "parentRef": route["spec"]["parentRefs"][0], "controllerName": "example.org/gateway", "conditions": [condition],
        });
        let status = json!({"status": {"parents": [parent]}});
        let call =
            Call::new(ROUTES.0, ROUTES.1, NAMESPACE, &name(&route), Action::Patch(Form::Merge, status)).on("status");
        world.try_as("gateway", call).unwrap();
    };
    judge(&world, "False", "NoMatchingParent");
    world.rule_is("ERROR ERROR OK", "False NotAccepted: the route is not accepted: NoMatchingParent").await;
    judge(&world, "True", "Accepted");
    world.rule_is(SERVED.0, SERVED.1).await;

    // Istio is installed, then Oathkeeper.
    world.define(definition(SERVICES));
    let by_istio = |w: &World| w.all(ROUTES).is_empty() && w.all(SERVICES).len() == 1;
    world.until("the route is Istio's", by_istio).await;
    let service = world.all(SERVICES).pop().unwrap();
    let target = format!("my-function.{NAMESPACE}.svc.cluster.local");
    let (found, to) = (&service["spec"]["http"][0]["match"][0], &service["spec"]["http"][0]["route"][0]["destination"]);
    assert_eq!((&found["method"]["regex"], &to["host"]), (&json!("GET"), &json!(target)));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.define(definition(RULES));
    world.until("the check is Oathkeeper's", |w| w.all(RULES).len() == 1).await;
    world.rule_is(SERVED.0, SERVED.1).await;

    // Both are uninstalled again.
    for kind in [RULES, SERVICES] {
        world.undefine(&defines(kind));
    }
    world.until("the route is the Gateway's", |w| w.all(ROUTES).len() == 1).await;
    world.rule_is("ERROR ERROR OK", "Unknown NotAccepted").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_whose_check_is_unavailable_is_not_routed() {
    let mut world = world_with(&[ROUTES]).await;
    let gateway = Front::of(&world, None).await;
    world.service(NAMESPACE, "my-function", backend().await);
    world.start();
    let jwt = || json!({"trusted_issuers": ["https://issuer.example.com"]});
    let closed = path("/closed", &["GET"], "jwt", jwt());
    world.api_rule(with_rules(json!([path("/open", &["GET"], "noop", json!({})), closed])));
    world.rule_is("ERROR OK ERROR", "False AuthNotSupported").await;
    gateway.answers(HOST, "/open", 200).await;
    gateway.is(Method::GET, HOST, "/closed", 404).await;
    // An open path that would match its requests is not routed either.
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "noop", json!({})), closed]}));
    let also = "may match the same requests, so they are not routed either";
    let says = |w: &World| w.rule_said(NAMESPACE, "my-function").1.contains(also);
    world.until("it is said", says).await;
    world.until("there is no route", |w| w.all(ROUTES).is_empty()).await;
    gateway.answers(HOST, "/open", 404).await;
    gateway.is(Method::GET, HOST, "/closed", 404).await;
}
