//! Decides which Events are written and when. Equal Events are aggregated, and Events that differ only in the object
//! are summed up, within rate limits.
//!
//! Invariant: the newest note of a series is written last, even if earlier ones were dropped.
//! Invariant: memory is bounded. Events that do not fit are counted as dropped, Routine Events first.
//! Invariant: failures are written before changes of state, and these before Routine Events.
//! Invariant: namespaces take turns, and Events of the namespace with the most pending ones are dropped first, so that
//! no namespace blocks the others.
//!
//! Not here: the content of an Event ([`event`](super::event)), rate limits ([`event_queue`](super::event_queue)),
//! requests ([`event_recorder`](super::event_recorder)) and clocks.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::event::{AggregationKey, Event, Occurrences, Priority, Reporter};
use super::event_queue::{EventQueue, namespace_of};
use super::event_sum::Sum;

/// An equal Event continues a series within this time of the last one, as in Kubernetes' own recorders.
const AGGREGATION_WINDOW: Duration = Duration::from_secs(360);
/// An Event about a different object is summed up with the last one within this time.
const SUM_WINDOW: Duration = Duration::from_secs(10);
/// Time that an Event waits for others with which it may be summed up.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of series in memory.
const MAX_AGGREGATED: usize = 2048;
/// Maximum number of attempts without a response.
const MAX_ATTEMPTS: u32 = 3;
/// The priorities in the order of writing.
const PRIORITIES: [Priority; 4] = [Priority::Failure, Priority::State, Priority::Routine, Priority::Detail];

struct AggregatedEvent {
    event: Event,
    /// The managed objects of the series.
    sum: Sum,
    /// Name of the Event object, the same for each attempt to write it.
    name: String,
    state: Written,
    /// Consecutive attempts without a response.
    unanswered: u32,
    seen: Occurrences,
    last: Instant,
    /// Whether a write is due.
    pending: bool,
}

/// Whether the Event object exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// The Event object was never sent.
    Never,
    /// The Event object was sent with this count, without a response.
    Perhaps(u32),
    /// The Event object exists.
    Surely,
}

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub identity: AggregationKey,
    pub namespace: String,
    pub name: String,
    pub how: How,
}

/// The request of a write, in core `v1`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum How {
    /// Creates an object.
    Create(Value),
    /// Updates the object of the series by a merge patch.
    Repeat(Value),
}

/// All series and their queues.
pub(super) struct Aggregator {
    reporter: Reporter,
    series: HashMap<AggregationKey, AggregatedEvent>,
    /// Events to write, in the order of [`PRIORITIES`].
    queues: [EventQueue; 4],
    pub(super) dropped: u64,
}

impl Aggregator {
    pub(super) fn new(reporter: Reporter) -> Self {
        Self { reporter, series: HashMap::new(), queues: PRIORITIES.map(EventQueue::new), dropped: 0 }
    }

    /// Adds an Event. `now` and `time` are the same moment on the two clocks.
    pub(super) fn add(&mut self, event: Event, now: Instant, time: Timestamp) {
        let identity = event.identity();
        if !self.series.contains_key(&identity) && !self.make_room(&identity, now) {
            // A dropped Detail is not counted, because another Event contains its object.
            self.dropped += u64::from(identity.priority != Priority::Detail);
            return;
        }
        let series = self.series.entry(identity.clone()).or_insert_with(|| AggregatedEvent {
            name: event.new_name(),
            event: event.clone(),
            sum: Sum::default(),
            state: Written::Never,
            unanswered: 0,
            seen: Occurrences { first: time, last: time, count: 0 },
            last: now,
            pending: false,
        });
        if series.has_ended(&event, now) {
            series.begin_anew();
            series.sum = Sum::default();
            series.seen = Occurrences { first: time, last: time, count: 0 };
        }
        let not_before = event.about.as_ref().map_or(now, |_| now + LINGER);
        event.about.iter().for_each(|about| series.sum.add(about));
        series.event = event;
        series.seen = Occurrences { last: time, count: series.seen.count.saturating_add(1), ..series.seen };
        series.last = now;
        if !series.pending {
            series.pending = true;
            self.queue(identity.priority).push(identity, not_before);
        }
    }

    fn queue(&mut self, priority: Priority) -> &mut EventQueue {
        let [failure, state, routine, detail] = &mut self.queues;
        match priority {
            Priority::Failure => failure,
            Priority::State => state,
            Priority::Routine => routine,
            Priority::Detail => detail,
        }
    }

    /// Makes space for another series. Returns whether there is space.
    fn make_room(&mut self, identity: &AggregationKey, now: Instant) -> bool {
        if !self.queue(identity.priority).admits(&identity.key) {
            return false;
        }
        // If all series are pending, none can be forgotten. During a storm, this check saves a scan for each Event.
        if self.queues.iter().map(EventQueue::len).sum::<usize>() >= MAX_AGGREGATED {
            return self.drop_for(identity);
        }
        if self.series.len() >= MAX_AGGREGATED {
            self.forget(now);
        }
        if self.series.len() >= MAX_AGGREGATED {
            self.forget_written_of_largest();
        }
        self.series.len() < MAX_AGGREGATED || self.drop_for(identity)
    }

    /// Forgets the written series of the namespace with the most series. The next Event of such a series gets a new
    /// object.
    fn forget_written_of_largest(&mut self) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for identity in self.series.keys() {
            *counts.entry(namespace_of(&identity.key)).or_default() += 1;
        }
        let largest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(namespace, _)| namespace.to_owned());
        let Some(largest) = largest else { return };
        self.series.retain(|identity, series| series.pending || namespace_of(&identity.key) != largest);
    }

    /// Drops a pending Event that is less important than `new`. If there is none, drops an equally important one of the
    /// namespace with the most pending Events. Returns whether one was dropped.
    fn drop_for(&mut self, new: &AggregationKey) -> bool {
        let namespace = namespace_of(&new.key);
        let queues = self.queues.iter_mut().zip(PRIORITIES).rev();
        let mut droppable = queues.take_while(|(_, priority)| *priority >= new.priority);
        let dropped = droppable
            .find_map(|(queue, priority)| queue.drop_of_largest((priority == new.priority).then_some(namespace)));
        let Some(identity) = dropped else { return false };
        self.series.remove(&identity);
        self.dropped += u64::from(identity.priority != Priority::Detail);
        true
    }

    /// Returns the next due write: by priority, then by namespace in turn.
    pub(super) fn due(&mut self, now: Instant) -> Option<Write> {
        loop {
            let identity = self.queues.iter_mut().find_map(|queue| queue.take(now))?;
            let Some(series) = self.series.get_mut(&identity) else { continue };
            series.pending = false;
            return Some(series.write(identity, &self.reporter));
        }
    }

    /// Whether a write is pending.
    pub(super) fn is_waiting(&self) -> bool {
        !self.queues.iter().all(EventQueue::is_empty)
    }

    /// Records a successful write.
    pub(super) fn written(&mut self, write: &Write) {
        if let Some(series) = self.series_of(write) {
            (series.state, series.unanswered) = (Written::Surely, 0);
        }
    }

    /// Records that the Event object exists already, because an earlier attempt had succeeded. If the count has grown
    /// since then, it is written again.
    pub(super) fn exists(&mut self, write: &Write) {
        let Some(series) = self.series_of(write) else { return };
        let has_more = series.state != Written::Perhaps(series.seen.count);
        (series.state, series.unanswered) = (Written::Surely, 0);
        if has_more {
            self.wait_again(write);
        }
    }

    /// Records a write without a response. The write is retried a few times.
    pub(super) fn unanswered(&mut self, write: &Write) {
        let Some(series) = self.series_of(write) else { return };
        series.unanswered += 1;
        if series.unanswered < MAX_ATTEMPTS {
            self.wait_again(write);
        } else {
            // The next Event of the series contains the same content, so no further retry is made.
            series.unanswered = 0;
        }
    }

    /// Continues a series as a new object, because the old object expired (after an hour) or cannot be changed.
    pub(super) fn lost(&mut self, write: &Write) {
        if let Some(series) = self.series_of(write) {
            series.begin_anew();
            self.wait_again(write);
        }
    }

    /// Returns the series of a write, unless the series now continues as a new object.
    fn series_of(&mut self, write: &Write) -> Option<&mut AggregatedEvent> {
        self.series.get_mut(&write.identity).filter(|series| series.name == write.name)
    }

    fn wait_again(&mut self, write: &Write) {
        let Some(series) = self.series.get_mut(&write.identity) else { return };
        if !std::mem::replace(&mut series.pending, true) {
            let last = series.last;
            self.queue(write.identity.priority).push(write.identity.clone(), last);
        }
    }

    /// Forgets series that have ended, and rate limits (buckets) that are not in use.
    fn forget(&mut self, now: Instant) {
        self.series.retain(|_, series| series.pending || now.duration_since(series.last) <= AGGREGATION_WINDOW);
        self.queues.iter_mut().for_each(|queue| queue.forget(now));
    }
}

impl AggregatedEvent {
    /// Whether the next Event begins a new series, because this series was written long enough ago.
    fn has_ended(&self, event: &Event, now: Instant) -> bool {
        let is_same = event.about.as_deref().is_none_or(|about| self.sum.is_only(about));
        let window = if is_same { AGGREGATION_WINDOW } else { SUM_WINDOW };
        !self.pending && now.duration_since(self.last) > window
    }

    /// Continues the series as a new object.
    fn begin_anew(&mut self) {
        (self.name, self.state, self.unanswered) = (self.event.new_name(), Written::Never, 0);
    }

    fn write(&mut self, identity: AggregationKey, reporter: &Reporter) -> Write {
        let mut event = self.event.clone();
        event.note = self.sum.note(&event.note).into_owned();
        event.related = event.related.filter(|_| !self.sum.is_several());
        let how = if self.state == Written::Surely {
            How::Repeat(event.repeated(&self.seen))
        } else {
            How::Create(event.object(&self.name, &self.seen, reporter))
        };
        if self.state == Written::Never {
            self.state = Written::Perhaps(self.seen.count);
        }
        Write { namespace: event.namespace().to_owned(), identity, name: self.name.clone(), how }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{EventType, Regarding};
    use super::super::event_bucket::Bucket;
    use super::super::kind::tests::kind;
    use super::*;
    use mainstay_api::EventReason;
    use mainstay_api::events::Reason;
    use mainstay_object::Key;
    use serde_json::json;

    fn event(note: &str) -> Event {
        let key = kind("apps/v1", "Deployment", "deployments", true).key(Some("shop"), "web");
        Event {
            regarding: Regarding { key, api_version: "apps/v1".to_owned(), uid: Some("u".to_owned()) },
            related: None,
            kind: EventType::Normal,
            priority: Priority::Routine,
            about: None,
            reason: Reason::Reverted.into(),
            action: "Apply".to_owned(),
            note: note.to_owned(),
            aggregation_key: "spec.replicas".to_owned(),
        }
    }

    fn aggregator() -> (Aggregator, Instant) {
        let reporter = Reporter { controller: "mainstay.dev/agent".to_owned(), instance: "pod".to_owned() };
        (Aggregator::new(reporter), Instant::now())
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    /// Adds an Event and writes it if it is due.
    fn publish(aggregator: &mut Aggregator, note: &str, now: Instant) -> Option<Write> {
        aggregator.add(event(note), now, time(0));
        let write = aggregator.due(now)?;
        aggregator.written(&write);
        Some(write)
    }

    #[test]
    fn writes_the_first_as_a_new_object() {
        let (mut aggregator, now) = aggregator();
        let write = publish(&mut aggregator, "replicas 5 → 3", now).expect("a write");
        let How::Create(body) = &write.how else { panic!("{write:?}") };
        assert_eq!(write.namespace, "shop");
        assert!(write.name.starts_with("web."), "{}", write.name);
        assert_eq!(body["eventTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(body["involvedObject"]["uid"], "u");
        let times = [&body["firstTimestamp"], &body["lastTimestamp"]];
        assert_eq!((times, &body["count"]), ([&json!("1970-01-01T00:00:00Z"); 2], &json!(1)));
        assert_eq!(body.get("series"), None);
        assert_eq!(aggregator.due(now), None);
    }

    #[test]
    fn counts_equal_ones_with_their_times_and_keeps_the_newest_note() {
        let (mut aggregator, now) = aggregator();
        publish(&mut aggregator, "first", now);
        for (count, note) in [(2, "first"), (3, "second")] {
            aggregator.add(event(note), now, time(60 * count));
            let How::Repeat(patch) = aggregator.due(now).expect("a write").how else { panic!("a repetition") };
            let last = format!("1970-01-01T00:0{count}:00Z");
            let series = json!({"count": count, "lastObservedTime": last.replace('Z', ".000000Z")});
            let expected = json!({"message": note, "count": count, "lastTimestamp": last, "series": series});
            assert_eq!(patch, expected);
        }
    }

    #[test]
    fn begins_a_new_series_after_six_quiet_minutes() {
        let (mut aggregator, now) = aggregator();
        publish(&mut aggregator, "a", now);
        let later = now + Duration::from_secs(361);
        let How::Create(body) = publish(&mut aggregator, "a", later).expect("a write").how else {
            panic!("a new object")
        };
        assert_eq!(body.get("series"), None);
    }

    #[test]
    fn tells_apart_what_differs_in_its_key() {
        let (mut aggregator, now) = aggregator();
        publish(&mut aggregator, "a", now);
        let mut other = event("a");
        other.aggregation_key = "spec.template".to_owned();
        aggregator.add(other, now, time(0));
        assert!(matches!(aggregator.due(now).expect("a write").how, How::Create(_)));
    }

    #[test]
    fn slows_one_object_down_without_losing_its_last_note() {
        let (mut aggregator, now) = aggregator();
        let written = (0..100).filter(|n| publish(&mut aggregator, &format!("note {n}"), now).is_some()).count();
        assert_eq!(written, 25);
        assert!(aggregator.is_waiting());
        assert_eq!(aggregator.due(now + Duration::from_secs(9)), None);
        let write = aggregator.due(now + Duration::from_secs(11)).expect("a write");
        let How::Repeat(patch) = write.how else { panic!("{write:?}") };
        assert_eq!((&patch["message"], &patch["series"]["count"]), (&json!("note 99"), &json!(100)));
    }

    #[test]
    fn goes_on_as_a_new_object_when_the_old_one_is_gone() {
        let (mut aggregator, now) = aggregator();
        publish(&mut aggregator, "a", now);
        aggregator.add(event("a"), now, time(0));
        let patch = aggregator.due(now).expect("a write");
        aggregator.lost(&patch);
        let write = aggregator.due(now).expect("a write");
        let How::Create(body) = write.how else { panic!("{write:?}") };
        assert_eq!((&body["series"]["count"], &body["count"]), (&json!(2), &json!(2)));
    }

    #[test]
    fn a_flood_is_not_looked_at_as_a_whole_for_each_that_comes() {
        let (mut aggregator, now) = aggregator();
        let written = (0..500).filter(|&number| {
            aggregator.add(about(number), now, time(0));
            aggregator.due(now).is_some()
        });
        assert_eq!(written.count(), 25);
        assert_eq!(
            (waiting(&aggregator), routine(&mut aggregator).buckets().len()),
            (475, 25),
            "nobody asked for those that wait"
        );
    }

    /// Takes a write without recording its result.
    fn sent(aggregator: &mut Aggregator, note: &str, now: Instant) -> Write {
        aggregator.add(event(note), now, time(0));
        aggregator.due(now).expect("a write")
    }

    fn routine(aggregator: &mut Aggregator) -> &mut EventQueue {
        aggregator.queue(Priority::Routine)
    }

    fn waiting(aggregator: &Aggregator) -> usize {
        aggregator.queues.iter().map(EventQueue::len).sum()
    }

    /// An Event about an object of a different namespace.
    fn elsewhere(number: usize) -> Event {
        let mut event = event("a");
        event.regarding.key = Key::new("apps", "Deployment", Some("calm"), format!("web-{number}"));
        event
    }

    #[test]
    fn a_namespace_that_tells_too_much_takes_nothing_from_another() {
        let (mut aggregator, now) = aggregator();
        for number in 0..2 * MAX_AGGREGATED {
            aggregator.add(about(number), now, time(0));
        }
        assert_eq!((aggregator.series.len(), aggregator.dropped), (MAX_AGGREGATED, MAX_AGGREGATED as u64));
        for number in 0..3 {
            aggregator.add(elsewhere(number), now, time(0));
        }
        assert_eq!((aggregator.series.len(), waiting(&aggregator)), (MAX_AGGREGATED, MAX_AGGREGATED));
        let written: Vec<_> = std::iter::from_fn(|| aggregator.due(now)).take(6).map(|write| write.namespace).collect();
        assert_eq!(written, ["shop", "calm", "shop", "calm", "shop", "calm"]);
        // Both namespaces keep their written series.
        let again = aggregator.due(now).expect("a write");
        aggregator.written(&again);
        let (mut calm, mut other) = (0, now);
        for number in 0..3 {
            aggregator.add(elsewhere(number), now, time(1));
        }
        for number in 0..100 {
            other += Duration::from_millis(50);
            aggregator.add(about(3 * MAX_AGGREGATED + number), other, time(1));
            while let Some(write) = aggregator.due(other) {
                aggregator.written(&write);
                calm += usize::from(write.namespace == "calm");
            }
        }
        assert_eq!(calm, 3);
        assert_eq!(aggregator.series.keys().filter(|identity| namespace_of(&identity.key) == "calm").count(), 3);
    }

    #[test]
    fn an_event_has_one_name_however_often_it_is_tried_and_is_given_up_in_the_end() {
        let (mut aggregator, now) = aggregator();
        let first = sent(&mut aggregator, "a", now);
        for _ in 1..MAX_ATTEMPTS {
            aggregator.unanswered(&first);
            let again = aggregator.due(now).expect("it is tried again");
            assert_eq!(again, first);
        }
        aggregator.unanswered(&first);
        assert_eq!(aggregator.due(now), None);
        // The write had arrived with its earlier content.
        let next = sent(&mut aggregator, "b", now);
        assert_eq!(next.name, first.name);
        assert!(matches!(next.how, How::Create(_)));
        aggregator.exists(&next);
        let Some(Write { how: How::Repeat(patch), name, .. }) = aggregator.due(now) else {
            panic!("what is new follows")
        };
        assert_eq!((name, &patch["message"], &patch["count"]), (first.name, &json!("b"), &json!(2)));
        assert_eq!(aggregator.due(now), None);
    }

    #[test]
    fn an_event_that_was_queued_without_a_wakeup_is_written() {
        let (mut aggregator, now) = aggregator();
        let first = sent(&mut aggregator, "a", now);
        aggregator.unanswered(&first);
        let again = aggregator.due(now).expect("it is tried again");
        aggregator.exists(&again);
        assert_eq!(aggregator.due(now), None, "there is nothing new to say");
        assert!(matches!(sent(&mut aggregator, "a", now).how, How::Repeat(_)));
    }

    /// An Event about a different object.
    fn about(number: usize) -> Event {
        let mut event = event("a");
        event.regarding.key = Key::new("apps", "Deployment", Some("shop"), format!("web-{number}"));
        event
    }

    #[test]
    fn memory_is_bounded() {
        let (mut aggregator, now) = aggregator();
        for number in 0..=MAX_AGGREGATED {
            aggregator.add(about(number), now, time(0));
        }
        assert_eq!((aggregator.series.len(), aggregator.dropped), (MAX_AGGREGATED, 1));
    }

    #[test]
    fn an_event_that_does_not_fit_searches_for_room_only_once_something_was_written() {
        let (mut aggregator, now) = aggregator();
        for number in 0..MAX_AGGREGATED {
            aggregator.add(about(number), now, time(0));
        }
        // A scan to make space would remove this full bucket.
        let idle = about(MAX_AGGREGATED).identity().key;
        routine(&mut aggregator).buckets().insert(idle.clone(), Bucket::new(25.0, 0.1));
        for number in 0..10 {
            aggregator.add(about(MAX_AGGREGATED + 1 + number), now, time(0));
        }
        assert_eq!((aggregator.dropped, routine(&mut aggregator).buckets().contains_key(&idle)), (10, true));
    }

    #[test]
    fn one_object_with_too_many_events_leaves_room_for_others() {
        let (mut aggregator, now) = aggregator();
        for number in 0..=MAX_AGGREGATED {
            let mut event = event("a");
            event.aggregation_key = number.to_string();
            aggregator.add(event, now, time(0));
        }
        aggregator.add(about(1), now, time(0));
        assert_eq!(aggregator.series.len(), 51);
        let written = std::iter::from_fn(|| aggregator.due(now)).collect::<Vec<_>>();
        assert_eq!(
            (written.len(), routine(&mut aggregator).waiting().values().sum::<usize>()),
            (25, waiting(&aggregator))
        );
    }

    #[test]
    fn written_events_make_room_for_waiting_ones() {
        let (mut aggregator, mut now) = aggregator();
        for number in 0..2 * MAX_AGGREGATED {
            now += Duration::from_millis(50);
            aggregator.add(about(number), now, time(0));
            assert!(aggregator.due(now).is_some(), "{number}");
        }
        assert_eq!((aggregator.dropped, routine(&mut aggregator).waiting().len()), (0, 0));
        assert!(aggregator.series.len() <= MAX_AGGREGATED);
    }

    fn message(write: &Write) -> &str {
        let (How::Create(body) | How::Repeat(body)) = &write.how;
        body["message"].as_str().unwrap_or_default()
    }

    fn related(write: &Write) -> &Value {
        let (How::Create(body) | How::Repeat(body)) = &write.how;
        &body["related"]
    }

    /// Returns a reason of this priority.
    fn reason_of(priority: Priority) -> EventReason {
        match priority {
            Priority::Failure => Reason::Failed.into(),
            Priority::State => Reason::CommitHeld.into(),
            Priority::Routine | Priority::Detail => Reason::Reverted.into(),
        }
    }

    /// Returns an Event about a GitSync with this priority and its reason.
    fn about_git_sync(priority: Priority, note: &str) -> Event {
        let mut event = event(note);
        event.regarding.key = Key::new("mainstay.dev", "GitSync", Some("shop"), "shop");
        (event.priority, event.reason, event.aggregation_key) = (priority, reason_of(priority), note.to_owned());
        event
    }

    #[test]
    fn a_failure_is_due_at_once_however_many_routine_events_and_commits_came_before() {
        let (mut aggregator, mut now) = aggregator();
        for number in 0..5000 {
            let mut routine = about_git_sync(Priority::Routine, &number.to_string());
            routine.regarding.key = about(number % 1000).regarding.key;
            aggregator.add(routine, now, time(0));
            aggregator.add(about_git_sync(Priority::Routine, &number.to_string()), now, time(0));
        }
        for commit in 0..30 {
            aggregator.add(about_git_sync(Priority::State, &format!("commit {commit} applied")), now, time(0));
        }
        assert_eq!(message(&aggregator.due(now).expect("a write")), "commit 29 applied", "the newest state is first");
        // Writes until the rate limits admit no more.
        while aggregator.due(now).is_some() {}
        for failure in ["one", "two"] {
            now += Duration::from_millis(50);
            aggregator.add(about_git_sync(Priority::Failure, failure), now, time(0));
            assert_eq!(message(&aggregator.due(now).expect("a write")), failure);
        }
    }

    #[test]
    fn the_newest_of_many_failures_of_one_object_is_written_within_a_second() {
        let (mut aggregator, mut now) = aggregator();
        for number in 0..200 {
            now += Duration::from_millis(10);
            let note = number.to_string();
            aggregator.add(about_git_sync(Priority::Failure, &note), now, time(0));
            aggregator.due(now);
        }
        aggregator.add(about_git_sync(Priority::Failure, "0"), now, time(0));
        now += Duration::from_secs(1);
        assert!(aggregator.due(now).is_some());
        assert_eq!(aggregator.due(now), None);
        assert!(aggregator.dropped > 0, "what does not fit is dropped and counted");
    }

    #[test]
    fn routine_events_make_room_for_a_failure() {
        let (mut aggregator, now) = aggregator();
        for number in 0..MAX_AGGREGATED {
            aggregator.add(about(number), now, time(0));
        }
        let mut failure = about(0);
        failure.priority = Priority::Failure;
        aggregator.add(failure.clone(), now, time(0));
        assert_eq!(aggregator.dropped, 1);
        assert_eq!(aggregator.due(now).expect("a write").identity, failure.identity());
    }

    #[test]
    fn routine_events_that_differ_in_their_object_are_one_event() {
        let (mut aggregator, mut now) = aggregator();
        let pruned = |number: usize| {
            let mut event = about_git_sync(Priority::Routine, "pruned: not in commit c");
            event.about = Some(format!("ConfigMap shop/{number}"));
            event.related = Some(about(number).regarding);
            event
        };
        for number in 0..15 {
            aggregator.add(pruned(number), now, time(0));
        }
        assert_eq!(aggregator.due(now), None, "others may follow");
        now += LINGER;
        let write = aggregator.due(now).expect("a write");
        aggregator.written(&write);
        assert!(message(&write).starts_with("15 objects pruned: not in commit c: ConfigMap shop/0, "), "{write:?}");
        assert!(related(&write).is_null(), "it is about several objects: {write:?}");
        assert_eq!(aggregator.due(now), None);
        // Further Events continue the series.
        aggregator.add(pruned(15), now, time(1));
        let write = aggregator.due(now + LINGER).expect("a write");
        aggregator.written(&write);
        assert!(matches!(&write.how, How::Repeat(_)) && message(&write).starts_with("16 objects "), "{write:?}");
        // After the window, the next Event begins a new series.
        now += LINGER + SUM_WINDOW + Duration::from_secs(1);
        aggregator.add(pruned(16), now, time(2));
        let write = aggregator.due(now + LINGER).expect("a write");
        assert!(matches!(&write.how, How::Create(_)), "{write:?}");
        assert_eq!(message(&write), "ConfigMap shop/16: pruned: not in commit c");
        assert_eq!(related(&write)["name"], "web-16");
    }

    #[test]
    fn an_event_that_another_one_names_too_is_left_out_rather_than_late() {
        let (mut aggregator, now) = aggregator();
        for number in 0..500 {
            let mut detail = about(number);
            detail.priority = Priority::Detail;
            aggregator.add(detail, now, time(0));
        }
        assert_eq!((waiting(&aggregator), aggregator.dropped), (25, 0));
    }
}
