//! The build queue limits concurrent builds in the cluster and shares them fairly between namespaces.
//!
//! Order: a namespace with fewer builds comes first. Among equals, the namespace whose last build is oldest comes
//! first, then the Function that was queued first. A Function keeps its position if its inputs change.
//!
//! A build counts from the creation of its Job to the end of the Job, unless it is held up: its pod is unschedulable,
//! its image cannot be pulled, or a quota refuses its pod. A held-up build could block the queue until its deadline, so
//! it counts only for the order between namespaces.
//!
//! The scheduled pod of a held-up build reserves node resources. A held-up build [yields](BuildQueue::must_yield), and
//! its Job is suspended, if another build waits for its slot, or if an older build of its namespace is held up. A
//! suspended build has no pod and does not count. It is queued again after a backoff.
//!
//! With held-up builds, at most [`MAX_UNFINISHED`] times the limit exist in the cluster, and [`MAX_PER_NAMESPACE`]
//! times the limit in a namespace. Without these bounds, pods of held-up builds could accumulate, and one namespace
//! could take all slots.
//!
//! With at least [`SHARED`] slots, a namespace gets at most half of the free slots, so long builds do not block other
//! namespaces. With fewer slots, a namespace gets the last slot only if no other namespace waits. The next namespace
//! then waits for at most one build deadline per queued namespace.
//!
//! Invariant: a build is admitted only if the running builds and the new build together are within the limit. The count
//! may exceed the limit after held-up builds continue or the limit is lowered; no build is admitted until a slot is
//! free. Invariant: the running builds are derived from the Jobs in the cluster, so a new agent needs no stored state.
//!
//! Not here: detection and suspension of held-up builds, and build deadlines.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_object::Owner;

/// Maximum number of unfinished builds, including held-up ones, as a multiple of the limit.
const MAX_UNFINISHED: usize = 4;
/// Maximum number of unfinished builds of one namespace, as a multiple of the limit.
const MAX_PER_NAMESPACE: usize = 2;

/// Number of slots from which on one namespace cannot take all of them.
pub(crate) const SHARED: usize = 3;

/// A Job: namespace and name.
pub type JobName = (Arc<str>, Arc<str>);

/// A fair queue of builds.
#[derive(Debug)]
pub struct BuildQueue {
    limit: usize,
    /// Unfinished Jobs, each with the value of `begun` when it started or was resumed.
    unfinished: HashMap<JobName, (BuildState, u64)>,
    /// Admitted Functions whose Job does not exist yet, with their namespace.
    admitted: HashMap<Owner, Arc<str>>,
    /// Functions that wait in the queue, oldest first.
    waiting: Vec<Waiting>,
    /// The value of `begun` at each namespace's last start of a build. Cleared when the queue is empty.
    turns: HashMap<Arc<str>, u64>,
    begun: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    function: Owner,
    namespace: Arc<str>,
}

/// The state of an unfinished build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildState {
    /// The build runs or may start.
    Running,
    /// The build's pod cannot start.
    HeldUp(Hold),
    /// The build's Job is suspended, so it has no pod.
    Suspended,
}

/// The resources that a held-up build occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// None: the cluster refuses to create the build's pod.
    Refused,
    /// An entry in the scheduler's queue: no node has room for the build's pod.
    Unschedulable,
    /// Node resources: the build's pod was scheduled but cannot start.
    Scheduled,
}

/// The lengths of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLengths {
    /// Builds that run or are admitted.
    pub building: usize,
    /// Held-up builds. They have a pod, or may get one.
    pub held_up: usize,
    /// Builds that are suspended.
    pub suspended: usize,
    /// Functions that wait in the queue.
    pub waiting: usize,
}

/// Whether a Function may build now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The Function is not in the queue.
    Absent,
    /// The Function may create its Job.
    Admitted,
    /// The Function has to wait.
    Queued {
        /// Position of the Function in the queue, from 1.
        position: usize,
    },
}

impl BuildQueue {
    /// Sets the limit of concurrent builds, at least 1. Running builds continue.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
    }

    /// Returns a queue for this many concurrent builds, at least 1.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            unfinished: HashMap::new(),
            admitted: HashMap::new(),
            waiting: Vec::new(),
            turns: HashMap::new(),
            begun: 0,
        }
    }

    /// Returns whether a Function may build now, and otherwise its position in the queue.
    pub fn admission(&self, function: &Owner) -> Admission {
        if self.admitted.contains_key(function) {
            return Admission::Admitted;
        }
        let at = self.waiting.iter().position(|waiting| waiting.function == *function);
        at.map_or(Admission::Absent, |at| Admission::Queued { position: self.position(at) })
    }

    /// Queues a Function and admits it immediately if a slot is free. A queued Function keeps its position.
    pub fn enqueue(&mut self, function: &Owner, namespace: &Arc<str>) -> Admission {
        if self.admission(function) == Admission::Absent {
            self.waiting.push(Waiting { function: function.clone(), namespace: Arc::clone(namespace) });
        }
        if self.has_room() && self.first().is_some_and(|first| first == *function) {
            self.admit(function);
        }
        self.admission(function)
    }

    /// Removes a Function that needs no build or has created its Job.
    pub fn withdraw(&mut self, function: &Owner) {
        self.admitted.remove(function);
        self.waiting.retain(|waiting| waiting.function != *function);
    }

    /// Records the state of an unfinished Job.
    pub fn runs(&mut self, job: &JobName, state: BuildState) {
        match self.unfinished.get_mut(job) {
            Some((known, _)) if *known != BuildState::Suspended || state == BuildState::Suspended => *known = state,
            _ => {
                self.take_turn(&job.0);
                self.unfinished.insert(job.clone(), (state, self.begun));
            }
        }
    }

    /// Whether a held-up build has to be suspended.
    pub(crate) fn must_yield(&self, job: &JobName) -> bool {
        let Some((BuildState::HeldUp(hold), begun)) = self.unfinished.get(job) else { return false };
        if *hold == Hold::Refused {
            return false;
        }
        let others = || self.unfinished.iter().filter(|(name, _)| *name != job);
        let is_scheduled = *hold == Hold::Scheduled;
        let waits_for_node = |state: BuildState| state == BuildState::HeldUp(Hold::Unschedulable);
        let takes_node = is_scheduled && others().any(|(_, (state, _))| waits_for_node(*state));
        // An unschedulable build may be waiting for resources of running builds.
        let counts = is_scheduled || !others().any(|(_, (state, _))| *state == BuildState::Running);
        let is_older = |(name, (state, since)): (&JobName, &(BuildState, u64))| {
            let has_pod = matches!(state, BuildState::HeldUp(Hold::Scheduled | Hold::Unschedulable));
            name.0 == job.0 && has_pod && since < begun
        };
        takes_node || self.is_blocked() || counts && others().any(is_older)
    }

    /// Returns the builds that have to be suspended.
    pub fn yielding(&self) -> impl Iterator<Item = &JobName> {
        self.unfinished.keys().filter(|job| self.must_yield(job))
    }

    /// Whether held-up builds are the only reason that Functions wait.
    fn is_blocked(&self) -> bool {
        !self.waiting.is_empty() && self.building() < self.limit && !self.has_room()
    }

    /// Records that a Job has ended or was deleted.
    pub fn ended(&mut self, job: &JobName) {
        self.unfinished.remove(job);
        if self.unfinished.is_empty() && self.admitted.is_empty() && self.waiting.is_empty() {
            // The order matters only while Functions wait.
            self.turns.clear();
        }
    }

    /// Admits Functions while slots are free, and returns these Functions.
    pub fn advance(&mut self) -> Vec<Owner> {
        let mut next = Vec::new();
        while self.has_room() {
            let Some(first) = self.first() else { break };
            self.admit(&first);
            next.push(first);
        }
        next
    }

    /// Returns the lengths of the queue.
    pub fn lengths(&self) -> QueueLengths {
        let count = |is: fn(BuildState) -> bool| self.unfinished.values().filter(|(state, _)| is(*state)).count();
        QueueLengths {
            building: count(|state| state == BuildState::Running) + self.admitted.len(),
            held_up: count(|state| matches!(state, BuildState::HeldUp(_))),
            suspended: count(|state| state == BuildState::Suspended),
            waiting: self.waiting.len(),
        }
    }

    /// Whether one more build may start in the cluster. A build whose pod the cluster refuses takes no room.
    fn has_room(&self) -> bool {
        let has_pod = |state: BuildState| matches!(state, BuildState::HeldUp(Hold::Scheduled | Hold::Unschedulable));
        let held_up = self.unfinished.values().filter(|(state, _)| has_pod(*state)).count();
        let building = self.building();
        building < self.limit && building + held_up < self.limit.saturating_mul(MAX_UNFINISHED)
    }

    /// Returns the number of running and admitted builds. A namespace counts for its share at most: users of a namespace
    /// can create Jobs that look like builds and never end.
    fn building(&self) -> usize {
        let most = if self.limit < SHARED { self.limit } else { self.limit.div_ceil(2) };
        let mut building: HashMap<&str, usize> = HashMap::new();
        let running = self.unfinished.iter().filter(|(_, (state, _))| *state == BuildState::Running);
        for namespace in self.admitted.values().chain(running.map(|((namespace, _), _)| namespace)) {
            *building.entry(namespace).or_default() += 1;
        }
        building.into_values().map(|count| count.min(most)).sum()
    }

    fn admit(&mut self, function: &Owner) {
        let at = self.waiting.iter().position(|waiting| waiting.function == *function);
        if let Some(at) = at {
            let waiting = self.waiting.remove(at);
            self.take_turn(&waiting.namespace);
            self.admitted.insert(waiting.function, waiting.namespace);
        }
    }

    fn take_turn(&mut self, namespace: &Arc<str>) {
        self.begun += 1;
        self.turns.insert(Arc::clone(namespace), self.begun);
    }

    /// Returns the number of unfinished and admitted builds per namespace, without suspended ones.
    fn busy(&self) -> HashMap<&str, usize> {
        let mut busy: HashMap<&str, usize> = HashMap::new();
        let unfinished = self.unfinished.iter().filter(|(_, (state, _))| *state != BuildState::Suspended);
        for namespace in self.admitted.values().chain(unfinished.map(|((namespace, _), _)| namespace)) {
            *busy.entry(namespace).or_default() += 1;
        }
        busy
    }

    /// Returns, for each queued Function, the rank of its build within its namespace, from 1, and the namespace's last
    /// turn.
    fn rounds(&self) -> Vec<(usize, u64)> {
        let mut begun = self.busy();
        self.waiting
            .iter()
            .map(|waiting| {
                let count = begun.entry(&waiting.namespace).or_default();
                *count += 1;
                (*count, self.turns.get(&waiting.namespace).copied().unwrap_or_default())
            })
            .collect()
    }

    /// Returns the number of running and admitted builds of a namespace.
    fn running(&self, namespace: &str) -> usize {
        let running = self.unfinished.iter().filter(|(_, (state, _))| *state == BuildState::Running);
        let namespaces = self.admitted.values().chain(running.map(|((namespace, _), _)| namespace));
        namespaces.filter(|other| ***other == *namespace).count()
    }

    /// Returns the next Function whose namespace may have one more build.
    fn first(&self) -> Option<Owner> {
        let most = self.limit.saturating_mul(MAX_PER_NAMESPACE);
        let rounds = self.rounds();
        let free = self.limit.saturating_sub(self.building());
        let has_share = |at: usize| self.limit < SHARED || self.running(&self.waiting[at].namespace) < free;
        let may = rounds.iter().enumerate().filter(|(at, (round, _))| *round <= most && has_share(*at));
        let first = may.min_by_key(|(at, round)| (**round, *at))?.0;
        Some(self.waiting[first].function.clone())
    }

    /// Returns the position in the queue, from 1, of the Function at this index.
    fn position(&self, own: usize) -> usize {
        let rounds = self.rounds();
        let place = (rounds[own], own);
        rounds.iter().enumerate().filter(|(at, round)| (**round, *at) < place).count() + 1
    }
}
