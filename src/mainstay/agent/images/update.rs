//! The task of one ImageUpdateAutomation: waits for changes, has `update_branch` compare and push, and writes the status.
//!
//! Invariant: nothing is pushed without a Secret that the ImageUpdateAutomation itself names. The credentials of the
//! GitRepository are used to read only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::context::{AGAIN, Context, FAR};
use super::report::Reporter;
use super::update_refspec::Destination;
use super::update_remotes::{Remotes, UpdateSecrets};
use super::update_spec::{Update, selects, update};
use crate::agent::kept::Name;
use crate::agent::own_kinds::{Object, Running, State};
use crate::agent::own_tasks::{Begun, Followed, MOST};
use mainstay_api::conditions::Reason;
use mainstay_api::image_policy::ChosenImage;
use mainstay_api::{ImagePolicySpec, ImageUpdateAutomation, ImageUpdateAutomationSpec, ImageUpdateAutomationStatus};
use mainstay_cluster::Kind;
use mainstay_cluster::secrets::{Purpose, Referrer, SecretReferences as _};
use mainstay_git::{Commit, CommitSigner, Consumer, ConsumerKind, Followed as FollowedRemote, Remote, Source, TreeId};
use mainstay_object::Owner;
use mainstay_object::failure::Backoff;

/// Time for which changes of choices are collected into one commit.
const COLLECTED: Duration = Duration::from_secs(2);

/// Delays after failed updates. A push may be refused for ever, such as one for a review that is closed.
const REFUSED: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(300));

/// The choices by the names of their ImagePolicies.
pub(super) type Chosen = BTreeMap<String, ChosenImage>;

impl Followed for ImageUpdateAutomationSpec {
    type Context = Context;
    const REFERRER: Option<Referrer> = Some(Referrer::ImageUpdateAutomation);

    fn kind() -> Kind {
        Kind::of::<ImageUpdateAutomation>()
    }

    fn owner(namespace: &str, name: &str) -> Owner {
        Owner::image_update_automation(namespace, name)
    }

    fn references(&self) -> Vec<(String, Purpose)> {
        self.secret_references()
    }

    fn set_all(context: &Context, _: &BTreeMap<Name, Running<Self>>) {
        context.set_listed::<Self>();
    }

    async fn run(context: Arc<Context>, begun: Begun, input: watch::Receiver<Object<Self>>) {
        Task::new(context, begun).run(input).await;
    }
}

pub(super) struct Task {
    context: Arc<Context>,
    pub(super) source: Source,
    pub(super) begun: Begun,
    reporter: Reporter,
    consumer: Consumer,
    secrets: UpdateSecrets,
    /// The status as last written.
    pub(super) written: ImageUpdateAutomationStatus,
    /// The status to write.
    pub(super) new: ImageUpdateAutomationStatus,
    /// The commit, the directory and the choices that were last compared without a difference, or whose difference was
    /// pushed for a review.
    pub(super) done: Option<(Commit, Option<TreeId>, Chosen)>,
    /// The generation of `done`.
    pub(super) generation: Option<i64>,
    /// The choices of the last turn.
    pub(super) used: Chosen,
    /// Number of consecutive failed updates.
    failures: u32,
    /// The state after the last turn.
    state: Option<State>,
}

/// The facts of one turn.
pub(super) struct Turn<'a> {
    pub(super) update: &'a Update,
    pub(super) remotes: &'a Remotes,
    pub(super) signer: Option<Arc<CommitSigner>>,
    /// The values of the message.
    pub(super) values: &'a BTreeMap<String, String>,
    pub(super) generation: Option<i64>,
}

impl Task {
    fn new(context: Arc<Context>, begun: Begun) -> Self {
        let written: ImageUpdateAutomationStatus = serde_json::from_value(begun.status.clone()).unwrap_or_default();
        let reporter = Reporter::new::<ImageUpdateAutomationSpec>(&context, &begun.name);
        let source = context.source.for_namespace(&begun.name.0);
        let own = format!("{}/{}", begun.name.1, begun.number);
        let consumer = Consumer::new(ConsumerKind::ImageUpdateAutomation, &begun.name.0, &own);
        let (secrets, new) = (UpdateSecrets::default(), written.clone());
        let (done, generation, used, state) = (None, None, Chosen::new(), None);
        Self {
            context,
            source,
            begun,
            reporter,
            consumer,
            secrets,
            written,
            new,
            done,
            generation,
            used,
            failures: 0,
            state,
        }
    }

    async fn run(mut self, mut input: watch::Receiver<Object<ImageUpdateAutomationSpec>>) {
        let mut pushed = self.source.pushes().subscribe(&self.consumer);
        let (mut choices, mut repositories) = (self.context.choices.listen(), self.context.repositories.listen());
        let context = Arc::clone(&self.context);
        if !context.are_listed::<ImagePolicySpec, _>(&mut input).await {
            return self.leave();
        }
        while context.repositories.unknown().is_some() {
            tokio::select! {
                _ = repositories.changed() => {}
                changed = input.changed() => if changed.is_err() { return self.leave() },
            }
        }
        loop {
            let object = input.borrow_and_update().clone();
            let repository = self.repository(&object);
            repositories.mark_unchanged();
            let mut due = Instant::now() + self.turn(&object).await;
            loop {
                tokio::select! {
                    changed = input.changed() => if changed.is_err() { return self.leave() } else { break },
                    _ = choices.changed() => {
                        if self.chosen(&object) != self.used {
                            due = due.min(Instant::now() + COLLECTED);
                        }
                    }
                    _ = repositories.changed() => if self.repository(&object) != repository { break },
                    () = self.secrets.changed() => break,
                    () = self.reporter.refusals().passed() => self.settle(&object).await,
                    // A Receiver got a delivery.
                    _ = pushed.changed() => due = pushed.take().map_or(due, |pushed| due.min(pushed.at.into())),
                    () = sleep_until(due) => break,
                }
            }
        }
    }

    fn leave(&self) {
        self.source.set_remote(&self.consumer, None);
        self.source.pushes().remove(&self.consumer);
    }

    /// Returns uid and generation of the GitRepository, which change with it.
    fn repository(&self, object: &Object<ImageUpdateAutomationSpec>) -> Option<(Option<String>, Option<i64>)> {
        let found = self.context.repositories.get(&self.begun.name.0, &object.spec.source_ref.name)?;
        Some((found.metadata.uid.clone(), found.metadata.generation))
    }

    fn chosen(&self, object: &Object<ImageUpdateAutomationSpec>) -> Chosen {
        let selector = object.spec.policy_selector.as_ref();
        self.context.choices.of(&self.begun.name.0, |labels| selects(selector, labels))
    }

    /// Updates the branch, and writes the status. Returns the time until the next turn.
    async fn turn(&mut self, object: &Object<ImageUpdateAutomationSpec>) -> Duration {
        self.used = self.chosen(object);
        if self.generation != object.generation {
            // Another directory or destination makes another difference.
            (self.done, self.generation, self.failures) = (None, object.generation, 0);
        }
        let (state, wait) = match self.attempt(&object.spec).await {
            Ok((message, wait)) => (State::ready(Reason::ImagesUpdated, message), wait),
            Err((state, wait)) => (state, wait),
        };
        self.state = Some(state);
        self.settle(object).await;
        wait
    }

    async fn attempt(&mut self, spec: &ImageUpdateAutomationSpec) -> Result<(String, Duration), (State, Duration)> {
        let (namespace, name) = self.begun.name.clone();
        if spec.suspend {
            return Err((State::not_ready(Reason::Suspended, "suspended: nothing is pushed"), FAR));
        }
        if !self.begun.fits {
            let why =
                format!("this namespace has {MOST} ImageUpdateAutomations, and the agent keeps no more; delete one");
            return Err((State::not_ready(Reason::MemoryExhausted, why), FAR));
        }
        let update = update(&namespace, &name, spec).map_err(|why| (State::invalid(Reason::SpecInvalid, &why), FAR))?;
        let Some(secret) = &update.secret else {
            let why = "spec.git.push.secretRef: names no Secret with write access, so nothing is pushed; the credentials of the GitRepository are used to read only";
            return Err((State::not_ready(Reason::PushDisabled, why), FAR));
        };
        let failed_wait = update.interval.min(AGAIN);
        let Some(repository) = self.context.repositories.get(&namespace, &update.repository) else {
            let why = format!("GitRepository {} does not exist in this namespace", update.repository);
            return Err((State::not_ready(Reason::SourceNotFound, why), FAR));
        };
        let remotes = self.secrets.remotes(&self.context, &namespace, &repository, secret).await;
        let remotes = remotes.map_err(|state| (state, failed_wait))?;
        let signer = self.secrets.signer(&self.context, &namespace, update.signing.as_ref()).await;
        let signer = signer.map_err(|state| (state, failed_wait))?;
        if remotes.read.verification.is_some() && signer.is_none() {
            let why = "requires signed commits (spec.verify); name a key in spec.git.commit.signingKey.secretRef";
            let why = format!("GitRepository {}: {why}", update.repository);
            return Err((State::not_ready(Reason::SpecInvalid, why), failed_wait));
        }
        self.source.set_remote(&self.consumer, Some(&remotes.read));
        let followed = FollowedRemote {
            repository: update.repository.clone(),
            url: remotes.read.url.clone(),
            reference: update.read.clone(),
        };
        self.source.pushes().set(&self.consumer, Some(followed));
        let values = spec_values(spec);
        let generation = self.generation;
        let turn = Turn { update: &update, remotes: &remotes, signer, values: &values, generation };
        match self.advance(&turn).await {
            Ok(branch) => {
                self.failures = 0;
                Ok((self.message(&update, &branch), update.interval))
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                let wait = REFUSED.jittered(self.failures, fastrand::f64()).max(failed_wait);
                Err((State::not_ready(Reason::UpdateFailed, why), wait))
            }
        }
    }

    /// Returns the message of a successful turn.
    fn message(&self, update: &Update, branch: &str) -> String {
        let count = self.used.len();
        let policies = if count == 1 { "ImagePolicy" } else { "ImagePolicies" };
        let mut message = format!("the branch {branch} agrees with {count} {policies}");
        if let Destination::Review(reference) = &update.destination {
            message += &format!(", or {reference} got a commit that makes it agree");
        }
        if let Some(commit) = &self.new.last_push_commit {
            message += &format!("; last push: {}", commit.get(..12).unwrap_or(commit));
        }
        message
    }

    /// Wakes the GitSyncs that follow the repository.
    pub(super) fn wake(&self, read: &Remote) {
        let is_meant = |consumer: &Consumer, followed: &FollowedRemote| {
            consumer.kind == ConsumerKind::GitSync && followed.url == read.url
        };
        self.source.pushes().wake(is_meant, Instant::now().into_std());
    }

    /// Writes the status of the last turn if it changed.
    async fn settle(&mut self, object: &Object<ImageUpdateAutomationSpec>) {
        let Some(state) = &self.state else { return };
        self.new.observed_generation = object.generation;
        self.new.conditions = state.conditions(&self.written.conditions, object.generation, Timestamp::now());
        if self.new == self.written {
            return self.reporter.unchanged();
        }
        let mut status = json!(self.new);
        // A merge patch keeps what it does not name.
        let gone = self.written.observed_policies.keys().filter(|name| !self.new.observed_policies.contains_key(*name));
        for name in gone {
            status["observedPolicies"][name] = Value::Null;
        }
        for (name, image) in &self.new.observed_policies {
            if image.digest.is_none() {
                status["observedPolicies"][name]["digest"] = Value::Null;
            }
        }
        if self.reporter.write(&status, &self.written.conditions, state).await {
            self.written = self.new.clone();
        }
    }
}

/// Returns the values of the message.
fn spec_values(spec: &ImageUpdateAutomationSpec) -> BTreeMap<String, String> {
    spec.git.as_ref().map(|git| git.commit.message_template_values.clone()).unwrap_or_default()
}
