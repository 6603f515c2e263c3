//! Which Events are written, and how often: equal ones are aggregated, within rate limits.
//!
//! Invariant: of one series the newest note is written last, however many are left out before it.
//! Invariant: memory is bounded; what does not fit is counted as dropped.
//! Invariant: namespaces write in turn, and the one with the most pending Events makes room: no namespace takes
//! anything from the others.
//! Deliberately absent: the content of an Event ([`event`](super::event)), requests
//! ([`event_recorder`](super::event_recorder)) and clocks.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use mainstay_object::Key;

use super::event::{AggregationKey, Event, Occurrences, Reporter};

/// An equal Event within this time of the last one continues its series, as in Kubernetes' own recorders.
const AGGREGATION_WINDOW: Duration = Duration::from_secs(360);
/// Most series that are remembered.
const MAX_AGGREGATED: usize = 2048;
/// Most series of one object that wait to be written: it is let write one in ten seconds, and would fill the room of all
/// others for hours.
const MAX_PENDING: usize = 50;
/// Attempts to write what nobody answers.
const MAX_ATTEMPTS: u32 = 3;
/// Writes about one object: this many at once, then one per interval.
const PER_OBJECT: Bucket = Bucket::new(25.0, 0.1);
/// Writes altogether: in a storm the first of them are requests beside those that put things back.
const ALTOGETHER: Bucket = Bucket::new(25.0, 20.0);

struct AggregatedEvent {
    event: Event,
    /// Name of the Event object, the same for every attempt to write it.
    name: String,
    state: Written,
    /// Attempts in a row that the server did not answer.
    unanswered: u32,
    seen: Occurrences,
    last: Instant,
    /// There is something to write.
    pending: bool,
}

/// The known state of the Event object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// It was not sent.
    Never,
    /// It was sent with this count, and nobody knows whether it arrived.
    Perhaps(u32),
    /// It is there.
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

/// How an Event is written, through core `v1`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum How {
    /// As a new object.
    Create(Value),
    /// It was seen again: a merge patch.
    Repeat(Value),
}

/// Everything that is remembered about Events.
pub(super) struct Aggregator {
    reporter: Reporter,
    series: HashMap<AggregationKey, AggregatedEvent>,
    /// Events to write, by namespace; the next namespace is first.
    pending: VecDeque<(String, VecDeque<AggregationKey>)>,
    /// How many of them are about which object.
    waiting: HashMap<Key, usize>,
    buckets: HashMap<Key, Bucket>,
    altogether: Bucket,
    pub(super) dropped: u64,
}

impl Aggregator {
    pub(super) fn new(reporter: Reporter) -> Self {
        Self {
            reporter,
            series: HashMap::new(),
            pending: VecDeque::new(),
            waiting: HashMap::new(),
            buckets: HashMap::new(),
            altogether: ALTOGETHER,
            dropped: 0,
        }
    }

    /// Takes note of an Event. `now` and `time` are the same moment on two clocks.
    pub(super) fn add(&mut self, event: Event, now: Instant, time: Timestamp) {
        let identity = event.identity();
        if !self.series.contains_key(&identity) && !self.make_room(&identity.key, now) {
            self.dropped += 1;
            return;
        }
        let series = self.series.entry(identity.clone()).or_insert_with(|| AggregatedEvent {
            name: event.new_name(),
            event: event.clone(),
            state: Written::Never,
            unanswered: 0,
            seen: Occurrences { first: time, last: time, count: 0 },
            last: now,
            pending: false,
        });
        if now.duration_since(series.last) > AGGREGATION_WINDOW && !series.pending {
            series.begin_anew();
            series.seen = Occurrences { first: time, last: time, count: 0 };
        }
        series.event = event;
        series.seen = Occurrences { last: time, count: series.seen.count.saturating_add(1), ..series.seen };
        series.last = now;
        if !series.pending {
            series.pending = true;
            self.wait(identity);
        }
    }

    /// Makes room for another series of an object; returns whether there is any.
    fn make_room(&mut self, key: &Key, now: Instant) -> bool {
        if self.waiting.get(key).is_some_and(|waiting| *waiting >= MAX_PENDING) {
            return false;
        }
        let namespace = namespace_of(key);
        // Where all of them wait to be written, there is nothing to forget. In a storm that is so for each of thousands.
        if self.pending.iter().map(|(_, waiting)| waiting.len()).sum::<usize>() >= MAX_AGGREGATED {
            return self.drop_of_largest(namespace);
        }
        if self.series.len() >= MAX_AGGREGATED {
            self.forget(now);
        }
        if self.series.len() >= MAX_AGGREGATED {
            self.forget_written_of_largest();
        }
        self.series.len() < MAX_AGGREGATED || self.drop_of_largest(namespace)
    }

    /// Forgets what the namespace of which the most is remembered has written: what comes again is written as a new
    /// object then.
    fn forget_written_of_largest(&mut self) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for identity in self.series.keys() {
            *counts.entry(namespace_of(&identity.key)).or_default() += 1;
        }
        let largest = counts.into_iter().max_by_key(|(_, count)| *count).map(|(namespace, _)| namespace.to_owned());
        let Some(largest) = largest else { return };
        self.series.retain(|identity, series| series.pending || namespace_of(&identity.key) != largest);
    }

    /// Drops the newest waiting Event of the namespace with the most, if that is not `namespace`; returns whether it did.
    fn drop_of_largest(&mut self, namespace: &str) -> bool {
        let waiting = |(_, waiting): &&mut (String, VecDeque<AggregationKey>)| waiting.len();
        let own = self.pending.iter().find(|(waiting, _)| waiting == namespace).map_or(0, |(_, own)| own.len());
        let Some((_, largest)) = self.pending.iter_mut().max_by_key(waiting) else { return false };
        if own >= largest.len() {
            return false;
        }
        let Some(identity) = largest.pop_back() else { return false };
        self.waits_no_longer(&identity.key);
        self.series.remove(&identity);
        self.dropped += 1;
        true
    }

    fn wait(&mut self, identity: AggregationKey) {
        *self.waiting.entry(identity.key.clone()).or_default() += 1;
        let namespace = namespace_of(&identity.key);
        if let Some((_, waiting)) = self.pending.iter_mut().find(|(waiting, _)| waiting == namespace) {
            waiting.push_back(identity);
        } else {
            self.pending.push_back((namespace.to_owned(), [identity].into()));
        }
    }

    fn waits_no_longer(&mut self, key: &Key) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(key);
            }
        }
    }

    /// Takes the Events that may be written now, the oldest of each namespace in turn.
    pub(super) fn due(&mut self, now: Instant) -> Option<Write> {
        // Called for every new Event: without a token, the waiting ones are not searched.
        if !self.altogether.refill(now).has_token() {
            return None;
        }
        for _ in 0..self.pending.len() {
            let (namespace, mut waiting) = self.pending.pop_front()?;
            let found = self.first_of(&mut waiting, now);
            if !waiting.is_empty() {
                self.pending.push_back((namespace, waiting));
            }
            let Some(identity) = found else { continue };
            self.altogether.take();
            self.waits_no_longer(&identity.key);
            let Some(series) = self.series.get_mut(&identity) else { continue };
            series.pending = false;
            return Some(series.write(identity, &self.reporter));
        }
        None
    }

    /// The first of those that wait whose object may be written about.
    fn first_of(&mut self, waiting: &mut VecDeque<AggregationKey>, now: Instant) -> Option<AggregationKey> {
        for _ in 0..waiting.len() {
            let identity = waiting.pop_front()?;
            let bucket = self.buckets.entry(identity.key.clone()).or_insert(PER_OBJECT);
            if bucket.refill(now).has_token() {
                bucket.take();
                return Some(identity);
            }
            waiting.push_back(identity);
        }
        None
    }

    /// Whether something waits to be written.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A write succeeded.
    pub(super) fn written(&mut self, write: &Write) {
        if let Some(series) = self.series_of(write) {
            (series.state, series.unanswered) = (Written::Surely, 0);
        }
    }

    /// The object of a write is there already: an attempt before this one arrived. What it did not say yet follows.
    pub(super) fn exists(&mut self, write: &Write) {
        let Some(series) = self.series_of(write) else { return };
        let has_more = series.state != Written::Perhaps(series.seen.count);
        (series.state, series.unanswered) = (Written::Surely, 0);
        if has_more {
            self.wait_again(write);
        }
    }

    /// Nobody answered: it is tried again, a few times.
    pub(super) fn unanswered(&mut self, write: &Write) {
        let Some(series) = self.series_of(write) else { return };
        series.unanswered += 1;
        if series.unanswered < MAX_ATTEMPTS {
            self.wait_again(write);
        } else {
            // The next Event of the series carries it anyway.
            series.unanswered = 0;
        }
    }

    /// The Event object is gone (they live for an hour) or cannot be changed: the series goes on as a new object.
    pub(super) fn lost(&mut self, write: &Write) {
        if let Some(series) = self.series_of(write) {
            series.begin_anew();
            self.wait_again(write);
        }
    }

    /// The series of a write, unless it goes on as another object by now.
    fn series_of(&mut self, write: &Write) -> Option<&mut AggregatedEvent> {
        self.series.get_mut(&write.identity).filter(|series| series.name == write.name)
    }

    fn wait_again(&mut self, write: &Write) {
        let Some(series) = self.series.get_mut(&write.identity) else { return };
        if !std::mem::replace(&mut series.pending, true) {
            self.wait(write.identity.clone());
        }
    }

    /// Forgets series that have ended, and buckets that are full.
    fn forget(&mut self, now: Instant) {
        self.series.retain(|_, series| series.pending || now.duration_since(series.last) <= AGGREGATION_WINDOW);
        self.buckets.retain(|_, bucket| !bucket.refill(now).is_full());
    }
}

impl AggregatedEvent {
    /// Goes on as a new object.
    fn begin_anew(&mut self) {
        (self.name, self.state, self.unanswered) = (self.event.new_name(), Written::Never, 0);
    }

    fn write(&mut self, identity: AggregationKey, reporter: &Reporter) -> Write {
        let event = &self.event;
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

fn namespace_of(key: &Key) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}

/// A token bucket. Why not `governor`: an Event needs a token of two buckets, and 0.10 can only take one, not ask first
/// whether both have one; nor can it tell a full bucket, which is forgotten.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    size: f64,
    per_second: f64,
    tokens: f64,
    since: Option<Instant>,
}

impl Bucket {
    const fn new(size: f64, per_second: f64) -> Self {
        Self { size, per_second, tokens: size, since: None }
    }

    fn refill(&mut self, now: Instant) -> &mut Self {
        if let Some(since) = self.since {
            let grown = now.duration_since(since).as_secs_f64() * self.per_second;
            self.tokens = (self.tokens + grown).min(self.size);
        }
        self.since = Some(now);
        self
    }

    fn has_token(&self) -> bool {
        self.tokens >= 1.0
    }

    fn take(&mut self) {
        self.tokens -= 1.0;
    }

    fn is_full(&self) -> bool {
        self.tokens >= self.size
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{EventType, Regarding};
    use super::super::kind::tests::kind;
    use super::*;
    use serde_json::json;

    fn event(note: &str) -> Event {
        let key = kind("apps/v1", "Deployment", "deployments", true).key(Some("shop"), "web");
        Event {
            regarding: Regarding { key, api_version: "apps/v1".to_owned(), uid: Some("u".to_owned()) },
            related: None,
            kind: EventType::Normal,
            reason: "Reverted".to_owned(),
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

    /// Adds an Event and writes what is due of it.
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
        assert_eq!((waiting(&aggregator), aggregator.buckets.len()), (475, 25), "nobody asked for those that wait");
    }

    /// Writes an Event, and nobody says whether it arrived.
    fn sent(aggregator: &mut Aggregator, note: &str, now: Instant) -> Write {
        aggregator.add(event(note), now, time(0));
        aggregator.due(now).expect("a write")
    }

    fn waiting(aggregator: &Aggregator) -> usize {
        aggregator.pending.iter().map(|(_, waiting)| waiting.len()).sum()
    }

    /// An Event about an object of another namespace.
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
        // Nor is what one has written forgotten for the other.
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
        // It had arrived all the same, with what it said then.
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
    fn an_event_that_arrived_although_nobody_said_so_is_written() {
        let (mut aggregator, now) = aggregator();
        let first = sent(&mut aggregator, "a", now);
        aggregator.unanswered(&first);
        let again = aggregator.due(now).expect("it is tried again");
        aggregator.exists(&again);
        assert_eq!(aggregator.due(now), None, "there is nothing new to say");
        assert!(matches!(sent(&mut aggregator, "a", now).how, How::Repeat(_)));
    }

    /// An Event about another object.
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
    fn what_does_not_fit_is_not_looked_for_room_for_as_long_as_everything_waits() {
        let (mut aggregator, now) = aggregator();
        for number in 0..MAX_AGGREGATED {
            aggregator.add(about(number), now, time(0));
        }
        // Looking for room would forget this one: nothing was taken from it.
        let idle = about(MAX_AGGREGATED).identity().key;
        aggregator.buckets.insert(idle.clone(), PER_OBJECT);
        for number in 0..10 {
            aggregator.add(about(MAX_AGGREGATED + 1 + number), now, time(0));
        }
        assert_eq!((aggregator.dropped, aggregator.buckets.contains_key(&idle)), (10, true));
    }

    #[test]
    fn one_object_of_which_there_is_too_many_events_leaves_room_for_others() {
        let (mut aggregator, now) = aggregator();
        for number in 0..=MAX_AGGREGATED {
            let mut event = event("a");
            event.aggregation_key = number.to_string();
            aggregator.add(event, now, time(0));
        }
        aggregator.add(about(1), now, time(0));
        assert_eq!(aggregator.series.len(), MAX_PENDING + 1);
        let written = std::iter::from_fn(|| aggregator.due(now)).collect::<Vec<_>>();
        assert_eq!((written.len(), aggregator.waiting.values().sum::<usize>()), (25, waiting(&aggregator)));
    }

    #[test]
    fn what_is_written_makes_room_for_what_is_not() {
        let (mut aggregator, mut now) = aggregator();
        for number in 0..2 * MAX_AGGREGATED {
            now += Duration::from_millis(50);
            aggregator.add(about(number), now, time(0));
            assert!(aggregator.due(now).is_some(), "{number}");
        }
        assert_eq!((aggregator.dropped, aggregator.waiting.len()), (0, 0));
        assert!(aggregator.series.len() <= MAX_AGGREGATED);
    }
}
