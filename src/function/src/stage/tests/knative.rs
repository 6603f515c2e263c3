//! Moves to Knative and back, step by step.

use super::*;
use crate::knative_state::knative_service;

const READY: [&str; 3] = ["True"; 3];

/// Returns a Function with an image and this flavour.
fn case(flavour: &str) -> Case {
    let mut case = Case::new();
    case.function.metadata.labels = Some([("mainstay.dev/serving".to_owned(), flavour.to_owned())].into());
    case.knative = Presence::Present;
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &format!("{{\"digest\": \"{DIGEST}\"}}")));
    case
}

fn identity(name: &str) -> ChildIdentity {
    ChildIdentity { name: name.into(), uid: name.into(), ..ChildIdentity::default() }
}

impl Case {
    /// Adds the Function's Knative Service with the conditions Ready, ConfigurationsReady and RoutesReady, unchanged
    /// since this time on 2026-01-01.
    fn on_knative(&mut self, conditions: [&str; 3], since: &str) -> &mut Self {
        let kinds = ["Ready", "ConfigurationsReady", "RoutesReady"].into_iter();
        let since = format!("2026-01-01T{since}Z");
        let condition = |(kind, status)| json!({"type": kind, "status": status, "lastTransitionTime": since});
        let status = json!({
            "observedGeneration": 1, "url": "http://hello.default.svc.cluster.local",
            "latestCreatedRevisionName": "hello-00002", "latestReadyRevisionName": "hello-00002",
            "conditions": kinds.zip(conditions).map(condition).collect::<Vec<_>>(),
        });
        let service = json!({"metadata": {"name": "hello", "uid": "k", "generation": 1}, "status": status});
        self.children.knative_services = vec![knative_service(&service)];
        self
    }

    /// Adds a Deployment that is rolled out.
    fn on_deployment(&mut self) -> &mut Self {
        self.deployment(
            1,
            1,
            json!([
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            ]),
        )
    }

    /// Returns the remaining steps after all desired objects are applied.
    fn steps(&self) -> Vec<String> {
        let puts = self.decide().steps.into_iter().filter_map(|step| match step {
            Step::Put(put) => Some((put.desired.key.clone(), put.desired.source())),
            _ => None,
        });
        let kept: std::collections::HashMap<_, _> = puts.collect();
        let decision = self.decide_with(&|key| kept.get(key).copied());
        let words = words(&decision).into_iter();
        words.filter(|word| ["give", "take", "delete", "clean"].iter().any(|verb| word.starts_with(verb))).collect()
    }
}

#[test]
fn the_address_is_given_once_a_revision_could_serve_and_the_deployment_goes_half_a_minute_later() {
    let mut case = case("knative");
    case.on_deployment();
    (case.children.services, case.children.autoscalers) = (vec![identity("hello")], vec![identity("hello-x")]);
    assert_eq!(case.on_knative(["Unknown", "Unknown", "Unknown"], "00:09:59").steps(), [""; 0]);
    assert_eq!(case.on_knative(["False", "True", "False"], "00:09:59").steps(), ["give hello"]);
    case.children.services.clear();
    let later = case.on_knative(READY, "00:09:50").steps();
    assert_eq!(later, ["clean up hello"], "some clients still know the old address");
    let gone = ["delete Autoscaler hello-x", "delete Deployment hello-abcde", "clean up hello"];
    assert_eq!(case.on_knative(READY, "00:09:30").steps(), gone);
    assert_eq!(case.on_knative(["True", "True", "True"], "").steps(), gone, "an unknown time is long ago");
    case.knative = Presence::Absent;
    assert_eq!(case.steps(), [""; 0], "nothing is left where Knative is not");
}

#[test]
fn the_address_is_taken_once_the_deployment_serves_and_the_knative_service_goes_when_it_is_ours() {
    let mut case = case("deployment");
    case.status.serving = Some("knative".to_owned());
    case.on_knative(READY, "00:00:00").deployment(1, 1, json!([]));
    assert_eq!(case.steps(), [""; 0], "the Deployment does not serve yet");
    case.children.deployments.clear();
    case.on_deployment();
    assert_eq!(case.steps(), ["take hello"]);
    (case.function.spec.min_replicas, case.function.spec.max_replicas) = (Some(3), Some(4));
    assert_eq!(case.steps(), [""; 0], "it has two pods");
    case.children.deployments[0].replicas = 3;
    assert_eq!(case.steps(), ["take hello"]);
    case.children.services = vec![identity("hello")];
    assert_eq!(case.steps(), ["delete KnativeService hello"]);
}

#[test]
fn revisions_are_looked_at_once_for_each_state_of_their_knative_service() {
    let mut case = case("knative");
    case.on_knative(READY, "00:00:00");
    assert_eq!(case.steps(), ["clean up hello"]);
    case.state.cleaned_up = case.children.knative_services[0].settled();
    assert_eq!(case.steps(), [""; 0]);
    case.children.knative_services[0].routed = "hello-00002".to_owned();
    assert_eq!(case.steps(), ["clean up hello"], "traffic has changed");
    case.on_knative(["True", "Unknown", "True"], "00:00:00").children.knative_services[0].latest_created =
        "x".to_owned();
    assert_eq!(case.steps(), [""; 0], "a newer one is not ready yet");
    case.on_knative(READY, "00:00:00");
    let live = &mut case.children.knative_services[0];
    live.latest_created = "hello-00001".to_owned();
    live.latest_ready = "hello-00001".to_owned();
    assert_eq!(case.steps(), [""; 0], "there is no older one");
}

#[test]
fn the_status_says_that_there_is_a_knative_service_before_there_is_one() {
    let mut case = case("knative");
    let word = "put KnativeService".to_owned();
    let first = case.decide();
    assert!(first.record.has_knative_service && !words(&first).contains(&word), "{:?}", words(&first));
    assert!(first.requeue_after.is_some());
    case.status.serving = Some("knative".to_owned());
    assert!(words(&case.decide()).contains(&word));
}
