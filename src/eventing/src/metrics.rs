//! The metrics of eventing, with the names of Kyma's publisher proxy and controller where Kyma has them.
//!
//! Invariant: the number of time series is bounded. Names that clients choose, which are types, sources and statuses of
//! responses, are counted as `other` beyond a limit, and are cut. Invariant: the series of a deleted subscriber are
//! dropped with it, and at the next scrape. Invariant: no query of a URL is shown, because it may contain a token.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::subscriber::SubscriberId;

/// Maximum number of pairs of a type and a source with a series of their own.
const TYPES: usize = 500;
/// Maximum number of pairs of a type and a status of a subscriber with series of their own.
const RESULTS: usize = 50;
/// Maximum number of such pairs of all subscribers.
const ALL_RESULTS: usize = 10_000;
/// Maximum length of a name in characters.
const LONGEST: usize = 100;
/// Replaces names beyond a limit.
const OTHER: &str = "other";
/// Bucket bounds in seconds, and in milliseconds.
const SECONDS: [f64; 10] = [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.5, 2.0, 10.0];
const MILLISECONDS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 250.0, 1000.0, 10_000.0];

type Labels<const N: usize> = [(&'static str, String); N];
type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// A subscriber at a scrape.
#[derive(Clone, Debug)]
pub struct Subscribed {
    /// The subscriber.
    pub id: SubscriberId,
    /// Whether it receives events.
    pub is_ready: bool,
    /// The types of its filter; without types, it receives all.
    pub types: Vec<String>,
}

/// All metrics of a process. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    requests: Family<Labels<3>, Counter>,
    durations: Histograms<3>,
    backend: Histograms<2>,
    published: Family<Labels<3>, Counter>,
    deliveries: Family<Labels<6>, Counter>,
    dispatches: Histograms<6>,
    in_flight: Family<Labels<3>, Gauge>,
    dead_letters: Family<Labels<3>, Counter>,
    health: Gauge,
    known: Mutex<Known>,
    subscribers: Subscribers,
}

/// The series that exist.
#[derive(Default)]
struct Known {
    /// The series of requests, by method and path.
    requests: Found,
    published: BTreeSet<Labels<3>>,
    /// The series of `published`, by type and source, with the time to store the event.
    stored: Found,
    of_subscribers: BTreeMap<SubscriberId, OfSubscriber>,
    /// Number of series of results in `of_subscribers`.
    results: usize,
}

/// The series of a subscriber.
#[derive(Default)]
struct OfSubscriber {
    results: BTreeSet<Labels<6>>,
    /// The series of `results`, by type and sink.
    found: Found,
    in_flight: Option<Gauge>,
}

/// Counters and times by two names as they are shown, and a code. They are found without an allocation, for each event.
#[derive(Default)]
struct Found(BTreeMap<String, BTreeMap<String, ByCode>>);

/// Counter and times of each code.
type ByCode = BTreeMap<u16, (Counter, Histogram)>;

impl Found {
    /// Counts an event, if its names are those that are shown and its series exists.
    fn count(&self, names: [&str; 2], code: u16, took: f64) -> bool {
        let found = self.0.get(names[0]).and_then(|found| found.get(names[1])?.get(&code));
        if let Some((counter, duration)) = found {
            counter.inc();
            duration.observe(took);
        }
        found.is_some()
    }

    /// Counts the first event of a series.
    fn insert(&mut self, [first, second]: [String; 2], code: u16, series: (Counter, Histogram), took: f64) {
        self.0.entry(first.clone()).or_default().entry(second.clone()).or_default().insert(code, series);
        self.count([&first, &second], code, took);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let (mut registry, subscribers) = (Registry::default(), Subscribers::default());
        let mut counters = |name: &str, help: &str| {
            let family = Family::default();
            registry.register(name, help, family.clone());
            family
        };
        let requests = counters("eventing_epp_requests", "Requests to the publisher");
        let published = counters("eventing_epp_event_type_published", "Events that were published, by type and source");
        let help = "Deliveries of events to a subscriber; the code is 0 without a response";
        let deliveries = {
            let family = Family::<Labels<6>, Counter>::default();
            registry.register("eventing_ec_nats_delivery_per_subscription", help, family.clone());
            family
        };
        let dead_letters = Family::<Labels<3>, Counter>::default();
        registry.register("mainstay_events_dead_letters", "Events that were given up", dead_letters.clone());
        let durations: Histograms<3> = Family::new_with_constructor(seconds);
        let help = "Time from a request to its response, with the time to store the event";
        registry.register("eventing_epp_requests_duration_seconds", help, durations.clone());
        let backend: Histograms<2> = Family::new_with_constructor(milliseconds);
        let help = "Time to store an event in the journal or on NATS";
        registry.register("eventing_epp_backend_duration_milliseconds", help, backend.clone());
        let dispatches: Histograms<6> = Family::new_with_constructor(seconds);
        let help = "Time from a delivery to the response of the subscriber";
        registry.register("eventing_ec_nats_subscriber_dispatch_duration_seconds", help, dispatches.clone());
        let in_flight = Family::<Labels<3>, Gauge>::default();
        registry.register("mainstay_events_in_flight", "Deliveries in progress", in_flight.clone());
        let health = Gauge::default();
        registry.register("eventing_epp_health", "1 if events are accepted", health.clone());
        registry.register_collector(Box::new(subscribers.clone()));
        let known = Mutex::default();
        Self(Arc::new(Inner {
            registry,
            requests,
            durations,
            backend,
            published,
            deliveries,
            dispatches,
            in_flight,
            dead_letters,
            health,
            known,
            subscribers,
        }))
    }
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn milliseconds() -> Histogram {
    Histogram::new(MILLISECONDS)
}

impl Metrics {
    /// Counts a request with its response. `path` is one of a fixed set of patterns.
    pub fn requested(&self, method: &str, path: &'static str, code: u16, took: Duration) {
        let (took, method) = (took.as_secs_f64(), if matches!(method, "GET" | "POST") { method } else { OTHER });
        let known = &mut *self.0.known.lock();
        if known.requests.count([method, path], code, took) {
            return;
        }
        let labels = [("code", code.to_string()), ("method", method.to_owned()), ("path", path.to_owned())];
        let series = (self.0.requests.get_or_create_owned(&labels), self.0.durations.get_or_create_owned(&labels));
        known.requests.insert([method.to_owned(), path.to_owned()], code, series, took);
    }

    /// Counts an event, by the status of the response to its publisher. `backend` is the name of the store, which does
    /// not change.
    pub fn published(&self, event_type: &str, source: &str, code: u16, backend: &'static str, took: Duration) {
        let took = took.as_secs_f64() * 1000.0;
        let known = &mut *self.0.known.lock();
        if known.stored.count([event_type, source], code, took) {
            return;
        }
        let [mut event_type, mut source] = [name(event_type), name(source)];
        let of = |event_type: &str, source: &str| {
            [("event_type", event_type.to_owned()), ("event_source", source.to_owned()), ("code", code.to_string())]
        };
        if !known.published.contains(&of(&event_type, &source)) && known.published.len() >= TYPES {
            [event_type, source] = [OTHER.to_owned(), OTHER.to_owned()];
        }
        let labels = of(&event_type, &source);
        let to = [("code", code.to_string()), ("destination_service", backend.to_owned())];
        let series = (self.0.published.get_or_create_owned(&labels), self.0.backend.get_or_create_owned(&to));
        known.published.insert(labels);
        known.stored.insert([event_type, source], code, series, took);
    }

    /// Counts a delivery. `code` is the status of the response, or 0.
    pub fn delivered(&self, to: &SubscriberId, event_type: &str, sink: &str, code: u16, took: Duration) {
        let (took, sink) = (took.as_secs_f64(), sink.split('?').next().unwrap_or_default());
        let known = &mut *self.0.known.lock();
        if known.of_subscribers.get(to).is_some_and(|one| one.found.count([event_type, sink], code, took)) {
            return;
        }
        let [kind, namespace, of] = labels(to);
        let with = |event_type: &str, sink: &str, code: String| {
            let [event_type, sink] = [("event_type", name(event_type)), ("sink", name(sink))];
            [kind.clone(), namespace.clone(), of.clone(), event_type, sink, ("response_code", code)]
        };
        let mut labels = with(event_type, sink, code.to_string());
        let of_subscriber = known.of_subscribers.entry(to.clone()).or_default();
        let is_full = of_subscriber.results.len() >= RESULTS || known.results >= ALL_RESULTS;
        let is_other = is_full && !of_subscriber.results.contains(&labels);
        if is_other {
            labels = with(OTHER, OTHER, if (200..300).contains(&code) { "200".to_owned() } else { OTHER.to_owned() });
        }
        let (count, duration) =
            (self.0.deliveries.get_or_create_owned(&labels), self.0.dispatches.get_or_create_owned(&labels));
        known.results += usize::from(of_subscriber.results.insert(labels));
        if is_other {
            count.inc();
            duration.observe(took);
        } else {
            of_subscriber.found.insert([name(event_type), name(sink)], code, (count, duration), took);
        }
    }

    /// Counts a delivery as in progress until the returned value is dropped.
    pub fn in_flight(&self, to: &SubscriberId) -> InFlight {
        let known = &mut *self.0.known.lock();
        let gauge = if let Some(gauge) = known.of_subscribers.get(to).and_then(|one| one.in_flight.clone()) {
            gauge
        } else {
            let of_subscriber = known.of_subscribers.entry(to.clone()).or_default();
            of_subscriber.in_flight.insert(self.0.in_flight.get_or_create_owned(&labels(to))).clone()
        };
        gauge.inc();
        InFlight(gauge)
    }

    /// Counts an event that was given up.
    pub fn given_up(&self, to: &SubscriberId) {
        self.0.known.lock().of_subscribers.entry(to.clone()).or_default();
        self.0.dead_letters.get_or_create(&labels(to)).inc();
    }

    /// Sets whether events are accepted.
    pub fn set_health(&self, is_healthy: bool) {
        self.0.health.set(i64::from(is_healthy));
    }

    /// Replaces the known subscribers.
    pub fn set_subscribers(&self, all: Vec<Subscribed>) {
        *self.0.subscribers.0.lock() = all;
        self.drop_deleted();
    }

    /// Returns the response to a scrape, in the format OpenMetrics 1.0.
    ///
    /// # Errors
    /// Fails if a metric cannot be written.
    pub fn text(&self) -> Result<String, fmt::Error> {
        self.drop_deleted();
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }

    fn drop_deleted(&self) {
        let present: BTreeSet<SubscriberId> = self.0.subscribers.0.lock().iter().map(|one| one.id.clone()).collect();
        let Known { of_subscribers, results: count, .. } = &mut *self.0.known.lock();
        of_subscribers.retain(|id, OfSubscriber { results, .. }| {
            let is_present = present.contains(id);
            if !is_present {
                *count -= results.len();
                for labels in &*results {
                    self.0.deliveries.remove(labels);
                    self.0.dispatches.remove(labels);
                }
                self.0.in_flight.remove(&labels(id));
                self.0.dead_letters.remove(&labels(id));
            }
            is_present
        });
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// A delivery in progress.
#[derive(Debug)]
pub struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Returns a name that a client chose, as a label: cut, and without characters that need an escape.
fn name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\') { c } else { '_' };
    text.chars().take(LONGEST).map(plain).collect()
}

fn labels(of: &SubscriberId) -> Labels<3> {
    let (kind, namespace, name) = of.parts();
    [
        ("kind", kind.word().to_owned()),
        ("subscription_namespace", namespace.to_owned()),
        ("subscription_name", name.to_owned()),
    ]
}

/// Encodes the known subscribers at each scrape.
#[derive(Clone, Debug, Default)]
struct Subscribers(Arc<Mutex<Vec<Subscribed>>>);

impl Collector for Subscribers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.lock();
        let (help, kind) = ("1 if the subscriber receives events", ConstGauge::new(0).metric_type());
        let mut family = encoder.encode_descriptor("eventing_ec_subscription_status", help, None, kind)?;
        for one in &*all {
            ConstGauge::new(i64::from(one.is_ready)).encode(family.encode_family(&labels(&one.id))?)?;
        }
        let (help, kind) = ("Types of events that a subscriber receives", ConstCounter::new(0u64).metric_type());
        let mut family = encoder.encode_descriptor("eventing_ec_event_type_subscribed", help, None, kind)?;
        for one in &*all {
            let types: BTreeSet<String> = one.types.iter().map(|of| name(of)).take(RESULTS).collect();
            for event_type in types {
                let [kind, namespace, of] = labels(&one.id);
                let labels = [kind, namespace, of, ("event_type", event_type)];
                ConstCounter::new(1u64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SubscriberId {
        SubscriberId::parse(&format!("trigger/team/{name}")).unwrap()
    }

    fn series(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = metrics.text().unwrap();
        text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).map(str::to_owned).collect()
    }

    fn subscribed(name: &str) -> Subscribed {
        Subscribed { id: id(name), is_ready: true, types: vec!["t".to_owned()] }
    }

    #[test]
    fn names_that_clients_choose_are_bounded_and_harmless() {
        let metrics = Metrics::default();
        metrics.set_subscribers(vec![subscribed("a")]);
        for number in 0..2000u16 {
            let chosen = format!("t\"\n\\ü{number}{}", "x".repeat(1000));
            metrics.published(&chosen, &chosen, 204, "journal", Duration::ZERO);
            metrics.requested(&chosen, "/publish", 405, Duration::ZERO);
            metrics.delivered(&id("a"), &chosen, "http://a/x?token=hunter2", 100 + number % 900, Duration::ZERO);
            metrics.delivered(&id("a"), "t", &format!("http://a/{number}"), 200, Duration::ZERO);
        }
        assert!(!metrics.text().unwrap().contains("hunter2"));
        let published = series(&metrics, "eventing_epp_event_type_published_total");
        assert_eq!(published.len(), TYPES + 1);
        assert!(published.iter().all(|line| line.is_ascii() && line.len() < 400), "{published:?}");
        assert_eq!(series(&metrics, "eventing_epp_requests_total").len(), 1);
        let deliveries = series(&metrics, "eventing_ec_nats_delivery_per_subscription_total");
        assert!(deliveries.len() <= RESULTS + 2, "{}", deliveries.len());
    }

    #[test]
    fn each_event_counts_once_whether_its_series_is_new_or_known() {
        let metrics = Metrics::default();
        metrics.set_subscribers(vec![subscribed("a")]);
        // The second type is shown in a different form, which is the first one.
        for event_type in ["a_b", "a\"b", "a_b"] {
            metrics.requested("POST", "/publish", 204, Duration::ZERO);
            metrics.published(event_type, "s", 204, "nats", Duration::ZERO);
            metrics.delivered(&id("a"), event_type, "http://a/?x", 200, Duration::ZERO);
        }
        for name in [
            "eventing_epp_requests_total",
            "eventing_epp_requests_duration_seconds_count",
            "eventing_epp_backend_duration_milliseconds_count",
            "eventing_epp_event_type_published_total",
            "eventing_ec_nats_delivery_per_subscription_total",
            "eventing_ec_nats_subscriber_dispatch_duration_seconds_count",
        ] {
            let found = series(&metrics, name);
            assert!(found.len() == 1 && found[0].ends_with(" 3"), "{name}: {found:?}");
        }
    }

    #[test]
    fn a_deleted_subscriber_leaves_no_series() {
        let metrics = Metrics::default();
        metrics.set_subscribers(vec![subscribed("a"), subscribed("b")]);
        for name in ["a", "b"] {
            drop(metrics.in_flight(&id(name)));
            metrics.given_up(&id(name));
            metrics.delivered(&id(name), "t", "http://a", 200, Duration::ZERO);
        }
        assert_eq!(metrics.text().unwrap().matches("subscription_name=\"b\"").count(), 18);
        metrics.set_subscribers(vec![subscribed("a")]);
        assert_eq!(metrics.0.known.lock().results, 1, "without a scrape");
        let text = metrics.text().unwrap();
        assert!(!text.contains("subscription_name=\"b\"") && text.contains("subscription_name=\"a\""), "{text}");
    }

    #[test]
    fn a_delivery_is_in_flight_until_it_ends() {
        let metrics = Metrics::default();
        metrics.set_subscribers(vec![subscribed("a")]);
        let flights = [metrics.in_flight(&id("a")), metrics.in_flight(&id("a"))];
        assert!(series(&metrics, "mainstay_events_in_flight")[0].ends_with(" 2"));
        drop(flights);
        assert!(series(&metrics, "mainstay_events_in_flight")[0].ends_with(" 0"));
    }
}
