//! The messages that wait to be matched with the Alerts of a namespace.
//!
//! Invariant: adding a message matches no expression. Expressions of users may take long, and every sender of messages
//! waits for the lock around an inbox.
//! Invariant: memory is bounded in bytes. A message that does not fit is only counted, the least important ones first.
//! Invariant: the other messages keep their order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::notice::{CHANGE_REQUEST, Notice};
use crate::queue::at;

/// Maximum memory of all waiting messages, in bytes.
const BYTES: usize = 256 << 10;
/// Number of groups in which messages are counted. Further groups of a severity count as one of the others.
const GROUPS: usize = 32;

/// A message that is not matched with Alerts yet. Clones share the message.
#[derive(Clone, Debug)]
pub struct Unmatched {
    /// The message, without the fields of an Alert.
    pub notice: Arc<Notice>,
    /// The labels of the resource.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The time of the message.
    pub offered: Instant,
}

impl Unmatched {
    /// Returns the approximate memory, in bytes. Shared parts count for each clone.
    fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(|(label, value)| 64 + label.len() + value.len());
        self.notice.bytes() + labels.sum::<usize>()
    }

    /// Returns the parts by which a source selects a message, and which a summary shows.
    fn outline(&self) -> Self {
        let number = self.notice.metadata.get_key_value(CHANGE_REQUEST);
        let metadata = number.map(|(name, number)| (name.clone(), number.clone())).into_iter().collect();
        let (message, details) = (String::new(), BTreeMap::new());
        let notice = Notice { message, details, metadata, ..Notice::clone(&self.notice) };
        Self { notice: Arc::new(notice), ..self.clone() }
    }
}

/// Messages of one resource, reason and severity that did not fit.
#[derive(Debug)]
pub struct LeftOut {
    /// The first one, without its text and facts.
    pub first: Unmatched,
    /// Number of messages.
    pub times: u64,
}

/// The waiting messages.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Messages by priority, each with its number in the order of arrival.
    waiting: [VecDeque<(u64, Unmatched)>; 3],
    /// The number of the next message.
    next: u64,
    bytes: usize,
    left_out: BTreeMap<String, LeftOut>,
}

impl Inbox {
    /// Adds a message.
    pub fn push(&mut self, message: Unmatched) {
        self.bytes += message.bytes();
        self.waiting[at(message.notice.priority)].push_back((self.next, message));
        self.next += 1;
        while self.bytes > BYTES {
            let Some((_, oldest)) = self.waiting.iter_mut().rev().find_map(VecDeque::pop_front) else { break };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
            self.leave_out(&oldest);
        }
    }

    /// Removes and returns the message that waits for the longest time.
    pub fn pop(&mut self) -> Option<Unmatched> {
        let number = |at: &usize| self.waiting[*at].front().map_or(u64::MAX, |(number, _)| *number);
        let first = (0..self.waiting.len()).min_by_key(number)?;
        let (_, message) = self.waiting[first].pop_front()?;
        self.bytes = self.bytes.saturating_sub(message.bytes());
        Some(message)
    }

    /// Removes and returns the counts of messages that did not fit.
    pub fn take_left_out(&mut self) -> Vec<LeftOut> {
        std::mem::take(&mut self.left_out).into_values().collect()
    }

    /// Returns whether neither messages nor counts wait.
    pub fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty) && self.left_out.is_empty()
    }

    fn leave_out(&mut self, message: &Unmatched) {
        let notice = &message.notice;
        let group = format!("{} {} {}", notice.severity.as_str(), notice.reason, notice.subject());
        if let Some(known) = self.left_out.get_mut(&group) {
            known.times += 1;
            return;
        }
        let is_full = self.left_out.len() >= GROUPS;
        let mut others = self.left_out.values_mut();
        if is_full && let Some(other) = others.find(|other| other.first.notice.severity == notice.severity) {
            other.times += 1;
            return;
        }
        self.left_out.insert(group, LeftOut { first: message.outline(), times: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::Priority;
    use crate::queue::tests::notice;

    fn push(inbox: &mut Inbox, notice: Notice) {
        inbox.push(Unmatched { notice: Arc::new(notice), labels: Arc::default(), offered: Instant::now() });
    }

    fn keys(inbox: &mut Inbox) -> Vec<String> {
        std::iter::from_fn(|| inbox.pop()).map(|message| message.notice.key.clone()).collect()
    }

    #[test]
    fn messages_of_all_priorities_keep_their_order() {
        let mut inbox = Inbox::default();
        for (name, priority) in [("a", Priority::Routine), ("b", Priority::Failure), ("c", Priority::State)] {
            push(&mut inbox, notice(name, priority));
        }
        push(&mut inbox, notice("d", Priority::Routine));
        assert_eq!(keys(&mut inbox), ["a Routine", "b Failure", "c State", "d Routine"]);
        assert!(inbox.is_empty() && inbox.bytes == 0);
    }

    #[test]
    fn memory_is_bounded_and_the_least_important_messages_are_only_counted() {
        let mut inbox = Inbox::default();
        push(&mut inbox, notice("failed", Priority::Failure));
        for number in 0..5000 {
            push(&mut inbox, notice(&number.to_string(), Priority::Routine));
            assert!(inbox.bytes <= BYTES, "{} bytes", inbox.bytes);
        }
        let left_out = inbox.take_left_out();
        let [only] = left_out.as_slice() else { panic!("{left_out:?}") };
        assert!(only.first.notice.message.is_empty() && only.first.notice.reason == "Reverted");
        let kept = keys(&mut inbox);
        assert_eq!((kept[0].as_str(), kept.last().unwrap().as_str()), ("failed Failure", "4999 Routine"));
        assert_eq!(only.times + kept.len() as u64, 5001, "each message is kept or counted");
    }

    #[test]
    fn counts_of_many_resources_have_bounded_memory_and_keep_their_severity() {
        let mut inbox = Inbox::default();
        let mut pushed = [0_u64; 2];
        for number in 0..4000_usize {
            let priority = if number % 2 == 0 { Priority::Failure } else { Priority::Routine };
            let metadata = BTreeMap::from([("team".to_owned(), "x".repeat(500))]);
            push(&mut inbox, Notice { name: number.to_string(), metadata, ..notice("a", priority) });
            pushed[number % 2] += 1;
        }
        let left_out = inbox.take_left_out();
        assert!(left_out.len() <= GROUPS + 1, "{} groups", left_out.len());
        assert!(left_out.iter().all(|one| one.first.notice.metadata.is_empty()));
        let mut found = [0_u64; 2];
        for group in &left_out {
            found[usize::from(group.first.notice.priority != Priority::Failure)] += group.times;
        }
        while let Some(message) = inbox.pop() {
            found[usize::from(message.notice.priority != Priority::Failure)] += 1;
        }
        assert_eq!(found, pushed);
    }
}
