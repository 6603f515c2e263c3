//! A cache of the children of all Functions, fed by one watch per kind.
//!
//! The same watches feed the drift loop, so a manual change is reverted immediately.
//!
//! Invariant: no list request is sent per Function. Invariant: a child belongs to the Function in its namespace that
//! controls it, whatever its labels say. An owner reference to a Function in another namespace has no effect, because
//! any user can write one. Invariant: the build queue knows every unfinished Job and which ones are held up. A Job is
//! held up if all of its pods have a problem, or if the cluster refuses to create a pod for it. Invariant: the cache
//! contains the agent's own writes before the next decision.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::build_queue::{Admission, BuildQueue, BuildState, Hold, JobName, QueueLengths};
use super::child_kind::ChildKind;
use super::child_set::{Child, Children, children_key, function_of, read};
use super::child_state::{self, ChildIdentity, Deployment, Job, Progress, Role};
use super::children;
use super::knative_presence::Knative;
use super::knative_state::KnativeService;
use mainstay_api::names::{FUNCTION_CONTROLLER, FUNCTION_UID, MANAGED_BY};
use mainstay_cluster::reflector::{Delta, List, Shown};
use mainstay_cluster::{Kind, Selection};
use mainstay_engine::apply::Writer;
use mainstay_engine::drift::Drift;
use mainstay_engine::managed::{AppliedConfiguration, is_added_to};
use mainstay_object::failure::chain;
use mainstay_object::{Key, Owner};

/// A cache of the children of all Functions. It notifies the Functions' tasks of changes.
#[derive(Debug)]
pub struct Cache {
    inner: Mutex<Inner>,
    /// Kinds whose initial list is complete.
    synced: watch::Sender<HashSet<ChildKind>>,
    knative: Knative,
}

/// The maps of the cache. The key of a Function combines its namespace and UID.
#[derive(Debug)]
struct Inner {
    children: HashMap<Arc<str>, Children>,
    /// The name of each Function, and the notifier of its task.
    notifiers: HashMap<Arc<str>, (Owner, Arc<Notify>)>,
    /// Keys of Functions by their names.
    names: HashMap<Owner, Arc<str>>,
    queue: BuildQueue,
    /// UIDs of unfinished Jobs whose pods the cluster refuses to create.
    refused: HashSet<String>,
    /// Held-up Jobs that have to be suspended and whose Functions were notified.
    yielding: HashSet<JobName>,
}

impl Cache {
    /// Returns an empty cache with a build queue for this many concurrent builds.
    pub fn new(builds: usize) -> Self {
        let (children, notifiers, names) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (queue, refused, yielding) = (BuildQueue::new(builds), HashSet::new(), HashSet::new());
        let inner = Inner { children, notifiers, names, queue, refused, yielding };
        Self { inner: Mutex::new(inner), synced: watch::Sender::default(), knative: Knative::default() }
    }

    /// Sets the maximum number of concurrent builds.
    pub(super) fn limit_builds(&self, builds: usize) {
        self.inner.lock().queue.set_limit(builds);
    }

    /// Waits until the initial lists of all kinds are complete.
    pub async fn complete(&self) {
        // The channel stays open as long as the cache exists.
        let all = |synced: &HashSet<ChildKind>| ChildKind::ALL.iter().all(|kind| synced.contains(kind));
        let _ = self.synced.subscribe().wait_for(all).await;
    }

    /// Returns the state of Knative.
    pub(super) fn knative(&self) -> &Knative {
        &self.knative
    }

    /// Forgets the resource versions of a kind after a restore of the API server from a backup.
    fn forget_versions(&self, child_kind: ChildKind) {
        self.inner.lock().children.values_mut().for_each(|children| children.forget_versions(child_kind));
    }

    /// Removes all objects of a kind that is no longer served.
    pub(super) fn forget_all(&self, child_kind: ChildKind) {
        self.retain_only(child_kind, &List::default());
    }

    /// Returns the children of a Function.
    pub fn children(&self, namespace: &str, uid: &str) -> Children {
        self.inner.lock().children.get(&children_key(namespace, uid)).cloned().unwrap_or_default()
    }

    /// Registers a Function. The returned notifier fires when a child changes and when a build is admitted.
    pub fn register(&self, owner: &Owner, namespace: &str, uid: &str) -> Arc<Notify> {
        let mut inner = self.inner.lock();
        let children = children_key(namespace, uid);
        inner.names.insert(owner.clone(), Arc::clone(&children));
        let (_, notifier) = inner.notifiers.entry(children).or_insert_with(|| (owner.clone(), Arc::default()));
        Arc::clone(notifier)
    }

    /// Removes a Function.
    pub(crate) fn unregister(&self, owner: &Owner, namespace: &str, uid: &str) {
        let mut inner = self.inner.lock();
        let children = children_key(namespace, uid);
        inner.notifiers.remove(&children);
        if inner.names.get(owner) == Some(&children) {
            inner.names.remove(owner);
        }
        inner.queue.withdraw(owner);
        inner.advance();
    }

    /// Adds a Function to the build queue.
    pub fn enqueue(&self, owner: &Owner, namespace: &Arc<str>) -> Admission {
        let mut inner = self.inner.lock();
        let admission = inner.queue.enqueue(owner, namespace);
        inner.notify_yielding();
        admission
    }

    /// Whether a held-up Job has to be suspended.
    pub(super) fn must_yield(&self, job: &Job) -> bool {
        self.inner.lock().queue.must_yield(&name_in_queue(job))
    }

    /// Returns whether a Function may build now, and otherwise its position in the build queue.
    pub fn admission(&self, owner: &Owner) -> Admission {
        self.inner.lock().queue.admission(owner)
    }

    /// Removes a Function from the build queue, because it needs no build or has created its Job.
    pub fn withdraw(&self, owner: &Owner) {
        let mut inner = self.inner.lock();
        inner.queue.withdraw(owner);
        inner.advance();
    }

    /// Marks a Job as held up while the cluster refuses its pod. The mark is removed when the Job has a pod.
    pub(crate) fn set_held_up(&self, namespace: &str, uid: &str, job: &ChildIdentity) {
        let mut inner = self.inner.lock();
        let children = children_key(namespace, uid);
        if inner
            .children
            .get(&children)
            .is_some_and(|children| children.jobs.iter().any(|one| one.identity.uid == job.uid))
        {
            inner.refused.insert(job.uid.clone());
            inner.count_builds(&children);
        }
    }

    /// Returns the lengths of the build queue.
    pub fn queue_lengths(&self) -> QueueLengths {
        self.inner.lock().queue.lengths()
    }

    /// Inserts or updates an object from a watch event or the response to a write.
    pub(crate) fn upsert(&self, child_kind: ChildKind, live: &Value) -> Option<()> {
        let (uid, child) = read(child_kind, live)?;
        self.insert_child(&uid, child);
        Some(())
    }

    /// Inserts an object of an initial list. An earlier agent may have applied it.
    fn upsert_initial(&self, child_kind: ChildKind, live: &Value) {
        let Some((uid, mut child)) = read(child_kind, live) else { return };
        if let Child::Plain(_, identity)
        | Child::Deployment(Deployment { identity, .. })
        | Child::KnativeService(KnativeService { identity, .. }) = &mut child
        {
            let is_kept = !identity.terminating && !is_added_to(children::reserved(child_kind), live);
            identity.last_applied = AppliedConfiguration::of(live).filter(|_| is_kept);
        }
        self.insert_child(&uid, child);
    }

    fn insert_child(&self, uid: &Arc<str>, child: Child) {
        let mut inner = self.inner.lock();
        inner.put(uid, child);
        inner.notify(uid);
    }

    /// Whether an object still has this resource version.
    pub(super) fn is_at(&self, child_kind: ChildKind, namespace: &str, uid: &str, name: &str, version: &str) -> bool {
        let inner = self.inner.lock();
        let Some(children) = inner.children.get(&children_key(namespace, uid)) else { return false };
        children.identities(child_kind).any(|identity| identity.name == name && identity.version == version)
    }

    /// Removes an object that now has a different owner.
    pub(super) fn disown(&self, child_kind: ChildKind, live: &Value) {
        let text = |path: &str| live.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let children = children_key(text("/metadata/namespace"), function_label(live));
        let gone = child_state::identity(live);
        let mut inner = self.inner.lock();
        let is_gone = |identity: &ChildIdentity| identity.name == gone.name && identity.uid == gone.uid;
        if inner.remove(&children, child_kind, is_gone) {
            inner.notify(&children);
        }
    }

    /// Removes a deleted object.
    pub(crate) fn remove_object(&self, child_kind: ChildKind, live: &Value) {
        let Some((uid, child)) = read(child_kind, live) else { return };
        let mut inner = self.inner.lock();
        inner.remove(&uid, child_kind, |identity| {
            identity.name == child.identity().name && identity.uid == child.identity().uid
        });
        inner.notify(&uid);
    }

    /// Returns the Function of a Job that has ended.
    fn owner_of_ended(&self, job: &Value) -> Option<Owner> {
        let (children, _) =
            read(ChildKind::Job, job).filter(|_| child_state::job(job).progress != Progress::Running)?;
        self.inner.lock().notifiers.get(&children).map(|(owner, _)| owner.clone())
    }

    /// Removes an object that the agent deleted.
    pub(crate) fn remove_deleted(&self, child_kind: ChildKind, namespace: &str, uid: &str, gone: &ChildIdentity) {
        let children = children_key(namespace, uid);
        self.inner
            .lock()
            .remove(&children, child_kind, |identity| identity.name == gone.name && identity.uid == gone.uid);
    }

    /// Removes all objects of a kind that a list lacks. The keys of the list are the objects, each with the Function
    /// that it belongs to.
    fn retain_only(&self, child_kind: ChildKind, list: &List<(Key, Option<Arc<str>>)>) {
        let kind = child_kind.kind();
        let mut inner = self.inner.lock();
        let all = inner.children.keys().cloned().collect::<Vec<_>>();
        for uid in all {
            let namespace = uid.split_once('/').map(|(namespace, _)| namespace);
            let is_gone =
                |identity: &ChildIdentity| list.lacks(&(kind.key(namespace, &identity.name), Some(Arc::clone(&uid))));
            if inner.remove(&uid, child_kind, is_gone) {
                inner.notify(&uid);
            }
        }
        drop(inner);
        self.synced.send_modify(|synced| _ = synced.insert(child_kind));
    }

    /// Applies an event from a watch of children to the cache.
    fn see(&self, writer: &Writer, child_kind: ChildKind, kind: &Kind, seen: &Delta<(Key, Option<Arc<str>>)>) {
        match seen {
            Delta::Listed(_, live) => self.upsert_initial(child_kind, live),
            Delta::Changed((key, _), live) => {
                if self.upsert(child_kind, live).is_none() && child_kind == ChildKind::Service {
                    // The owner of a Service can change without a deletion.
                    self.disown(child_kind, live);
                }
                if child_kind == ChildKind::Job
                    && let Some(owner) = self.owner_of_ended(live)
                {
                    // Later deletions of this Job are not reverted, because the Job has ended.
                    writer.remove(&owner, key);
                }
            }
            Delta::Gone(_, live) => self.remove_object(child_kind, live),
            Delta::Unreadable(_, _, error) => tracing::warn!(why = chain(error), "a child cannot be read"),
            Delta::Complete(list) => {
                self.retain_only(child_kind, list);
                if child_kind == ChildKind::KnativeService {
                    self.knative.synced();
                }
            }
            Delta::Failed(error) => {
                tracing::debug!(resource = &*kind.resource, why = chain(error), "watch failed");
                if child_kind == ChildKind::KnativeService {
                    self.knative.failed(error);
                }
            }
            Delta::Resumed => {}
        }
    }
}

impl Inner {
    fn notify(&self, uid: &str) {
        if let Some((_, notifier)) = self.notifiers.get(uid) {
            notifier.notify_one();
        }
    }

    fn advance(&mut self) {
        for owner in self.queue.advance() {
            if let Some((_, notifier)) = self.names.get(&owner).and_then(|uid| self.notifiers.get(uid)) {
                notifier.notify_one();
            }
        }
        self.notify_yielding();
    }

    /// Notifies the Functions whose held-up builds have to be suspended now.
    fn notify_yielding(&mut self) {
        let now: HashSet<JobName> = self.queue.yielding().cloned().collect();
        let new: Vec<&JobName> = now.difference(&self.yielding).collect();
        if !new.is_empty() {
            let is_new = |job: &Job| new.contains(&&name_in_queue(job));
            let concerned = self.children.iter().filter(|(_, children)| children.jobs.iter().any(is_new));
            for (_, notifier) in concerned.filter_map(|(uid, _)| self.notifiers.get(uid)) {
                notifier.notify_one();
            }
        }
        self.yielding = now;
    }

    fn put(&mut self, uid: &Arc<str>, child: Child) {
        let builds = match &child {
            Child::Job(_) => true,
            Child::Pod(pod) => pod.role != Role::Serving,
            _ => false,
        };
        self.children.entry(Arc::clone(uid)).or_default().put(child);
        if builds {
            self.count_builds(uid);
        }
    }

    /// Updates the builds of a Function in the queue, and notifies the Functions that are admitted as a result.
    fn count_builds(&mut self, children: &str) {
        let Some(children) = self.children.get(children) else { return };
        for job in &children.jobs {
            let uid = &job.identity.uid;
            let mut pods = children.pods.iter().filter(|pod| pod.is_of(uid) && !pod.over).peekable();
            if pods.peek().is_some() {
                self.refused.remove(uid);
            }
            if job.progress != Progress::Running || job.identity.terminating {
                self.refused.remove(uid);
                self.queue.ended(&name_in_queue(job));
                continue;
            }
            let state = if job.suspension.is_some() {
                BuildState::Suspended
            } else if self.refused.contains(uid) {
                BuildState::HeldUp(Hold::Refused)
            } else if pods.peek().is_some() && pods.clone().all(|pod| pod.problem.is_some()) {
                let is_unschedulable = pods.all(child_state::Pod::is_unschedulable);
                BuildState::HeldUp(if is_unschedulable { Hold::Unschedulable } else { Hold::Scheduled })
            } else {
                BuildState::Running
            };
            self.queue.runs(&name_in_queue(job), state);
        }
        self.advance();
    }

    /// Removes the matching children of a kind. Returns whether a child matched.
    fn remove(&mut self, uid: &Arc<str>, child_kind: ChildKind, is_gone: impl Fn(&ChildIdentity) -> bool) -> bool {
        let Some(children) = self.children.get_mut(uid) else { return false };
        let gone = children.remove(child_kind, is_gone);
        if children.is_empty() {
            self.children.remove(uid);
        }
        for child in &gone {
            if let Child::Job(job) = child {
                self.refused.remove(&job.identity.uid);
                self.queue.ended(&name_in_queue(job));
            }
        }
        match child_kind {
            ChildKind::Job => self.advance(),
            ChildKind::Pod if !gone.is_empty() => self.count_builds(uid),
            _ => {}
        }
        !gone.is_empty()
    }
}

/// Returns the Function UID from an object's labels.
fn function_label(live: &Value) -> &str {
    live["metadata"]["labels"][FUNCTION_UID].as_str().unwrap_or_default()
}

fn name_in_queue(job: &Job) -> JobName {
    (Arc::clone(&job.namespace), job.identity.name.as_str().into())
}

/// Watches all children of one kind until `stop`, and feeds the cache and then the drift loop.
pub async fn follow(cache: Arc<Cache>, writer: Writer, drift: Drift, child_kind: ChildKind, stop: CancellationToken) {
    let kind = child_kind.kind();
    let open = || writer.cluster().watch(&kind, Selection::labelled(MANAGED_BY, FUNCTION_CONTROLLER));
    let (mut events, mut shown) = (open(), Shown::default());
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        let key = |live: &Value| Some((kind.key_of(live)?, function_of(child_kind, live)));
        let note = |(key, of): &(Key, Option<Arc<str>>), count| {
            let noted = drift.note(key, count).or_else(|| of.is_some().then(|| key.clone()))?;
            Some((noted, of.clone()))
        };
        let Some(seen) = shown.take_noting(event, key, note) else { continue };
        let went_back = matches!(&seen, Delta::Complete(list) if list.went_back());
        cache.see(&writer, child_kind, &kind, &seen);
        if child_kind != ChildKind::Pod {
            drift.see_child(&kind, seen.map(|(key, _)| key));
        }
        if went_back {
            // The cache has ignored the states of this list as older than those from before the restore.
            cache.forget_versions(child_kind);
            (events, shown) = (open(), Shown::default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(namespace: &str, api_version: &str) -> Value {
        json!({
            "metadata": {
                "name": "hello-build-x", "namespace": namespace, "uid": namespace,
                "ownerReferences": [{"apiVersion": api_version, "kind": "Function", "uid": "1", "controller": true}],
            }
        })
    }

    #[test]
    fn the_lower_versions_of_a_restored_server_are_not_older() {
        let cache = Cache::new(1);
        let at = |version: &str| {
            let mut job = job("ours", "serverless.kyma-project.io/v1alpha1");
            job["metadata"]["resourceVersion"] = version.into();
            job
        };
        let is_at = |version: &str| cache.is_at(ChildKind::Job, "ours", "1", "hello-build-x", version);
        for version in ["900", "100"] {
            cache.upsert(ChildKind::Job, &at(version));
            assert!(is_at("900"));
        }
        cache.forget_versions(ChildKind::Pod);
        assert!(is_at("900"));
        cache.forget_versions(ChildKind::Job);
        assert!(!is_at("900"));
        cache.upsert(ChildKind::Job, &at("100"));
        assert!(is_at("100"));
    }

    #[test]
    fn a_child_in_another_namespace_or_of_another_kind_of_function_has_no_owner() {
        let (cache, version) = (Cache::new(1), "serverless.kyma-project.io/v1alpha1");
        cache.upsert(ChildKind::Job, &job("theirs", version));
        cache.upsert(ChildKind::Job, &job("ours", "example.org/v1"));
        assert_eq!(cache.children("ours", "1"), Children::default());
        cache.upsert(ChildKind::Job, &job("ours", version));
        cache.upsert(ChildKind::Job, &job("theirs", version));
        let jobs = cache.children("ours", "1").jobs;
        assert_eq!(jobs.iter().map(|job| &*job.identity.uid).collect::<Vec<_>>(), ["ours"]);
        cache.remove_object(ChildKind::Job, &job("theirs", version));
        assert_eq!(cache.children("ours", "1").jobs.len(), 1);
    }
}
