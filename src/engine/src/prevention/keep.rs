//! The task that maintains policies and bindings.
//!
//! Both kinds are watched only while a GitSync wants prevention or an object of Mainstay exists. A new agent lists the
//! kinds once to find leftovers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::decide::{Action, AllSeen, Answered, decide, is_as_wanted};
use super::failures::{ALL, Failures};
use super::policy::{API_VERSION, Protection};
use super::reverts::Reverts;
use super::seen::{Part, Seen, digest, is_made_by_us};
use super::state::{Prevention, State};
use crate::apply::{Deleted, Version, Writer};
use mainstay_api::names::PREVENTION_LABEL;
use mainstay_cluster::reflector::{Delta, Name, Shown, name_of};
use mainstay_cluster::{Error, Kind, Persistence, Selection};
use mainstay_object::Digest;
use mainstay_object::failure::{Backoff, chain};

/// Backoff after a failure.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));

/// Delay until leftovers are looked for again that could not be listed.
const LEFTOVERS: Duration = Duration::from_secs(300);

/// The prefix of user names of ServiceAccounts.
const ACCOUNTS: &str = "system:serviceaccount:";

/// Maintains the policies and bindings that GitSyncs demand, until `stop`.
pub async fn keep(prevention: Arc<Prevention>, writer: Writer, stop: CancellationToken) {
    let changes = prevention.changes();
    let keeper = Keeper {
        prevention,
        writer,
        agent: None,
        wanted: BTreeMap::new(),
        shown: [Shown::default(), Shown::default()],
        seen: AllSeen::new(),
        answered: Answered::new(),
        failures: Failures::default(),
        reverts: Reverts::new(Instant::now()),
        unwatched: [None, None],
        is_clean: false,
    };
    stop.run_until_cancelled(keeper.run(changes)).await;
}

/// The policy and binding of a GitSync.
struct Objects {
    protection: Arc<Protection>,
    digests: [Digest; 2],
}

struct Keeper {
    prevention: Arc<Prevention>,
    writer: Writer,
    /// The user name of the agent.
    agent: Option<String>,
    /// Desired objects by name.
    wanted: BTreeMap<String, Objects>,
    /// Lists in progress, by kind.
    shown: [Shown<Name>; 2],
    seen: AllSeen,
    answered: Answered,
    failures: Failures,
    reverts: Reverts,
    /// Why a kind cannot be watched, if permissions are missing.
    unwatched: [Option<State>; 2],
    /// Whether both kinds were listed, and no object of Mainstay exists.
    is_clean: bool,
}

impl Keeper {
    async fn run(mut self, mut changes: watch::Receiver<u64>) {
        while !self.prevention.is_complete() {
            if changes.changed().await.is_err() {
                return;
            }
        }
        loop {
            changes.mark_unchanged();
            self.is_clean = false;
            if let Some(kinds) = self.kinds().await {
                self.follow(kinds, &mut changes).await;
            }
            // No object is wanted or exists.
            if self.until_wanted(&mut changes).await.is_err() {
                return;
            }
        }
    }

    /// Waits until a GitSync wants prevention, or a retry is due. Other changes begin no watch: an agent with a thousand
    /// GitSyncs sees a thousand changes. Leftovers that could not be listed are looked for again.
    async fn until_wanted(&self, changes: &mut watch::Receiver<u64>) -> Result<(), watch::error::RecvError> {
        let unclean = (!self.is_clean).then(|| Instant::now() + LEFTOVERS);
        let again = [self.failures.due(false), unclean].into_iter().flatten().min();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    changed?;
                    if !self.prevention.protections().is_empty() {
                        return Ok(());
                    }
                }
                () = wait(again) => return Ok(()),
            }
        }
    }

    /// The two kinds; `None` if they are not served or discovery failed.
    async fn kinds(&mut self) -> Option<[Arc<Kind>; 2]> {
        let mut kinds = Vec::new();
        for part in Part::ALL {
            match self.writer.cluster().kind(API_VERSION, part.kind()).await {
                Ok(Some(kind)) => kinds.push(kind),
                Ok(None) => {
                    self.failures.clear();
                    for protection in self.prevention.protections() {
                        self.prevention.set_state(&protection.owner, State::NotServed);
                    }
                    return None;
                }
                Err(error) => {
                    self.fail_all(&error);
                    return None;
                }
            }
        }
        kinds.try_into().ok()
    }

    /// Maintains the objects while any is wanted or exists.
    async fn follow(&mut self, kinds: [Arc<Kind>; 2], changes: &mut watch::Receiver<u64>) {
        let watch = |kind| self.writer.cluster().watch(kind, Selection::with_label(PREVENTION_LABEL));
        let [mut policies, mut bindings] = [watch(&kinds[0]), watch(&kinds[1])];
        let mut synced = [false; 2];
        self.seen.clear();
        self.shown = Default::default();
        self.refresh().await;
        loop {
            let again = self.failures.due(synced == [true; 2]);
            let (part, event) = tokio::select! {
                Some(event) = policies.next() => (Part::Policy, Some(event)),
                Some(event) = bindings.next() => (Part::Binding, Some(event)),
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.refresh().await;
                    (Part::Policy, None)
                }
                () = wait(again) => {
                    if self.failures.due(false).is_some_and(|due| due <= Instant::now()) {
                        self.refresh().await;
                    }
                    (Part::Policy, None)
                }
            };
            match event.and_then(|event| self.shown[part as usize].take(event, name_of)) {
                Some(Delta::Failed(error)) => {
                    let is_forbidden = error.is_forbidden();
                    // Without the permission to list policies and bindings, the agent cannot have created any.
                    if is_forbidden && self.prevention.protections().is_empty() {
                        tracing::debug!(why = chain(&error), "admission policies cannot be watched");
                        return;
                    }
                    // Other failures are temporary; the objects count as unchanged until then.
                    self.unwatched[part as usize] = is_forbidden.then(|| State::Failed(error.cause_text()));
                    self.tell();
                }
                Some(delta) => {
                    synced[part as usize] |= matches!(delta, Delta::Complete(_));
                    self.unwatched[part as usize] = None;
                    self.take(part, delta);
                }
                None => {}
            }
            if synced == [true; 2] {
                self.reconcile(&kinds).await;
                let is_ours = |seen: &Seen| seen.is_ours;
                if self.wanted.is_empty()
                    && self.prevention.protections().is_empty()
                    && !self.seen.values().any(is_ours)
                {
                    self.failures.clear();
                    self.is_clean = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, part: Part, delta: Delta<Name>) {
        match delta {
            Delta::Listed(_, live) | Delta::Changed(_, live) => {
                if let Some((name, seen)) = Seen::of(&live) {
                    self.seen.insert((part, name), seen);
                }
            }
            Delta::Gone((_, name), _) => _ = self.seen.remove(&(part, name)),
            Delta::Complete(list) => {
                self.seen.retain(|(of, name), _| *of != part || !list.lacks(&(String::new(), name.clone())));
            }
            Delta::Resumed | Delta::Unreadable(..) | Delta::Failed(_) => {}
        }
    }

    /// Reads the demands of the GitSyncs, and the agent's user name if it is unknown.
    async fn refresh(&mut self) {
        let protections = self.prevention.protections();
        if self.agent.is_some() || protections.is_empty() {
            self.failures.remove(ALL);
        } else {
            match self.writer.cluster().user_name().await {
                Ok(Some(agent)) => {
                    self.failures.remove(ALL);
                    self.agent = Some(agent);
                }
                Ok(None) => {
                    let why = "the API server does not report the agent's user name, so it would deny the agent's \
                               writes, too";
                    self.fail(ALL, State::Failed(why.to_owned()), None);
                    self.tell();
                }
                Err(error) => self.fail_all(&error),
            }
        }
        let Some(agent) = self.agent.as_deref() else { return };
        let mut before = std::mem::take(&mut self.wanted);
        for protection in protections {
            let name = protection.name();
            let objects = match before.remove(&name) {
                Some(known) if known.protection == protection => known,
                _ => {
                    // A failure of the previous policy does not apply to a new one.
                    self.failures.remove(&name);
                    self.reverts.remove(&name);
                    let digests = Part::ALL.map(|part| digest(&body(part, &protection, agent)));
                    Objects { protection, digests }
                }
            };
            self.wanted.insert(name, objects);
        }
        self.answered.retain(|(_, name), _| self.wanted.contains_key(name));
    }

    async fn reconcile(&mut self, kinds: &[Arc<Kind>; 2]) {
        let wanted = self.wanted.iter().map(|(name, objects)| (name.clone(), objects.digests)).collect();
        let mut undecided = self.prevention.undecided();
        // Before the user name is known, `wanted` is incomplete, so no object may be deleted.
        undecided.extend(self.prevention.protections().iter().map(|protection| protection.name()));
        let actions = decide(&wanted, &undecided, &self.seen, &self.answered);
        let now = Instant::now();
        for action in actions {
            let (Action::Replace(part, name)
            | Action::Create(part, name)
            | Action::Delete(part, name)
            | Action::LeaveAlone(part, name)) = action.clone();
            // Policy and binding share one retry time.
            if self.failures.waits(&name, now) {
                continue;
            }
            let kind = &kinds[part as usize];
            let done = match action {
                Action::Replace(..) => {
                    let version = self.seen.get(&(part, name.clone())).map(|seen| json!(seen.resource_version));
                    self.replace(kind, part, &name, &version.unwrap_or_default()).await
                }
                Action::Create(..) => self.create(kind, part, &name).await,
                Action::Delete(..) => self.delete(kind, part, &name).await,
                Action::LeaveAlone(..) => Ok(Done::Taken),
            };
            match done {
                Ok(Done::Deleted) => {}
                Ok(Done::Written) => self.slow(part, &name),
                // The watch does not show an object without Mainstay's label, so the retry must not depend on an event.
                Ok(Done::Overtaken) => self.fail(&name, State::Pending, None),
                Ok(Done::Taken) => self.fail(&name, State::NameTaken(format!("{} {name}", part.kind())), None),
                Err(error) => self.fail(&name, State::Failed(error.cause_text()), error.retry_after()),
            }
        }
        // Due names were retried or need no write any more.
        self.failures.forget_due(now);
        self.tell();
    }

    /// Sets the states of the GitSyncs.
    fn tell(&self) {
        let person = self.agent.as_ref().filter(|agent| !agent.starts_with(ACCOUNTS));
        let for_all = self.unwatched.iter().flatten().next().or_else(|| self.failures.state(ALL));
        for protection in self.prevention.protections() {
            let name = protection.name();
            let is_kept = self.wanted.get(&name).is_some_and(|objects| self.is_kept(&name, objects));
            let state = match (self.failures.state(&name).or(for_all), is_kept) {
                (Some(failed), false) => failed.clone(),
                (None, false) => State::Pending,
                (_, true) => State::Prevented(person.cloned()),
            };
            self.prevention.set_state(&protection.owner, state);
        }
    }

    fn is_kept(&self, name: &str, objects: &Objects) -> bool {
        Part::ALL.into_iter().zip(objects.digests).all(|(part, digest)| {
            let key = (part, name.to_owned());
            let live = self.seen.get(&key).filter(|live| live.is_ours);
            live.is_some_and(|live| is_as_wanted(live, digest, self.answered.get(&key)))
        })
    }

    /// Returns the desired object.
    fn body(&self, part: Part, name: &str) -> Option<Value> {
        Some(body(part, &self.wanted.get(name)?.protection, self.agent.as_deref()?))
    }

    /// Creates an object, or replaces one of Mainstay that the watch does not show.
    async fn create(&mut self, kind: &Kind, part: Part, name: &str) -> Result<Done, Error> {
        let Some(body) = self.body(part, name) else { return Ok(Done::Overtaken) };
        match self.writer.cluster().create(kind, None, name, &body, Persistence::Kept).await {
            Err(error) if error.is_already_exists() => {}
            created => return created.map(|live| self.written(part, &live)),
        }
        // An object of Mainstay that lost its label is not shown by the watch.
        let found = self.writer.cluster().get_metadata(kind, None, name).await?.map(|found| json!({"metadata": found}));
        match found {
            Some(found) if is_made_by_us(&found) => {
                self.replace(kind, part, name, &found["metadata"]["resourceVersion"]).await
            }
            Some(_) => Ok(Done::Taken),
            // The object was deleted in the meantime.
            None => Ok(Done::Overtaken),
        }
    }

    /// Replaces an object of Mainstay. An apply would keep additions of other clients, such as further actions of a
    /// binding.
    async fn replace(&mut self, kind: &Kind, part: Part, name: &str, version: &Value) -> Result<Done, Error> {
        let Some(mut body) = self.body(part, name) else { return Ok(Done::Overtaken) };
        body["metadata"]["resourceVersion"] = version.clone();
        match self.writer.cluster().replace(kind, None, name, &body, Persistence::Kept).await {
            Err(error) if error.is_conflict() || error.is_not_found() => Ok(Done::Overtaken),
            replaced => replaced.map(|live| self.written(part, &live)),
        }
    }

    /// Records the response to a write.
    fn written(&mut self, part: Part, live: &Value) -> Done {
        if let Some((name, seen)) = Seen::of(live) {
            let wanted = self.wanted.get(&name).map(|objects| objects.digests[part as usize]);
            if let Some(wanted) = wanted {
                self.answered.insert((part, name.clone()), (wanted, seen.digest));
            }
            self.shown[part as usize].note((String::new(), name.clone()));
            self.seen.insert((part, name), seen);
        }
        Done::Written
    }

    async fn delete(&mut self, kind: &Kind, part: Part, name: &str) -> Result<Done, Error> {
        let key = (part, name.to_owned());
        let Some(seen) = self.seen.get(&key) else { return Ok(Done::Deleted) };
        let judged = Version { uid: seen.uid.clone(), resource_version: seen.resource_version.clone() };
        let judge = |meta: &ObjectMeta| if is_made_by_us(&json!({"metadata": meta})) { Ok(()) } else { Err(()) };
        let deleted = self.writer.delete_unowned(kind, &kind.key(None, name), Some(judged), judge).await?;
        // If the object is kept, the watch shows why.
        if !matches!(deleted, Deleted::Kept(())) {
            self.seen.remove(&key);
            self.answered.remove(&key);
            self.failures.remove(name);
        }
        Ok(Done::Deleted)
    }

    /// Delays the next write of a GitSync's objects if they were written often.
    fn slow(&mut self, part: Part, name: &str) {
        let now = Instant::now();
        let wait = self.reverts.add(part, name, now);
        if !wait.is_zero() {
            let why = format!("{} {name} is changed or deleted repeatedly", part.kind());
            self.failures.add(name, State::Failed(why), now + wait);
        }
    }

    /// Records a failure that concerns all GitSyncs.
    fn fail_all(&mut self, error: &Error) {
        self.fail(ALL, State::Failed(error.cause_text()), error.retry_after());
        self.tell();
    }

    fn fail(&mut self, name: &str, state: State, after: Option<Duration>) {
        let wait = after.unwrap_or_else(|| AGAIN.jittered(self.failures.next(name), fastrand::f64()));
        self.failures.add(name, state, Instant::now() + wait);
    }
}

/// The result of an action.
enum Done {
    Written,
    Deleted,
    /// No write: another client changed the object first.
    Overtaken,
    /// No write: the object belongs to another client.
    Taken,
}

fn body(part: Part, protection: &Protection, agent: &str) -> Value {
    match part {
        Part::Policy => protection.policy(agent),
        Part::Binding => protection.binding(),
    }
}

async fn wait(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}
