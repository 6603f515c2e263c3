//! What is there of every Function: one cache, fed by one watch per kind.
//!
//! The same watches feed the backward loop, so that an object that was changed by hand is put back at once.
//!
//! Invariant: nothing is listed per Function, and a watch that tells nothing costs nothing.
//! Invariant: a child counts for the Function of its own namespace that controls it, whatever its labels say: a
//! reference to another namespace's Function, which anybody can write, leads to nobody.
//! Invariant: the queue of builds knows every unfinished Job, and which of them is held up: the one whose pods all have
//! trouble, or that has none because the cluster refuses to make one.
//! Invariant: what we wrote ourselves is in the cache before anyone decides again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::build_queue::{BuildQueue, JobName, Lengths, Pace, Turn};
use super::children;
use super::facts::{self, Deployment, Identity, Job, Progress, Role};
use super::family::{Child, Family, What, family_of, read};
use crate::api::names::{FUNCTION_CONTROLLER, MANAGED_BY};
use crate::cluster::{Cluster, Selection, WatchEvent};
use crate::drift::{self, Drift, Owner, Standing};

/// All that is there, and who is told when something changes.
#[derive(Debug)]
pub struct Cache {
    inner: Mutex<Inner>,
    /// Kinds that were seen in full.
    synced: watch::Sender<HashSet<What>>,
}

/// All by their family's name.
#[derive(Debug)]
struct Inner {
    families: HashMap<Arc<str>, Family>,
    /// Whom to tell, and how the Function is called.
    bells: HashMap<Arc<str>, (Owner, Arc<Notify>)>,
    /// Families by the Function's name.
    names: HashMap<Owner, Arc<str>>,
    queue: BuildQueue,
    /// UIDs of unfinished Jobs whose pods the cluster is known to refuse.
    refused: HashSet<String>,
}

impl Cache {
    /// An empty cache that lets so many builds run at once.
    pub fn new(builds: usize) -> Self {
        let (families, bells, names) = (HashMap::new(), HashMap::new(), HashMap::new());
        let inner = Inner { families, bells, names, queue: BuildQueue::new(builds), refused: HashSet::new() };
        Self { inner: Mutex::new(inner), synced: watch::Sender::default() }
    }

    /// Waits until everything that was there at one moment is known.
    pub async fn complete(&self) {
        // The sender lives as long as the cache does.
        let _ = self.synced.subscribe().wait_for(|synced| synced.len() == What::ALL.len()).await;
    }

    /// What is there of a Function.
    pub fn family(&self, namespace: &str, uid: &str) -> Family {
        self.lock().families.get(&family_of(namespace, uid)).cloned().unwrap_or_default()
    }

    /// Rings when something of a Function changes, or when it may build.
    pub fn enter(&self, owner: &Owner, namespace: &str, uid: &str) -> Arc<Notify> {
        let mut inner = self.lock();
        let family = family_of(namespace, uid);
        inner.names.insert(Arc::clone(owner), Arc::clone(&family));
        let (_, bell) = inner.bells.entry(family).or_insert_with(|| (Arc::clone(owner), Arc::default()));
        Arc::clone(bell)
    }

    /// The Function is gone.
    pub fn leave(&self, owner: &Owner, namespace: &str, uid: &str) {
        let mut inner = self.lock();
        let family = family_of(namespace, uid);
        inner.bells.remove(&family);
        if inner.names.get(owner) == Some(&family) {
            inner.names.remove(owner);
        }
        inner.queue.withdraw(owner);
        inner.advance();
    }

    /// A Function wants to build.
    pub fn ask(&self, owner: &Owner, namespace: &Arc<str>) -> Turn {
        self.lock().queue.ask(owner, namespace)
    }

    /// A Function does not want to build any more, or has created its Job.
    pub fn withdraw(&self, owner: &Owner) {
        let mut inner = self.lock();
        inner.queue.withdraw(owner);
        inner.advance();
    }

    /// Why this Job has no pod is known: it is held up until it has one.
    pub fn refused_a_pod(&self, namespace: &str, uid: &str, job: &Identity) {
        let mut inner = self.lock();
        let family = family_of(namespace, uid);
        if inner.families.get(&family).is_some_and(|family| family.jobs.iter().any(|one| one.identity.uid == job.uid)) {
            inner.refused.insert(job.uid.clone());
            inner.count_builds(&family);
        }
    }

    /// How many builds and how many Functions that wait there are.
    pub fn queue_lengths(&self) -> Lengths {
        self.lock().queue.lengths()
    }

    /// An object is there, as a watch or the answer to a write says.
    pub fn note(&self, what: What, live: &Value) -> Option<(Arc<str>, String)> {
        let (uid, child) = read(what, live)?;
        Some(self.enlist(uid, child))
    }

    /// An object was there before the watch: an agent before this one may have applied it.
    fn note_first(&self, what: What, live: &Value) -> Option<(Arc<str>, String)> {
        let (uid, mut child) = read(what, live)?;
        if let Child::Plain(_, identity) | Child::Deployment(Deployment { identity, .. }) = &mut child {
            let is_kept = !identity.terminating && !drift::is_added_to(children::reserved(what), live);
            identity.standing = Standing::of(live).filter(|_| is_kept);
        }
        Some(self.enlist(uid, child))
    }

    fn enlist(&self, uid: Arc<str>, child: Child) -> (Arc<str>, String) {
        let name = child.identity().name.clone();
        let mut inner = self.lock();
        inner.put(&uid, child);
        inner.ring(&uid);
        (uid, name)
    }

    /// Whether an object is still at this version.
    pub(super) fn is_at(&self, what: What, namespace: &str, uid: &str, name: &str, version: &str) -> bool {
        let inner = self.lock();
        let Some(family) = inner.families.get(&family_of(namespace, uid)) else { return false };
        family.identities(what).any(|identity| identity.name == name && identity.version == version)
    }

    /// An object is gone.
    pub fn drop_child(&self, what: What, live: &Value) {
        let Some((uid, child)) = read(what, live) else { return };
        let mut inner = self.lock();
        inner.remove(&uid, what, |identity| {
            identity.name == child.identity().name && identity.uid == child.identity().uid
        });
        inner.ring(&uid);
    }

    /// For which Function a Job was made that has come to its end.
    fn owner_of_ended(&self, job: &Value) -> Option<Owner> {
        let (family, _) = read(What::Job, job).filter(|_| facts::job(job).progress != Progress::Running)?;
        self.lock().bells.get(&family).map(|(owner, _)| Arc::clone(owner))
    }

    /// An object of a Function was deleted by us.
    pub fn drop_identity(&self, what: What, namespace: &str, uid: &str, gone: &Identity) {
        let family = family_of(namespace, uid);
        self.lock().remove(&family, what, |identity| identity.name == gone.name && identity.uid == gone.uid);
    }

    /// Of this kind, nothing is there but these.
    fn keep_only(&self, what: What, present: &HashSet<(Arc<str>, String)>) {
        let mut inner = self.lock();
        let all = inner.families.keys().cloned().collect::<Vec<_>>();
        for uid in all {
            let is_gone = |identity: &Identity| !present.contains(&(Arc::clone(&uid), identity.name.clone()));
            if inner.remove(&uid, what, is_gone) {
                inner.ring(&uid);
            }
        }
        drop(inner);
        self.synced.send_modify(|synced| _ = synced.insert(what));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn ring(&self, uid: &str) {
        if let Some((_, bell)) = self.bells.get(uid) {
            bell.notify_one();
        }
    }

    fn advance(&mut self) {
        for owner in self.queue.advance() {
            if let Some((_, bell)) = self.names.get(&owner).and_then(|uid| self.bells.get(uid)) {
                bell.notify_one();
            }
        }
    }

    fn put(&mut self, uid: &Arc<str>, child: Child) {
        let builds = match &child {
            Child::Job(_) => true,
            Child::Pod(pod) => pod.role != Role::Serving,
            _ => false,
        };
        self.families.entry(Arc::clone(uid)).or_default().put(child);
        if builds {
            self.count_builds(uid);
        }
    }

    /// Tells the queue how the builds of a Function get on, and rings who may begin because of it.
    fn count_builds(&mut self, family: &str) {
        let Some(family) = self.families.get(family) else { return };
        for job in &family.jobs {
            let uid = &job.identity.uid;
            let mut pods = family.pods.iter().filter(|pod| pod.is_of(uid) && !pod.over).peekable();
            if pods.peek().is_some() {
                self.refused.remove(uid);
            }
            if job.progress != Progress::Running || job.identity.terminating {
                self.refused.remove(uid);
                self.queue.ended(&name_in_queue(job));
            } else if self.refused.contains(uid) || pods.peek().is_some() && pods.all(|pod| pod.trouble.is_some()) {
                self.queue.runs(&name_in_queue(job), Pace::HeldUp);
            } else {
                self.queue.runs(&name_in_queue(job), Pace::Works);
            }
        }
        self.advance();
    }

    /// Takes out those of a kind that are gone; whether there were any.
    fn remove(&mut self, uid: &Arc<str>, what: What, is_gone: impl Fn(&Identity) -> bool) -> bool {
        let Some(family) = self.families.get_mut(uid) else { return false };
        let gone = family.remove(what, is_gone);
        if family.is_empty() {
            self.families.remove(uid);
        }
        for child in &gone {
            if let Child::Job(job) = child {
                self.refused.remove(&job.identity.uid);
                self.queue.ended(&name_in_queue(job));
            }
        }
        match what {
            What::Job => self.advance(),
            What::Pod if !gone.is_empty() => self.count_builds(uid),
            _ => {}
        }
        !gone.is_empty()
    }
}

fn name_in_queue(job: &Job) -> JobName {
    (Arc::clone(&job.namespace), job.identity.name.as_str().into())
}

/// Follows all children of one kind until `stop`, for the cache and for the backward loop.
pub async fn follow(cache: Arc<Cache>, cluster: Cluster, drift: Drift, what: What, stop: CancellationToken) {
    let kind = what.kind();
    let mut events = cluster.watch(&kind, Selection::labelled(MANAGED_BY, FUNCTION_CONTROLLER));
    let mut missing = HashSet::new();
    let mut present = HashSet::new();
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        match &event {
            WatchEvent::Begin => present.clear(),
            WatchEvent::Initial(live) => present.extend(cache.note_first(what, live)),
            WatchEvent::Applied(live) => {
                cache.note(what, live);
                if what == What::Job
                    && let Some(owner) = cache.owner_of_ended(live)
                {
                    // Whoever deletes it from now on does not want it back.
                    let identity = facts::identity(live);
                    let namespace = live.pointer("/metadata/namespace").and_then(Value::as_str);
                    drift.forget(&owner, &kind.key(namespace, &identity.name));
                }
            }
            WatchEvent::Deleted(live) => cache.drop_child(what, live),
            WatchEvent::Unreadable(live, error) => {
                tracing::warn!(why = crate::failure::chain(error), "a child cannot be read");
                present.extend(read(what, live).map(|(uid, child)| (uid, child.identity().name.clone())));
            }
            WatchEvent::Synced(_) => cache.keep_only(what, &std::mem::take(&mut present)),
            WatchEvent::Trouble(error) => {
                tracing::debug!(resource = &*kind.resource, why = crate::failure::chain(error), "watch failed");
            }
            WatchEvent::Resumed => {}
        }
        if what != What::Pod {
            drift.hear(&kind, event, &mut missing);
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
    fn a_child_in_another_namespace_or_of_another_kind_of_function_is_nobodys() {
        let (cache, version) = (Cache::new(1), "serverless.kyma-project.io/v1alpha1");
        cache.note(What::Job, &job("theirs", version));
        cache.note(What::Job, &job("ours", "example.org/v1"));
        assert_eq!(cache.family("ours", "1"), Family::default());
        cache.note(What::Job, &job("ours", version));
        cache.note(What::Job, &job("theirs", version));
        let jobs = cache.family("ours", "1").jobs;
        assert_eq!(jobs.iter().map(|job| &*job.identity.uid).collect::<Vec<_>>(), ["ours"]);
        cache.drop_child(What::Job, &job("theirs", version));
        assert_eq!(cache.family("ours", "1").jobs.len(), 1);
    }
}
