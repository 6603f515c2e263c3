//! What is to be done next for a Function: the table of its stages, and what drives it.
//!
//! A pass goes through the stages in order: source, build, Deployment, Service, autoscaler, and whether it runs. Each
//! adds to the decision what is to be written and what is to be said; several children may be written in one pass.
//!
//! Invariant: the Deployment is not touched before the image that it is to run is built.
//! Invariant: only what the Function controls is deleted, and only by its UID.
//!
//! Deliberately absent: what a refused write means; `perform` says it, and the next pass decides again.

mod build;
mod serving;
mod source;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::build_queue::Turn;
use super::facts::{Identity, Job};
use super::family::{Family, What};
use super::git::{Access, Tree};
use super::refusals::{Refused, Write};
use super::tag::Recipe;
use super::{ResolvedFunction, Settings, children};
use crate::api::function::{Built, FunctionStatus};
use crate::api::function_conditions::{self, Reason, Status, Type};
use crate::api::names::MANAGED_BY;
use crate::drift::{Desired, Mark, Standing};
use crate::object::{Digest, Key, Object, Place};

/// Where the images of a Function are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Where builds push to, without a tag.
    pub push: String,
    /// Where nodes pull from, without a tag.
    pub pull: String,
    /// The Secret with the credentials.
    pub secret: String,
}

/// What a Function must become, with everything that had to be looked up.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The Function.
    pub function: &'a ResolvedFunction,
    /// What its image is built from.
    pub recipe: &'a Recipe,
    /// Where its images are.
    pub repository: &'a Repository,
    /// Its source in Git.
    pub git: Option<(&'a Tree, &'a Access)>,
    /// What the operator decides.
    pub settings: &'a Settings,
}

/// What is known of a Function and its children.
pub struct Observed<'a> {
    /// The children that are there.
    pub family: &'a Family,
    /// What was last said.
    pub status: &'a FunctionStatus,
    /// The document that an object is kept at, if it is kept.
    pub kept: &'a dyn Fn(&Key) -> Option<Digest>,
    /// Takes part in the queue of builds.
    pub turn: &'a dyn Fn() -> Turn,
    /// What is remembered from one pass to the next.
    pub memory: &'a Memory,
}

/// What is remembered from one pass to the next. A new agent begins without it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// When the position in the queue was last told.
    pub queue_told: Option<Timestamp>,
    /// When a Job was first seen complete without its report.
    pub report_awaited: Option<(String, Timestamp)>,
    /// The last trouble of a Job's pods, which are gone when the Job's deadline is over.
    pub trouble: Option<(String, String)>,
    /// The Job whose inputs or credentials have changed since it failed or began: it is followed by another one as soon
    /// as it has failed or does nothing.
    pub retry_now: Option<String>,
    /// Tag of an image, and why the last build of it failed, as it is said while it is tried again.
    pub failed: Option<(String, String)>,
    /// The write that was refused the last time.
    pub refused: Option<Refused>,
}

/// Something that is said of a Function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// About what.
    pub condition: Type,
    /// Whether it is so.
    pub status: Status,
    /// Why.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// Whether it is about what an earlier generation asked for.
    pub outdated: bool,
    /// Whether it is something that was just done: it is news even when the same was said before.
    pub done: bool,
}

impl Said {
    /// One of them.
    pub fn new(condition: Type, status: Status, reason: Reason, message: impl Into<String>) -> Self {
        Self { condition, status, reason, message: message.into(), outdated: false, done: false }
    }
}

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Step {
    /// Something is known.
    Say(Said),
    /// What was last said of this condition is still so.
    Affirm(Type),
    /// Something is known, unless a write of this pass has just changed it.
    SayUnlessChanged(Said),
    /// An object is to be as its document says.
    Put(Box<Put>),
    /// An object has to go.
    Delete {
        /// Its kind.
        what: What,
        /// Which one.
        identity: Identity,
    },
    /// A write was refused and is not tried again yet: nothing can follow.
    Refused(Option<Said>),
    /// The number of pods is handed over to an autoscaler.
    HandOver {
        /// Name of the Deployment.
        deployment: String,
        /// Number of pods now.
        replicas: i64,
    },
}

/// An object is to be as its document says.
#[derive(Clone, Debug)]
pub struct Put {
    /// Its kind.
    pub what: What,
    /// What it must be.
    pub desired: Arc<Desired>,
    /// Resource version that it is known to have, if it is known to be there and ours.
    pub version: Option<String>,
    /// Its UID, and what an earlier agent applied of it, if that was looked at.
    pub standing: Option<(String, Standing)>,
    /// What it is about.
    pub condition: Type,
    /// What is said when it was created, and when it was changed.
    pub reasons: [Reason; 2],
    /// Whether what it is about is still what an earlier generation asked for.
    pub outdated: bool,
    /// Whether what ran before goes on serving while this is carried out.
    pub serves: bool,
    /// What else is to be said of it once it is done.
    pub note: String,
}

/// What is recorded of builds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The image that is there.
    pub built: Option<Built>,
    /// Tag that is being built, with the attempt.
    pub building: Option<(String, i64)>,
    /// When a failed build is tried again.
    pub retry_at: Option<Timestamp>,
    /// Position in the queue.
    pub queue: Option<usize>,
    /// The image that serves.
    pub image: Option<String>,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Decision {
    /// In this order; the first that fails ends the pass.
    pub steps: Vec<Step>,
    /// What is recorded, also when a step fails.
    pub record: Record,
    /// What is recorded instead when the Job is not created: a build that could not begin is no attempt.
    pub without_job: Option<Box<Record>>,
    /// Whether the Function takes part in the queue.
    pub in_queue: bool,
    /// When to look again although nothing happened.
    pub look_again: Option<Duration>,
    /// What is to be remembered.
    pub memory: Memory,
    /// A Job that runs and has no pod: why is not known yet.
    pub podless: Option<Job>,
    /// The image to run.
    image: Option<Image>,
}

/// An image that was built.
#[derive(Clone, Debug)]
struct Image {
    name: String,
}

/// The stages, in order.
const STAGES: [fn(&Wanted<'_>, &Observed<'_>, Timestamp, &mut Decision); 6] =
    [source::look, build::look, serving::deployment, serving::service, serving::autoscaler, serving::running];

/// What is to be done for a Function now.
pub fn drive(wanted: &Wanted<'_>, observed: &Observed<'_>, now: Timestamp) -> Decision {
    let old = observed.status;
    let mut decision = Decision {
        record: Record { built: old.built.clone(), image: old.image.clone(), ..Record::default() },
        memory: Memory {
            retry_now: observed.memory.retry_now.clone(),
            refused: observed.memory.refused.clone(),
            ..Memory::default()
        },
        ..Decision::default()
    };
    for stage in STAGES {
        stage(wanted, observed, now, &mut decision);
    }
    decision.wait_for_refused(&wanted.function.namespace, now);
    decision
}

impl Decision {
    fn say(&mut self, condition: Type, status: Status, reason: Reason, message: impl Into<String>) {
        self.steps.push(Step::Say(Said::new(condition, status, reason, message)));
    }

    /// Says that something was just done.
    fn done(&mut self, condition: Type, status: Status, reason: Reason, message: impl Into<String>) {
        self.steps.push(Step::Say(Said { done: true, ..Said::new(condition, status, reason, message) }));
    }

    /// Says this of a condition, whatever else was to be said of it.
    pub fn blame(&mut self, mut said: Said) {
        said.outdated |= self.steps.iter().any(|step| match step {
            Step::Say(other) | Step::SayUnlessChanged(other) => other.condition == said.condition && other.outdated,
            _ => false,
        });
        self.steps.retain(|step| match step {
            Step::Say(other) | Step::SayUnlessChanged(other) => other.condition != said.condition,
            Step::Affirm(kind) => *kind != said.condition,
            _ => true,
        });
        self.steps.insert(0, Step::Say(said));
    }

    fn delete(&mut self, what: What, identity: &Identity) {
        if !identity.terminating {
            self.steps.push(Step::Delete { what, identity: identity.clone() });
        }
    }

    /// Ends before the write that was refused and is not to be tried yet.
    fn wait_for_refused(&mut self, namespace: &str, now: Timestamp) {
        let Some(refused) = &self.memory.refused else { return };
        let held = |step: &Step| refused.holds(&Write::of(step, namespace)?, now);
        let Some((at, wait)) = self.steps.iter().enumerate().find_map(|(at, step)| Some((at, held(step)?))) else {
            return;
        };
        let mut said = refused.said().cloned();
        if let Step::Put(put) = &self.steps[at] {
            said = said.map(|said| Said { outdated: put.outdated, ..said });
        }
        self.record = self.record_at(at).clone();
        self.steps.truncate(at);
        // Pods are not handed over before what they are handed over for can be written.
        self.steps.pop_if(|last| matches!(last, Step::HandOver { .. }));
        self.steps.push(Step::Refused(said));
        self.look_within(wait);
    }

    /// What is recorded when the pass ends with the step at this place, without having carried it out.
    pub(super) fn record_at(&self, at: usize) -> &Record {
        let creates_job = |step: &Step| matches!(step, Step::Put(put) if put.what == What::Job);
        let lacks_job = self.steps.iter().skip(at).any(creates_job);
        self.without_job.as_deref().filter(|_| lacks_job).unwrap_or(&self.record)
    }

    fn look_within(&mut self, wait: Duration) {
        self.look_again = Some(self.look_again.map_or(wait, |known| known.min(wait)));
    }

    fn puts(&self, what: What) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Put(put) if put.what == what))
    }
}

impl Observed<'_> {
    /// Whether this was last said of the condition.
    fn says(&self, condition: Type, status: Status, reason: Reason) -> bool {
        let said = function_conditions::find(&self.status.conditions, condition);
        said.is_some_and(|said| said.status == status.as_str() && said.reason == reason.as_str())
    }

    /// Whether the condition was last said to be so.
    fn holds(&self, condition: Type) -> bool {
        let said = function_conditions::find(&self.status.conditions, condition);
        said.is_some_and(|said| said.status == Status::True.as_str())
    }
}

/// A document, as the object that it is to be.
fn desired(what: What, function: &ResolvedFunction, document: &Value) -> Option<Arc<Desired>> {
    let place = Place::file(format!("Function {}/{}", function.namespace, function.name));
    let object = Object::from_value(document, place).ok()?;
    let kind = what.kind();
    let key = kind.key(Some(&function.namespace), &object.key.name);
    let reserved = children::reserved(what);
    let mark = Mark::Controller { uid: function.uid.as_str().into(), watched_by: MANAGED_BY, reserved };
    Some(Arc::new(Desired { key, kind, object: Arc::new(object), mark }))
}

/// Has an object be as its document says; whether there is anything to do.
fn put(
    decision: &mut Decision,
    observed: &Observed<'_>,
    wanted: &Wanted<'_>,
    what: What,
    document: &Value,
    there: &[&Identity],
    said: (Type, [Reason; 2]),
) -> bool {
    let Some(desired) = desired(what, wanted.function, document) else { return false };
    let known = there.iter().find(|identity| *identity.name == *desired.key.name);
    if (observed.kept)(&desired.key) == Some(desired.source()) {
        return false;
    }
    let (condition, reasons) = said;
    let version = known.map(|identity| identity.version.clone());
    let standing = known.and_then(|identity| Some((identity.uid.clone(), identity.standing?)));
    let serves = condition == Type::Running && serving::goes_on(wanted, observed);
    // Without an image it is the old one that serves, whatever is written of the other children.
    let outdated = condition == Type::Running && (serves || decision.image.is_none());
    let put = Put { what, desired, version, standing, condition, reasons, outdated, serves, note: String::new() };
    decision.steps.push(Step::Put(Box::new(put)));
    true
}

/// The one to keep of several: that with the right name, else the first. The others are removed.
fn one_of(decision: &mut Decision, what: What, there: &[&Identity], name: String) -> String {
    let kept = there.iter().find(|identity| identity.name == name).or(there.first());
    let name = kept.map_or(name, |identity| identity.name.clone());
    for other in there.iter().filter(|identity| identity.name != name) {
        decision.delete(what, other);
    }
    name
}
