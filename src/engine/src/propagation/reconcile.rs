//! The loop of propagation: watches bases, namespaces and copies, and starts the writes that are due.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, SelectAll};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::copy::Propagated;
use super::queue::Queue;
use super::state::{Place, State, Step};
use super::tally::Tally;
use super::write::Write;
use crate::apply::Writer;
use crate::managed::revert_backoff::Shift;
use mainstay_api::events::Reason;
use mainstay_api::names::{CONFIG, PROPAGATED_FROM};
use mainstay_cluster::{Denial, Error, Event, EventType, Kind, Priority, Regarding, Scope, Selection, WatchEvent};
use mainstay_object::failure::chain;

/// Time within which the watch shows a write of the agent.
const LAG: Duration = Duration::from_secs(1);
/// Interval of reports while writes are in flight.
const REPORT_EVERY: Duration = Duration::from_secs(2);
/// Longest wait for a time on the wall clock, because the clock may be changed.
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
enum Watched {
    Bases,
    Copies,
    Namespaces,
    /// Objects with the name of a base.
    Named(String),
}

type Watches = SelectAll<BoxStream<'static, (Watched, WatchEvent)>>;
type Emit = Arc<dyn Fn(Event) + Send + Sync>;

/// Copies the bases of a kind from the namespace `home` until `stop`. No copy is made until the `excluded` namespaces
/// are known. `emit` receives Events about bases and must not block.
pub async fn run(
    propagated: Propagated,
    home: String,
    excluded: watch::Receiver<Option<Vec<String>>>,
    writer: Writer,
    emit: impl Fn(Event) + Send + Sync + 'static,
    stop: CancellationToken,
) {
    let label = propagated.label;
    let mut propagation = Propagation {
        began: Instant::now(),
        kind: Arc::clone(&propagated.kind),
        state: State::new(propagated, &home),
        home: home.clone(),
        writer,
        emit: Arc::new(emit),
        watches: SelectAll::new(),
        named: HashMap::new(),
        queue: Queue::default(),
        running: FuturesUnordered::new(),
        tally: Tally::default(),
        report_at: None,
    };
    let bases = Selection::labelled(CONFIG, label).within(&home);
    let copies = Selection::labelled(PROPAGATED_FROM, &home).metadata_only();
    propagation.watch(Watched::Bases, &Arc::clone(&propagation.kind), bases, None);
    propagation.watch(Watched::Copies, &Arc::clone(&propagation.kind), copies, None);
    stop.run_until_cancelled(propagation.reconcile(excluded)).await;
}

struct Propagation {
    /// The start of the loop's clock.
    began: Instant,
    kind: Arc<Kind>,
    home: String,
    state: State,
    writer: Writer,
    emit: Emit,
    watches: Watches,
    /// Stops the watch of each base's name when cancelled. The watch of namespaces starts with the first base.
    named: HashMap<String, CancellationToken>,
    queue: Queue,
    running: FuturesUnordered<BoxFuture<'static, Outcome>>,
    tally: Tally,
    report_at: Option<Duration>,
}

/// The result of a step: the change, or `None` if the step changed nothing.
type Outcome = (Place, Result<Option<&'static str>, Error>);

impl Propagation {
    async fn reconcile(&mut self, mut excluded: watch::Receiver<Option<Vec<String>>>) {
        excluded.mark_changed();
        loop {
            let next = self.queue.next_end().into_iter().chain(self.report_at).min().unwrap_or(self.now() + LONGEST);
            tokio::select! {
                Some((watched, event)) = self.watches.next() => self.observe(watched, event),
                Ok(()) = excluded.changed() => {
                    if let Some(excluded) = excluded.borrow_and_update().clone() {
                        self.state.set_excluded(excluded);
                    }
                }
                Some((place, outcome)) = self.running.next() => self.finish(place, outcome),
                () = sleep_until(self.began + next) => {}
            }
            self.begin();
            self.report();
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn watch(&mut self, watched: Watched, kind: &Arc<Kind>, selection: Selection, until: Option<CancellationToken>) {
        let events = self.writer.cluster().watch(kind, selection).map(move |event| (watched.clone(), event));
        self.watches.push(match until {
            Some(until) => events.take_until(until.cancelled_owned()).boxed(),
            None => events.boxed(),
        });
    }

    /// Watches the name of each base. Watches namespaces as soon as there is a base.
    fn watch_named(&mut self) {
        let bases: Vec<String> = self.state.copied().map(|(name, _)| name.clone()).collect();
        let gone = self.named.extract_if(|name, _| !bases.contains(name));
        for (name, stop) in gone {
            stop.cancel();
            self.state.set_watched(&name, false);
        }
        for name in bases {
            if self.named.contains_key(&name) {
                continue;
            }
            if self.named.is_empty() && !self.state.knows_namespaces() {
                let kind = Arc::new(Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster));
                self.watch(Watched::Namespaces, &kind, Selection::default().metadata_only(), None);
            }
            let stop = CancellationToken::new();
            self.state.set_watched(&name, true);
            let (kind, selection) = (Arc::clone(&self.kind), Selection::named(None, &name));
            self.watch(Watched::Named(name.clone()), &kind, selection, Some(stop.clone()));
            self.named.insert(name, stop);
        }
    }

    fn observe(&mut self, watched: Watched, event: WatchEvent) {
        if let Some(error) = event.failure() {
            tracing::warn!(why = chain(error), "{}s are not watched, so none may be copied", self.kind.kind);
        }
        let now = Timestamp::now();
        match watched {
            Watched::Bases => {
                for name in self.state.take_base(event, now) {
                    self.refuse(&name);
                }
                self.watch_named();
            }
            Watched::Namespaces => self.state.take_namespace(event),
            Watched::Copies => self.state.take_copy(event, now),
            Watched::Named(name) => self.state.take_named(&name, event, now),
        }
    }

    /// Starts the due steps up to the limits of the queue.
    fn begin(&mut self) {
        let due = self.state.take_due();
        due.seen.into_iter().for_each(|place| self.queue.enqueue(place));
        due.renewed.into_iter().for_each(|place| self.queue.renew(place));
        let (clock, now) = (self.now(), Timestamp::now());
        while let Some(place) = self.queue.next(clock) {
            match self.state.step(&place, now) {
                Step::Nothing => self.queue.settle(&place),
                Step::Later(end) => {
                    let wait = Duration::try_from(end.duration_since(now)).unwrap_or_default().min(LONGEST);
                    self.queue.hold(place, clock + wait);
                }
                step => {
                    self.queue.begin(&place);
                    let write = Write {
                        writer: self.writer.clone(),
                        kind: Arc::clone(&self.kind),
                        home: self.home.clone(),
                        base: self.state.base(&place.1).cloned(),
                        place,
                    };
                    let written = async move {
                        let outcome = write.perform(step).await;
                        (write.place, outcome)
                    };
                    self.running.push(Box::pin(written));
                }
            }
        }
    }

    fn finish(&mut self, place: Place, outcome: Result<Option<&'static str>, Error>) {
        let clock = self.now();
        match outcome {
            Ok(Some("deleted") | None) => self.queue.ended(&place),
            Ok(Some(_)) if self.queue.written(&place, clock) == Shift::Contended => {
                let note = format!(
                    "its copy in {} keeps being changed, so it is reverted less often; its managedFields name the \
                     client",
                    place.0
                );
                tracing::warn!("{} {}/{}: {note}", self.kind.kind, self.home, place.1);
                self.emit(&place.1, note);
            }
            // The watch shows the object of the other client.
            Err(ref error) if error.is_already_exists() => self.queue.ended(&place),
            Ok(Some(_)) => {}
            Err(_) => self.queue.failed(&place, clock),
        }
        if outcome.is_ok() && self.state.step(&place, Timestamp::now()) != Step::Nothing {
            self.queue.hold_at_least(place.clone(), clock + LAG);
        }
        match outcome {
            Ok(Some(change)) => self.tally.add(place, change),
            Ok(None) => {}
            Err(error) if error.is_already_exists() || error.is_conflict() => {}
            Err(error) if error.is_namespace_terminating() || error.is_namespace_missing() => {}
            Err(error) if place.0 == self.home => {
                tracing::warn!(why = chain(&error), "a finalizer of Kyma's stays on {}/{}", place.0, place.1);
            }
            Err(error) => {
                let is_unpermitted = error.refusal().is_some_and(|refusal| refusal.denial == Some(Denial::Permission));
                let hint = if is_unpermitted { "; install manifests/propagation to grant the permissions" } else { "" };
                self.tally.add_failure(place, || format!("{}{hint}", chain(&error)));
            }
        }
    }

    /// Reports the writes since the last report, as soon as no write is in flight or the interval has passed.
    fn report(&mut self) {
        if self.tally.is_empty() {
            return;
        }
        let now = self.now();
        if !self.queue.is_idle() && *self.report_at.get_or_insert(now + REPORT_EVERY) > now {
            return;
        }
        self.report_at = None;
        for (name, note) in self.tally.take_done() {
            tracing::info!("{} {}/{name}: {note}", self.kind.kind, self.home);
        }
        for (name, note) in self.tally.take_failed() {
            tracing::warn!("{} {}/{name}: {note}", self.kind.kind, self.home);
            self.emit(&name, note);
        }
    }

    /// Reports why a base is not copied.
    fn refuse(&self, name: &str) {
        if let Some((why, label)) = self.state.any_base(name).and_then(|base| base.refused) {
            let note = format!("not copied to any namespace: {why}; remove its label {label}");
            tracing::warn!("{} {}/{name}: {note}", self.kind.kind, self.home);
            self.emit(name, note);
        }
    }

    fn emit(&self, name: &str, note: String) {
        let uid = self.state.any_base(name).map(|base| base.uid.clone());
        (self.emit)(Event {
            regarding: Regarding {
                key: self.kind.key(Some(&self.home), name),
                api_version: self.kind.api_version(),
                uid,
            },
            related: None,
            kind: EventType::Warning,
            priority: Priority::Failure,
            about: None,
            reason: Reason::NotPropagated.into(),
            action: "Propagate".to_owned(),
            note,
            aggregation_key: String::new(),
        });
    }
}
