//! The notices that wait for one Provider.
//!
//! Invariant: at most `per_minute` notices are sent in any minute, failures first. Routine notices beyond half of the
//! budget are only counted, and one notice sums them up.
//! Invariant: the order of notices about one object is kept.
//! Invariant: memory is bounded in bytes. A notice that does not fit is only counted.
//! Invariant: a notice that repeats an earlier one within five minutes is dropped. If the state changed in between, it
//! is not a repetition.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use crate::notice::{CHANGE_REQUEST, Notice, Priority, Severity};
use crate::outcome::Outcome;
use mainstay_object::Digest;

const MINUTE: Duration = Duration::from_secs(60);
/// Time within which a repetition is dropped.
const REPEATED: Duration = Duration::from_secs(300);
/// Time for which a notice is retried. A longer delay that a service requests ends `LAST` before this time, so that each
/// notice has a second attempt.
const TRIED: Duration = Duration::from_secs(3600);
/// Delays between attempts: the first one, doubled up to the last one.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(60);
/// Maximum memory of all waiting notices, in bytes.
const BYTES: usize = 256 << 10;
/// Number of minutes' budgets of failures, and of states, that may wait. A further notice would be minutes late, so it
/// is only counted.
const MINUTES: usize = 4;
/// Maximum number of known keys.
const KEYS: usize = 1024;
/// Maximum number of reasons that a summary lists.
const REASONS: usize = 8;
/// The budget of a Provider that does not set one.
const PER_MINUTE: u32 = 20;

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this notice, then call [`Queue::settle`].
    Send(Box<Notice>),
    /// No notice is due before this time.
    Wait(Duration),
    /// No notice waits.
    Idle,
}

#[derive(Debug)]
struct Item {
    notice: Notice,
    offered: Duration,
}

/// The notices that were counted instead of sent.
#[derive(Debug)]
struct More {
    first: Notice,
    since: Duration,
    reasons: BTreeMap<String, u64>,
    others: u64,
}

/// The waiting notices. Times are durations since a fixed instant.
#[derive(Debug)]
pub struct Queue {
    per_minute: usize,
    /// Waiting notices by priority.
    waiting: [VecDeque<Item>; 3],
    bytes: usize,
    in_flight: Option<Item>,
    /// Times and priorities of the notices of the last minute.
    sent: VecDeque<(Duration, Priority)>,
    /// Digests of the keys of recent notices, with their time and the digest of their topic. Names that users choose are long.
    recent: HashMap<Digest, (Duration, Digest)>,
    more: Option<Box<More>>,
    failures: u32,
    retry_at: Duration,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            per_minute: PER_MINUTE as usize,
            waiting: std::array::from_fn(|_| VecDeque::new()),
            bytes: 0,
            in_flight: None,
            sent: VecDeque::new(),
            recent: HashMap::new(),
            more: None,
            failures: 0,
            retry_at: Duration::ZERO,
        }
    }
}

impl Queue {
    /// Sets the budget; `None` is the default.
    pub fn set_budget(&mut self, per_minute: Option<u32>) {
        self.per_minute = per_minute.unwrap_or(PER_MINUTE).max(2) as usize;
    }

    /// Ends the wait after failures, because the settings of the Provider changed.
    pub fn retry_now(&mut self) {
        (self.failures, self.retry_at) = (0, Duration::ZERO);
    }

    /// Adds a notice.
    pub fn offer(&mut self, notice: Notice, now: Duration) {
        if self.is_repeated(&notice, now) {
            return;
        }
        self.forget_sent(now);
        let priority = notice.priority;
        let waiting = self.waiting[at(priority)].len();
        let is_full = match priority {
            Priority::Routine => waiting + self.sent_as(priority) >= self.cap(priority),
            Priority::Failure | Priority::State => waiting >= MINUTES * self.per_minute,
        };
        if is_full {
            return self.count(notice, 1, now);
        }
        if priority == Priority::Failure {
            self.promote(&notice.topic());
        }
        self.bytes += notice.bytes();
        self.waiting[at(priority)].push_back(Item { notice, offered: now });
        self.shed(now);
    }

    /// Returns the next step.
    pub fn next(&mut self, now: Duration) -> Next {
        if self.in_flight.is_some() {
            return Next::Idle;
        }
        self.give_up(now);
        self.forget_sent(now);
        self.sum_up(now);
        let sum_due = self.more.as_ref().map(|more| more.since + MINUTE);
        if self.waiting.iter().all(VecDeque::is_empty) {
            return sum_due.map_or(Next::Idle, Next::Wait);
        }
        if now < self.retry_at {
            return Next::Wait(self.retry_at);
        }
        let is_allowed = |priority: Priority| {
            !self.waiting[at(priority)].is_empty()
                && self.sent.len() < self.per_minute
                && self.sent_as(priority) < self.cap(priority)
        };
        let order = [Priority::Failure, Priority::State, Priority::Routine];
        let Some(priority) = order.into_iter().find(|priority| is_allowed(*priority)) else {
            return Next::Wait(self.sent.front().map_or(now, |(time, _)| *time) + MINUTE);
        };
        let Some(item) = self.waiting[at(priority)].pop_front() else { return Next::Idle };
        self.bytes = self.bytes.saturating_sub(item.notice.bytes());
        self.sent.push_back((now, priority));
        let notice = item.notice.clone();
        self.in_flight = Some(item);
        Next::Send(Box::new(notice))
    }

    /// Handles the outcome of the notice in flight.
    pub fn settle(&mut self, outcome: &Outcome, now: Duration) {
        let Some(item) = self.in_flight.take() else { return };
        match outcome {
            Outcome::Delivered | Outcome::Refused(_) => self.retry_now(),
            Outcome::Retry { after, .. } => {
                self.failures = self.failures.saturating_add(1);
                let delay = FIRST.saturating_mul(1 << self.failures.saturating_sub(1).min(6)).min(LAST);
                let latest = (item.offered + TRIED).saturating_sub(LAST).max(now + delay);
                self.retry_at = (now + after.unwrap_or(delay).max(delay)).min(latest);
                self.bytes += item.notice.bytes();
                let topic = item.notice.topic();
                let failures = &self.waiting[at(Priority::Failure)];
                let is_overtaken = failures.iter().any(|waiting| waiting.notice.topic() == topic);
                let priority = if is_overtaken { Priority::Failure } else { item.notice.priority };
                self.waiting[at(priority)].push_front(item);
            }
        }
    }

    /// Drops all notices.
    pub fn clear(&mut self) {
        *self = Self { per_minute: self.per_minute, ..Self::default() };
    }

    /// Maximum number of notices of a priority in a minute. The rest of the budget is reserved for higher priorities.
    fn cap(&self, priority: Priority) -> usize {
        match priority {
            Priority::Failure => self.per_minute,
            Priority::State => (self.per_minute * 3 / 4).max(1),
            Priority::Routine => (self.per_minute / 2).max(1),
        }
    }

    fn sent_as(&self, priority: Priority) -> usize {
        self.sent.iter().filter(|(_, sent)| *sent == priority).count()
    }

    fn forget_sent(&mut self, now: Duration) {
        while self.sent.front().is_some_and(|(time, _)| *time + MINUTE <= now) {
            self.sent.pop_front();
        }
    }

    /// Returns whether a notice repeats an earlier one, and records it. When a resource has a new state, notices about
    /// its other states no longer count as repetitions.
    fn is_repeated(&mut self, notice: &Notice, now: Duration) -> bool {
        let (key, topic) = (Digest::of(notice.key.as_bytes()), Digest::of(notice.topic().as_bytes()));
        if notice.object.is_none() {
            self.recent.retain(|other, (_, of)| *of != topic || *other == key);
        }
        if self.recent.get(&key).is_some_and(|(time, _)| *time + REPEATED > now) {
            return true;
        }
        if self.recent.len() >= KEYS {
            self.recent.retain(|_, (time, _)| *time + REPEATED > now);
            if self.recent.len() >= KEYS {
                self.recent.clear();
            }
        }
        self.recent.insert(key, (now, topic));
        false
    }

    /// Moves waiting notices about an object before the failure of the object, to keep their order.
    fn promote(&mut self, topic: &str) {
        for priority in [Priority::State, Priority::Routine] {
            let of = &mut self.waiting[at(priority)];
            if !of.iter().any(|item| item.notice.topic() == topic) {
                continue;
            }
            let (earlier, rest) = std::mem::take(of).into_iter().partition(|item| item.notice.topic() == topic);
            *of = rest;
            let earlier: VecDeque<Item> = earlier;
            self.waiting[at(Priority::Failure)].extend(earlier);
        }
    }

    /// Removes notices that were retried for an hour, and counts them.
    fn give_up(&mut self, now: Duration) {
        for priority in [Priority::Failure, Priority::State, Priority::Routine] {
            while self.waiting[at(priority)].front().is_some_and(|item| item.offered + TRIED <= now) {
                let Some(item) = self.waiting[at(priority)].pop_front() else { break };
                self.bytes = self.bytes.saturating_sub(item.notice.bytes());
                self.count(item.notice, 1, now);
            }
        }
    }

    /// Removes notices until the others fit into memory, and counts the removed ones. The least important notices are
    /// removed first, and among these the oldest.
    fn shed(&mut self, now: Duration) {
        while self.bytes > BYTES {
            let Some(item) = self.waiting.iter_mut().rev().find_map(VecDeque::pop_front) else { break };
            self.bytes = self.bytes.saturating_sub(item.notice.bytes());
            self.count(item.notice, 1, now);
        }
    }

    /// Counts notices like this one for the summary, and sends none of them.
    pub fn count(&mut self, notice: Notice, times: u64, now: Duration) {
        let reason = notice.reason.clone();
        let more = self.more.get_or_insert_with(|| {
            Box::new(More { first: notice.clone(), since: now, reasons: BTreeMap::new(), others: 0 })
        });
        if notice.severity == Severity::Error {
            more.first.severity = Severity::Error;
        }
        if more.reasons.len() < REASONS || more.reasons.contains_key(&reason) {
            *more.reasons.entry(reason).or_default() += times;
        } else {
            more.others += times;
        }
    }

    /// Adds the summary once it is due, but not before the receiver responds again.
    fn sum_up(&mut self, now: Duration) {
        if self.failures > 0 || self.more.as_ref().is_none_or(|more| more.since + MINUTE > now) {
            return;
        }
        let Some(mut more) = self.more.take() else { return };
        // The sum is about more than one pull request.
        more.first.metadata.remove(CHANGE_REQUEST);
        let total = more.others + more.reasons.values().sum::<u64>();
        let mut parts: Vec<_> = more.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        parts.extend((more.others > 0).then(|| format!("{} others", more.others)));
        let message = format!("and {total} more: {}", parts.join(", "));
        let priority = if more.first.severity == Severity::Error { Priority::Failure } else { Priority::State };
        let (commit, details, object) = (None, BTreeMap::new(), None);
        let reason = "MoreMessages".to_owned();
        let notice = Notice { object, priority, reason, message, commit, details, ..more.first };
        self.bytes += notice.bytes();
        self.waiting[at(priority)].push_back(Item { notice, offered: now });
        self.shed(now);
    }
}

/// Returns the index of a priority, the most important one first.
pub(crate) const fn at(priority: Priority) -> usize {
    match priority {
        Priority::Failure => 0,
        Priority::State => 1,
        Priority::Routine => 2,
    }
}

#[cfg(test)]
pub(crate) mod tests;
