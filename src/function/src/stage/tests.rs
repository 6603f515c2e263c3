//! Tests of the stages: decisions from observations, without a cluster.

mod base_images;
mod build;
mod failures;
mod held_up;
mod kaniko;
mod knative;
mod serving;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::build_queue::Admission;
use crate::child_kind::ChildKind;
use crate::child_set::Children;
use crate::child_state::{self, ChildIdentity};
use crate::knative_presence::Presence;
use crate::refusals::{RefusalCause, RefusedWrite, Write};
use crate::registry::Transport;
use crate::{Credentials, Settings, resolve, tag};
use mainstay_api::Function;
use mainstay_api::function::FunctionStatus;
use mainstay_api::function_conditions::{self, Reason, Status, Type};
use mainstay_object::{Digest, Key};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A Function and its observed state.
struct Case {
    function: Function,
    children: Children,
    status: FunctionStatus,
    state: ReconcileState,
    admission: Admission,
    /// Whether the Function's held-up build has to yield.
    must_yield: bool,
    knative: Presence,
    /// Whether an autoscaler may scale the Deployment to zero.
    may_rest: bool,
    settings: Settings,
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
            children: Children::default(),
            status: FunctionStatus::default(),
            state: ReconcileState::default(),
            admission: Admission::Admitted,
            must_yield: false,
            knative: Presence::Unknown,
            may_rest: false,
            settings: Settings {
                base_images: [("*".to_owned(), crate::BaseImage::Scratch)].into(),
                ..Settings::default()
            },
            now: "2026-01-01T00:10:00Z".parse().unwrap(),
        }
    }

    /// Returns the decision while no child is managed yet.
    fn decide(&self) -> Decision {
        self.decide_with(&|_| None)
    }

    /// Returns the decision with the given managed objects.
    fn decide_with(&self, kept: &dyn Fn(&Key) -> Option<Digest>) -> Decision {
        let settings = &self.settings;
        let spec = resolve(&self.function, settings, &Credentials::new(settings, [])).unwrap();
        let recipe = tag::recipe(&spec, None, &settings.platform, tag::resolved_since(&spec.base, settings, self.now));
        let repository = Repository {
            push: "r/default-hello".into(),
            pull: "p/default-hello".into(),
            secret: "s".into(),
            transport: Transport::default(),
            no_pull: None,
            is_limited: false,
        };
        let resolved = Resolved { function: &spec, recipe: &recipe, repository: &repository, git: None, settings };
        let observed = Observed {
            children: &self.children,
            status: &self.status,
            kept,
            may_rest: &|_| self.may_rest,
            knative: &self.knative,
            admission: self.admission,
            must_yield: &|_| self.must_yield,
            state: &self.state,
        };
        decide(&resolved, &observed, self.now)
    }

    fn tag(&self) -> String {
        let settings = &self.settings;
        let spec = resolve(&self.function, settings, &Credentials::new(settings, [])).unwrap();
        tag::recipe(&spec, None, &settings.platform, tag::resolved_since(&spec.base, settings, self.now)).tag
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
        self.children.jobs.push(child_state::job(&job));
        self
    }

    fn pod(&mut self, job: &str, status: Value) -> &mut Self {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "uid": job, "controller": true});
        let pod = json!({"metadata": {"name": format!("{job}-x"), "ownerReferences": [owner]}, "status": status});
        self.children.pods.push(child_state::pod(&pod));
        self
    }

    fn deployment(&mut self, generation: i64, observed: i64, conditions: Value) -> &mut Self {
        let deployment = json!({
            "metadata": {"name": "hello-abcde", "uid": "d", "generation": generation},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": "p/default-hello:t@sha256:1"}]}}},
            "status": {"observedGeneration": observed, "conditions": conditions},
        });
        self.children.deployments.push(child_state::deployment(&deployment));
        self
    }
}

/// Returns the decision in short form.
fn words(decision: &Decision) -> Vec<String> {
    let word = |step: &Step| match step {
        Step::SetCondition(message) | Step::SetConditionUnlessWritten(message) => {
            format!("{:?} {:?}", message.status, message.reason)
        }
        Step::ConfirmCondition(kind) => format!("affirm {kind:?}"),
        Step::Put(put) => format!("put {:?}", put.child_kind),
        Step::Refused(_) => "refused".to_owned(),
        Step::Delete { child_kind, identity } => format!("delete {child_kind:?} {}", identity.name),
        Step::HandOver { replicas, .. } => format!("hand over {replicas}"),
        Step::GiveAddress { knative, .. } => format!("give {}", knative.name),
        Step::TakeAddress { name, .. } => format!("take {name}"),
        Step::CleanUp { knative } => format!("clean up {}", knative.name),
        Step::Suspend { identity, suspension: Some(_) } => format!("suspend {}", identity.name),
        Step::Suspend { identity, suspension: None } => format!("resume {}", identity.name),
    };
    decision.steps.iter().map(word).collect()
}

fn message(decision: &Decision, reason: Reason) -> String {
    let message = decision.steps.iter().find_map(|step| match step {
        Step::SetCondition(message) | Step::SetConditionUnlessWritten(message) if message.reason == reason => {
            Some(message.message.clone())
        }
        _ => None,
    });
    message.unwrap_or_else(|| panic!("{reason:?} is not said: {:?}", words(decision)))
}

fn retry(job: &str, cause: RetryCause) -> RetryNow {
    RetryNow { job: job.to_owned(), cause }
}

fn ended(kind: &str, reason: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "reason": reason, "message": "m"}]})
}

fn terminated(container: &str, code: i64, message: &str) -> Value {
    let terminated = json!({"exitCode": code, "reason": "Error", "message": message});
    let statuses = json!([{"name": container, "state": {"terminated": terminated}}]);
    json!({"phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": statuses})
}

#[test]
fn a_new_function_gets_a_config_map_and_a_job_and_nothing_that_serves() {
    let decision = Case::new().decide();
    assert_eq!(words(&decision), ["put ConfigMap", "True ConfigMapUpdated", "put Job"]);
    assert_eq!(decision.record.building.as_ref().map(|(_, attempt)| *attempt), Some(1));
}

#[test]
fn obsolete_children_are_deleted_and_an_older_child_is_adopted() {
    let mut case = Case::new();
    let identity = |name: &str| ChildIdentity { name: name.into(), uid: name.into(), ..ChildIdentity::default() };
    case.children.config_maps = vec![identity("hello-old1"), identity("hello-old2")];
    case.children.services = vec![identity("other")];
    case.children.autoscalers = vec![identity("hello-hpa")];
    let all = words(&case.decide());
    assert_eq!(all[0], "delete ConfigMap hello-old2", "one is kept under the name that it has");
    assert!(all.contains(&"delete Service other".to_owned()), "{all:?}");
    assert!(all.contains(&"delete Autoscaler hello-hpa".to_owned()), "{all:?}");
}

/// Returns a write that is refused at every attempt with this message.
fn refused(case: &Case, child_kind: ChildKind, text: &str) -> RefusedWrite {
    let decision = case.decide();
    let step =
        decision.steps.iter().find(|step| matches!(step, Step::Put(put) if put.child_kind == child_kind)).unwrap();
    let write = Write::of(step, "default").unwrap();
    let message = ConditionUpdate::new(Type::BuildReady, Status::False, Reason::ApplyFailed, text);
    RefusedWrite::after(None, write, RefusalCause::foreign(), Some(message), (case.now, Duration::from_secs(60), 0.5))
}

#[test]
fn a_refused_config_map_ends_the_reconcile_before_anything_is_recorded() {
    let mut case = Case::new();
    case.state.refused = Some(refused(&case, ChildKind::ConfigMap, "no"));
    let decision = case.decide();
    assert_eq!(words(&decision), ["refused"]);
    assert_eq!(decision.record.building, None);
}
