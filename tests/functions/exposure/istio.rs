//! Tokens with Istio alone: its proxies check them with policies of the agent.

use crate::exposure::ExposureWorld as _;
use std::time::{Duration, Instant};

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};
use serde_json::{Value, json};

use super::{API, SERVED, SERVICES, loopback, name, path, refuse, with_rules, world_with};
use mainstay_testkit::world::{NAMESPACE, World};

pub(crate) const AUTHENTICATIONS: (&str, &str) = ("security.istio.io/v1", "requestauthentications");
pub(crate) const POLICIES: (&str, &str) = ("security.istio.io/v1", "authorizationpolicies");

/// Returns the CRDs of Istio's policies, which the embedded cluster does not use.
pub(crate) fn definitions() -> String {
    let definition = |(kind, (_, plural)): (&str, (&str, &str))| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let group = "security.istio.io";
        let names = json!({"kind": kind, "plural": plural});
        let spec = json!({"group": group, "names": names, "scope": "Namespaced", "versions": [version]});
        let metadata = json!({"name": format!("{plural}.{group}")});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec,
        })
        .to_string()
    };
    [("RequestAuthentication", AUTHENTICATIONS), ("AuthorizationPolicy", POLICIES)].map(definition).join("\n---\n")
}

/// Makes a Service select pods with this label.
fn select(world: &World, app: &str) {
    let labels = json!({"spec": {"selector": {"app": app}}});
    world.edit("v1", "services", "my-function", labels);
}

/// Sets labels of the namespace.
pub(crate) fn label_namespace(world: &World, labels: Value) {
    let patch = Action::Patch(Form::Merge, json!({"metadata": {"labels": labels}}));
    world.try_as("kubectl", Call::new("v1", "namespaces", "", NAMESPACE, patch)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_check_tokens_with_istio_alone() {
    let mut world = world_with(&[SERVICES, AUTHENTICATIONS, POLICIES]).await;
    label_namespace(&world, json!({"istio-injection": null}));
    world.service(NAMESPACE, "my-function", loopback());
    world.start();
    let jwt = json!({"trusted_issuers": ["https://issuer.example.com"], "required_scope": ["read"]});
    let open = || path("/open", &["GET"], "noop", json!({}));
    let closed = || path("/closed", &["GET"], "jwt", jwt.clone());
    world.api_rule(with_rules(json!([open(), closed()])));
    // The route needs proxies that check tokens, and pods.
    let routed = |w: &World| {
        let routes = w.all(SERVICES).pop();
        routes.map_or(0, |route| route["spec"]["http"].as_array().unwrap().len())
    };
    let why = "False AuthNotSupported: .spec.rules[1] is not routed: Istio without Oathkeeper cannot check what it asks for (jwt): ";
    world.rule_is("ERROR OK ERROR", &format!("{why}pods of this namespace get no proxy of Istio")).await;
    label_namespace(&world, json!({"istio-injection": "enabled"}));
    world.rule_is("ERROR OK ERROR", &format!("{why}its Service does not exist, or selects no pods")).await;
    assert_eq!((routed(&world), world.all(POLICIES).len()), (1, 0));
    world.gate.record();
    select(&world, "a");
    world.rule_is(SERVED.0, SERVED.1).await;
    assert_eq!(routed(&world), 2);
    let written = |w: &World, verb: &str, plural: &str| {
        let is = |asked: &str| asked.starts_with(verb) && asked.contains(plural);
        w.gate.heard().iter().position(|heard| is(&heard.asked)).unwrap()
    };
    assert!(written(&world, "PATCH", "/authorizationpolicies/") < written(&world, "PATCH", "/virtualservices/"));
    let selects = |w: &World, app: &str| {
        let is = |kind| w.all(kind).iter().all(|one| one["spec"]["selector"] == json!({"matchLabels": {"app": app}}));
        (w.all(AUTHENTICATIONS).len(), w.all(POLICIES).len()) == (1, 1) && is(AUTHENTICATIONS) && is(POLICIES)
    };
    assert!(selects(&world, "a"));
    let policy = world.all(POLICIES).pop().unwrap();
    assert_eq!((&policy["spec"]["action"], policy["spec"]["rules"].as_array().unwrap().len()), (&json!("DENY"), 3));

    // Policies are deleted after the route, which also owns them.
    let owners = |w: &World| {
        let policy = w.all(POLICIES).pop().unwrap();
        let owners = policy["metadata"]["ownerReferences"].as_array().unwrap();
        owners.iter().map(|owner| owner["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    world.until("the route is an owner", |w| owners(w) == ["APIRule", "VirtualService"]).await;
    world.quiet().await;
    let before = world.requests();
    world.quiet().await;
    assert_eq!(world.requests(), before, "nothing is asked while nothing changes");

    // Manual changes are reverted, and policies follow the pods.
    world.edit(POLICIES.0, POLICIES.1, &name(&policy), json!({"spec": {"action": "ALLOW"}}));
    world.until("it denies again", |w| w.all(POLICIES)[0]["spec"]["action"] == "DENY").await;
    world.delete(AUTHENTICATIONS.0, AUTHENTICATIONS.1, &name(&world.all(AUTHENTICATIONS)[0]));
    select(&world, "b");
    world.until("they are for the pods", |w| selects(w, "b")).await;

    // An open path might match the same requests.
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "noop", json!({})), closed()]}));
    let meets = "False AuthNotSupported: .spec.rules[0] is not routed: it may match the same requests as \
                 .spec.rules[1], which asks for a token";
    world.rule_is("ERROR OK ERROR", meets).await;
    world.change_rule(json!({"rules": [open(), closed()]}));
    world.rule_is(SERVED.0, SERVED.1).await;

    // Without proxies, paths with checks are not routed.
    world.gate.record();
    label_namespace(&world, json!({"istio-injection": null}));
    world.rule_is("ERROR OK ERROR", why).await;
    let is_closed = |w: &World| routed(w) == 1 && w.all(POLICIES).is_empty() && w.all(AUTHENTICATIONS).is_empty();
    world.until("only the open path is left", is_closed).await;
    assert!(written(&world, "PATCH", "/virtualservices/") < written(&world, "DELETE", "/authorizationpolicies/"));
    label_namespace(&world, json!({"istio-injection": "enabled"}));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.delete(API, "apirules", "my-function");
    let is_gone = |w: &World| routed(w) == 0 && w.all(POLICIES).is_empty() && w.all(AUTHENTICATIONS).is_empty();
    world.until("all of it goes with the APIRule", is_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_whose_policy_is_away_is_not_routed_until_it_is_back() {
    let mut world = world_with(&[SERVICES, AUTHENTICATIONS, POLICIES]).await;
    world.service(NAMESPACE, "my-function", loopback());
    select(&world, "a");
    label_namespace(&world, json!({"istio-injection": "enabled"}));
    world.start();
    let jwt = json!({"trusted_issuers": ["https://issuer.example.com"]});
    let rules =
        |closed: &str| json!([path("/open", &["GET"], "noop", json!({})), path(closed, &["GET"], "jwt", jwt.clone())]);
    world.api_rule(with_rules(rules("/closed")));
    world.rule_is(SERVED.0, SERVED.1).await;
    let routed = |w: &World| w.all(SERVICES)[0]["spec"]["http"].as_array().unwrap().len();
    assert_eq!(routed(&world), 2);

    // The revert is refused.
    refuse(&world, "apply", POLICIES.1, 403);
    world.delete(POLICIES.0, POLICIES.1, &name(&world.all(POLICIES)[0]));
    world.until("only the open path is routed", |w| routed(w) == 1).await;
    world.rule_is("ERROR ERROR ERROR", "False ApplyFailed").await;
    let said = world.rule_said(NAMESPACE, "my-function").1;
    assert!(said.contains("; until then, no path that asks for a token is routed"), "{said}");
    let within = Duration::from_secs(10);
    let is_quiet = tokio::time::timeout(within, world.quiet()).await.is_ok();
    assert!(is_quiet, "it is tried again and again: {:?}", world.requests());
    world.levers().clear_faults();
    world.change_rule(json!({"rules": rules("/other")}));
    world.rule_is(SERVED.0, SERVED.1).await;
    assert_eq!((routed(&world), world.all(POLICIES).len()), (2, 1));

    // The policy is deleted repeatedly, so reverts are delayed.
    let mut was_held = false;
    for _ in 0..30 {
        world.until("it is there", |w| w.all(POLICIES).len() == 1).await;
        world.delete(POLICIES.0, POLICIES.1, &name(&world.all(POLICIES)[0]));
        world.until("it is back, or its path is not routed", |w| w.all(POLICIES).len() == 1 || routed(w) == 1).await;
        was_held |= world.all(POLICIES).is_empty() && routed(&world) == 1;
        if was_held {
            break;
        }
    }
    assert!(was_held, "reverting it was never put off");
    // The earlier status may still be there.
    world.until("it is back, and its path is routed", |w| w.all(POLICIES).len() == 1 && routed(w) == 2).await;
    world.rule_is(SERVED.0, SERVED.1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_may_not_be_read_is_asked_for_a_few_times_in_a_minute() {
    let mut world = world_with(&[SERVICES, AUTHENTICATIONS, POLICIES]).await;
    world.service(NAMESPACE, "my-function", loopback());
    select(&world, "a");
    label_namespace(&world, json!({"istio-injection": "enabled"}));
    // The message differs every time. The status must not, because its write causes a reconcile.
    refuse(&world, "get", "services", 500);
    world.start();
    let jwt = json!({"trusted_issuers": ["https://issuer.example.com"]});
    // The time is taken before the first request, because the response may be observed late.
    let began = Instant::now();
    world.api_rule(with_rules(json!([path("/closed", &["GET"], "jwt", jwt)])));
    let asked = |w: &World| w.requests().iter().find(|(what, _)| what == "get services").map_or(0, |(_, count)| *count);
    world.rule_is_said("Unknown ClusterUnavailable").await;
    world.until("it was asked for once more", |w| asked(w) >= 2).await;
    // At least 5 s, with 10 % jitter.
    assert!(began.elapsed() > Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(world.all(SERVICES).is_empty());
    world.levers().clear_faults();
    world.rule_is(SERVED.0, SERVED.1).await;
    label_namespace(&world, json!({"istio-injection": null}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_not_wanted_any_more_does_not_answer_for_one_that_cannot_be_read() {
    let mut world = world_with(&[SERVICES, AUTHENTICATIONS, POLICIES]).await;
    for name in ["my-function", "other"] {
        world.service(NAMESPACE, name, loopback());
    }
    label_namespace(&world, json!({"istio-injection": "enabled"}));
    refuse(&world, "get", "services", 500);
    world.start();
    let jwt = json!({"trusted_issuers": ["https://issuer.example.com"]});
    world.api_rule(with_rules(json!([path("/closed", &["GET"], "jwt", jwt)])));
    let unread = |name: &str| format!("Unknown ClusterUnavailable: could not read Service {NAMESPACE}/{name}: ");
    world.rule_is_said(&unread("my-function")).await;
    world.change_rule(json!({"service": {"name": "other"}}));
    world.rule_is_said(&unread("other")).await;
    world.levers().clear_faults();
    label_namespace(&world, json!({"istio-injection": null}));
}
