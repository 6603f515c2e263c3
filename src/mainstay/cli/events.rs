//! `mainstay events`: prints the Events of GitSyncs and their managed objects, newest last.
//!
//! Not here: the Events of children of managed objects, which `kubectl events` shows.

mod event;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::event::SeenEvent;
use clap_complete::engine::ArgValueCompleter;

use super::{
    Error, Exit, completion,
    connection::{WideConnection, own_kind},
    object_name,
    output::{self, Format, OutputArgument},
    stop,
    suspend::git_sync_name,
    syncs::{self, ago},
    table::{self, Table},
};
use mainstay_api::GitSync;
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::{Cluster, Kind, Selection};
use mainstay_gitsync::Listing;
use mainstay_object::Key;
use mainstay_object::failure::chain;

/// Maximum number of Events that are read per namespace.
const MOST: usize = 5000;
/// Maximum number of namespaces that are read one by one. For more namespaces, one request reads all namespaces.
const NAMESPACES: usize = 5;
/// Minimum time between reads of the managed objects.
const REFRESH: Duration = Duration::from_secs(5);

/// Arguments of `events`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitSync; by default all in the namespace
    #[arg(value_parser = git_sync_name, add = ArgValueCompleter::new(completion::git_syncs))]
    name: Option<String>,
    /// Object to show Events about: gitsync/shop, deploy/web or deployments.apps/web; by default all
    #[arg(long = "for", value_name = "OBJECT")]
    about: Option<String>,
    /// Types of Events to show, separated by commas: Normal, Warning; by default both
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = ["Normal", "Warning"], ignore_case = true)]
    types: Vec<String>,
    /// Continue with new Events, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: WideConnection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connection.connect().await?;
    let kind = own_kind::<GitSync>(&cluster).await?;
    let selection = arguments.connection.selection(&cluster, arguments.name.as_deref());
    let events = event_kind(&cluster).await?;
    let wanted = Wanted::of(arguments, &cluster).await?;
    let subjects = Subjects::read(&cluster, kind, selection).await?;
    wanted.is_among(&subjects)?;
    if arguments.watch {
        return watch(arguments, &cluster, &events, subjects, &wanted).await;
    }
    let mut found = Vec::new();
    for within in subjects.namespaces() {
        let all = cluster.list(&events, within).take(MOST + 1);
        let read: Vec<Value> = all.try_collect().await?;
        if read.len() > MOST {
            output::note(&format!("there are more than {MOST} Events; only the first {MOST} were checked\n"));
        }
        found.extend(
            read.iter()
                .take(MOST)
                .map(SeenEvent::read)
                .filter(|event| subjects.keys.contains(&event.object) && wanted.takes(event)),
        );
    }
    found.sort_by(|a, b| (a.last, &a.name).cmp(&(b.last, &b.name)));
    let mut repeatable = Repeatable::default();
    for event in &found {
        repeatable.add(event);
    }
    found.retain(|event| !repeatable.has(event));
    let items: Vec<Value> = found.iter().map(SeenEvent::facts).collect();
    arguments.output.print(&json!({ "items": items }), || text(&found, arguments.output, Timestamp::now()))?;
    Ok(Exit::Fine)
}

/// Returns the served kind of Events.
async fn event_kind(cluster: &Cluster) -> Result<Arc<Kind>, Error> {
    match cluster.kind("v1", "Event").await? {
        Some(kind) => Ok(kind),
        None => cluster.kind("events.k8s.io/v1", "Event").await?.ok_or_else(|| Error::UnknownKind("Event".to_owned())),
    }
}

/// Selects the Events to print.
#[derive(Debug, Default)]
struct Wanted {
    /// The object of the Events, in any namespace; `None` for any object.
    about: Option<Key>,
    /// Types in lower case; empty for all.
    types: Vec<String>,
}

impl Wanted {
    async fn of(arguments: &Arguments, cluster: &Cluster) -> Result<Self, Error> {
        let types = arguments.types.iter().map(|one| one.to_lowercase()).collect();
        let Some(about) = &arguments.about else { return Ok(Self { about: None, types }) };
        let (called, name) = object_name::kind_and_name(about, None)
            .ok_or_else(|| Error::NotAnObject { kind: about.clone(), name: None })?;
        let kind = cluster.kind_called(called).await?.ok_or_else(|| Error::UnknownKind(called.to_owned()))?;
        Ok(Self { about: Some(kind.key(None, name)), types })
    }

    /// Fails if no GitSync of the selection manages the object.
    fn is_among(&self, subjects: &Subjects) -> Result<(), Error> {
        match &self.about {
            Some(key) if !subjects.keys.iter().any(|subject| is_named(key, subject)) => {
                let elsewhere =
                    format!("`kubectl events --for {}/{}` shows its Events", key.kind.to_lowercase(), key.name);
                Err(Error::NotManaged { what: key.to_string(), notes: vec![elsewhere] })
            }
            _ => Ok(()),
        }
    }

    fn takes(&self, event: &SeenEvent) -> bool {
        self.about.as_ref().is_none_or(|key| is_named(key, &event.object))
            && (self.types.is_empty() || self.types.contains(&event.severity.to_lowercase()))
    }
}

/// Events about managed objects, because an Event about their GitSync repeats each of them.
#[derive(Debug, Default)]
struct Repeatable(HashSet<(String, String)>);

impl Repeatable {
    fn add(&mut self, event: &SeenEvent) {
        if !event.is_about_a_git_sync() {
            if self.0.len() >= MOST {
                self.0.clear();
            }
            self.0.insert((event.reason.clone(), format!("{}: {}", event.object, event.message)));
        }
    }

    /// Returns whether an Event about a GitSync repeats an Event that was added.
    fn has(&self, event: &SeenEvent) -> bool {
        event.is_about_a_git_sync() && self.0.contains(&(event.reason.clone(), event.message.clone()))
    }
}

/// Returns whether an object has the requested kind and name.
fn is_named(asked: &Key, object: &Key) -> bool {
    (&asked.group, &asked.kind, &asked.name) == (&object.group, &object.kind, &object.name)
}

/// The objects whose Events are read.
struct Subjects {
    kind: Arc<Kind>,
    selection: Selection,
    /// The GitSyncs and their managed objects.
    keys: HashSet<Key>,
    read_at: Instant,
}

impl Subjects {
    async fn read(cluster: &Cluster, kind: Arc<Kind>, selection: Selection) -> Result<Self, Error> {
        let mut keys = HashSet::new();
        for sync in syncs::select(cluster, &kind, &selection).await? {
            keys.insert(syncs::key(&sync));
            if let Listing::Whole(listed) = mainstay_gitsync::listing(cluster, &sync).await? {
                keys.extend(listed.objects.into_keys());
            }
        }
        Ok(Self { kind, selection, keys, read_at: Instant::now() })
    }

    /// Returns the namespaces of the objects' Events. Events about cluster-scoped objects are in `default`.
    fn namespaces(&self) -> Vec<Selection> {
        let of = |key: &Key| key.namespace.as_deref().unwrap_or("default").to_owned();
        let names: BTreeSet<String> = self.keys.iter().map(of).collect();
        if names.len() > NAMESPACES {
            return vec![Selection::default()];
        }
        names.iter().map(|name| Selection::default().within(name)).collect()
    }

    /// Reads the managed objects again, if an Event about a GitSync indicates that they may have changed.
    async fn after(self, cluster: &Cluster, event: &SeenEvent) -> Result<Self, Error> {
        if !event.is_about_a_git_sync() || self.read_at.elapsed() < REFRESH {
            return Ok(self);
        }
        match Self::read(cluster, Arc::clone(&self.kind), self.selection.clone()).await {
            // The GitSync was deleted, but its last Events may still arrive.
            Err(Error::NoSync { .. } | Error::Missing { .. }) => Ok(self),
            read => read,
        }
    }
}

async fn watch(
    arguments: &Arguments,
    cluster: &Cluster,
    kind: &Arc<Kind>,
    mut subjects: Subjects,
    wanted: &Wanted,
) -> Result<Exit, Error> {
    let stop = stop::on_signal()?;
    let mut within = subjects.namespaces();
    let within = if within.len() == 1 { within.remove(0) } else { Selection::default() };
    let mut stream = cluster.watch(kind, within);
    let (mut shown, mut listed, mut repeatable) = (Shown::default(), BTreeMap::new(), Repeatable::default());
    // Events printed before a lost connection are not repeated.
    let mut printed: Option<Timestamp> = None;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return Ok(Exit::Fine),
            event = stream.next() => event,
        };
        let Some(event) = event else { return Ok(Exit::Fine) };
        let next = match shown.take(event, name_of) {
            Some(Delta::Listed(name, value)) => {
                listed.insert(name, SeenEvent::read(&value));
                continue;
            }
            Some(Delta::Complete(list)) => {
                let all = std::mem::take(&mut listed).into_iter().filter(|(name, _)| !list.lacks(name));
                let mut all: Vec<SeenEvent> = all.map(|(_, event)| event).collect();
                all.sort_by(|a, b| (a.last, &a.name).cmp(&(b.last, &b.name)));
                let before = printed;
                all.retain(|event| before < event.last);
                all
            }
            Some(Delta::Changed(_, value)) => vec![SeenEvent::read(&value)],
            Some(Delta::Failed(error)) => {
                output::note(&format!("not connected, trying again: {}\n", chain(&error)));
                continue;
            }
            Some(_) | None => continue,
        };
        for event in next {
            subjects = subjects.after(cluster, &event).await?;
            printed = printed.max(event.last);
            if !subjects.keys.contains(&event.object) || !wanted.takes(&event) || repeatable.has(&event) {
                continue;
            }
            repeatable.add(&event);
            if let ControlFlow::Break(()) = arguments.output.print_next(&event.facts(), || event.line())? {
                return Ok(Exit::Fine);
            }
        }
    }
}

fn text(events: &[SeenEvent], output: OutputArgument, now: Timestamp) -> String {
    if events.is_empty() {
        return "no Events; a cluster keeps them for an hour\n".to_owned();
    }
    let mut table = Table::new(&["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
    for event in events {
        let age = event.last.map_or_else(|| "?".to_owned(), |last| ago(now.duration_since(last).as_secs()));
        let times = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
        let object = event.object.to_string();
        table.row(vec![age + &times, event.severity.clone(), event.reason.clone(), object, event.message.clone()]);
    }
    table.render(table::width().filter(|_| output.output != Format::Wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_about_a_git_sync_that_repeats_one_about_an_object_is_left_out() {
        let event = |kind: &str, name: &str, reason: &str, note: &str| {
            let regarding =
                json!({"apiVersion": "mainstay.dev/v1alpha1", "kind": kind, "namespace": "a", "name": name});
            SeenEvent::read(&json!({"regarding": regarding, "reason": reason, "note": note}))
        };
        let object = event("Receiver", "web", "Reverted", "reverted spec.events");
        let copy = format!("{}: reverted spec.events", object.object);
        let mut repeatable = Repeatable::default();
        repeatable.add(&object);
        assert!(repeatable.has(&event("GitSync", "shop", "Reverted", &copy)));
        for other in [
            event("GitSync", "shop", "Failed", &copy),
            event("GitSync", "shop", "Reverted", "reverted 15 objects"),
            object,
        ] {
            assert!(!repeatable.has(&other), "{other:?}");
        }
    }
}
