//! The event recorder: callers enqueue Events without waiting, and one task writes them.
//!
//! Invariant: [`EventRecorder::publish`] never waits. Events that do not fit into their queue are dropped and counted.
//! Routine Events have their own queue.
//! Invariant: a failed write of an Event has no other effect. Missing permissions are logged once.
//!
//! Needs `create` and `patch` on `events` in the core group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use mainstay_object::failure::{Class, caught};

use super::apply::{Part, Persistence};
use super::connect::Cluster;
use super::error::Error;
use super::event::{Event, Priority, Reporter};
use super::event_aggregation::{Aggregator, How, LINGER, Write};
use super::kind::{Kind, Scope};

/// Wait after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(1);
/// Capacity of each queue.
const QUEUE: usize = 1024;
/// Deadline of one write.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pause of all writes after a write without a response.
const PAUSE: Duration = Duration::from_secs(3);
/// Longest time for pending writes at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Enqueues Events. Clones share the queues.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    urgent: mpsc::Sender<Event>,
    routine: mpsc::Sender<Event>,
    dropped: Arc<AtomicU64>,
}

/// Writes the enqueued Events.
pub struct EventWriter {
    cluster: Cluster,
    events: Kind,
    queues: Queues,
    aggregator: Aggregator,
    dropped: Arc<AtomicU64>,
    /// Whether the warning about missing permissions was logged.
    warned: bool,
    /// The end of the pause after a write without a response.
    resume_at: Option<Instant>,
}

/// The receiving ends of the recorder's queues.
struct Queues {
    urgent: mpsc::Receiver<Event>,
    routine: mpsc::Receiver<Event>,
}

impl Queues {
    /// Returns the next Event; `None` once all recorders are dropped and the queues are empty.
    async fn recv(&mut self) -> Option<Event> {
        tokio::select! {
            biased;
            Some(event) = self.urgent.recv() => Some(event),
            Some(event) = self.routine.recv() => Some(event),
            else => None,
        }
    }

    fn try_recv(&mut self) -> Option<Event> {
        self.urgent.try_recv().or_else(|_| self.routine.try_recv()).ok()
    }
}

impl EventRecorder {
    /// Returns a recorder and its writer. `controller` is the name of the program, such as `mainstay.dev/agent`.
    /// `instance` is the name of the process, such as that of the pod.
    pub fn new(cluster: Cluster, controller: &str, instance: &str) -> (Self, EventWriter) {
        let ((urgent, first), (routine, then)) = (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = EventWriter {
            cluster: cluster.urgent(),
            events: Kind::fixed("v1", "Event", "events", Scope::Namespaced),
            queues: Queues { urgent: first, routine: then },
            aggregator: Aggregator::new(Reporter { controller: controller.to_owned(), instance: instance.to_owned() }),
            dropped: Arc::clone(&dropped),
            warned: false,
            resume_at: None,
        };
        (Self { urgent, routine, dropped }, writer)
    }

    /// Enqueues an Event without waiting. Long texts are shortened.
    pub fn publish(&self, event: Event) {
        let queue = match event.priority {
            Priority::Failure | Priority::State => &self.urgent,
            Priority::Routine | Priority::Detail => &self.routine,
        };
        if queue.try_send(event.shortened()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of dropped Events.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl EventWriter {
    /// Writes until `shutdown` is cancelled or every recorder is dropped, then flushes for at most 3 s.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            match caught(self.step(&shutdown)).await {
                Ok(Flow::Continue) => {}
                Ok(Flow::End) => break,
                // The writer continues after a panic. Only the current write is lost.
                Err(_) => tokio::time::sleep(AFTER_PANIC).await,
            }
        }
        let rest = async {
            while let Some(event) = self.queues.try_recv() {
                self.aggregator.add(event, Instant::now(), Timestamp::now());
            }
            // At shutdown, no further Events can be summed up with the pending ones.
            while let Some(write) = self.aggregator.due(Instant::now() + LINGER) {
                self.perform(write).await;
            }
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, rest).await.is_err() {
            tracing::debug!("not all Events were written before shutdown");
        }
    }

    /// Drains the queues and writes one Event, or waits for the next one.
    async fn step(&mut self, shutdown: &CancellationToken) -> Flow {
        if shutdown.is_cancelled() {
            return Flow::End;
        }
        while let Some(event) = self.queues.try_recv() {
            self.add(event);
        }
        let is_held_back = self.resume_at.is_some_and(|at| Instant::now() < at);
        if let Some(write) = (!is_held_back).then(|| self.aggregator.due(Instant::now())).flatten() {
            self.perform(write).await;
            return Flow::Continue;
        }
        // Wakes up regularly, because the rate limits recover over time.
        let pause = if self.aggregator.is_waiting() { Duration::from_millis(500) } else { Duration::MAX };
        let next = tokio::time::timeout(pause, self.queues.recv());
        match shutdown.run_until_cancelled(next).await {
            None | Some(Ok(None)) => return Flow::End,
            Some(Ok(Some(event))) => self.add(event),
            Some(Err(_)) => {}
        }
        Flow::Continue
    }

    fn add(&mut self, event: Event) {
        let before = self.aggregator.dropped;
        self.aggregator.add(event, Instant::now(), Timestamp::now());
        self.dropped.fetch_add(self.aggregator.dropped - before, Ordering::Relaxed);
    }

    async fn perform(&mut self, write: Write) {
        let sending = send(self.cluster.clone(), self.events.clone(), write.clone());
        let mut sending = std::pin::pin!(tokio::time::timeout(DEADLINE, sending));
        let result = loop {
            // Events that arrive during the request are aggregated immediately. The channel is not fair between
            // namespaces, so it must not become full.
            tokio::select! {
                result = &mut sending => break result,
                Some(event) = self.queues.recv() => self.add(event),
            }
        };
        self.resume_at = None;
        let Ok(result) = result else { return self.unanswered(&write) };
        match result {
            Ok(()) => self.aggregator.written(&write),
            Err(error) if error.is_already_exists() => self.aggregator.exists(&write),
            Err(error) if error.class() == Class::Unavailable => self.unanswered(&write),
            Err(error) => {
                let text = mainstay_object::failure::chain(&error);
                if error.class() == Class::Denied && !self.warned {
                    tracing::warn!(error = text, "Events cannot be written");
                    self.warned = true;
                } else {
                    tracing::debug!(error = text, "Event not written");
                }
                let patched = !matches!(write.how, How::Create(_));
                if patched && matches!(error.class(), Class::NotReady | Class::Invalid) {
                    self.aggregator.lost(&write);
                }
            }
        }
    }

    /// Pauses all writes, because the next one would fail as well.
    fn unanswered(&mut self, write: &Write) {
        self.aggregator.unanswered(write);
        self.resume_at = Some(Instant::now() + PAUSE);
    }
}

async fn send(cluster: Cluster, events: Kind, write: Write) -> Result<(), Error> {
    let (namespace, name) = (Some(write.namespace.as_str()), write.name.as_str());
    match &write.how {
        How::Create(body) => {
            cluster.create(&events, namespace, name, body, Persistence::Kept).await?;
        }
        How::Repeat(patch) => {
            cluster.patch_merge(&events, namespace, name, Part::Main, patch).await?;
        }
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Flow {
    Continue,
    End,
}

#[cfg(test)]
mod tests {
    use super::super::event::{EventType, Regarding};
    use super::super::fake;
    use super::super::kind::tests::kind;
    use super::*;
    use mainstay_api::events::Reason;
    use serde_json::{Value, json};

    fn event(note: &str) -> Event {
        let key = kind("v1", "ConfigMap", "configmaps", true).key(Some("a"), "b");
        Event {
            regarding: Regarding { key, api_version: "v1".to_owned(), uid: None },
            related: None,
            kind: EventType::Warning,
            priority: Priority::Failure,
            about: None,
            reason: Reason::Failed.into(),
            action: "Apply".to_owned(),
            note: note.to_owned(),
            aggregation_key: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_a_series_and_its_newest_note() {
        let (cluster, mut server) = fake::cluster();
        let (recorder, writer) = EventRecorder::new(cluster, "mainstay.dev/agent", "pod");
        let running = tokio::spawn(writer.run(CancellationToken::new()));
        recorder.publish(event("one"));
        let created = server.next().await;
        assert!(created.line().starts_with("POST /api/v1/namespaces/a/events?"), "{}", created.line());
        created.json(201, &json!({})).await;
        recorder.publish(event("one"));
        let counted = server.next().await;
        assert!(counted.line().starts_with("PATCH /api/v1/namespaces/a/events/b."), "{}", counted.line());
        counted.json(200, &json!({})).await;
        recorder.publish(event("two"));
        let rewritten = server.next().await;
        assert!(rewritten.line().starts_with("PATCH /api/v1/namespaces/a/events/b."), "{}", rewritten.line());
        assert_eq!(rewritten.json(200, &json!({})).await["message"], "two");
        drop(recorder);
        running.await.expect("the writer ends with its recorders");
    }

    #[tokio::test(start_paused = true)]
    async fn creates_a_new_event_when_the_old_one_has_expired() {
        let (cluster, mut server) = fake::cluster();
        let (recorder, writer) = EventRecorder::new(cluster, "mainstay.dev/agent", "pod");
        let running = tokio::spawn(writer.run(CancellationToken::new()));
        recorder.publish(event("one"));
        server.next().await.json(201, &json!({})).await;
        recorder.publish(event("one"));
        server.next().await.json(404, &json!({ "code": 404, "reason": "NotFound" })).await;
        let again = server.next().await;
        assert!(again.line().starts_with("POST "), "{}", again.line());
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_survives_a_server_that_is_away_for_a_moment_and_is_there_once() {
        let (cluster, mut server) = fake::cluster();
        let (recorder, writer) = EventRecorder::new(cluster, "mainstay.dev/agent", "pod");
        let running = tokio::spawn(writer.run(CancellationToken::new()));
        recorder.publish(event("one"));
        let name = |asked: &Value| asked["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let unavailable = json!({ "code": 503, "reason": "ServiceUnavailable" });
        let first = name(&server.next().await.json(503, &unavailable).await);
        assert!(!first.is_empty());
        // This request arrives, but its response is lost.
        let before = Instant::now();
        server.next().await.cut();
        assert!(before.elapsed() >= Duration::from_secs(1), "{:?}", before.elapsed());
        let exists = json!({ "code": 409, "reason": "AlreadyExists" });
        assert_eq!(name(&server.next().await.json(409, &exists).await), first);
        recorder.publish(event("one"));
        let counted = server.next().await;
        assert!(
            counted.line().starts_with(&format!("PATCH /api/v1/namespaces/a/events/{first}?")),
            "{}",
            counted.line()
        );
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_queued_event_is_bounded_in_bytes() {
        let (cluster, _server) = fake::cluster();
        let (recorder, mut writer) = EventRecorder::new(cluster, "mainstay.dev/agent", "pod");
        for last in ["a", "b"] {
            let mut long = event(&"spec.a, ".repeat(100_000));
            long.aggregation_key = "spec.a,".repeat(100_000) + last;
            recorder.publish(long);
        }
        let kept = [writer.queues.recv().await.unwrap(), writer.queues.recv().await.unwrap()];
        for event in &kept {
            assert!(event.note.len() <= 1000 && event.aggregation_key.len() <= 100, "{event:?}");
        }
        assert_ne!(kept[0].identity(), kept[1].identity(), "what differs stays apart");
    }

    #[tokio::test(start_paused = true)]
    async fn never_waits_and_counts_what_it_drops() {
        let (cluster, mut server) = fake::cluster();
        let (recorder, writer) = EventRecorder::new(cluster, "mainstay.dev/agent", "pod");
        for n in 0..QUEUE + 5 {
            recorder.publish(event(&n.to_string()));
        }
        assert_eq!(recorder.dropped(), 5);
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(writer.run(shutdown.clone()));
        let created = server.next().await.json(201, &json!({})).await;
        assert_eq!(created["series"]["count"], QUEUE);
        shutdown.cancel();
        running.await.expect("the writer ends");
    }
}
