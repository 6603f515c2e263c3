//! The Alerts, the queues of Providers and the waiting messages, under one lock.
//!
//! Invariant: no code matches an expression while it holds the lock, because every writer of the agent sends messages. A
//! message is added to each namespace with an Alert for its resource and severity.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::line::Line;
use crate::agent::kept::Name;
use mainstay_notification::{Inbox, Notice, Selection, Unmatched};
use mainstay_object::Owner;

/// The labels of a resource, or the fields of messages about it.
pub(in crate::agent) type Labels = BTreeMap<String, String>;

/// The table, which all clones of the outbox share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) table: Mutex<Table>,
    /// Notified when a namespace becomes due.
    pub(super) arrived: Notify,
}

/// An Alert with the name of its Provider.
#[derive(Debug)]
struct Alert {
    provider: String,
    selection: Arc<Selection>,
}

/// The Alerts of a namespace by name, and the messages that they may select.
#[derive(Debug, Default)]
struct Namespace {
    alerts: BTreeMap<String, Alert>,
    inbox: Inbox,
    /// Whether the namespace is due, or a task matches its messages.
    is_matched: bool,
}

/// An Alert with the queue of its Provider.
pub(super) struct Route {
    pub(super) alert: String,
    pub(super) selection: Arc<Selection>,
    pub(super) line: Arc<Line>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    namespaces: HashMap<String, Namespace>,
    /// The namespaces with an Alert that selects objects of another one.
    crossing: BTreeSet<String>,
    /// The namespaces whose messages wait for a task.
    pub(super) due: VecDeque<String>,
    pub(super) lines: HashMap<Name, Arc<Line>>,
    pub(super) labels: HashMap<Owner, Arc<Labels>>,
    /// The fields of messages about each resource that has some.
    pub(super) event_metadata: HashMap<Owner, Labels>,
    /// The messages that are kept until the first list; `None` after that list.
    pub(super) early: Option<Vec<(Owner, Notice)>>,
    /// Increased with each change of Alerts and queues.
    pub(super) changes: u64,
    /// The number of the leader's term. A task of an earlier term matches nothing.
    pub(super) term: u64,
}

impl Table {
    /// Removes everything at the start of a term.
    pub(super) fn clear(&mut self) {
        *self = Self { early: Some(Vec::new()), term: self.term + 1, ..Self::default() };
    }

    /// Returns whether messages are kept.
    pub(super) fn takes_messages(&self) -> bool {
        self.early.is_some() || !self.namespaces.is_empty()
    }

    /// Sets or removes an Alert. A selection has the name of the Provider.
    pub(super) fn set_alert(&mut self, (namespace, name): &Name, selection: Option<(String, Selection)>) {
        self.changes += 1;
        let entry = self.namespaces.entry(namespace.clone()).or_default();
        match selection {
            Some((provider, selection)) => {
                entry.alerts.insert(name.clone(), Alert { provider, selection: Arc::new(selection) });
            }
            None => {
                entry.alerts.remove(name);
            }
        }
        if entry.alerts.values().any(|alert| alert.selection.crosses(namespace)) {
            self.crossing.insert(namespace.clone());
        } else {
            self.crossing.remove(namespace);
        }
        if entry.alerts.is_empty() && !entry.is_matched {
            self.namespaces.remove(namespace);
        }
    }

    /// Adds a message of this time to the namespaces whose Alerts may select it.
    pub(super) fn offer(&mut self, owner: &Owner, mut notice: Notice, offered: Instant) {
        notice.metadata = self.event_metadata.get(owner).cloned().unwrap_or_default();
        let labels = self.labels.get(owner).cloned().unwrap_or_default();
        let own = notice.namespace.clone();
        let message = Unmatched { notice: Arc::new(notice), labels, offered };
        let others = self.crossing.iter().filter(|other| **other != own);
        for name in others.chain([&own]) {
            let concerns = |alert: &Alert| alert.selection.concerns(&message.notice, &message.labels);
            let found = self.namespaces.get_mut(name);
            let Some(namespace) = found.filter(|found| found.alerts.values().any(concerns)) else { continue };
            namespace.inbox.push(message.clone());
            if !namespace.is_matched {
                namespace.is_matched = true;
                self.due.push_back(name.clone());
            }
        }
    }

    /// Returns the Alerts of a namespace that have a queue, in the order of their names.
    pub(super) fn routes(&self, namespace: &str) -> Vec<Route> {
        let Some(found) = self.namespaces.get(namespace) else { return Vec::new() };
        let routes = found.alerts.iter().filter_map(|(name, alert)| {
            let line = self.lines.get(&(namespace.to_owned(), alert.provider.clone()))?;
            Some(Route { alert: name.clone(), selection: Arc::clone(&alert.selection), line: Arc::clone(line) })
        });
        routes.collect()
    }

    /// Returns the waiting messages of a namespace.
    pub(super) fn inbox(&mut self, namespace: &str) -> Option<&mut Inbox> {
        self.namespaces.get_mut(namespace).map(|found| &mut found.inbox)
    }

    /// Ends the task of a namespace. Returns false if messages wait for it.
    pub(super) fn end(&mut self, namespace: &str) -> bool {
        let Some(found) = self.namespaces.get_mut(namespace) else { return true };
        found.is_matched = !found.inbox.is_empty();
        let is_over = !found.is_matched;
        if is_over && found.alerts.is_empty() {
            self.namespaces.remove(namespace);
        }
        is_over
    }
}
