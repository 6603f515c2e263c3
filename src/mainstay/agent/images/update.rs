//! The task of one ImageUpdateAutomation: compares a branch with the choices of ImagePolicies, and pushes a commit with
//! the missing ones.
//!
//! Invariant: nothing is pushed without a Secret that the ImageUpdateAutomation itself names. The credentials of the
//! GitRepository are used to read only. Invariant: without a change of a file, there is no commit. Nothing is forced.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::context::{AGAIN, Context, FAR};
use super::message::{data, listed};
use super::report::Reporter;
use super::update_files::{Edited, edited};
use super::update_remotes::{Remotes, UpdateSecrets};
use super::update_spec::{Update, selects, update};
use crate::agent::kept::Name;
use crate::agent::own_kinds::{Object, Running, State};
use crate::agent::own_tasks::{Begun, Followed, MOST};
use mainstay_api::conditions::Reason;
use mainstay_api::image_policy::ChosenImage;
use mainstay_api::{ImagePolicySpec, ImageUpdateAutomationSpec, ImageUpdateAutomationStatus};
use mainstay_cluster::secrets::{Purpose, Referrer, SecretReferences as _};
use mainstay_git::{
    Commit, Consumer, ConsumerKind, Fault, Followed as FollowedRemote, NewCommit, Pushed, Reference, Remote,
    ResolvedRef, Source, TreeId,
};
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Time for which changes of choices are collected into one commit.
const COLLECTED: Duration = Duration::from_secs(2);
/// Maximum age of the first lookup of a turn, which other objects may have caused.
const FRESH: Duration = Duration::from_secs(5);
/// Number of attempts while others push to the branch.
const ATTEMPTS: usize = 3;

/// The choices by the names of their ImagePolicies.
type Chosen = BTreeMap<String, ChosenImage>;

impl Followed for ImageUpdateAutomationSpec {
    type Context = Context;
    const KIND: &'static str = "ImageUpdateAutomation";
    const PLURAL: &'static str = "imageupdateautomations";
    const REFERRER: Option<Referrer> = Some(Referrer::ImageUpdateAutomation);

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

struct Task {
    context: Arc<Context>,
    source: Source,
    begun: Begun,
    reporter: Reporter,
    consumer: Consumer,
    secrets: UpdateSecrets,
    /// The status as last written.
    written: ImageUpdateAutomationStatus,
    /// The status to write.
    new: ImageUpdateAutomationStatus,
    /// The commit, the directory and the choices that were last compared without a difference.
    done: Option<(Commit, Option<TreeId>, Chosen)>,
    /// The choices of the last turn.
    used: Chosen,
}

/// The branch of an update.
struct Branch {
    /// The commit upon which the new one is made.
    found: ResolvedRef,
    /// Full name of the pushed branch.
    name: String,
    /// The commit of the pushed branch; `None` if it does not exist.
    old: Option<Commit>,
}

impl Task {
    fn new(context: Arc<Context>, begun: Begun) -> Self {
        let written: ImageUpdateAutomationStatus = serde_json::from_value(begun.status.clone()).unwrap_or_default();
        let reporter = Reporter::new::<ImageUpdateAutomationSpec>(&context, &begun.name);
        let source = context.source.for_namespace(&begun.name.0);
        let own = format!("{}/{}", begun.name.1, begun.number);
        let consumer = Consumer::new(ConsumerKind::ImageUpdateAutomation, &begun.name.0, &own);
        let (secrets, new) = (UpdateSecrets::default(), written.clone());
        Self { context, source, begun, reporter, consumer, secrets, written, new, done: None, used: Chosen::new() }
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
        let (state, wait) = match self.attempt(&object.spec).await {
            Ok((message, wait)) => (State::ready(Reason::ImagesUpdated, message), wait),
            Err((state, wait)) => (state, wait),
        };
        if self.settle(object, &state).await { wait } else { wait.min(AGAIN) }
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
        self.source.set_remote(&self.consumer, Some(&remotes.read));
        let followed = FollowedRemote {
            repository: update.repository.clone(),
            url: remotes.read.url.clone(),
            reference: update.read.clone(),
        };
        self.source.pushes().set(&self.consumer, Some(followed));
        let automation = format!("{namespace}/{name}");
        let advanced = self.advance(&update, &remotes, &spec_values(spec), &automation).await;
        let branch = advanced.map_err(|why| (State::not_ready(Reason::UpdateFailed, why), failed_wait))?;
        let count = self.used.len();
        let policies = if count == 1 { "ImagePolicy" } else { "ImagePolicies" };
        let mut message = format!("the branch {branch} agrees with {count} {policies}");
        if let Some(commit) = &self.new.last_push_commit {
            message += &format!("; last push: {}", commit.get(..12).unwrap_or(commit));
        }
        Ok((message, update.interval))
    }

    /// Pushes a commit if files differ from the choices. Returns the branch.
    async fn advance(
        &mut self,
        update: &Update,
        remotes: &Remotes,
        values: &BTreeMap<String, String>,
        automation: &str,
    ) -> Result<String, String> {
        for attempt in 0..ATTEMPTS {
            let max_age = if attempt == 0 { FRESH } else { Duration::ZERO };
            let branch = self.branch(update, &remotes.read, max_age).await?;
            let short = branch.name.strip_prefix("refs/heads/").unwrap_or(&branch.name).to_owned();
            let Some((edited, snapshot)) = self.differing(update, &remotes.read, &branch).await? else {
                self.new.observed_source_revision = Some(format!("{short}@sha1:{}", branch.found.commit));
                self.new.observed_policies = self.used.clone();
                return Ok(short);
            };
            let message = match &update.message {
                Some(template) => template
                    .render(&data(automation, values, &edited.changes))
                    .map_err(|why| format!("spec.git.commit.messageTemplate: {why}"))?,
                None => listed(&edited.changes),
            };
            let ((name, email), seconds) = (update.author.clone(), Timestamp::now().as_second());
            let new = NewCommit { name, email, message, seconds };
            let made = snapshot.blocking(move |snapshot| snapshot.with_files(&edited.files, &new)).await;
            let upload = made.and_then(|made| made).map_err(|error| chain(&error))?;
            let pushed = self.source.push(&remotes.write, &branch.name, branch.old, &upload).await;
            match pushed.map_err(|fault| format!("push to {short}: {}", chain(&fault)))? {
                Pushed::Done => {
                    self.wake(&remotes.read);
                    self.done = Some((upload.commit, None, self.used.clone()));
                    self.new.last_push_commit = Some(upload.commit.to_string());
                    self.new.last_push_time = Some(Time(Timestamp::now()));
                    self.new.observed_source_revision = Some(format!("{short}@sha1:{}", upload.commit));
                    self.new.observed_policies = self.used.clone();
                    return Ok(short);
                }
                Pushed::Moved => {}
                // Another commit would be refused, too. The next turn tries again.
                Pushed::Refused(why) => return Err(format!("push to {short}: the server refused it: {why}")),
            }
        }
        Err("the push: others push to the branch at the same time".to_owned())
    }

    /// Looks up the branch.
    async fn branch(&self, update: &Update, read: &Remote, max_age: Duration) -> Result<Branch, String> {
        if let Some(name) = &update.push {
            let reference = Reference::parse(name).map_err(|error| chain(&error))?;
            match self.source.lookup(read, &reference, max_age).await {
                Ok(found) => return Ok(Branch { old: Some(found.commit), found, name: name.clone() }),
                Err(error) if matches!(error.fault(), Fault::MissingReference { empty: false, .. }) => {}
                Err(error) => return Err(chain(&error)),
            }
        }
        let found = self.source.lookup(read, &update.read, max_age).await.map_err(|error| chain(&error))?;
        if let Some(name) = &update.push {
            return Ok(Branch { found, name: name.clone(), old: None });
        }
        let name = found.full_name().filter(|name| name.starts_with("refs/heads/")).map(str::to_owned);
        let name = name.ok_or("HEAD of the repository is not a branch; set spec.git.checkout.ref.branch")?;
        Ok(Branch { old: Some(found.commit), found, name })
    }

    /// Returns the changed files of the branch; `None` if it has the choices.
    async fn differing(
        &mut self,
        update: &Update,
        read: &Remote,
        branch: &Branch,
    ) -> Result<Option<(Edited, mainstay_git::Snapshot)>, String> {
        let commit = branch.found.commit;
        let is_known = |done: &&(Commit, Option<TreeId>, Chosen)| done.2 == self.used;
        let known = self.done.as_ref().filter(is_known);
        if known.is_some_and(|done| done.0 == commit) {
            return Ok(None);
        }
        let snapshot = self.source.fetch(read, &branch.found).await.map_err(|error| chain(&error))?;
        let tree = snapshot.tree(&update.directory).await.map_err(|error| chain(&error))?;
        if tree.is_none() {
            return Err(format!("spec.update.path: {} is not a directory of the commit", update.directory.path()));
        }
        if known.is_none_or(|done| done.1 != tree) {
            let (directory, namespace, chosen) =
                (update.directory.clone(), self.begun.name.0.clone(), self.used.clone());
            let edit = move |snapshot: &mainstay_git::Snapshot| edited(snapshot, &directory, &namespace, &chosen);
            let edited = snapshot.blocking(edit).await.map_err(|error| chain(&error))??;
            if !edited.files.is_empty() {
                return Ok(Some((edited, snapshot)));
            }
        }
        self.done = Some((commit, tree, self.used.clone()));
        Ok(None)
    }

    /// Wakes the GitSyncs that follow the repository.
    fn wake(&self, read: &Remote) {
        let is_meant = |consumer: &Consumer, followed: &FollowedRemote| {
            consumer.kind == ConsumerKind::GitSync && followed.url == read.url
        };
        self.source.pushes().wake(is_meant, Instant::now().into_std());
    }

    /// Writes the status if it changed. Returns false if the write was refused.
    async fn settle(&mut self, object: &Object<ImageUpdateAutomationSpec>, state: &State) -> bool {
        self.new.observed_generation = object.generation;
        self.new.conditions = state.conditions(&self.written.conditions, object.generation, Timestamp::now());
        if self.new == self.written {
            return true;
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
        let is_written = self.reporter.write(&status).await;
        if is_written {
            self.reporter.announce(&self.written.conditions, state);
            self.written = self.new.clone();
        }
        is_written
    }
}

/// Returns the values of the message.
fn spec_values(spec: &ImageUpdateAutomationSpec) -> BTreeMap<String, String> {
    spec.git.as_ref().map(|git| git.commit.message_template_values.clone()).unwrap_or_default()
}
