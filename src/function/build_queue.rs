//! Who may build now: at most so many builds at once in the whole cluster, and fair between namespaces.
//!
//! A namespace's next build comes before another namespace's second one; within a namespace, and between equals, who
//! asked first comes first. A Function waits once, whatever its inputs have become meanwhile.
//!
//! A build counts from its Job's creation to the Job's end, but not while something is known to hold it up: no node takes
//! its pod, its image cannot be pulled, a quota refuses the pod. Such a build does no work and may never do any; it would
//! keep everybody else waiting until its deadline. For the order between namespaces it counts all the same.
//!
//! Held up or not, there are never more than [`MOST`] times the limit of them in the cluster, and [`MOST_OF_ONE`] times
//! the limit in a namespace: whoever did not count the held up ones at all would put any number of pods before a cluster
//! that has no room for them, and one namespace could take all places again.
//!
//! Invariant: nothing is granted unless it and the builds that work are together within the limit. More than the limit
//! may work for a while after builds that were held up go on, and where the limit is lower than it was: then nothing
//! begins until there is room.
//! Invariant: what runs is what the cluster says runs; nothing of the queue has to be remembered by a new agent.
//!
//! Deliberately absent: what is built, how it is found out that a build is held up, and how a Job ends that nobody can
//! place. Its own deadline ends it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::drift::Owner;

/// Builds that have not come to their end, those that are held up among them: so many times the limit at most.
const MOST: usize = 4;
/// The same of one namespace.
const MOST_OF_ONE: usize = 2;

/// A Job: namespace and name.
pub type JobName = (Arc<str>, Arc<str>);

/// The queue.
#[derive(Debug)]
pub struct BuildQueue {
    limit: usize,
    /// Jobs that have not come to their end.
    unfinished: HashMap<JobName, Pace>,
    /// Functions that may create a Job now, with their namespace.
    granted: HashMap<Owner, Arc<str>>,
    /// Functions that wait, in the order in which they came.
    waiting: Vec<Waiting>,
}

#[derive(Clone, Debug)]
struct Waiting {
    function: Owner,
    namespace: Arc<str>,
}

/// How a build that has begun gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It works, as far as is known.
    Works,
    /// Its pod is known to be kept from its work.
    HeldUp,
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Builds that work, or may begin.
    pub building: usize,
    /// Builds that have begun and are held up.
    pub held_up: usize,
    /// Functions that wait for their turn.
    pub waiting: usize,
}

/// Whether a Function may build now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may create its Job.
    Now,
    /// It has to wait.
    Wait {
        /// Its position, counted from 1.
        position: usize,
    },
}

impl BuildQueue {
    /// A queue that lets so many builds run at once, at least one.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), unfinished: HashMap::new(), granted: HashMap::new(), waiting: Vec::new() }
    }

    /// A Function wants to build. It waits from now on unless its turn has come.
    pub fn ask(&mut self, function: &Owner, namespace: &Arc<str>) -> Turn {
        if self.granted.contains_key(function) {
            return Turn::Now;
        }
        if !self.waiting.iter().any(|waiting| waiting.function == *function) {
            self.waiting.push(Waiting { function: Arc::clone(function), namespace: Arc::clone(namespace) });
        }
        if self.has_room() && self.first().is_some_and(|first| first == *function) {
            self.grant(function);
            return Turn::Now;
        }
        Turn::Wait { position: self.position(function) }
    }

    /// A Function does not want to build any more, or has created its Job.
    pub fn withdraw(&mut self, function: &Owner) {
        self.granted.remove(function);
        self.waiting.retain(|waiting| waiting.function != *function);
    }

    /// This Job has not come to its end, and gets on like this.
    pub fn runs(&mut self, job: &JobName, pace: Pace) {
        match self.unfinished.get_mut(job) {
            Some(known) => *known = pace,
            None => _ = self.unfinished.insert(job.clone(), pace),
        }
    }

    /// This Job ended or is gone.
    pub fn ended(&mut self, job: &JobName) {
        self.unfinished.remove(job);
    }

    /// Lets those who are next create their Jobs, as far as there is room; who they are.
    pub fn advance(&mut self) -> Vec<Owner> {
        let mut next = Vec::new();
        while self.has_room() {
            let Some(first) = self.first() else { break };
            self.grant(&first);
            next.push(first);
        }
        next
    }

    /// How many builds and Functions there are.
    pub fn lengths(&self) -> Lengths {
        let held_up = self.held_up();
        let building = self.unfinished.len() - held_up + self.granted.len();
        Lengths { building, held_up, waiting: self.waiting.len() }
    }

    fn held_up(&self) -> usize {
        self.unfinished.values().filter(|pace| **pace == Pace::HeldUp).count()
    }

    /// Whether one more may begin, whoever it is.
    fn has_room(&self) -> bool {
        let Lengths { building, held_up, .. } = self.lengths();
        building < self.limit && building + held_up < self.limit.saturating_mul(MOST)
    }

    fn grant(&mut self, function: &Owner) {
        let at = self.waiting.iter().position(|waiting| waiting.function == *function);
        if let Some(at) = at {
            let waiting = self.waiting.remove(at);
            self.granted.insert(waiting.function, waiting.namespace);
        }
    }

    /// How many builds of each namespace have begun or may begin.
    fn busy(&self) -> HashMap<&str, usize> {
        let mut busy: HashMap<&str, usize> = HashMap::new();
        for namespace in self.granted.values().chain(self.unfinished.keys().map(|(namespace, _)| namespace)) {
            *busy.entry(namespace).or_default() += 1;
        }
        busy
    }

    /// For each that waits which build of its namespace it would be, counted from 1.
    fn rounds(&self) -> Vec<usize> {
        let mut begun = self.busy();
        self.waiting
            .iter()
            .map(|waiting| {
                let count = begun.entry(&waiting.namespace).or_default();
                *count += 1;
                *count
            })
            .collect()
    }

    /// Who is next, of those whose namespace may have one more.
    fn first(&self) -> Option<Owner> {
        let most = self.limit.saturating_mul(MOST_OF_ONE);
        let rounds = self.rounds();
        let may = rounds.iter().enumerate().filter(|(_, round)| **round <= most);
        let first = may.min_by_key(|(at, round)| (**round, *at))?.0;
        Some(Arc::clone(&self.waiting[first].function))
    }

    /// Its position, counted from 1; the last one's for who does not wait.
    fn position(&self, function: &Owner) -> usize {
        let rounds = self.rounds();
        let Some(own) = self.waiting.iter().position(|waiting| waiting.function == *function) else {
            return self.waiting.len();
        };
        let place = (rounds[own], own);
        rounds.iter().enumerate().filter(|(at, round)| (**round, *at) < place).count() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(queue: &mut BuildQueue, function: &str) -> String {
        let namespace = function.split('/').next().unwrap();
        match queue.ask(&function.into(), &namespace.into()) {
            Turn::Now => "now".to_owned(),
            Turn::Wait { position } => position.to_string(),
        }
    }

    fn job(function: &str) -> JobName {
        let (namespace, name) = function.split_once('/').unwrap();
        (namespace.into(), name.into())
    }

    fn start(queue: &mut BuildQueue, function: &str) {
        queue.runs(&job(function), Pace::Works);
        queue.withdraw(&function.into());
    }

    /// Builds that work or may begin, builds that are held up, and Functions that wait.
    fn numbers(queue: &BuildQueue) -> [usize; 3] {
        let Lengths { building, held_up, waiting } = queue.lengths();
        [building, held_up, waiting]
    }

    /// Lets so many Functions of a namespace begin, one after the other, and be held up.
    fn hold_up(queue: &mut BuildQueue, namespace: &str, count: usize) {
        for name in (1..=count).map(|n| format!("{namespace}/{n}")) {
            assert_eq!(ask(queue, &name), "now", "{name}");
            start(queue, &name);
            queue.runs(&job(&name), Pace::HeldUp);
        }
    }

    #[test]
    fn lets_no_more_build_than_the_limit_and_the_others_wait_in_line() {
        let mut queue = BuildQueue::new(2);
        let turns = ["a/1", "a/2", "a/3", "a/4"].map(|name| ask(&mut queue, name));
        assert_eq!(turns, ["now", "now", "1", "2"]);
        assert_eq!(ask(&mut queue, "a/1"), "now", "a turn stays until it is used");
        start(&mut queue, "a/1");
        assert_eq!((numbers(&queue), queue.advance()), ([2, 0, 2], vec![]));
        queue.ended(&job("a/1"));
        assert_eq!(queue.advance(), [Owner::from("a/3")]);
        assert_eq!(ask(&mut queue, "a/4"), "1");
    }

    #[test]
    fn one_namespace_does_not_keep_another_waiting() {
        let mut queue = BuildQueue::new(2);
        for name in ["a/1", "a/2", "a/3", "a/4"] {
            ask(&mut queue, name);
        }
        let positions = ["b/1", "b/2", "a/3", "a/4", "c/1"].map(|name| ask(&mut queue, name));
        assert_eq!(positions, ["1", "2", "3", "4", "2"]);
        let positions = ["b/1", "c/1", "b/2", "a/3", "a/4"].map(|name| ask(&mut queue, name));
        assert_eq!(positions, ["1", "2", "3", "4", "5"]);
        start(&mut queue, "a/1");
        queue.ended(&job("a/1"));
        assert_eq!(queue.advance(), [Owner::from("b/1")]);
    }

    #[test]
    fn jobs_that_run_already_count() {
        let mut queue = BuildQueue::new(1);
        queue.runs(&job("a/old"), Pace::Works);
        queue.runs(&job("a/old"), Pace::Works);
        assert_eq!(ask(&mut queue, "a/1"), "1");
        queue.ended(&job("a/old"));
        assert_eq!(queue.advance(), [Owner::from("a/1")]);
    }

    #[test]
    fn who_gives_up_makes_room() {
        let mut queue = BuildQueue::new(1);
        assert_eq!([ask(&mut queue, "a/1"), ask(&mut queue, "a/2"), ask(&mut queue, "a/3")], ["now", "1", "2"]);
        queue.withdraw(&"a/2".into());
        queue.withdraw(&"a/1".into());
        assert_eq!((queue.advance(), numbers(&queue)), (vec![Owner::from("a/3")], [1, 0, 0]));
    }

    #[test]
    fn a_build_that_is_held_up_keeps_nobody_waiting() {
        let mut queue = BuildQueue::new(2);
        for name in ["a/1", "a/2"] {
            ask(&mut queue, name);
            start(&mut queue, name);
        }
        assert_eq!([ask(&mut queue, "a/3"), ask(&mut queue, "b/1")], ["1", "1"]);
        assert_eq!((numbers(&queue), queue.advance()), ([2, 0, 2], vec![]));
        queue.runs(&job("a/1"), Pace::HeldUp);
        queue.runs(&job("a/2"), Pace::HeldUp);
        assert_eq!(numbers(&queue), [0, 2, 2]);
        assert_eq!(queue.advance(), [Owner::from("b/1"), Owner::from("a/3")], "their namespace comes after the others");
        assert_eq!(numbers(&queue), [2, 2, 0]);
        queue.ended(&job("a/1"));
        assert_eq!(numbers(&queue), [2, 1, 0]);
        assert_eq!(ask(&mut queue, "b/2"), "1", "the end of what does not count makes no room");
    }

    #[test]
    fn a_build_that_goes_on_counts_again_and_nothing_begins_until_there_is_room() {
        let mut queue = BuildQueue::new(1);
        hold_up(&mut queue, "a", 1);
        assert_eq!(ask(&mut queue, "b/1"), "now");
        start(&mut queue, "b/1");
        queue.runs(&job("a/1"), Pace::Works);
        assert_eq!(numbers(&queue), [2, 0, 0]);
        assert_eq!(ask(&mut queue, "c/1"), "1");
        queue.ended(&job("b/1"));
        assert_eq!((queue.advance(), numbers(&queue)), (vec![], [1, 0, 1]), "the limit is 1");
        queue.ended(&job("a/1"));
        assert_eq!(queue.advance(), [Owner::from("c/1")]);
    }

    #[test]
    fn a_namespace_has_so_many_builds_that_are_held_up_and_no_more() {
        let mut queue = BuildQueue::new(2);
        hold_up(&mut queue, "a", 4);
        assert_eq!(ask(&mut queue, "a/5"), "1");
        assert_eq!((queue.advance(), numbers(&queue)), (vec![], [0, 4, 1]));
        assert_eq!(ask(&mut queue, "b/1"), "now", "whoever waits for its own namespace is in nobody's way");
        assert_eq!(ask(&mut queue, "a/5"), "1");
        queue.ended(&job("a/4"));
        assert_eq!(queue.advance(), [Owner::from("a/5")]);
    }

    #[test]
    fn the_cluster_has_so_many_builds_that_are_held_up_and_no_more() {
        let mut queue = BuildQueue::new(1);
        for namespace in ["a", "b", "c", "d"] {
            hold_up(&mut queue, namespace, 1);
        }
        assert_eq!((ask(&mut queue, "e/1"), queue.advance(), numbers(&queue)), ("1".to_owned(), vec![], [0, 4, 1]));
        queue.ended(&job("c/1"));
        assert_eq!(queue.advance(), [Owner::from("e/1")]);
    }
}
