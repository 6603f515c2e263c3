//! Watches bases, namespaces and copies, and does what is due.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::copy::{Propagated, Whose, applied, whose};
use super::state::{Place, State, Step};
use crate::api::names::{CONFIG, PROPAGATED_FROM, PROPAGATION_MANAGER, REGISTRY_FINALIZER};
use crate::apply::{Deleted, Writer};
use crate::cluster::{
    Apply, Denial, Error, Event, EventType, Kind, Part, Persistence, Regarding, Scope, Selection, WatchEvent,
};
use crate::failure::{Backoff, chain};

/// Copies that are written at the same time.
const AT_ONCE: usize = 8;
/// Wait after a copy could not be written.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
const FAR: Duration = Duration::from_secs(86_400);

/// One of the watches.
#[derive(Clone, Debug)]
enum Watched {
    Bases,
    Copies,
    Namespaces,
    /// What has the name of a base.
    Named(String),
}

type Watches = SelectAll<BoxStream<'static, (Watched, WatchEvent)>>;
type Emit = Arc<dyn Fn(Event) + Send + Sync>;

/// Copies the bases of a kind in the namespace `home` until `stop`, once it is known which namespaces are `excluded`. `emit` gets Events about them and must not block.
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
        kind: Arc::clone(&propagated.kind),
        state: State::new(propagated, &home),
        home: home.clone(),
        writer,
        emit: Arc::new(emit),
        watches: SelectAll::new(),
        named: HashMap::new(),
        failures: BTreeMap::new(),
    };
    let bases = Selection::labelled(CONFIG, label).within(&home);
    let copies = Selection::labelled(PROPAGATED_FROM, &home).metadata_only();
    propagation.watch(Watched::Bases, &Arc::clone(&propagation.kind), bases, None);
    propagation.watch(Watched::Copies, &Arc::clone(&propagation.kind), copies, None);
    stop.run_until_cancelled(propagation.reconcile(excluded)).await;
}

struct Propagation {
    kind: Arc<Kind>,
    home: String,
    state: State,
    writer: Writer,
    emit: Emit,
    watches: Watches,
    /// What ends the watch of a name, for each base; namespaces are watched from the first one on.
    named: HashMap<String, CancellationToken>,
    /// Copies that could not be written, with the failures in a row and when they are tried again.
    failures: BTreeMap<Place, (u32, Instant)>,
}

/// What became of a step.
type Outcome = (Place, Result<Option<&'static str>, Error>);

impl Propagation {
    async fn reconcile(&mut self, mut excluded: watch::Receiver<Option<Vec<String>>>) {
        excluded.mark_changed();
        loop {
            let due = self.failures.values().map(|(_, at)| *at).min().unwrap_or_else(|| Instant::now() + FAR);
            tokio::select! {
                Some((watched, event)) = self.watches.next() => self.observe(watched, event).await,
                Ok(()) = excluded.changed() => {
                    if let Some(excluded) = excluded.borrow_and_update().clone() {
                        self.state.set_excluded(excluded);
                    }
                }
                () = sleep_until(due) => {
                    let now = Instant::now();
                    let again = self.failures.iter().filter(|(_, (_, at))| *at <= now).map(|(place, _)| place.clone());
                    again.collect::<Vec<_>>().into_iter().for_each(|place| self.state.set_due(place));
                }
            }
            self.perform().await;
        }
    }

    fn watch(&mut self, watched: Watched, kind: &Arc<Kind>, selection: Selection, until: Option<CancellationToken>) {
        let events = self.writer.cluster().watch(kind, selection).map(move |event| (watched.clone(), event));
        self.watches.push(match until {
            Some(until) => events.take_until(until.cancelled_owned()).boxed(),
            None => events.boxed(),
        });
    }

    /// Objects with the names of bases are watched, and with the first one namespaces.
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
            if self.named.is_empty() && !self.state.namespaces.is_complete() {
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

    async fn observe(&mut self, watched: Watched, event: WatchEvent) {
        if let WatchEvent::Failed(error) = &event {
            tracing::warn!(why = chain(error), "{}s are not watched, so none may be copied", self.kind.kind);
        }
        match watched {
            Watched::Bases => self.observe_base(event).await,
            Watched::Namespaces => match event {
                WatchEvent::Begin => self.state.namespaces.begin(),
                WatchEvent::Initial(live) | WatchEvent::Applied(live) | WatchEvent::Unreadable(live, _) => {
                    self.state.set_namespace(&name_of(&live), &live);
                }
                WatchEvent::Deleted(live) => _ = self.state.namespaces.remove(&name_of(&live)),
                WatchEvent::Synced(_) => self.state.namespaces_complete(),
                WatchEvent::Failed(_) | WatchEvent::Resumed => {}
            },
            Watched::Copies => match event {
                WatchEvent::Begin => self.state.copies.begin(),
                WatchEvent::Initial(live) | WatchEvent::Applied(live) | WatchEvent::Unreadable(live, _) => {
                    self.state.copies.insert(place_of(&live), ());
                    self.state.set_due(place_of(&live));
                }
                WatchEvent::Deleted(live) => {
                    let place = place_of(&live);
                    self.state.copies.remove(&place);
                    self.failures.remove(&place);
                }
                WatchEvent::Synced(_) => _ = self.state.copies.complete(),
                WatchEvent::Failed(_) | WatchEvent::Resumed => {}
            },
            Watched::Named(name) => self.observe_named(&name, event),
        }
    }

    async fn observe_base(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Begin => self.state.bases.begin(),
            WatchEvent::Initial(live) | WatchEvent::Applied(live) => {
                let name = name_of(&live);
                self.state.set_base(&name, &live);
                self.refuse(&name);
                take_off_finalizer(&self.writer.clone(), &Arc::clone(&self.kind), &self.home.clone(), &name, &live)
                    .await;
            }
            // What was read of it before is still the best that is known.
            WatchEvent::Unreadable(live, _) => self.state.bases.keep(name_of(&live)),
            WatchEvent::Deleted(live) => self.state.remove_base(&name_of(&live)),
            WatchEvent::Synced(_) => self.state.bases_complete(),
            WatchEvent::Failed(_) | WatchEvent::Resumed => {}
        }
        self.watch_named();
    }

    fn observe_named(&mut self, name: &str, event: WatchEvent) {
        match event {
            WatchEvent::Begin => {
                if let Some(named) = self.state.named(name) {
                    named.begin();
                }
            }
            WatchEvent::Initial(live) | WatchEvent::Applied(live) | WatchEvent::Unreadable(live, _) => {
                self.state.set_named(name, &place_of(&live).0, &live, Timestamp::now());
            }
            WatchEvent::Deleted(live) => {
                let place = place_of(&live);
                if let Some(named) = self.state.named(name) {
                    named.remove(&place.0);
                }
                self.state.set_due(place);
            }
            WatchEvent::Synced(_) => self.state.named_complete(name),
            WatchEvent::Failed(_) | WatchEvent::Resumed => {}
        }
    }

    /// Does what is due, each copy by itself.
    async fn perform(&mut self) {
        let due = self.state.take_due().into_iter().map(|place| (self.state.step(&place), place));
        let (steps, nothing): (Vec<_>, Vec<_>) = due.partition(|(step, _)| *step != Step::Nothing);
        for (_, place) in &nothing {
            self.failures.remove(place);
        }
        if steps.is_empty() {
            return;
        }
        let (writer, kind, home) = (&self.writer, &self.kind, &self.home);
        let written = stream::iter(steps).map(|(step, place)| async move {
            let outcome = write(writer, kind, home, &place, step).await;
            (place, outcome)
        });
        let outcomes: Vec<Outcome> = written.buffer_unordered(AT_ONCE).collect().await;
        self.report(outcomes);
    }

    fn report(&mut self, outcomes: Vec<Outcome>) {
        let mut failed: BTreeMap<String, (usize, String)> = BTreeMap::new();
        let mut done: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
        for (place, outcome) in outcomes {
            match outcome {
                Ok(change) => {
                    self.failures.remove(&place);
                    if let Some(change) = change {
                        *done.entry((place.1, change)).or_default() += 1;
                    }
                }
                // The watch shows what somebody else has done.
                Err(error) if error.is_already_exists() => _ = self.failures.remove(&place),
                Err(error) => {
                    let failures = self.failures.get(&place).map_or(1, |(failures, _)| failures + 1);
                    self.failures.insert(place.clone(), (failures, Instant::now() + AGAIN.delay(failures)));
                    if error.is_conflict() || error.is_namespace_terminating() || error.is_namespace_missing() {
                        continue;
                    }
                    let is_unpermitted =
                        error.refusal().is_some_and(|refusal| refusal.denial == Some(Denial::Permission));
                    let hint = if is_unpermitted { "; manifests/propagation has the rights that it takes" } else { "" };
                    let why = || format!("{}: {}{hint}", place.0, chain(&error));
                    failed.entry(place.1.clone()).or_insert_with(|| (0, why())).0 += 1;
                }
            }
        }
        for ((name, change), copies) in done {
            tracing::info!("{} {}/{name}: copies {change} in {copies} namespaces", self.kind.kind, self.home);
        }
        for (name, (count, first)) in failed {
            let note = format!("not copied as wanted to {count} namespaces; {first}");
            tracing::warn!("{} {}/{name}: {note}", self.kind.kind, self.home);
            self.emit(&name, note);
        }
    }

    /// Says why a base is not copied at all.
    fn refuse(&self, name: &str) {
        if let Some(why) = self.state.bases.get(name).and_then(|base| base.refused) {
            let note = format!("not copied to any namespace: {why}; take its label {CONFIG} off");
            tracing::warn!("{} {}/{name}: {note}", self.kind.kind, self.home);
            self.emit(name, note);
        }
    }

    fn emit(&self, name: &str, note: String) {
        let uid = self.state.bases.get(name).map(|base| base.uid.clone());
        (self.emit)(Event {
            regarding: Regarding {
                key: self.kind.key(Some(&self.home), name),
                api_version: self.kind.api_version(),
                uid,
            },
            related: None,
            kind: EventType::Warning,
            reason: "NotPropagated".to_owned(),
            action: "Propagate".to_owned(),
            note,
            aggregation_key: String::new(),
        });
    }
}

/// Takes Kyma's finalizer off a base: it would hold the base for ever where Kyma is not, and here nothing waits for its copies
/// to go.
async fn take_off_finalizer(writer: &Writer, kind: &Kind, home: &str, name: &str, live: &Value) {
    let all = live["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !all.iter().any(|one| one == REGISTRY_FINALIZER) {
        return;
    }
    let others: Vec<&Value> = all.iter().filter(|one| *one != REGISTRY_FINALIZER).collect();
    let version = &live["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"finalizers": others, "resourceVersion": version}});
    match writer.cluster().patch_merge(kind, Some(home), name, Part::Main, &patch).await {
        Ok(_) => {}
        // The watch shows what has become of it.
        Err(error) if error.is_conflict() || error.is_not_found() => {}
        Err(error) => tracing::warn!(why = chain(&error), "a finalizer of Kyma's stays on {home}/{name}"),
    }
}

/// Carries a step out. What it changed, if anything.
async fn write(
    writer: &Writer,
    kind: &Kind,
    home: &str,
    (namespace, name): &Place,
    step: Step,
) -> Result<Option<&'static str>, Error> {
    let (cluster, at) = (writer.cluster(), Some(namespace.as_str()));
    match step {
        Step::Nothing => Ok(None),
        Step::Create(body) => {
            // An apply would merge into what somebody else has created meanwhile.
            let created = cluster.create(kind, at, name, &body, Persistence::Kept).await?;
            let version = created["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            match applied(&created) {
                Some(entries) => cluster.rewrite_managed_fields(kind, at, name, version, &entries).await?,
                None => cluster.apply(kind, at, name, &body, Apply::forced(PROPAGATION_MANAGER)).await?,
            };
            Ok(Some("created"))
        }
        Step::Apply { mut body, uid, version } => {
            (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (uid.into(), version.into());
            cluster.apply(kind, at, name, &body, Apply::forced(PROPAGATION_MANAGER)).await?;
            Ok(Some("changed"))
        }
        Step::Delete => {
            let judge = |meta: &ObjectMeta| match whose(home, meta, Timestamp::now()) {
                Whose::Ours if meta.deletion_timestamp.is_none() => Ok(()),
                _ => Err(()),
            };
            let deleted = writer.delete_unowned(kind, &kind.key(at, name), judge).await?;
            Ok(matches!(deleted, Deleted::Done { .. }).then_some("deleted"))
        }
    }
}

fn text(live: &Value, path: &str) -> String {
    live.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn name_of(live: &Value) -> String {
    text(live, "/metadata/name")
}

fn place_of(live: &Value) -> Place {
    (text(live, "/metadata/namespace"), name_of(live))
}
