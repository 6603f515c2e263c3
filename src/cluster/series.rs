//! Which Events are written, and how often: equal ones become a series, and nobody is flooded.
//!
//! Invariant: of one series the newest note is written last, however many are left out before it.
//! Invariant: memory is bounded; what does not fit is counted as dropped.
//! Deliberately absent: what an Event says ([`happening`](super::happening)), requests ([`events`](super::events)) and
//! clocks.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::object::Key;

use super::happening::{Event, Identity, Reporter};
use super::lease::micro_time;

/// An equal Event within this time of the last one continues its series, as in Kubernetes' own recorders.
const SERIES_LASTS: Duration = Duration::from_secs(360);
/// Most series that are remembered.
const MOST_SERIES: usize = 2048;
/// Writes about one object: this many at once, then one per interval.
const PER_OBJECT: Bucket = Bucket::new(25.0, 0.1);
/// Writes altogether.
const ALTOGETHER: Bucket = Bucket::new(100.0, 20.0);

struct Series {
    event: Event,
    /// Name of the Event object, once it is written.
    name: Option<String>,
    /// Its note as it is written.
    written_note: String,
    count: u32,
    last: Instant,
    last_time: Timestamp,
    /// There is something to write.
    pending: bool,
}

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub identity: Identity,
    pub namespace: String,
    pub name: String,
    pub how: How,
}

/// How an Event is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum How {
    /// As a new object, through `events.k8s.io/v1`.
    Create(Value),
    /// Only its series changes: a merge patch through `events.k8s.io/v1`.
    Count(Value),
    /// Its text changes as well: a merge patch through core `v1`, because `events.k8s.io/v1` holds the note immutable.
    Rewrite(Value),
}

/// Everything that is remembered about Events.
pub(super) struct Ledger {
    reporter: Reporter,
    series: HashMap<Identity, Series>,
    pending: VecDeque<Identity>,
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
            buckets: HashMap::new(),
            altogether: ALTOGETHER,
            dropped: 0,
        }
    }

    /// Takes note of an Event. `now` and `time` are the same moment on two clocks.
    pub(super) fn add(&mut self, event: Event, now: Instant, time: Timestamp) {
        let identity = event.identity();
        if self.series.len() >= MOST_SERIES && !self.series.contains_key(&identity) {
            self.forget(now);
            if self.series.len() >= MOST_SERIES {
                self.dropped += 1;
                return;
            }
        }
        let series = self.series.entry(identity.clone()).or_insert_with(|| Series {
            event: event.clone(),
            name: None,
            written_note: String::new(),
            count: 0,
            last: now,
            last_time: time,
            pending: false,
        });
        if now.duration_since(series.last) > SERIES_LASTS && !series.pending {
            series.name = None;
            series.count = 0;
        }
        series.event = event;
        series.count = series.count.saturating_add(1);
        (series.last, series.last_time) = (now, time);
        if !series.pending {
            series.pending = true;
            self.pending.push_back(identity);
        }
    }

    /// What is to be written now, oldest first; what must wait stays.
    pub(super) fn due(&mut self, now: Instant) -> Option<Write> {
        for _ in 0..self.pending.len() {
            let identity = self.pending.pop_front()?;
            let bucket = self.buckets.entry(identity.key.clone()).or_insert(PER_OBJECT);
            if bucket.has_one(now) && self.altogether.has_one(now) {
                bucket.take();
                self.altogether.take();
                let Some(series) = self.series.get_mut(&identity) else { continue };
                series.pending = false;
                return Some(write(identity, series, &self.reporter));
            }
            self.pending.push_back(identity);
        }
        None
    }

    /// Whether something waits to be written.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// A write succeeded.
    pub(super) fn written(&mut self, write: &Write) {
        if let Some(series) = self.series.get_mut(&write.identity) {
            series.name = Some(write.name.clone());
            let note = match &write.how {
                How::Create(body) => body["note"].as_str(),
                How::Rewrite(patch) => patch["message"].as_str(),
                How::Count(_) => None,
            };
            if let Some(note) = note {
                note.clone_into(&mut series.written_note);
            }
        }
    }

    /// The Event object is gone (they live for an hour) or cannot be changed: the series goes on as a new object.
    pub(super) fn lost(&mut self, write: &Write) {
        if let Some(series) = self.series.get_mut(&write.identity) {
            series.name = None;
            if !series.pending {
                series.pending = true;
                self.pending.push_back(write.identity.clone());
            }
        }
    }

    /// Forgets series that have ended, and buckets that are full.
    fn forget(&mut self, now: Instant) {
        self.series.retain(|_, series| series.pending || now.duration_since(series.last) <= SERIES_LASTS);
        self.buckets.retain(|_, bucket| !bucket.is_full(now));
    }
}

fn write(identity: Identity, series: &Series, reporter: &Reporter) -> Write {
    let (event, note) = (&series.event, series.event.written_note());
    let repeated = json!({ "count": series.count, "lastObservedTime": micro_time(series.last_time) });
    let (name, how) = match &series.name {
        None => {
            let name = event.new_name();
            let mut body = event.object(&name, series.last_time, reporter);
            // A series of one is refused.
            if series.count > 1 {
                body["series"] = repeated;
            }
            (name, How::Create(body))
        }
        Some(name) if series.written_note == note => (name.clone(), How::Count(json!({ "series": repeated }))),
        Some(name) => (name.clone(), How::Rewrite(json!({ "message": note, "series": repeated }))),
    };
    Write { namespace: event.namespace().to_owned(), identity, name, how }
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
        assert_eq!(body["regarding"]["uid"], "u");
        assert_eq!(body.get("series"), None);
        assert_eq!(ledger.due(now), None);
    }

    #[test]
    fn counts_equal_ones_and_keeps_the_newest_note() {
        let (mut ledger, now) = ledger();
        publish(&mut ledger, "first", now);
        let again = publish(&mut ledger, "first", now).expect("a write");
        let How::Count(patch) = again.how else { panic!("{again:?}") };
        assert_eq!(patch["series"]["count"], 2);
        let other = publish(&mut ledger, "second", now).expect("a write");
        let How::Rewrite(patch) = other.how else { panic!("{other:?}") };
        assert_eq!((&patch["message"], &patch["series"]["count"]), (&json!("second"), &json!(3)));
        let again = publish(&mut ledger, "second", now).expect("a write");
        assert!(matches!(again.how, How::Count(_)), "{again:?}");
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
        let How::Rewrite(patch) = write.how else { panic!("{write:?}") };
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
        assert_eq!(body["series"]["count"], 2);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut ledger, now) = ledger();
        for n in 0..=MOST_SERIES {
            let mut event = event("a");
            event.note_key = n.to_string();
            ledger.add(event, now, time(0));
        }
        assert_eq!((ledger.series.len(), ledger.dropped), (MOST_SERIES, 1));
    }
}
