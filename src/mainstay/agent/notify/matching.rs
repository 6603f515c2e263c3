//! Matches the messages of one namespace with its Alerts, and adds them to the queues of Providers.
//!
//! Invariant: no lock is held while an expression is matched. Invariant: a message is matched at most once with each
//! Alert, and messages reach a queue in their order.
//! Invariant: the caches of expressions end with each slice of the work.
//!
//! Not here: threads and pauses, which are in `agent/notifications/slices.rs`.

use std::cell::OnceCell;
use std::sync::Arc;

use super::table::{Route, Shared};
use mainstay_notification::{Expressions, LeftOut, Unmatched};

/// The matching of the messages of one namespace.
pub(in crate::agent) struct Matching {
    shared: Arc<Shared>,
    namespace: String,
    term: u64,
    current: Option<Current>,
    routes: Option<Routes>,
}

/// The message that is matched, and the last Alert that it was matched with.
struct Current {
    message: Unmatched,
    last: Option<String>,
}

/// The Alerts at a number of changes of the table, in the order of their names.
struct Routes {
    changes: u64,
    all: Vec<Matched>,
}

/// An Alert, with expressions once it has matched a message.
struct Matched {
    route: Route,
    expressions: OnceCell<Expressions>,
}

impl Matched {
    /// Adds a message to the queue if the Alert selects it.
    fn offer(&self, message: &Unmatched) {
        let Route { selection, line, .. } = &self.route;
        if !selection.concerns(&message.notice, &message.labels) {
            return;
        }
        let expressions = self.expressions.get_or_init(|| selection.expressions());
        if let Some(notice) = selection.select(&message.notice, line.kind, expressions) {
            line.offer(notice, message.offered);
        }
    }

    /// Adds the number of messages that did not fit to the summary of the queue.
    fn count(&self, left_out: &LeftOut) {
        let (Route { selection, line, .. }, first) = (&self.route, &left_out.first);
        if selection.concerns(&first.notice, &first.labels) {
            line.count(selection.marked(&first.notice, line.kind), left_out.times);
        }
    }
}

impl Matching {
    pub(super) fn new(shared: Arc<Shared>, namespace: String, term: u64) -> Self {
        Self { shared, namespace, term, current: None, routes: None }
    }

    /// Matches until no message waits, or until `is_over` after a match with one Alert. Blocks the thread.
    pub(in crate::agent) fn run(&mut self, mut is_over: impl FnMut() -> bool) {
        while self.step() && !is_over() {}
        self.routes = None;
    }

    /// Returns whether no message waits. New messages then become due for a new task.
    pub(in crate::agent) fn is_done(&self) -> bool {
        let mut table = self.shared.table.lock();
        table.term != self.term || (self.current.is_none() && table.end(&self.namespace))
    }

    /// Matches one message with one Alert. Returns false if no message waits.
    fn step(&mut self) -> bool {
        if self.current.is_none() || self.routes.is_none() {
            self.look();
        }
        let (Some(current), Some(routes)) = (&mut self.current, &self.routes) else { return false };
        let is_done = |matched: &Matched| current.last.as_ref().is_some_and(|last| matched.route.alert <= *last);
        if let Some(matched) = routes.all.get(routes.all.partition_point(is_done)) {
            matched.offer(&current.message);
            current.last = Some(matched.route.alert.clone());
        } else {
            self.current = None;
        }
        true
    }

    /// Takes the next message if there is none, and the Alerts if they changed.
    fn look(&mut self) {
        let mut table = self.shared.table.lock();
        if table.term != self.term {
            self.current = None;
            return;
        }
        let changes = table.changes;
        let is_current = self.routes.as_ref().is_some_and(|routes| routes.changes == changes);
        let found = (!is_current).then(|| table.routes(&self.namespace));
        let Some(inbox) = table.inbox(&self.namespace) else { return };
        let left_out = inbox.take_left_out();
        if self.current.is_none() {
            self.current = inbox.pop().map(|message| Current { message, last: None });
        }
        drop(table);
        if let Some(found) = found {
            let all = found.into_iter().map(|route| Matched { route, expressions: OnceCell::new() }).collect();
            self.routes = Some(Routes { changes, all });
        }
        for matched in self.routes.iter().flat_map(|routes| &routes.all) {
            for one in &left_out {
                matched.count(one);
            }
        }
    }
}
