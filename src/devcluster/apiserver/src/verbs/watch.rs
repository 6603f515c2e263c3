//! Watches: the event log as seen by one client.
//!
//! A watch has no buffer. It keeps its position in the log and continues to read when polled. A client that falls
//! behind the oldest kept event is disconnected.
//!
//! Invariant: events have the order of their resource versions. A client sees each state of an object once.
//!
//! Not here: HTTP.

use super::{Target, read::ListOptions, value_as};
use crate::{
    history::{Change, Event, watch_line},
    present::{self, Form},
    route::Query,
    server::Server,
    status::Status,
    store::{Signal, Stored},
    verbs::json_as,
};
use bytes::{Bytes, BytesMut};
use futures::Stream;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{sync::watch::Receiver, time::Instant};

/// Maximum number of events per read of the log.
const BATCH: usize = 256;
/// Maximum size of a chunk of joined lines, in bytes.
const PIECE: usize = 64 << 10;

/// Maximum of `timeoutSeconds`.
const MAX_TIMEOUT: u64 = 24 * 60 * 60;

/// The options that a watch has in addition to the options of a list.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Selector and resource version.
    pub list: ListOptions,
    /// `sendInitialEvents`.
    pub initial: bool,
    /// `sendInitialEvents=false`: existing objects are not sent.
    pub silent: bool,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `timeoutSeconds`.
    pub timeout: Option<Duration>,
    /// Form of the objects.
    pub form: Form,
}

impl WatchOptions {
    /// Parses the parameters of a watch; 422 for invalid combinations.
    pub fn parse(target: &Target, query: &Query, form: Form) -> Result<Self, Status> {
        let list = ListOptions::parse(target, query)?;
        list.check_watch(query)?;
        let given = query.text("sendInitialEvents");
        Ok(Self {
            list,
            initial: matches!(given, "true" | "1"),
            silent: matches!(given, "false" | "0"),
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout: query.number("timeoutSeconds").filter(|s| *s > 0).map(|s| Duration::from_secs(s.min(MAX_TIMEOUT))),
            form,
        })
    }
}

/// An open watch.
#[derive(Debug)]
struct Watcher {
    server: Server,
    target: Target,
    options: WatchOptions,
    signal: Receiver<Signal>,
    epoch: u64,
    initial: VecDeque<Arc<Stored>>,
    /// Whether a bookmark follows the initial objects.
    announce: bool,
    /// The last resource version that was read.
    cursor: u64,
    bookmarked: u64,
    queue: VecDeque<Bytes>,
    ended: bool,
    deadline: Instant,
    definitions_sent: bool,
}

/// Opens a watch: a stream of chunks of complete lines.
pub fn open(server: &Server, target: &Target, options: WatchOptions) -> impl Stream<Item = Bytes> + Send + use<> {
    let mut signal = server.store().signal(&target.kind.storage);
    let epoch = signal.borrow_and_update().epoch;
    let deadline = Instant::now() + options.timeout.unwrap_or(server.options().watch_timeout);
    let mut watcher = Watcher {
        server: server.clone(),
        target: target.clone(),
        signal,
        epoch,
        initial: VecDeque::new(),
        announce: false,
        cursor: 0,
        bookmarked: 0,
        queue: VecDeque::new(),
        ended: false,
        deadline,
        definitions_sent: false,
        options,
    };
    watcher.begin();
    futures::stream::unfold(watcher, |mut watcher| async move {
        let piece = watcher.next().await?;
        Some((piece, watcher))
    })
}

impl Watcher {
    fn begin(&mut self) {
        let wanted = self.options.list.version.unwrap_or(0);
        if wanted == 0 || self.options.initial {
            let snapshot = self.server.store().snapshot(&self.target.kind.storage);
            let namespace = (!self.target.namespace.is_empty()).then_some(self.target.namespace.as_str());
            let selector = &self.options.list.selector;
            let found = snapshot.from(namespace, None).filter(|(key, stored)| selector.matches(key, stored));
            self.initial = found.map(|(_, stored)| stored.clone()).collect();
            if self.options.silent {
                self.initial.clear();
            }
            self.announce = self.options.bookmarks && (self.options.initial || self.options.list.version.is_none());
            self.cursor = snapshot.rv;
        } else {
            self.cursor = wanted;
            let floor = self.server.store().floor();
            if wanted < floor {
                let text = format!("too old resource version: {wanted} ({floor})");
                let status = Status::new(410, "Expired", text).body();
                self.queue.push_back(watch_line("ERROR", status.to_string().as_bytes()));
                self.ended = true;
            }
        }
        self.bookmarked = self.cursor;
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.piece() {
                return Some(piece);
            }
            if self.ended {
                return None;
            }
            if !self.initial.is_empty() || self.announce {
                self.read_initial();
                continue;
            }
            let epoch = self.signal.borrow_and_update().epoch;
            if self.read_events() {
                continue;
            }
            if epoch != self.epoch || self.ended {
                self.ended = true;
                continue;
            }
            self.wait().await;
        }
    }

    /// Returns queued lines; short ones are joined.
    fn piece(&mut self) -> Option<Bytes> {
        let first = self.queue.pop_front()?;
        if self.queue.is_empty() || first.len() >= PIECE {
            return Some(first);
        }
        let mut piece = BytesMut::from(&first[..]);
        while let Some(line) = self.queue.front() {
            if piece.len() + line.len() > PIECE {
                break;
            }
            piece.extend_from_slice(line);
            self.queue.pop_front();
        }
        Some(piece.freeze())
    }

    fn read_initial(&mut self) {
        for _ in 0..BATCH {
            let Some(stored) = self.initial.pop_front() else { break };
            let line = self.render(Change::Added, &stored);
            self.queue.push_back(line);
        }
        if self.initial.is_empty() && self.announce {
            self.announce = false;
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            self.bookmark(Some(annotations));
        }
    }

    /// Reads the next events of the log; false if there are no new events.
    fn read_events(&mut self) -> bool {
        let storage = self.target.kind.storage.clone();
        let Ok((events, newest)) = self.server.store().events_after(Some(&storage), self.cursor, BATCH) else {
            // The client fell behind the log and has to list again.
            self.ended = true;
            return false;
        };
        match events.last() {
            None => self.cursor = self.cursor.max(newest),
            Some(last) => self.cursor = last.rv,
        }
        for event in &events {
            if let Some(line) = self.line(event) {
                self.queue.push_back(line);
            }
        }
        !events.is_empty()
    }

    fn line(&mut self, event: &Event) -> Option<Bytes> {
        if !self.target.namespace.is_empty() && event.key.namespace() != self.target.namespace {
            return None;
        }
        let kind = &self.target.kind;
        let as_stored = |stored: &Option<Arc<Stored>>| stored.as_ref().is_none_or(|s| kind.shows_as_stored(s));
        let plain = self.options.form == Form::Whole && as_stored(&event.old) && as_stored(&event.new);
        let selector = &self.options.list.selector;
        if selector.is_empty() && plain {
            return event.line();
        }
        let selected = |stored: &Option<Arc<Stored>>| stored.as_ref().is_some_and(|s| selector.matches(&event.key, s));
        let change = match (selected(&event.old), selected(&event.new)) {
            (false, false) => return None,
            (false, true) => Change::Added,
            (true, true) => Change::Modified,
            (true, false) => Change::Deleted,
        };
        if plain && change == event.change() {
            return event.line();
        }
        let stored = event.shown(change)?;
        Some(self.render(change, &stored))
    }

    fn render(&mut self, change: Change, stored: &Stored) -> Bytes {
        let kind = &self.target.kind;
        match self.options.form {
            Form::Whole => watch_line(change.word(), &json_as(kind, stored)),
            Form::Metadata | Form::MetadataList => {
                let object = present::metadata(&value_as(kind, stored)).to_string();
                watch_line(change.word(), object.as_bytes())
            }
            Form::Table(include) => {
                let value = value_as(kind, stored);
                let mut table = present::table(kind, &[&value], include, now());
                table["metadata"] = json!({"resourceVersion": stored.rv.to_string()});
                if self.definitions_sent {
                    table["columnDefinitions"] = Value::Null;
                }
                self.definitions_sent = true;
                watch_line(change.word(), table.to_string().as_bytes())
            }
        }
    }

    fn bookmark(&mut self, annotations: Option<Value>) {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        let kind = &self.target.kind;
        let (name, version) = match self.options.form {
            Form::Whole => (kind.kind.as_str(), kind.api_version.as_str()),
            Form::Metadata | Form::MetadataList => ("PartialObjectMetadata", "meta.k8s.io/v1"),
            Form::Table(_) => ("Table", "meta.k8s.io/v1"),
        };
        let mut object = json!({"kind": name, "apiVersion": version, "metadata": metadata});
        if matches!(self.options.form, Form::Table(_)) {
            object["rows"] = json!([]);
            object["columnDefinitions"] = Value::Null;
        }
        self.bookmarked = self.cursor;
        self.queue.push_back(watch_line("BOOKMARK", object.to_string().as_bytes()));
    }

    async fn wait(&mut self) {
        let interval = self.server.options().bookmark_interval;
        // A watch from a future version receives no bookmarks until that version exists.
        let tick = Instant::now() + interval;
        let until = if self.options.bookmarks { tick.min(self.deadline) } else { self.deadline };
        tokio::select! {
            changed = self.signal.changed() => self.ended |= changed.is_err(),
            () = tokio::time::sleep_until(until) => {
                if let Ok((events, newest)) =
                    self.server.store().events_after(Some(&self.target.kind.storage), self.cursor, 1)
                    && events.is_empty()
                {
                    self.cursor = self.cursor.max(newest);
                    if self.options.bookmarks && newest > self.bookmarked {
                        self.bookmark(None);
                    }
                }
                self.ended |= Instant::now() >= self.deadline;
            }
        }
    }
}

fn now() -> Timestamp {
    Timestamp::now()
}
