//! Who may build now: at most so many builds at once in the whole cluster, and fair between namespaces.
//!
//! A namespace's next build comes before another namespace's second one; within a namespace, and between equals, who
//! asked first comes first. A Function waits once, whatever its inputs have become meanwhile.
//!
//! A build counts from its Job's creation to the Job's end, whether its pod runs or waits for a node, for quota or for an
//! image: whoever did not count the waiting ones would put any number of pods before a cluster that has no room for
//! them. What waits for ever holds its place until the Job's deadline, which counts the waiting, too.
//!
//! Invariant: granted and running builds together are never more than the limit, but for Jobs that were running when
//! the limit was set.
//! Invariant: what runs is what the cluster says runs; nothing of the queue has to be remembered by a new agent.
//!
//! Deliberately absent: what is built, and how a Job ends that nobody can place. Its own deadline ends it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::drift::Owner;

/// A Job: namespace and name.
pub type JobName = (Arc<str>, Arc<str>);

/// The queue.
#[derive(Debug)]
pub struct BuildQueue {
    limit: usize,
    /// Jobs that have not come to their end.
    running: HashSet<JobName>,
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
        Self { limit: limit.max(1), running: HashSet::new(), granted: HashMap::new(), waiting: Vec::new() }
    }

    /// A Function wants to build. It waits from now on unless its turn has come.
    pub fn ask(&mut self, function: &Owner, namespace: &Arc<str>) -> Turn {
        if self.granted.contains_key(function) {
            return Turn::Now;
        }
        if !self.waiting.iter().any(|waiting| waiting.function == *function) {
            self.waiting.push(Waiting { function: Arc::clone(function), namespace: Arc::clone(namespace) });
        }
        if self.granted.len() + self.running.len() < self.limit && self.position(function) == 1 {
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

    /// This Job runs.
    pub fn runs(&mut self, job: &JobName) {
        if !self.running.contains(job) {
            self.running.insert(job.clone());
        }
    }

    /// This Job ended or is gone.
    pub fn ended(&mut self, job: &JobName) {
        self.running.remove(job);
    }

    /// Lets those who are next create their Jobs, as far as there is room; who they are.
    pub fn advance(&mut self) -> Vec<Owner> {
        let mut next = Vec::new();
        while self.granted.len() + self.running.len() < self.limit {
            let Some(first) = self.first() else { break };
            self.grant(&first);
            next.push(first);
        }
        next
    }

    /// How many builds run or were granted.
    pub fn building(&self) -> usize {
        self.running.len() + self.granted.len()
    }

    /// How many Functions wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn grant(&mut self, function: &Owner) {
        let at = self.waiting.iter().position(|waiting| waiting.function == *function);
        if let Some(at) = at {
            let waiting = self.waiting.remove(at);
            self.granted.insert(waiting.function, waiting.namespace);
        }
    }

    /// For each that waits how many builds of its namespace come before it.
    fn rounds(&self) -> Vec<usize> {
        let mut busy: HashMap<&str, usize> = HashMap::new();
        for namespace in self.granted.values().chain(self.running.iter().map(|(namespace, _)| namespace)) {
            *busy.entry(namespace).or_default() += 1;
        }
        let round = |waiting: &Waiting| {
            let count = busy.get(&*waiting.namespace).copied().unwrap_or(0);
            (Arc::clone(&waiting.namespace), count)
        };
        let mut next: HashMap<Arc<str>, usize> = self.waiting.iter().map(round).collect();
        self.waiting
            .iter()
            .map(|waiting| {
                let count = next.entry(Arc::clone(&waiting.namespace)).or_default();
                *count += 1;
                *count
            })
            .collect()
    }

    fn first(&self) -> Option<Owner> {
        let rounds = self.rounds();
        let first = rounds.iter().enumerate().min_by_key(|(at, round)| (**round, *at))?.0;
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
        queue.runs(&job(function));
        queue.withdraw(&function.into());
    }

    #[test]
    fn lets_no_more_build_than_the_limit_and_the_others_wait_in_line() {
        let mut queue = BuildQueue::new(2);
        let turns = ["a/1", "a/2", "a/3", "a/4"].map(|name| ask(&mut queue, name));
        assert_eq!(turns, ["now", "now", "1", "2"]);
        assert_eq!(ask(&mut queue, "a/1"), "now", "a turn stays until it is used");
        start(&mut queue, "a/1");
        assert_eq!((queue.building(), queue.waiting(), queue.advance()), (2, 2, vec![]));
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
        queue.runs(&job("a/old"));
        queue.runs(&job("a/old"));
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
        assert_eq!((queue.advance(), queue.waiting()), (vec![Owner::from("a/3")], 0));
    }
}
