//! Which Events are written, and how often: equal ones become a series, and nobody is flooded.
//!
//! Invariant: of one series the newest note is written last, however many are left out before it.
//! Invariant: memory is bounded; what does not fit is counted as dropped.
//! Invariant: namespaces take turns to write, and the one that has the most to tell is the one that makes room: however
//! much one of them tells, it takes nothing from the others.
//! Deliberately absent: what an Event says ([`happening`](super::happening)), requests ([`events`](super::events)) and
//! clocks.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::object::Key;

use super::happening::{Event, Identity, Reporter, Seen};

/// An equal Event within this time of the last one continues its series, as in Kubernetes' own recorders.
const SERIES_LASTS: Duration = Duration::from_secs(360);
/// Most series that are remembered.
const MOST_SERIES: usize = 2048;
/// Most series of one object that wait to be written: it is let write one in ten seconds, and would fill the room of all
/// others for hours.
const MOST_WAITING: usize = 50;
/// Attempts to write what nobody answers.
const MOST_ATTEMPTS: u32 = 3;
/// Writes about one object: this many at once, then one per interval.
const PER_OBJECT: Bucket = Bucket::new(25.0, 0.1);
/// Writes altogether: in a storm the first of them are requests beside those that put things back.
const ALTOGETHER: Bucket = Bucket::new(25.0, 20.0);

struct Series {
    event: Event,
    /// Name of the Event object, the same for every attempt to write it.
    name: String,
    state: Written,
    /// Attempts in a row that the server did not answer.
    unanswered: u32,
    seen: Seen,
    last: Instant,
    /// There is something to write.
    pending: bool,
}

/// What is known of the Event object.
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
    pub identity: Identity,
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
pub(super) struct Ledger {
    reporter: Reporter,
    series: HashMap<Identity, Series>,
    /// What waits to be written, by namespace, the one whose turn it is first.
    pending: VecDeque<(String, VecDeque<Identity>)>,
    /// How many of them are about which object.
    waiting: HashMap<Key, usize>,
    buckets: HashMap<Key, Bucket>,
    altogether: Bucket,
    pub(super) dropped: u64,
}

impl Ledger {
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
        if !self.series.contains_key(&identity) && !self.has_room(&identity.key, now) {
            self.dropped += 1;
            return;
        }
        let series = self.series.entry(identity.clone()).or_insert_with(|| Series {
            name: event.new_name(),
            event: event.clone(),
            state: Written::Never,
            unanswered: 0,
            seen: Seen { first: time, last: time, count: 0 },
            last: now,
            pending: false,
        });
        if now.duration_since(series.last) > SERIES_LASTS && !series.pending {
            series.begin_anew();
            series.seen = Seen { first: time, last: time, count: 0 };
        }
        series.event = event;
        series.seen = Seen { last: time, count: series.seen.count.saturating_add(1), ..series.seen };
        series.last = now;
        if !series.pending {
            series.pending = true;
            self.wait(identity);
        }
    }

    /// Whether another series of an object may be remembered.
    fn has_room(&mut self, key: &Key, now: Instant) -> bool {
        if self.waiting.get(key).is_some_and(|waiting| *waiting >= MOST_WAITING) {
            return false;
        }
        let namespace = namespace_of(key);
        // Where all of them wait to be written, there is nothing to forget. In a storm that is so for each of thousands.
        if self.pending.iter().map(|(_, waiting)| waiting.len()).sum::<usize>() >= MOST_SERIES {
            return self.makes_way_for(namespace);
        }
        if self.series.len() >= MOST_SERIES {
            self.forget(now);
        }
        if self.series.len() >= MOST_SERIES {
            self.forget_written_of_largest();
        }
        self.series.len() < MOST_SERIES || self.makes_way_for(namespace)
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

    /// Whether the namespace of which the most waits gives the place of its newest one to another namespace.
    fn makes_way_for(&mut self, namespace: &str) -> bool {
        let waiting = |(_, waiting): &&mut (String, VecDeque<Identity>)| waiting.len();
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

    fn wait(&mut self, identity: Identity) {
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

    /// What is to be written now, the oldest of each namespace in turn; what must wait stays.
    pub(super) fn due(&mut self, now: Instant) -> Option<Write> {
        // Asked with every Event that comes: who waits because there are too many is not looked at for each.
        if !self.altogether.has_one(now) {
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
    fn first_of(&mut self, waiting: &mut VecDeque<Identity>, now: Instant) -> Option<Identity> {
        for _ in 0..waiting.len() {
            let identity = waiting.pop_front()?;
            let bucket = self.buckets.entry(identity.key.clone()).or_insert(PER_OBJECT);
            if bucket.has_one(now) {
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
        if series.unanswered < MOST_ATTEMPTS {
            self.wait_again(write);
        } else {
            // The next Event of the series tells it all the same.
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
    fn series_of(&mut self, write: &Write) -> Option<&mut Series> {
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
        self.series.retain(|_, series| series.pending || now.duration_since(series.last) <= SERIES_LASTS);
        self.buckets.retain(|_, bucket| !bucket.is_full(now));
    }
}

impl Series {
    /// Goes on as a new object.
    fn begin_anew(&mut self) {
        (self.name, self.state, self.unanswered) = (self.event.new_name(), Written::Never, 0);
    }

    fn write(&mut self, identity: Identity, reporter: &Reporter) -> Write {
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

/// A token bucket.
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

    fn has_one(&mut self, now: Instant) -> bool {
        if let Some(since) = self.since {
            let grown = now.duration_since(since).as_secs_f64() * self.per_second;
            self.tokens = (self.tokens + grown).min(self.size);
        }
        self.since = Some(now);
        self.tokens >= 1.0
    }

    fn take(&mut self) {
        self.tokens -= 1.0;
    }

    fn is_full(&mut self, now: Instant) -> bool {
        self.has_one(now) && self.tokens >= self.size
    }
}

#[cfg(test)]
mod tests {
    use super::super::happening::{EventType, Regarding};
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
            note_key: "spec.replicas".to_owned(),
        }
    }

    fn ledger() -> (Ledger, Instant) {
        let reporter = Reporter { controller: "mainstay.dev/agent".to_owned(), instance: "pod".to_owned() };
        (Ledger::new(reporter), Instant::now())
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    /// Adds an Event and writes what is due of it.
    fn publish(ledger: &mut Ledger, note: &str, now: Instant) -> Option<Write> {
        ledger.add(event(note), now, time(0));
        let write = ledger.due(now)?;
        ledger.written(&write);
        Some(write)
    }

    #[test]
    fn writes_the_first_as_a_new_object() {
        let (mut ledger, now) = ledger();
        let write = publish(&mut ledger, "replicas 5 → 3", now).expect("a write");
        let How::Create(body) = &write.how else { panic!("{write:?}") };
        assert_eq!(write.namespace, "shop");
        assert!(write.name.starts_with("web."), "{}", write.name);
        assert_eq!(body["eventTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(body["involvedObject"]["uid"], "u");
        let times = [&body["firstTimestamp"], &body["lastTimestamp"]];
        assert_eq!((times, &body["count"]), ([&json!("1970-01-01T00:00:00Z"); 2], &json!(1)));
        assert_eq!(body.get("series"), None);
        assert_eq!(ledger.due(now), None);
    }

    #[test]
    fn counts_equal_ones_with_their_times_and_keeps_the_newest_note() {
        let (mut ledger, now) = ledger();
        publish(&mut ledger, "first", now);
        for (count, note) in [(2, "first"), (3, "second")] {
            ledger.add(event(note), now, time(60 * count));
            let How::Repeat(patch) = ledger.due(now).expect("a write").how else { panic!("a repetition") };
            let last = format!("1970-01-01T00:0{count}:00Z");
            let series = json!({"count": count, "lastObservedTime": last.replace('Z', ".000000Z")});
            let expected = json!({"message": note, "count": count, "lastTimestamp": last, "series": series});
            assert_eq!(patch, expected);
        }
    }

    #[test]
    fn begins_a_new_series_after_six_quiet_minutes() {
        let (mut ledger, now) = ledger();
        publish(&mut ledger, "a", now);
        let later = now + Duration::from_secs(361);
        let How::Create(body) = publish(&mut ledger, "a", later).expect("a write").how else { panic!("a new object") };
        assert_eq!(body.get("series"), None);
    }

    #[test]
    fn tells_apart_what_differs_in_its_key() {
        let (mut ledger, now) = ledger();
        publish(&mut ledger, "a", now);
        let mut other = event("a");
        other.note_key = "spec.template".to_owned();
        ledger.add(other, now, time(0));
        assert!(matches!(ledger.due(now).expect("a write").how, How::Create(_)));
    }

    #[test]
    fn slows_one_object_down_without_losing_its_last_note() {
        let (mut ledger, now) = ledger();
        let written = (0..100).filter(|n| publish(&mut ledger, &format!("note {n}"), now).is_some()).count();
        assert_eq!(written, 25);
        assert!(ledger.is_waiting());
        assert_eq!(ledger.due(now + Duration::from_secs(9)), None);
        let write = ledger.due(now + Duration::from_secs(11)).expect("a write");
        let How::Repeat(patch) = write.how else { panic!("{write:?}") };
        assert_eq!((&patch["message"], &patch["series"]["count"]), (&json!("note 99"), &json!(100)));
    }

    #[test]
    fn goes_on_as_a_new_object_when_the_old_one_is_gone() {
        let (mut ledger, now) = ledger();
        publish(&mut ledger, "a", now);
        ledger.add(event("a"), now, time(0));
        let patch = ledger.due(now).expect("a write");
        ledger.lost(&patch);
        let write = ledger.due(now).expect("a write");
        let How::Create(body) = write.how else { panic!("{write:?}") };
        assert_eq!((&body["series"]["count"], &body["count"]), (&json!(2), &json!(2)));
    }

    #[test]
    fn a_flood_is_not_looked_at_as_a_whole_for_each_that_comes() {
        let (mut ledger, now) = ledger();
        let written = (0..500).filter(|&number| {
            ledger.add(about(number), now, time(0));
            ledger.due(now).is_some()
        });
        assert_eq!(written.count(), 25);
        assert_eq!((waiting(&ledger), ledger.buckets.len()), (475, 25), "nobody asked for those that wait");
    }

    /// Writes an Event, and nobody says whether it arrived.
    fn sent(ledger: &mut Ledger, note: &str, now: Instant) -> Write {
        ledger.add(event(note), now, time(0));
        ledger.due(now).expect("a write")
    }

    fn waiting(ledger: &Ledger) -> usize {
        ledger.pending.iter().map(|(_, waiting)| waiting.len()).sum()
    }

    /// An Event about an object of another namespace.
    fn elsewhere(number: usize) -> Event {
        let mut event = event("a");
        event.regarding.key = Key::new("apps", "Deployment", Some("calm"), format!("web-{number}"));
        event
    }

    #[test]
    fn a_namespace_that_tells_too_much_takes_nothing_from_another() {
        let (mut ledger, now) = ledger();
        for number in 0..2 * MOST_SERIES {
            ledger.add(about(number), now, time(0));
        }
        assert_eq!((ledger.series.len(), ledger.dropped), (MOST_SERIES, MOST_SERIES as u64));
        for number in 0..3 {
            ledger.add(elsewhere(number), now, time(0));
        }
        assert_eq!((ledger.series.len(), waiting(&ledger)), (MOST_SERIES, MOST_SERIES));
        let written: Vec<_> = std::iter::from_fn(|| ledger.due(now)).take(6).map(|write| write.namespace).collect();
        assert_eq!(written, ["shop", "calm", "shop", "calm", "shop", "calm"]);
        // Nor is what one has written forgotten for the other.
        let again = ledger.due(now).expect("a write");
        ledger.written(&again);
        let (mut calm, mut other) = (0, now);
        for number in 0..3 {
            ledger.add(elsewhere(number), now, time(1));
        }
        for number in 0..100 {
            other += Duration::from_millis(50);
            ledger.add(about(3 * MOST_SERIES + number), other, time(1));
            while let Some(write) = ledger.due(other) {
                ledger.written(&write);
                calm += usize::from(write.namespace == "calm");
            }
        }
        assert_eq!(calm, 3);
        assert_eq!(ledger.series.keys().filter(|identity| namespace_of(&identity.key) == "calm").count(), 3);
    }

    #[test]
    fn an_event_has_one_name_however_often_it_is_tried_and_is_given_up_in_the_end() {
        let (mut ledger, now) = ledger();
        let first = sent(&mut ledger, "a", now);
        for _ in 1..MOST_ATTEMPTS {
            ledger.unanswered(&first);
            let again = ledger.due(now).expect("it is tried again");
            assert_eq!(again, first);
        }
        ledger.unanswered(&first);
        assert_eq!(ledger.due(now), None);
        // It had arrived all the same, with what it said then.
        let next = sent(&mut ledger, "b", now);
        assert_eq!(next.name, first.name);
        assert!(matches!(next.how, How::Create(_)));
        ledger.exists(&next);
        let Some(Write { how: How::Repeat(patch), name, .. }) = ledger.due(now) else { panic!("what is new follows") };
        assert_eq!((name, &patch["message"], &patch["count"]), (first.name, &json!("b"), &json!(2)));
        assert_eq!(ledger.due(now), None);
    }

    #[test]
    fn an_event_that_arrived_although_nobody_said_so_is_written() {
        let (mut ledger, now) = ledger();
        let first = sent(&mut ledger, "a", now);
        ledger.unanswered(&first);
        let again = ledger.due(now).expect("it is tried again");
        ledger.exists(&again);
        assert_eq!(ledger.due(now), None, "there is nothing new to say");
        assert!(matches!(sent(&mut ledger, "a", now).how, How::Repeat(_)));
    }

    /// An Event about another object.
    fn about(number: usize) -> Event {
        let mut event = event("a");
        event.regarding.key = Key::new("apps", "Deployment", Some("shop"), format!("web-{number}"));
        event
    }

    #[test]
    fn memory_is_bounded() {
        let (mut ledger, now) = ledger();
        for number in 0..=MOST_SERIES {
            ledger.add(about(number), now, time(0));
        }
        assert_eq!((ledger.series.len(), ledger.dropped), (MOST_SERIES, 1));
    }

    #[test]
    fn what_does_not_fit_is_not_looked_for_room_for_as_long_as_everything_waits() {
        let (mut ledger, now) = ledger();
        for number in 0..MOST_SERIES {
            ledger.add(about(number), now, time(0));
        }
        // Looking for room would forget this one: nothing was taken from it.
        let idle = about(MOST_SERIES).identity().key;
        ledger.buckets.insert(idle.clone(), PER_OBJECT);
        for number in 0..10 {
            ledger.add(about(MOST_SERIES + 1 + number), now, time(0));
        }
        assert_eq!((ledger.dropped, ledger.buckets.contains_key(&idle)), (10, true));
    }

    #[test]
    fn one_object_of_which_there_is_too_much_to_tell_leaves_room_for_others() {
        let (mut ledger, now) = ledger();
        for number in 0..=MOST_SERIES {
            let mut event = event("a");
            event.note_key = number.to_string();
            ledger.add(event, now, time(0));
        }
        ledger.add(about(1), now, time(0));
        assert_eq!(ledger.series.len(), MOST_WAITING + 1);
        let written = std::iter::from_fn(|| ledger.due(now)).collect::<Vec<_>>();
        assert_eq!((written.len(), ledger.waiting.values().sum::<usize>()), (25, waiting(&ledger)));
    }

    #[test]
    fn what_is_written_makes_room_for_what_is_not() {
        let (mut ledger, mut now) = ledger();
        for number in 0..2 * MOST_SERIES {
            now += Duration::from_millis(50);
            ledger.add(about(number), now, time(0));
            assert!(ledger.due(now).is_some(), "{number}");
        }
        assert_eq!((ledger.dropped, ledger.waiting.len()), (0, 0));
        assert!(ledger.series.len() <= MOST_SERIES);
    }
}
