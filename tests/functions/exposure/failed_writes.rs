//! Writes that the API server refuses: their retries, their report, and the rules that still serve.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanently_refused_write_is_retried_rarely_and_reported_once() {
    let (world, _gateway) = exposing().await;
    for (verb, kind, code) in [("apply", SERVICES, 403), ("apply", RULES, 422), ("apply", RULES, 409)] {
        let (what, name) = (format!("{verb} {} {code}", kind.1), format!("f{}{code}", kind.1));
        refuse(&world, verb, kind.1, code);
        let mut spec = tutorial("my-function");
        spec["service"]["host"] = json!(format!("{name}.kyma.local"));
        world.api_rule_in(NAMESPACE, &name, spec);
        world.says_of(NAMESPACE, &name, "ERROR ERROR ERROR", "False ApplyFailed").await;
        let within = std::time::Duration::from_secs(10);
        let is_quiet = tokio::time::timeout(within, world.quiet()).await.is_ok();
        assert!(is_quiet, "{what} is tried again and again: {:?}", world.requests());
        let said = world.rule_said(NAMESPACE, &name).1;
        assert!(said.contains("(request 1 for"), "{what}: {said}");
        assert!(!said.contains("goes on serving"), "{what}: {said}");
        world.levers().clear_faults();
        // A change of the spec causes a retry.
        let rules = json!([path("/a", &["GET"], "noop", json!({}))]);
        world.edit(API, "apirules", &name, json!({"spec": {"rules": rules}}));
        world.says_of(NAMESPACE, &name, SERVED.0, SERVED.1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_is_not_wanted_any_more_does_not_answer_for_one_that_cannot_be_written() {
    let (world, gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    gateway.answers(HOST, "/closed", 200).await;
    refuse(&world, "apply", RULES.1, 403);
    let config = json!({"trusted_issuers": ["https://issuer.example.com"]});
    world.change_rule(json!({"rules": [path("/closed", &["GET"], "jwt", config)]}));
    world.rule_is("ERROR ERROR ERROR", "False ApplyFailed").await;
    assert_eq!(world.all(RULES), Vec::<Arc<Value>>::new(), "what everybody may pass is gone");
    gateway.answers(HOST, "/closed", 404).await;
    // If a Rule becomes unnecessary and the other write fails, the old Rule stays, and the status reports it.
    world.levers().clear_faults();
    world.change_rule(json!({"rules": [path("/open", &["GET"], "noop", json!({}))]}));
    world.rule_is(SERVED.0, SERVED.1).await;
    let rule = name(&world.all(RULES)[0]);
    refuse(&world, "apply", SERVICES.1, 403);
    world.change_rule(json!({"rules": [path("/other", &["GET"], "noop", json!({}))]}));
    world.rule_is("ERROR ERROR ERROR", "False ApplyFailed").await;
    let said = world.rule_said(NAMESPACE, "my-function").1;
    assert!(said.contains(&format!("; until then, Rule {rule} goes on serving as it is")), "{said}");
}
