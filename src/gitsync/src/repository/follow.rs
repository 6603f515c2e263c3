//! Keeps the status of each GitRepository in line with its last lookup.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::status::{Finding, Head, Judged, after};
use crate::outcome::Refused;
use crate::remote::remote_of;
use mainstay_api::names::{FLUX_REQUESTED_AT, REQUESTED_AT};
use mainstay_api::{GitRepository, GitRepositoryStatus};
use mainstay_cluster::secrets::{Followed, Purpose, RepositorySecrets, Secrets};
use mainstay_cluster::{Cluster, Error, Kind, Part};
use mainstay_git::{
    Consumer, ConsumerKind, Followed as FollowedRemote, LastLookup, LookupDue, PushReceiver, Reference, Remote,
    Repositories, Source,
};
use mainstay_object::failure::chain;

/// Lookups of a repository without a consumer: the initial wait for one, and the interval after a success and after a
/// failure.
const ALONE: Pace = Pace { grace: secs(3), succeeded: secs(600), failed: secs(60) };
/// Lookups of a repository with a consumer, which may be suspended.
const FOLLOWED: Pace = Pace { grace: secs(60), succeeded: secs(7200), failed: secs(7200) };
/// Wait after a failed status write, and wait until the watch shows a write.
const REFUSED: Duration = secs(60);
const UNSEEN: Duration = secs(1);
/// Maximum wait between two turns.
const FAR: Duration = secs(7200);
/// Changes within this time are handled together.
const TOGETHER: Duration = Duration::from_millis(50);

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The times of lookups that are made only for the status.
#[derive(Clone, Copy, Debug)]
struct Pace {
    grace: Duration,
    succeeded: Duration,
    failed: Duration,
}

/// The context of all GitRepositories.
#[derive(Clone, Debug)]
pub struct Context {
    /// The remotes.
    pub source: Source,
    /// The GitRepositories.
    pub repositories: Arc<Repositories>,
    /// The Secrets of the repositories.
    pub secrets: Arc<Secrets>,
    /// The client for statuses.
    pub cluster: Cluster,
    /// The kind of GitRepositories.
    pub kind: Arc<Kind>,
}

type Input = watch::Receiver<Arc<GitRepository>>;
type Output = watch::Sender<Arc<GitRepository>>;

/// Keeps the statuses until `stop`.
pub async fn keep(context: Context, stop: CancellationToken) {
    let mut known = context.source.consumers_known();
    let mut changes = context.repositories.listen();
    tokio::select! {
        () = stop.cancelled() => return,
        _ = known.wait_for(|known| *known) => {}
    }
    let mut outputs: HashMap<(String, String), Output> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let all = context.repositories.all();
        let mut present = HashMap::with_capacity(all.len());
        for repository in all {
            let Some(name) = name_of(&repository) else { continue };
            let output = outputs.remove(&name).unwrap_or_else(|| {
                let (output, input) = watch::channel(Arc::clone(&repository));
                let (namespace, name) = &name;
                let consumer = Consumer::new(ConsumerKind::GitRepository, namespace, name);
                tasks.spawn(Task::new(context.clone(), consumer).run(input, stop.clone()));
                output
            });
            output.send_if_modified(|old| {
                let differs = is_other(old, &repository);
                *old = repository;
                differs
            });
            present.insert(name, output);
        }
        // Tasks of deleted repositories end when their senders are dropped.
        outputs = present;
        tokio::select! {
            () = stop.cancelled() => return,
            _ = changes.changed() => tokio::time::sleep(TOGETHER).await,
            Some(_) = tasks.join_next() => {}
        }
    }
}

fn name_of(repository: &GitRepository) -> Option<(String, String)> {
    Some((repository.metadata.namespace.clone()?, repository.metadata.name.clone()?))
}

/// Whether the change may cause another lookup or a different status.
fn is_other(old: &GitRepository, new: &GitRepository) -> bool {
    let pins =
        |one: &GitRepository| one.status.as_ref().map_or_else(Vec::new, |status| status.pinned_host_keys.clone());
    old.metadata.uid != new.metadata.uid
        || old.spec != new.spec
        || pins(old) != pins(new)
        || request_of(old) != request_of(new)
}

/// Returns the values of the annotations that request a lookup.
fn request_of(repository: &GitRepository) -> [Option<&String>; 2] {
    let annotations = repository.metadata.annotations.as_ref();
    [REQUESTED_AT, FLUX_REQUESTED_AT].map(|name| annotations?.get(name))
}

type Lookups = watch::Receiver<Option<Arc<LastLookup>>>;

/// The task of one GitRepository.
struct Task {
    context: Context,
    consumer: Consumer,
    /// Wakes the task when a consumer with other credentials has found a commit.
    pushed: PushReceiver,
    /// The lookup that is due because a consumer has found a commit.
    due: Option<LookupDue>,
    secrets: RepositorySecrets,
    remote: Option<Remote>,
    /// Time since which the GitRepository has this remote.
    since: Instant,
    /// Time of the last lookup only for the status.
    asked: Option<Instant>,
    /// Whether an annotation requests a lookup.
    is_requested: bool,
    /// The last lookup of the remote. The source forgets lookups of remotes without a consumer.
    last: Option<Arc<LastLookup>>,
    /// The resourceVersion that was overwritten.
    written_over: Option<String>,
    failing: bool,
}

impl Task {
    fn new(context: Context, consumer: Consumer) -> Self {
        Self {
            pushed: context.source.pushes().subscribe(&consumer),
            due: None,
            context,
            consumer,
            secrets: RepositorySecrets::default(),
            remote: None,
            since: Instant::now(),
            asked: None,
            is_requested: false,
            last: None,
            written_over: None,
            failing: false,
        }
    }

    async fn run(mut self, mut input: Input, stop: CancellationToken) {
        // A new agent looks all repositories up anyway.
        let mut before = Arc::clone(&input.borrow());
        loop {
            let repository = Arc::clone(&input.borrow_and_update());
            if request_of(&repository) != request_of(&before) {
                self.look_up_now();
            }
            before = Arc::clone(&repository);
            let turn = self.turn(&repository);
            let (mut lookups, due) = tokio::select! {
                () = stop.cancelled() => return,
                turn = turn => turn,
            };
            let looked_up = async {
                match &mut lookups {
                    // A source that forgot the remote returns a new receiver.
                    Some(lookups) => drop(lookups.changed().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = input.changed() => if changed.is_err() { break },
                () = Followed::any_changed(self.secrets.iter_mut()) => {}
                () = looked_up => {}
                _ = self.pushed.changed() => self.due = self.pushed.take().map(|due| due.and(self.due)).or(self.due),
                () = sleep_until(due.into()) => {}
            }
        }
        self.context.source.pushes().remove(&self.consumer);
        if let Some(remote) = self.remote.take() {
            self.context.source.release(&remote);
        }
    }

    /// Reports the known state, and looks the remote up if no consumer does. Returns the time of the next turn.
    async fn turn(&mut self, repository: &GitRepository) -> (Option<Lookups>, Instant) {
        let Some((namespace, _)) = name_of(repository) else { return (None, Instant::now() + FAR) };
        let secrets = Arc::clone(&self.context.secrets);
        let known = self.secrets.of(&secrets, &namespace, &repository.spec, Purpose::Repository).await;
        let source = self.context.source.for_namespace(&namespace);
        let opened = remote_of(repository, &known, source.egress(&namespace));
        let remote = match opened.and_then(|(remote, trusted)| trusted.map(|()| remote)) {
            Ok(remote) => remote,
            Err(refused) => {
                self.leave(None);
                let again = if self.secrets.are_settled() {
                    self.report(repository, Finding::Refused(&refused), Instant::now()).await
                } else {
                    None
                };
                return (None, Instant::now() + again.unwrap_or(FAR));
            }
        };
        self.leave(Some(&remote));
        self.follow_head(repository, &remote);
        let mut lookups = source.last_lookup(&remote);
        self.last = lookups.borrow_and_update().clone().or(self.last.take());
        let next = self.next_lookup(&remote);
        let is_requested = std::mem::take(&mut self.is_requested);
        if is_requested {
            source.expire(&remote, Instant::now());
        }
        if is_requested || next <= Instant::now() {
            self.asked = Some(Instant::now());
            if let Some(due) = self.due.take() {
                source.expire(&remote, due.after);
            }
            // The result arrives like that of every lookup.
            drop(source.default_branch(&remote).await);
            lookups = source.last_lookup(&remote);
        }
        self.last = lookups.borrow_and_update().clone().or(self.last.take());
        let last = self.last.clone();
        let mut due = self.next_lookup(&remote).max(Instant::now() + UNSEEN);
        if let Some(last) = last {
            let head = last.head(&remote).map(|head| (head.short().to_owned(), head.commit.to_string()));
            let again = match head {
                Ok((name, commit)) => {
                    let head = Head { name: &name, commit: &commit, host_key: last.host_key.as_deref() };
                    self.report(repository, Finding::Resolved(head), last.began).await
                }
                Err(error) => self.report(repository, Finding::Refused(&Refused::from(error)), last.began).await,
            };
            due = again.map_or(due, |again| due.min(Instant::now() + again));
        }
        (Some(lookups), due)
    }

    /// Wakes the consumers of the GitRepository, because an annotation requests a lookup. The task looks the remote up,
    /// too, because its consumers may be suspended.
    fn look_up_now(&mut self) {
        use ConsumerKind::{Function, GitSync, ImageUpdateAutomation};
        let Consumer { namespace, name, .. } = &self.consumer;
        let is_meant = |consumer: &Consumer, followed: &FollowedRemote| {
            matches!(consumer.kind, GitSync | Function | ImageUpdateAutomation)
                && consumer.namespace == *namespace
                && followed.repository == *name
        };
        self.context.source.pushes().wake(is_meant, Instant::now());
        self.is_requested = true;
    }

    /// Returns the time of the next lookup that is made only for the status.
    fn next_lookup(&mut self, remote: &Remote) -> Instant {
        let last = self.last.as_deref();
        let is_consumed = self.context.source.is_consumed(remote);
        let pace = if is_consumed { FOLLOWED } else { ALONE };
        let commit = last.and_then(|last| last.head(remote).ok()).map(|head| head.commit);
        // Consumers of the remote look it up themselves after a push.
        self.due = self.due.filter(|due| !is_consumed && !due.is_known(commit));
        let regular = self.regular_lookup(pace, remote, last);
        self.due.map_or(regular, |due| regular.min(due.at))
    }

    fn regular_lookup(&self, pace: Pace, remote: &Remote, last: Option<&LastLookup>) -> Instant {
        let begin = self.since + pace.grace;
        let Some(last) = last else { return self.asked.map_or(begin, |asked| asked + pace.failed).max(begin) };
        let pause = if last.head(remote).is_ok() { pace.succeeded } else { pace.failed };
        self.asked.map_or(last.began, |asked| asked.max(last.began)) + pause
    }

    /// Subscribes to commits that consumers find on the default branch.
    fn follow_head(&self, repository: &GitRepository, remote: &Remote) {
        let url = remote.url.clone();
        let name = repository.metadata.name.clone().unwrap_or_default();
        let head = FollowedRemote { repository: name, url, reference: Reference::head() };
        self.context.source.pushes().set(&self.consumer, Some(head));
    }

    /// Forgets the previous remote if it is different.
    fn leave(&mut self, remote: Option<&Remote>) {
        if self.remote.as_ref() != remote {
            let old = std::mem::replace(&mut self.remote, remote.cloned());
            (self.since, self.asked, self.last, self.due) = (Instant::now(), None, None, None);
            self.context.source.pushes().set_remote(&self.consumer, remote);
            if let Some(old) = old {
                self.context.source.release(&old);
            }
        }
    }

    /// Writes the status if it changed. Returns the wait until a retry, if one is needed.
    async fn report(&mut self, repository: &GitRepository, found: Finding<'_>, at: Instant) -> Option<Duration> {
        let (namespace, name) = name_of(repository)?;
        // The watch has the newest object. If its spec differs, another turn follows.
        let live = self.context.repositories.get(&namespace, &name);
        let live = live.filter(|live| !is_other(repository, live))?;
        let (old, now) = (live.status.clone().unwrap_or_default(), Timestamp::now());
        let judged = Judged {
            spec: &live.spec,
            generation: live.metadata.generation,
            found,
            at: now.checked_sub(at.elapsed()).unwrap_or(now),
        };
        let new = after(&old, &judged, now);
        if new == old {
            return None;
        }
        if self.written_over.is_some() && self.written_over == live.metadata.resource_version {
            return Some(UNSEEN);
        }
        match self.write(&live, &namespace, &name, &new).await {
            Ok(()) => {
                (self.written_over, self.failing) = (live.metadata.resource_version.clone(), false);
                None
            }
            // The watch shows the change.
            Err(error) if error.is_not_found() => None,
            Err(error) if error.is_conflict() => Some(UNSEEN),
            Err(error) => {
                if !self.failing {
                    let (repository, why) = (format!("{namespace}/{name}"), chain(&error));
                    tracing::warn!(repository, why, "the status of a GitRepository was not written");
                }
                self.failing = true;
                Some(REFUSED)
            }
        }
    }

    async fn write(
        &self,
        live: &GitRepository,
        namespace: &str,
        name: &str,
        status: &GitRepositoryStatus,
    ) -> Result<(), Error> {
        let patch = json!({
            "metadata": {"resourceVersion": live.metadata.resource_version}, "status": written(status),
        });
        let Context { cluster, kind, .. } = &self.context;
        cluster.patch_merge(kind, Some(namespace), name, Part::Status, &patch).await.map(drop)
    }
}

/// Returns the fields of the status that are written: all but the pinned keys, which another task writes.
fn written(status: &GitRepositoryStatus) -> Value {
    let mut fields = json!({"revision": null, "shortRevision": null, "hostKey": null});
    if let (Some(fields), Ok(Value::Object(known))) = (fields.as_object_mut(), serde_json::to_value(status)) {
        fields.extend(known.into_iter().filter(|(name, _)| name != "pinnedHostKeys"));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use mainstay_api::git_repository::PinnedHostKey;

    #[test]
    fn every_field_but_the_pinned_keys_is_written_and_absent_ones_are_removed() {
        let text = || Some("x".to_owned());
        let at = Time(jiff::Timestamp::UNIX_EPOCH);
        let key = PinnedHostKey { host: "h".into(), key: "k".into(), fingerprint: "f".into(), pinned_at: at.clone() };
        let full = GitRepositoryStatus {
            observed_generation: Some(1),
            revision: text(),
            short_revision: text(),
            host_key: text(),
            last_lookup: Some(at),
            pinned_host_keys: vec![key],
            conditions: Vec::new(),
        };
        let mut expected = serde_json::to_value(&full).unwrap();
        expected.as_object_mut().unwrap().remove("pinnedHostKeys");
        assert_eq!(written(&full), expected);
        let empty = written(&GitRepositoryStatus::default());
        assert_eq!(empty, json!({"revision": null, "shortRevision": null, "hostKey": null}));
    }
}
