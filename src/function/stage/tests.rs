//! Tests of the stages: what is decided for what was observed, without a cluster.

mod build;
mod serving;

use std::cell::Cell;

use serde_json::{Value, json};

use super::*;
use crate::api::Function;
use crate::function::facts;
use crate::function::refusals::Cause;
use crate::function::{resolve, tag};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// One Function in one situation.
struct Case {
    function: Function,
    family: Family,
    status: FunctionStatus,
    memory: Memory,
    turn: Turn,
    now: Timestamp,
}

impl Case {
    fn new() -> Self {
        let function = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
            "metadata": {"name": "hello", "namespace": "default", "uid": "u1", "generation": 1},
            "spec": {"source": "1", "runtime": "nodejs22", "minReplicas": 1, "maxReplicas": 1},
        });
        Self {
            function: serde_json::from_value(function).unwrap(),
            family: Family::default(),
            status: FunctionStatus::default(),
            memory: Memory::default(),
            turn: Turn::Now,
            now: "2026-01-01T00:10:00Z".parse().unwrap(),
        }
    }

    /// The children that are there are kept at any document.
    fn drive(&self) -> Decision {
        let settings = Settings {
            base_images: [("*".to_owned(), crate::function::BaseImage::Scratch)].into(),
            ..Settings::default()
        };
        let resolved = resolve(&self.function, &settings).unwrap();
        let recipe = tag::recipe(&resolved, None, &settings.platform);
        let repository =
            Repository { push: "r/default-hello".into(), pull: "p/default-hello".into(), secret: "s".into() };
        let wanted =
            Wanted { function: &resolved, recipe: &recipe, repository: &repository, git: None, settings: &settings };
        let asked = Cell::new(0);
        let turn = || {
            asked.set(asked.get() + 1);
            self.turn
        };
        let observed =
            Observed { family: &self.family, status: &self.status, kept: &|_| None, turn: &turn, memory: &self.memory };
        let decision = drive(&wanted, &observed, self.now);
        assert_eq!(decision.in_queue, asked.get() > 0, "who asks for a turn takes part in the queue");
        decision
    }

    fn tag(&self) -> String {
        let settings = Settings {
            base_images: [("*".to_owned(), crate::function::BaseImage::Scratch)].into(),
            ..Settings::default()
        };
        let resolved = resolve(&self.function, &settings).unwrap();
        tag::recipe(&resolved, None, &settings.platform).tag
    }

    fn job(&mut self, name: &str, attempt: i64, status: Value) -> &mut Self {
        let image = format!("--image=r/default-hello:{}", self.tag());
        let job = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "resourceVersion": "5",
                "creationTimestamp": "2026-01-01T00:09:59Z",
                "annotations": {
                    "mainstay.dev/build-tag": self.tag(), "mainstay.dev/build-attempt": attempt.to_string(),
                    "mainstay.dev/build-cause": "SOURCE",
                },
            },
            "spec": {"template": {"spec": {"containers": [{"name": "push", "args": [image]}]}}},
            "status": status,
        });
        self.family.jobs.push(facts::job(&job));
        self
    }

    fn pod(&mut self, job: &str, status: Value) -> &mut Self {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "uid": job, "controller": true});
        let pod = json!({"metadata": {"name": format!("{job}-x"), "ownerReferences": [owner]}, "status": status});
        self.family.pods.push(facts::pod(&pod));
        self
    }

    fn deployment(&mut self, generation: i64, observed: i64, conditions: Value) -> &mut Self {
        let deployment = json!({
            "metadata": {"name": "hello-abcde", "uid": "d", "generation": generation},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": "p/default-hello:t@sha256:1"}]}}},
            "status": {"observedGeneration": observed, "conditions": conditions},
        });
        self.family.deployments.push(facts::deployment(&deployment));
        self
    }
}

/// The decision as short words.
fn words(decision: &Decision) -> Vec<String> {
    let word = |step: &Step| match step {
        Step::Say(said) | Step::SayUnlessChanged(said) => format!("{:?} {:?}", said.status, said.reason),
        Step::Affirm(kind) => format!("affirm {kind:?}"),
        Step::Put(put) => format!("put {:?}", put.what),
        Step::Refused(_) => "refused".to_owned(),
        Step::Delete { what, identity } => format!("delete {what:?} {}", identity.name),
        Step::HandOver { replicas, .. } => format!("hand over {replicas}"),
    };
    decision.steps.iter().map(word).collect()
}

fn message(decision: &Decision, reason: Reason) -> String {
    let said = decision.steps.iter().find_map(|step| match step {
        Step::Say(said) | Step::SayUnlessChanged(said) if said.reason == reason => Some(said.message.clone()),
        _ => None,
    });
    said.unwrap_or_else(|| panic!("{reason:?} is not said: {:?}", words(decision)))
}

fn ended(kind: &str, reason: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "reason": reason, "message": "m"}]})
}

fn terminated(container: &str, code: i64, said: &str) -> Value {
    let terminated = json!({"exitCode": code, "reason": "Error", "message": said});
    let statuses = json!([{"name": container, "state": {"terminated": terminated}}]);
    json!({"phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": statuses})
}

#[test]
fn a_new_function_gets_a_config_map_and_a_job_and_nothing_that_serves() {
    let decision = Case::new().drive();
    assert_eq!(words(&decision), ["put ConfigMap", "True ConfigMapUpdated", "put Job"]);
    assert_eq!(decision.record.building.as_ref().map(|(_, attempt)| *attempt), Some(1));
}

#[test]
fn what_is_obsolete_goes_and_an_older_child_is_adopted() {
    let mut case = Case::new();
    let identity = |name: &str| Identity { name: name.into(), uid: name.into(), ..Identity::default() };
    case.family.config_maps = vec![identity("hello-old1"), identity("hello-old2")];
    case.family.services = vec![identity("other")];
    case.family.autoscalers = vec![identity("hello-hpa")];
    let all = words(&case.drive());
    assert_eq!(all[0], "delete ConfigMap hello-old2", "one is kept under the name that it has");
    assert!(all.contains(&"delete Service other".to_owned()), "{all:?}");
    assert!(all.contains(&"delete Autoscaler hello-hpa".to_owned()), "{all:?}");
}

/// A write that is refused at every try, as the server's text has it.
fn refused(case: &Case, what: What, text: &str) -> Refused {
    let decision = case.drive();
    let step = decision.steps.iter().find(|step| matches!(step, Step::Put(put) if put.what == what)).unwrap();
    let write = Write::of(step, "default").unwrap();
    let said = Said::new(Type::BuildReady, Status::False, Reason::ApplyFailed, text);
    Refused::after(None, write, Cause::anothers(), Some(said), (case.now, Duration::from_secs(60), 0.5))
}

#[test]
fn nothing_follows_a_refused_config_map_and_nothing_is_recorded_of_what_would_have() {
    let mut case = Case::new();
    case.memory.refused = Some(refused(&case, What::ConfigMap, "no"));
    let decision = case.drive();
    assert_eq!(words(&decision), ["refused"]);
    assert_eq!(decision.record.building, None);
}
