//! Offers messages to the queues of the Providers that Alerts reference.
//!
//! Invariant: an offer never waits. Without Alerts, an offer costs only a lock. Invariant: messages from before the
//! first list of Providers and Alerts are kept, up to a limit, and offered after that list.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::notice::notice;
use crate::agent::kept::Name;
use mainstay_cluster::Regarding;
use mainstay_engine::apply::Announcement;
use mainstay_notification::{Next, Notice, Outcome, Priority, ProviderType, Queue, Selection};
use mainstay_object::Owner;

/// Maximum number of messages that are kept until the first list.
const EARLY: usize = 256;
/// Maximum size of the labels of a resource that are kept, in bytes. If larger labels are dropped, no `matchLabels`
/// matches.
const LABELS: usize = 4 << 10;

/// The labels of a resource, or the fields of messages about it.
pub(in crate::agent) type Labels = BTreeMap<String, String>;

/// The queue of one Provider.
#[derive(Debug)]
pub(in crate::agent) struct Line {
    kind: ProviderType,
    queue: Mutex<Queue>,
    /// Notified after an offer.
    pub(in crate::agent) offered: Notify,
    began: Instant,
}

impl Line {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn offer(&self, notice: Notice) {
        if self.kind.takes(&notice) {
            self.queue.lock().offer(notice, self.now());
            self.offered.notify_one();
        }
    }

    /// Returns the next step. If the next step is to wait, the result includes the remaining time.
    pub(in crate::agent) fn next(&self) -> Next {
        let now = self.now();
        match self.queue.lock().next(now) {
            Next::Wait(until) => Next::Wait(until.saturating_sub(now)),
            other => other,
        }
    }

    /// Records the outcome of the notice in flight.
    pub(in crate::agent) fn settle(&self, outcome: &Outcome) {
        self.queue.lock().settle(outcome, self.now());
    }

    /// Applies changed settings. A notice in flight is sent again.
    pub(in crate::agent) fn set(&self, per_minute: Option<u32>) {
        let mut queue = self.queue.lock();
        queue.set_budget(per_minute);
        queue.settle(&Outcome::Retry { why: String::new(), after: None }, self.now());
        queue.retry_now();
    }
}

#[derive(Debug, Default)]
struct Table {
    alerts: HashMap<Name, (Name, Selection)>,
    lines: HashMap<Name, Arc<Line>>,
    labels: HashMap<Owner, Labels>,
    /// The fields of messages about each resource that has some.
    event_metadata: HashMap<Owner, Labels>,
    /// The messages that are kept until the first list; `None` after that list.
    early: Option<Vec<(Owner, Notice)>>,
}

/// All queues. Clones share the queues.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct Outbox(Arc<Mutex<Table>>);

impl Outbox {
    /// Removes everything at the start of a term.
    pub(super) fn clear(&self) {
        *self.0.lock() = Table { early: Some(Vec::new()), ..Table::default() };
    }

    /// Sets the labels of a resource.
    pub(super) fn set_labels(&self, owner: &Owner, labels: Option<&Labels>) {
        let fits = |labels: &&Labels| {
            let bytes: usize = labels.iter().map(|(label, value)| label.len() + value.len()).sum();
            !labels.is_empty() && bytes <= LABELS
        };
        let mut table = self.0.lock();
        match labels.filter(fits) {
            Some(labels) => table.labels.insert(owner.clone(), labels.clone()),
            None => table.labels.remove(owner),
        };
    }

    /// Sets the fields of messages about a resource.
    pub(super) fn set_event_metadata(&self, owner: &Owner, metadata: Labels) {
        let mut table = self.0.lock();
        if metadata.is_empty() {
            table.event_metadata.remove(owner);
        } else {
            table.event_metadata.insert(owner.clone(), metadata);
        }
    }

    /// Sets or removes an Alert.
    pub(in crate::agent) fn set_alert(&self, alert: &Name, selection: Option<(String, Selection)>) {
        let mut table = self.0.lock();
        match selection {
            Some((provider, selection)) => {
                table.alerts.insert(alert.clone(), ((alert.0.clone(), provider), selection));
            }
            None => {
                table.alerts.remove(alert);
            }
        }
    }

    /// Returns the queue of a Provider, which is empty if the Provider is new or has a different type.
    pub(in crate::agent) fn open(&self, provider: &Name, kind: ProviderType) -> Arc<Line> {
        let mut table = self.0.lock();
        if let Some(line) = table.lines.get(provider).filter(|line| line.kind == kind) {
            return Arc::clone(line);
        }
        let line = Line { kind, queue: Mutex::default(), offered: Notify::new(), began: Instant::now() };
        let line = Arc::new(line);
        table.lines.insert(provider.clone(), Arc::clone(&line));
        line
    }

    /// Removes the queue of a Provider.
    pub(in crate::agent) fn close(&self, provider: &Name) {
        self.0.lock().lines.remove(provider);
    }

    /// Offers the early messages, since all Providers and Alerts are known.
    pub(in crate::agent) fn complete(&self) {
        let mut table = self.0.lock();
        for (owner, notice) in table.early.take().unwrap_or_default() {
            table.offer(&owner, notice);
        }
    }

    /// Offers a message.
    pub(super) fn offer(&self, announcement: &Announcement<'_>, subject: Option<&Regarding>) {
        let mut table = self.0.lock();
        if table.early.is_none() && table.alerts.is_empty() {
            return;
        }
        let Some(notice) = notice(announcement.owner, announcement.message, subject, Timestamp::now()) else { return };
        match &mut table.early {
            Some(early) if notice.priority != Priority::Routine && early.len() < EARLY => {
                early.push((announcement.owner.clone(), notice));
            }
            Some(_) => {}
            None => table.offer(announcement.owner, notice),
        }
    }
}

impl Table {
    fn offer(&self, owner: &Owner, mut notice: Notice) {
        notice.metadata = self.event_metadata.get(owner).cloned().unwrap_or_default();
        let none = Labels::new();
        let labels = self.labels.get(owner).unwrap_or(&none);
        for (provider, selection) in self.alerts.values() {
            if !selection.has(&notice.kind, &notice.namespace, &notice.name, labels) {
                continue;
            }
            let Some(line) = self.lines.get(provider) else { continue };
            if let Some(notice) = selection.select(&notice) {
                line.offer(notice);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_engine::notification::Message;
    use mainstay_notification::Identity;

    const ALERT: Identity<'static> = Identity { namespace: "shop", name: "all", uid: "", labels: None };

    fn name(name: &str) -> Name {
        ("shop".to_owned(), name.to_owned())
    }

    fn selection(source: serde_json::Value) -> (String, Selection) {
        let spec = serde_json::json!({"providerRef": {"name": "chat"}, "eventSources": [source]});
        let selection = Selection::new(&serde_json::from_value(spec).unwrap(), &ALERT, false).unwrap();
        ("chat".to_owned(), selection)
    }

    fn fail(outbox: &Outbox, sync: &str, problem: &str) {
        let owner = Owner::git_sync("shop", sync);
        let message = Message::Failed { subject: owner.clone(), commit: None, problems: vec![problem.to_owned()] };
        outbox.offer(&Announcement { owner: &owner, object: None, message: &message }, None);
    }

    fn sent(line: &Line) -> Option<String> {
        let Next::Send(notice) = line.next() else { return None };
        line.settle(&Outcome::Delivered);
        Some(notice.message)
    }

    #[test]
    fn a_message_before_the_first_list_is_offered_after_it() {
        let outbox = Outbox::default();
        outbox.clear();
        fail(&outbox, "demo", "early");
        let line = outbox.open(&name("chat"), ProviderType::Generic);
        outbox.set_alert(&name("all"), Some(selection(serde_json::json!({"kind": "GitSync", "name": "*"}))));
        assert_eq!(sent(&line), None);
        outbox.complete();
        assert_eq!(sent(&line).as_deref(), Some("failed: early"));
        fail(&outbox, "demo", "late");
        assert_eq!(sent(&line).as_deref(), Some("failed: late"));
        outbox.set_alert(&name("all"), None);
        fail(&outbox, "demo", "unselected");
        assert_eq!(sent(&line), None);
    }

    #[test]
    fn labels_of_a_resource_select_its_messages_until_it_is_gone() {
        let outbox = Outbox::default();
        let line = outbox.open(&name("chat"), ProviderType::Generic);
        let source = serde_json::json!({"kind": "GitSync", "name": "*", "matchLabels": {"team": "a"}});
        outbox.set_alert(&name("all"), Some(selection(source)));
        let owner = Owner::git_sync("shop", "demo");
        fail(&outbox, "demo", "without labels");
        let labels = Labels::from([("team".to_owned(), "a".to_owned())]);
        outbox.set_labels(&owner, Some(&labels));
        fail(&outbox, "demo", "with labels");
        fail(&outbox, "other", "of another");
        outbox.set_labels(&owner, None);
        fail(&outbox, "demo", "gone");
        assert_eq!(sent(&line).as_deref(), Some("failed: with labels"));
        assert_eq!(sent(&line), None);
    }

    #[test]
    fn fields_of_a_resource_are_in_its_messages_and_the_alert_wins() {
        let outbox = Outbox::default();
        let line = outbox.open(&name("chat"), ProviderType::Generic);
        let spec = serde_json::json!({
            "providerRef": {"name": "chat"}, "eventSources": [{"kind": "GitSync", "name": "*"}],
            "eventMetadata": {"cluster": "production"},
        });
        let selection = Selection::new(&serde_json::from_value(spec).unwrap(), &ALERT, false).unwrap();
        outbox.set_alert(&name("all"), Some(("chat".to_owned(), selection)));
        let owner = Owner::git_sync("shop", "demo");
        let fields = |list: &[(&str, &str)]| -> Labels {
            list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let metadata = |problem: &str| {
            fail(&outbox, "demo", problem);
            let Next::Send(notice) = line.next() else { panic!("{problem} is not sent") };
            line.settle(&Outcome::Delivered);
            notice.metadata
        };
        outbox.set_event_metadata(&owner, fields(&[("change_request", "42"), ("cluster", "forged")]));
        assert_eq!(metadata("one"), fields(&[("change_request", "42"), ("cluster", "production")]));
        outbox.set_event_metadata(&owner, Labels::new());
        assert_eq!(metadata("two"), fields(&[("cluster", "production")]));
    }

    #[test]
    fn a_changed_setting_sends_the_message_in_flight_again_at_once() {
        let outbox = Outbox::default();
        let line = outbox.open(&name("chat"), ProviderType::Generic);
        outbox.set_alert(&name("all"), Some(selection(serde_json::json!({"kind": "GitSync", "name": "*"}))));
        fail(&outbox, "demo", "once");
        assert!(matches!(line.next(), Next::Send(_)));
        line.set(Some(5));
        assert_eq!(sent(&line).as_deref(), Some("failed: once"));
        assert_eq!(sent(&line), None);
    }
}
