//! Watches kinds of objects for a session with the permissions of its user, so that a page needs no request to the API
//! server. Each session watches its fleet; the kinds of other lists are watched while their page is open (`lists`).
//!
//! Invariant: the rows of a session are read by its connection only. Equal rows of several sessions share their memory.
//! Invariant: each row has taken memory of the session and of the server. Invariant: no row stays that the API server refuses
//! to list again. Invariant: no row stays after the end of its watches, even if a stream still keeps its fleet.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kind_events::KindEvents;
use super::probe::Probe;
use super::row_memory::{KeptRow, SessionMemory};
use crate::freshness::{AgentReader, Stale};
use crate::row::{FleetKind, Row, row};
use crate::text::{MESSAGE, plain};
use mainstay_cluster::reflector::{Change, Name, name_of};
use mainstay_cluster::{Cluster, Error, Kind, Selection};
use mainstay_object::failure::Backoff;

/// Delay before the next check whether a missing kind is installed.
const AGAIN: Duration = Duration::from_secs(10);
/// Delays before the next list of a kind that the user may list but not watch.
const REFUSED: Backoff = Backoff::new(AGAIN, Duration::from_secs(300));
/// Maximum time that a page waits for the first lists.
const PATIENCE: Duration = Duration::from_secs(8);

/// Whether the rows of a kind are all that the user may see.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Loading,
    Complete,
    NotInstalled,
    /// The rows contain only the objects of this namespace.
    Within(String),
    Refused(String),
}

/// The rows of a kind after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Kept,
    Removed,
}

struct OfKind {
    phase: Phase,
    rows: HashMap<Name, KeptRow>,
    /// Since when its watch fails, and why. Its rows are those of this time.
    failing: Option<(Timestamp, String)>,
    /// Whether a row is missing because there was no memory for it.
    is_cut: bool,
}

/// The objects of some kinds that a session watches.
pub(super) struct Watched {
    kinds: Mutex<BTreeMap<FleetKind, OfKind>>,
    /// The number of changes so far.
    changes: watch::Sender<u64>,
    memory: SessionMemory,
    probe: Probe,
}

impl Watched {
    /// Returns these kinds without rows.
    pub(super) fn empty(kinds: &[FleetKind], memory: SessionMemory) -> Self {
        let empty = || OfKind { phase: Phase::Loading, rows: HashMap::new(), failing: None, is_cut: false };
        Self {
            kinds: Mutex::new(kinds.iter().map(|kind| (*kind, empty())).collect()),
            changes: watch::Sender::new(0),
            memory,
            probe: Probe::new(),
        }
    }

    /// Begins to watch these kinds, until `stop`. The rows are removed then.
    pub(super) fn begin(
        kinds: &[FleetKind],
        cluster: &Cluster,
        namespace: &str,
        memory: SessionMemory,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let watched = Arc::new(Self::empty(kinds, memory));
        for kind in kinds.iter().copied() {
            let (cluster, namespace, watched) = (cluster.clone(), namespace.to_owned(), Arc::clone(&watched));
            let stop = stop.clone();
            tokio::spawn(async move {
                stop.run_until_cancelled(watched.follow(kind, &cluster, &namespace)).await;
                // A slow reader of a stream may keep the fleet for long.
                watched.remove(kind);
            });
        }
        watched
    }

    /// Removes a kind that is no longer watched, with its rows.
    fn remove(&self, kind: FleetKind) {
        let removed = self.kinds.lock().remove(&kind);
        drop(removed);
        self.note_change();
    }

    async fn follow(&self, kind: FleetKind, cluster: &Cluster, namespace: &str) {
        let served = loop {
            match served(cluster, kind).await {
                Ok(Some(served)) => break served,
                Ok(None) => self.enter(kind, Phase::NotInstalled),
                Err(error) => self.fail_once(kind, &error),
            }
            tokio::time::sleep(AGAIN).await;
        };
        let mut whole = Phase::Complete;
        let watch = |selection| KindEvents::new(cluster, &served, selection, self.memory.objects().clone());
        let mut events = watch(Selection::default());
        let (mut refusals, mut began) = (0, Instant::now());
        loop {
            match events.next().await {
                Change::Changed { name, live, .. } => {
                    let row = row(kind, &live);
                    // The row may wait for memory, and the object may be large.
                    drop(live);
                    self.keep(kind, name, row).await;
                }
                Change::Gone { name, .. } => self.change(|kinds| kinds.get_mut(&kind)?.rows.remove(&name)),
                Change::Complete { .. } | Change::Resumed => self.enter(kind, whole.clone()),
                Change::Failed(error) if error.is_forbidden() && whole == Phase::Complete && !namespace.is_empty() => {
                    whole = Phase::Within(namespace.to_owned());
                    let _ = self.clear(kind, Phase::Loading);
                    events = watch(Selection::default().within(namespace));
                }
                Change::Failed(error) => {
                    if self.fail(kind, &error) == Rows::Removed {
                        // A watch that resumes would not bring them again, so the next attempt begins with a list.
                        // If there were none, the watch stays, with its backoff. A user who may list but not
                        // watch is refused each time, after a list.
                        refusals = if began.elapsed() > REFUSED.delay(u32::MAX) { 1 } else { refusals + 1 };
                        tokio::time::sleep(REFUSED.jittered(refusals, fastrand::f64())).await;
                        began = Instant::now();
                        let all = Selection::default();
                        let selection = if let Phase::Within(namespace) = &whole { all.within(namespace) } else { all };
                        events = watch(selection);
                    }
                }
                Change::Unreadable { .. } => {}
            }
        }
    }

    /// Lists the kinds once, one after the other, without watching them. A kind that is not listed in time stays loading.
    pub(super) async fn list_once(&self, cluster: &Cluster, namespace: &str) {
        let kinds: Vec<FleetKind> = self.kinds.lock().keys().copied().collect();
        let listed = async {
            for kind in kinds {
                self.list_kind(kind, cluster, namespace).await;
            }
        };
        let _ = tokio::time::timeout(PATIENCE, listed).await;
    }

    async fn list_kind(&self, kind: FleetKind, cluster: &Cluster, namespace: &str) {
        let served = match served(cluster, kind).await {
            Ok(Some(served)) => served,
            Ok(None) => return self.enter(kind, Phase::NotInstalled),
            Err(error) => return self.fail_once(kind, &error),
        };
        let _permit = self.memory.objects().acquire().await;
        let mut whole = Phase::Complete;
        let mut objects = cluster.list(&served, Selection::default());
        loop {
            match objects.try_next().await {
                Ok(Some(live)) => {
                    let Some(name) = name_of(&live) else { continue };
                    // A list without watches does not end other sessions to get memory.
                    let kept = self.memory.try_keep(&self.memory.shared(row(kind, &live)));
                    self.put(kind, name, kept);
                }
                Ok(None) => return self.enter(kind, whole),
                Err(error) if error.is_forbidden() && whole == Phase::Complete && !namespace.is_empty() => {
                    whole = Phase::Within(namespace.to_owned());
                    let _ = self.clear(kind, Phase::Loading);
                    objects = cluster.list(&served, Selection::default().within(namespace));
                }
                Err(error) => return self.fail_once(kind, &error),
            }
        }
    }

    /// Replaces a row. A row without memory is not shown.
    async fn keep(&self, kind: FleetKind, name: Name, row: Row) {
        let row = self.memory.shared(row);
        let is_known = |of_kind: &OfKind| of_kind.rows.get(&name).is_some_and(|kept| kept.is(&row));
        if self.kinds.lock().get(&kind).is_some_and(is_known) {
            return;
        }
        let mut kept = self.memory.try_keep(&row);
        if kept.is_none() {
            // The previous row is removed first, so that its memory is free.
            self.change(|kinds| kinds.get_mut(&kind)?.rows.remove(&name));
            kept = self.memory.keep(row).await;
        }
        self.put(kind, name, kept);
    }

    fn put(&self, kind: FleetKind, name: Name, kept: Option<KeptRow>) {
        self.change(|kinds| {
            let of_kind = kinds.get_mut(&kind)?;
            of_kind.is_cut |= kept.is_none();
            of_kind.rows.insert(name, kept?)
        });
    }

    /// Returns the part of the rows in the memory of the server, in KiB.
    pub(super) fn memory(&self) -> usize {
        let kinds = self.kinds.lock();
        kinds.values().flat_map(|kind| kind.rows.values()).map(KeptRow::part).sum::<usize>() >> 10
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<FleetKind, OfKind>) -> Option<KeptRow>) {
        change(&mut self.kinds.lock());
        self.note_change();
    }

    fn enter(&self, kind: FleetKind, phase: Phase) {
        let mut kinds = self.kinds.lock();
        let is_new = |of_kind: &&mut OfKind| of_kind.phase != phase || of_kind.failing.is_some();
        if let Some(of_kind) = kinds.get_mut(&kind).filter(is_new) {
            (of_kind.phase, of_kind.failing) = (phase, None);
            drop(kinds);
            self.note_change();
        }
    }

    /// Removes the rows of a kind, because the user may no longer see all of them. Returns whether there were any.
    fn clear(&self, kind: FleetKind, phase: Phase) -> Rows {
        let mut kinds = self.kinds.lock();
        let Some(of_kind) = kinds.get_mut(&kind) else { return Rows::Kept };
        let had_rows = !of_kind.rows.is_empty() || of_kind.is_cut;
        if !had_rows && of_kind.phase == phase {
            return Rows::Kept;
        }
        let rows = std::mem::take(&mut of_kind.rows);
        (of_kind.phase, of_kind.failing, of_kind.is_cut) = (phase, None, false);
        drop(kinds);
        drop(rows);
        self.note_change();
        if had_rows { Rows::Removed } else { Rows::Kept }
    }

    /// Records that a watch fails. Rows that were complete before stay on the page, unless the API server refuses them.
    fn fail(&self, kind: FleetKind, error: &Error) -> Rows {
        let is_refused = error.code().is_some_and(|code| (400..500).contains(&code) && !matches!(code, 410 | 429));
        if is_refused {
            return self.clear(kind, Phase::Refused(said(error)));
        }
        let mut kinds = self.kinds.lock();
        let Some(of_kind) = kinds.get_mut(&kind) else { return Rows::Kept };
        let has_rows = matches!(of_kind.phase, Phase::Complete | Phase::Within(_));
        if has_rows && of_kind.failing.is_some() {
            return Rows::Kept;
        }
        if !has_rows {
            of_kind.phase = Phase::Refused(said(error));
        }
        let since = of_kind.failing.take().map_or_else(Timestamp::now, |(since, _)| since);
        of_kind.failing = Some((since, said(error)));
        drop(kinds);
        self.note_change();
        Rows::Kept
    }

    /// Records that a list fails which does not resume.
    fn fail_once(&self, kind: FleetKind, error: &Error) {
        let _ = self.fail(kind, error);
    }

    /// Asks whether the API server and the agent are alive, unless they were asked just before.
    pub(super) async fn probe(&self, cluster: &Cluster, agent: &AgentReader) {
        self.probe.ask(cluster, agent).await;
    }

    /// Returns whether the API server did not accept the token in the last probe.
    pub(super) fn is_refused(&self) -> bool {
        self.probe.is_refused()
    }

    /// Returns since when the rows are old, and why; `None` if they are current.
    pub(super) fn stale(&self) -> Option<Stale> {
        let failing = self.kinds.lock().values().filter_map(|kind| Some(kind.failing.as_ref()?.0)).min();
        self.probe.stale(failing)
    }

    /// Waits until each kind has been listed once, or cannot be listed.
    pub(super) async fn settled(&self) {
        let mut changes = self.changes.subscribe();
        let is_loading = || self.kinds.lock().values().any(|kind| kind.phase == Phase::Loading);
        let wait = async {
            while is_loading() {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(PATIENCE, wait).await;
    }

    /// Returns all rows.
    pub(super) fn rows(&self) -> Vec<Arc<Row>> {
        self.kinds.lock().values().flat_map(|kind| kind.rows.values().map(KeptRow::row)).collect()
    }

    /// Returns the row of an object.
    pub(super) fn row(&self, kind: FleetKind, namespace: &str, name: &str) -> Option<Arc<Row>> {
        self.kinds.lock().get(&kind)?.rows.get(&(namespace.to_owned(), name.to_owned())).map(KeptRow::row)
    }

    /// Returns which kinds are missing on the page, and why.
    pub(super) fn notes(&self) -> Vec<String> {
        let kinds = self.kinds.lock();
        let mut within: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (kind, of_kind) in kinds.iter() {
            if let Phase::Within(namespace) = &of_kind.phase {
                within.entry(namespace).or_default().push(kind.name());
            }
        }
        let within = within.iter().map(|(namespace, kinds)| {
            format!(
                "Objects of {} are shown for the namespace {namespace} only: you may not list them in all namespaces.",
                kinds.join(", ")
            )
        });
        let absent = kinds.iter().filter(|(_, of_kind)| of_kind.phase == Phase::NotInstalled);
        let absent: Vec<&str> = absent.map(|(kind, _)| kind.name()).collect();
        let absent = match absent.as_slice() {
            [] => None,
            [kind] => Some(format!("The kind {kind} is not installed in this cluster.")),
            all => Some(format!("These kinds are not installed in this cluster: {}.", all.join(", "))),
        };
        let most = self.memory.mebibytes();
        let others = kinds.iter().filter_map(|(kind, of_kind)| note(*kind, of_kind, most));
        within.chain(absent).chain(others).collect()
    }

    /// Returns why not all rows of these kinds in a namespace are known; empty if they are.
    pub(super) fn unread(&self, wanted: &[FleetKind], namespace: &str) -> Vec<String> {
        let (kinds, most) = (self.kinds.lock(), self.memory.mebibytes());
        let one = |kind: &FleetKind| match kinds.get(kind) {
            None => Some(format!("{} objects are not watched.", kind.name())),
            Some(OfKind { phase: Phase::Within(known), .. }) if known != namespace => {
                Some(format!("You may not list {} objects of this namespace in the fleet.", kind.name()))
            }
            Some(of_kind) => note(*kind, of_kind, most),
        };
        wanted.iter().filter_map(one).collect()
    }

    /// Returns whether a kind is shown only for one namespace, or not at all.
    pub(super) fn is_limited(&self) -> bool {
        let is_limited = |kind: &OfKind| matches!(kind.phase, Phase::Within(_) | Phase::Refused(_));
        self.kinds.lock().values().any(is_limited)
    }

    /// Counts a change, and notifies the streams.
    pub(super) fn note_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Returns the number of changes so far.
    pub(super) fn seen(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Returns a receiver that is notified of each change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Returns the version in which a kind is watched. Pages of the fleet understand one version; the rows of other lists
/// understand all.
async fn served(cluster: &Cluster, kind: FleetKind) -> Result<Option<Arc<Kind>>, Error> {
    if FleetKind::ALL.contains(&kind) {
        return cluster.kind(kind.api_version(), kind.name()).await;
    }
    cluster.preferred_kind(kind.group(), kind.name()).await
}

/// Returns why rows of a kind are missing. Rows of other namespaces, and kinds that are not installed, have a note
/// together.
fn note(kind: FleetKind, of_kind: &OfKind, mebibytes: usize) -> Option<String> {
    let kind = kind.name();
    let is_known = matches!(of_kind.phase, Phase::Complete | Phase::Within(_));
    if let Some((since, why)) = of_kind.failing.as_ref().filter(|_| is_known) {
        return Some(format!("{kind} objects are shown as of {since:.0}: {why}"));
    }
    match &of_kind.phase {
        Phase::Complete | Phase::Within(_) if of_kind.is_cut => Some(format!(
            "Some {kind} objects are not shown: a session keeps {mebibytes} MiB of them. Use `mainstay get`."
        )),
        Phase::Complete | Phase::Within(_) | Phase::NotInstalled => None,
        Phase::Loading => Some(format!("The list of {kind} objects is still being read.")),
        Phase::Refused(why) => Some(format!("{kind} objects cannot be read: {why}")),
    }
}

/// Returns the message of a failure with its cause.
pub(super) fn said(error: &Error) -> String {
    plain(&format!("{error}: {}", error.cause_text()), MESSAGE)
}

#[cfg(test)]
mod tests;
