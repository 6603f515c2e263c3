//! The task of one ImagePolicy: chooses a tag when the tags or the spec change, and writes the status.
//!
//! Invariant: after a failure, the last choice stays. Invariant: a digest is looked up for a new choice, and otherwise
//! only at the interval of `digestReflectionPolicy: Always`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::choice::Chooser;
use super::choices::Choice;
use super::context::{AGAIN, Context, FAR};
use super::report::Reporter;
use super::scans::{Known, Scan};
use crate::agent::kept::Name;
use crate::agent::own_kinds::{Object, Running, State};
use crate::agent::own_tasks::{Begun, Followed, MOST};
use mainstay_api::conditions::Reason;
use mainstay_api::image_policy::{ChosenImage, DigestReflection};
use mainstay_api::image_repository::AccessFrom;
use mainstay_api::{ImagePolicy, ImagePolicySpec, ImagePolicyStatus, ImageRepositorySpec};
use mainstay_cluster::secrets::{Purpose, Referrer};
use mainstay_cluster::{Kind, Scope};
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Minimum and default time between two lookups of a digest.
const SHORTEST: Duration = Duration::from_secs(10);
const USUAL: Duration = Duration::from_secs(600);

impl Followed for ImagePolicySpec {
    type Context = Context;
    const REFERRER: Option<Referrer> = None;

    fn kind() -> Kind {
        Kind::of::<ImagePolicy>()
    }

    fn owner(namespace: &str, name: &str) -> Owner {
        Owner::image_policy(namespace, name)
    }

    fn references(&self) -> Vec<(String, Purpose)> {
        Vec::new()
    }

    fn set_all(context: &Context, _: &BTreeMap<Name, Running<Self>>) {
        context.set_listed::<Self>();
    }

    fn run(
        context: Arc<Context>,
        begun: Begun,
        input: watch::Receiver<Object<Self>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        // The choice of an earlier agent is known before all ImagePolicies are listed.
        let task = Task::new(context, begun);
        task.publish(&input.borrow());
        task.run(input)
    }
}

struct Task {
    context: Arc<Context>,
    begun: Begun,
    reporter: Reporter,
    /// The status as last written.
    written: ImagePolicyStatus,
    /// The last choice.
    chosen: Option<ChosenImage>,
    /// When the digest of the last choice was looked up.
    looked_up: Option<Instant>,
    /// The state after the last turn, and the generation of this turn. A later generation may wait for its first turn.
    state: Option<(State, Option<i64>)>,
}

impl Task {
    fn new(context: Arc<Context>, begun: Begun) -> Self {
        let written: ImagePolicyStatus = serde_json::from_value(begun.status.clone()).unwrap_or_default();
        let reporter = Reporter::new::<ImagePolicySpec>(&context, &begun.name);
        let chosen = written.latest_ref.clone();
        Self { context, begun, reporter, written, chosen, looked_up: None, state: None }
    }

    async fn run(mut self, mut input: watch::Receiver<Object<ImagePolicySpec>>) {
        if !self.context.are_listed::<ImageRepositorySpec, _>(&mut input).await {
            return self.leave();
        }
        loop {
            let of = repository(&self.begun.name.0, &input.borrow().spec);
            let mut scans = self.context.scans.listen(&of);
            let is_gone = loop {
                let object = input.borrow_and_update().clone();
                if repository(&self.begun.name.0, &object.spec) != of {
                    break false;
                }
                let known = scans.borrow_and_update().clone();
                let wait = match known {
                    // The last choice stays until the first listing of a new agent.
                    Known::Pending => FAR,
                    _ => self.turn(&object, &of, &known).await,
                };
                // Tags are not held during the wait.
                drop(known);
                let due = Instant::now() + wait;
                let is_gone = loop {
                    tokio::select! {
                        changed = input.changed() => break changed.is_err(),
                        // The sender lives as long as the row, which has this receiver.
                        _ = scans.changed() => break false,
                        () = self.reporter.refusals().passed() => self.settle().await,
                        () = sleep_until(due) => break false,
                    }
                };
                if is_gone {
                    break true;
                }
            };
            self.context.scans.leave(&of, scans);
            if is_gone {
                return self.leave();
            }
        }
    }

    fn leave(&self) {
        self.context.choices.remove(&self.begun.name, self.begun.number);
    }

    /// Publishes the last choice.
    fn publish(&self, object: &Object<ImagePolicySpec>) {
        match self.chosen.clone() {
            Some(image) => {
                let choice = Choice { number: self.begun.number, labels: object.labels.clone(), image };
                self.context.choices.set(&self.begun.name, choice);
            }
            None => self.leave(),
        }
    }

    /// Chooses, and writes the status. Returns the time until the next turn.
    async fn turn(&mut self, object: &Object<ImagePolicySpec>, of: &Name, known: &Known) -> Duration {
        let (state, wait) = match self.attempt(&object.spec, of, known).await {
            Ok((message, wait)) => (State::ready(Reason::TagChosen, message), wait),
            Err((state, wait)) => (state, wait),
        };
        self.state = Some((state, object.generation));
        self.settle().await;
        self.publish(object);
        wait
    }

    async fn attempt(
        &mut self,
        spec: &ImagePolicySpec,
        of: &Name,
        known: &Known,
    ) -> Result<(String, Duration), (State, Duration)> {
        let lasting = |reason, why: String| (State::not_ready(reason, why), FAR);
        if spec.suspend {
            return Err(lasting(Reason::Suspended, "suspended: nothing is chosen".to_owned()));
        }
        if !self.begun.fits {
            let why = format!("this namespace has {MOST} ImagePolicies, and the agent keeps no more; delete one");
            return Err(lasting(Reason::MemoryExhausted, why));
        }
        let invalid = |problems: Vec<String>| (State::invalid(Reason::SpecInvalid, &problems), FAR);
        let interval = interval(spec).map_err(|why| invalid(vec![why]))?;
        let chooser = Chooser::new(&spec.policy, spec.filter_tags.as_ref()).map_err(invalid)?;
        let (namespace, name) = of;
        // Other namespaces do not learn whether the ImageRepository exists.
        let refused = || {
            let access = if *namespace == self.begun.name.0 {
                String::new()
            } else {
                format!(", or does not permit the namespace {} in spec.accessFrom", self.begun.name.0)
            };
            format!("spec.imageRepositoryRef: the ImageRepository {namespace}/{name} does not exist{access}")
        };
        let scan = match known {
            Known::Read(scan) => scan,
            Known::Unread(why) if *namespace == self.begun.name.0 => {
                return Err(lasting(Reason::ImageFailed, format!("ImageRepository {namespace}/{name}: {why}")));
            }
            Known::Absent | Known::Pending | Known::Unread(_) => {
                return Err(lasting(Reason::SourceNotFound, refused()));
            }
        };
        if *namespace != self.begun.name.0 {
            let permits = self.permits(scan.access_from.as_ref()).await;
            let permits = permits.map_err(|why| (State::not_ready(Reason::ImageFailed, why), AGAIN))?;
            if !permits {
                self.chosen = None;
                let why = refused();
                return Err((State::not_ready(Reason::SourceNotFound, why), USUAL));
            }
        }
        let failed = |why: String| format!("{}: {why}", scan.image);
        let tag = chooser.choose(scan.tags.iter()).map_err(|why| lasting(Reason::ImageFailed, failed(why)))?;
        let wait = self.take(spec, of, scan, tag, interval).await;
        let wait = wait.map_err(|why| (State::not_ready(Reason::ImageFailed, failed(why)), AGAIN))?;
        Ok((format!("chose {}:{tag}", scan.image), wait))
    }

    /// Makes a tag the choice, with its digest if the spec asks for it. Returns the time until the next lookup.
    async fn take(
        &mut self,
        spec: &ImagePolicySpec,
        of: &Name,
        scan: &Scan,
        tag: &str,
        interval: Duration,
    ) -> Result<Duration, String> {
        let same = self.chosen.as_ref().filter(|old| old.name == scan.image && old.tag == tag);
        let known = same.and_then(|old| old.digest.clone());
        let (digest, wait) = match spec.digest_reflection_policy {
            DigestReflection::Never => (None, FAR),
            DigestReflection::IfNotPresent if known.is_some() => (known, FAR),
            DigestReflection::IfNotPresent => (Some(self.digest(of, tag).await?), FAR),
            DigestReflection::Always => {
                let left = self.looked_up.and_then(|at| interval.checked_sub(at.elapsed())).filter(|_| known.is_some());
                if let Some(left) = left.filter(|left| !left.is_zero()) {
                    (known, left)
                } else {
                    let digest = self.digest(of, tag).await?;
                    self.looked_up = Some(Instant::now());
                    (Some(digest), interval)
                }
            }
        };
        self.chosen = Some(ChosenImage { name: scan.image.clone(), tag: tag.to_owned(), digest });
        Ok(wait)
    }

    async fn digest(&self, of: &Name, tag: &str) -> Result<String, String> {
        self.context.scans.digest(of, tag).await.map(|digest| digest.to_string())
    }

    /// Whether an ImageRepository permits the namespace of this policy.
    async fn permits(&self, access: Option<&AccessFrom>) -> Result<bool, String> {
        let selectors = access.map(|access| &*access.namespace_selectors).unwrap_or_default();
        if selectors.is_empty() {
            return Ok(false);
        }
        let kind = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster);
        let live = self.context.cluster.get(&kind, None, &self.begun.name.0).await;
        let live = live.map_err(|error| format!("cannot read the labels of the namespace: {}", chain(&error)))?;
        let labels = live.as_ref().and_then(|live| live.pointer("/metadata/labels")).unwrap_or(&Value::Null);
        let has = |(name, value): (&String, &String)| labels.get(name).and_then(Value::as_str) == Some(value);
        Ok(selectors.iter().any(|selector| selector.match_labels.iter().all(has)))
    }

    /// Writes the status of the last turn if it changed.
    async fn settle(&mut self) {
        let Some((state, generation)) = &self.state else { return };
        let mut new = self.written.clone();
        new.observed_generation = *generation;
        new.conditions = state.conditions(&self.written.conditions, *generation, Timestamp::now());
        if self.chosen != new.latest_ref {
            new.observed_previous_ref = new.latest_ref.take();
            new.latest_ref.clone_from(&self.chosen);
        }
        if new == self.written {
            return self.reporter.unchanged();
        }
        let mut status = json!(new);
        for field in ["latestRef", "observedPreviousRef"] {
            if status.get(field).is_none() {
                status[field] = Value::Null;
            } else if status[field].get("digest").is_none() {
                status[field]["digest"] = Value::Null;
            }
        }
        if self.reporter.write(&status, &self.written.conditions, state).await {
            self.written = new;
        }
    }
}

/// Returns the name of the ImageRepository.
fn repository(own: &str, spec: &ImagePolicySpec) -> Name {
    let named = &spec.image_repository_ref;
    (named.namespace.clone().unwrap_or_else(|| own.to_owned()), named.name.clone())
}

/// Returns the invalid fields of an ImagePolicy.
pub(crate) fn image_policy_problems(spec: &ImagePolicySpec) -> Vec<String> {
    let mut problems = Chooser::new(&spec.policy, spec.filter_tags.as_ref()).err().unwrap_or_default();
    problems.extend(interval(spec).err());
    problems
}

/// Returns the time between two lookups of the digest.
fn interval(spec: &ImagePolicySpec) -> Result<Duration, String> {
    match (spec.interval, spec.digest_reflection_policy) {
        (Some(interval), DigestReflection::Always) if interval.0 < SHORTEST => {
            Err("spec.interval: must be at least 10s".to_owned())
        }
        (Some(interval), DigestReflection::Always) => Ok(interval.0),
        (Some(_), _) => Err("spec.interval: has an effect only with digestReflectionPolicy: Always".to_owned()),
        (None, _) => Ok(USUAL),
    }
}
