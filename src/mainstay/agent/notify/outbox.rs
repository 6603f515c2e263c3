//! Takes messages for the Providers that Alerts reference.
//!
//! Invariant: an offer never waits and matches no expression. Without Alerts, an offer costs only a lock. Invariant:
//! messages from before the first list of Providers and Alerts are kept, up to a limit, and offered after that list.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::line::Line;
use super::matching::Matching;
use super::notice::notice;
use super::table::{Labels, Shared};
use crate::agent::kept::Name;
use mainstay_cluster::Regarding;
use mainstay_engine::apply::Announcement;
use mainstay_notification::{Priority, ProviderType, Selection};
use mainstay_object::Owner;

/// Maximum number of messages that are kept until the first list.
const EARLY: usize = 256;
/// Maximum size of the labels of a resource that are kept, in bytes. If larger labels are dropped, no `matchLabels`
/// matches.
const LABELS: usize = 4 << 10;

/// All messages, Alerts and queues. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::agent) struct Outbox(Arc<Shared>);

impl Outbox {
    /// Removes everything at the start of a term.
    pub(super) fn clear(&self) {
        self.0.table.lock().clear();
    }

    /// Sets the labels of a resource.
    pub(super) fn set_labels(&self, owner: &Owner, labels: Option<&Labels>) {
        let fits = |labels: &&Labels| {
            let bytes: usize = labels.iter().map(|(label, value)| label.len() + value.len()).sum();
            !labels.is_empty() && bytes <= LABELS
        };
        let mut table = self.0.table.lock();
        match labels.filter(fits) {
            Some(labels) => table.labels.insert(owner.clone(), Arc::new(labels.clone())),
            None => table.labels.remove(owner),
        };
    }

    /// Sets the fields of messages about a resource.
    pub(super) fn set_event_metadata(&self, owner: &Owner, metadata: Labels) {
        let mut table = self.0.table.lock();
        if metadata.is_empty() {
            table.event_metadata.remove(owner);
        } else {
            table.event_metadata.insert(owner.clone(), metadata);
        }
    }

    /// Sets or removes an Alert. Waiting messages are matched with the new selection.
    pub(in crate::agent) fn set_alert(&self, alert: &Name, selection: Option<(String, Selection)>) {
        self.0.table.lock().set_alert(alert, selection);
    }

    /// Returns the queue of a Provider, which is empty if the Provider is new or has a different type.
    pub(in crate::agent) fn open(&self, provider: &Name, kind: ProviderType) -> Arc<Line> {
        let mut table = self.0.table.lock();
        if let Some(line) = table.lines.get(provider).filter(|line| line.kind == kind) {
            return Arc::clone(line);
        }
        let line = Arc::new(Line::new(kind));
        table.lines.insert(provider.clone(), Arc::clone(&line));
        table.changes += 1;
        line
    }

    /// Removes the queue of a Provider.
    pub(in crate::agent) fn close(&self, provider: &Name) {
        let mut table = self.0.table.lock();
        table.lines.remove(provider);
        table.changes += 1;
    }

    /// Offers the early messages, since all Providers and Alerts are known.
    pub(in crate::agent) fn complete(&self) {
        let mut table = self.0.table.lock();
        for (owner, notice) in table.early.take().unwrap_or_default() {
            table.offer(&owner, notice, Instant::now());
        }
        self.0.arrived.notify_one();
    }

    /// Offers a message.
    pub(super) fn offer(&self, announcement: &Announcement<'_>, subject: Option<&Regarding>) {
        if !self.0.table.lock().takes_messages() {
            return;
        }
        let Some(notice) = notice(announcement.owner, announcement.message, subject, Timestamp::now()) else { return };
        let mut table = self.0.table.lock();
        match &mut table.early {
            Some(early) if notice.priority != Priority::Routine && early.len() < EARLY => {
                early.push((announcement.owner.clone(), notice));
            }
            Some(_) => {}
            None => {
                table.offer(announcement.owner, notice, Instant::now());
                self.0.arrived.notify_one();
            }
        }
    }

    /// Waits for a namespace whose messages have to be matched with its Alerts. Cancel-safe.
    pub(in crate::agent) async fn matching(&self) -> Matching {
        loop {
            if let Some(matching) = self.next_matching() {
                return matching;
            }
            self.0.arrived.notified().await;
        }
    }

    fn next_matching(&self) -> Option<Matching> {
        let mut table = self.0.table.lock();
        let namespace = table.due.pop_front()?;
        Some(Matching::new(Arc::clone(&self.0), namespace, table.term))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_engine::notification::Message;
    use mainstay_notification::{Identity, Next, Outcome};

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
        fail_in("shop", outbox, sync, problem);
    }

    fn fail_in(namespace: &str, outbox: &Outbox, sync: &str, problem: &str) {
        let owner = Owner::git_sync(namespace, sync);
        let message = Message::Failed { subject: owner.clone(), commit: None, problems: vec![problem.to_owned()] };
        outbox.offer(&Announcement { owner: &owner, object: None, message: &message }, None);
    }

    /// Adds an Alert with expressions for a GitSync of its namespace, and returns the queue of its Provider.
    fn alert(outbox: &Outbox, (namespace, name): (&str, &str), provider: &str, sync: &str) -> Arc<Line> {
        let spec = serde_json::json!({
            "providerRef": {"name": provider}, "eventSources": [{"kind": "GitSync", "name": sync}],
            "inclusionList": ["wanted"], "exclusionList": ["excluded"],
        });
        let identity = Identity { namespace, name, ..Identity::default() };
        let selection = Selection::new(&serde_json::from_value(spec).unwrap(), &identity, false).unwrap();
        let namespaced = |name: &str| (namespace.to_owned(), name.to_owned());
        outbox.set_alert(&namespaced(name), Some((provider.to_owned(), selection)));
        outbox.open(&namespaced(provider), ProviderType::Generic)
    }

    /// Matches all messages.
    fn match_all(outbox: &Outbox) {
        while let Some(mut matching) = outbox.next_matching() {
            matching.run(|| false);
            assert!(matching.is_done());
        }
    }

    fn sent(outbox: &Outbox, line: &Line) -> Option<String> {
        match_all(outbox);
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
        assert_eq!(sent(&outbox, &line), None);
        outbox.complete();
        assert_eq!(sent(&outbox, &line).as_deref(), Some("failed: early"));
        fail(&outbox, "demo", "late");
        assert_eq!(sent(&outbox, &line).as_deref(), Some("failed: late"));
        outbox.set_alert(&name("all"), None);
        fail(&outbox, "demo", "unselected");
        assert_eq!(sent(&outbox, &line), None);
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
        assert_eq!(sent(&outbox, &line).as_deref(), Some("failed: with labels"));
        assert_eq!(sent(&outbox, &line), None);
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
            match_all(&outbox);
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
        match_all(&outbox);
        assert!(matches!(line.next(), Next::Send(_)));
        line.set(Some(5));
        assert_eq!(sent(&outbox, &line).as_deref(), Some("failed: once"));
        assert_eq!(sent(&outbox, &line), None);
    }

    #[test]
    fn an_offer_matches_no_expression_and_a_namespace_that_is_not_matched_delays_no_other() {
        let outbox = Outbox::default();
        let [shop, other] = ["shop", "other"].map(|namespace| alert(&outbox, (namespace, "one"), "chat", "demo"));
        for namespace in ["shop", "other"] {
            fail_in(namespace, &outbox, "demo", "wanted");
        }
        assert_eq!([shop.next(), other.next()], [Next::Idle, Next::Idle], "the offer has matched no message");
        let mut slow = outbox.next_matching().unwrap();
        let mut matching = outbox.next_matching().unwrap();
        matching.run(|| false);
        assert!(matching.is_done() && outbox.next_matching().is_none());
        assert!(matches!(other.next(), Next::Send(_)));
        assert_eq!(shop.next(), Next::Idle, "its messages still wait");
        assert!(!slow.is_done());
        slow.run(|| false);
        assert!(slow.is_done() && matches!(shop.next(), Next::Send(_)));
    }

    #[test]
    fn slices_hold_no_lock_and_match_each_message_once_with_each_alert_in_order() {
        let outbox = Outbox::default();
        let [line, ..] = ["a", "b", "c"].map(|name| alert(&outbox, ("shop", name), "chat", "demo"));
        fail(&outbox, "demo", "wanted 1");
        fail(&outbox, "demo", "wanted but excluded");
        let mut matching = outbox.next_matching().unwrap();
        let mut matches = 0;
        while !matching.is_done() {
            matching.run(|| {
                assert!(outbox.0.table.try_lock().is_some(), "a slice holds the lock");
                true
            });
            matches += 1;
            if matches == 1 {
                fail(&outbox, "demo", "wanted 2");
            }
        }
        assert!(matches >= 9, "{matches} slices: each ends after a match");
        let sent: Vec<_> = std::iter::from_fn(|| sent(&outbox, &line)).collect();
        assert_eq!(sent, [["failed: wanted 1"; 3], ["failed: wanted 2"; 3]].concat());
    }

    #[test]
    fn a_message_that_waits_is_matched_with_the_alerts_of_that_time() {
        let outbox = Outbox::default();
        let line = alert(&outbox, ("shop", "one"), "chat", "demo");
        fail(&outbox, "demo", "wanted");
        outbox.set_alert(&name("one"), None);
        match_all(&outbox);
        assert_eq!(line.next(), Next::Idle);
        assert!(!outbox.0.table.lock().takes_messages(), "the namespace keeps no memory");
        alert(&outbox, ("shop", "one"), "chat", "demo");
        fail(&outbox, "demo", "wanted");
        let mut former = outbox.next_matching().unwrap();
        outbox.clear();
        outbox.complete();
        former.run(|| false);
        assert!(former.is_done() && line.next() == Next::Idle, "the message is one of an earlier term");
    }

    #[test]
    fn messages_without_space_are_counted_for_each_provider_whose_alerts_name_their_resource() {
        let outbox = Outbox::default();
        let [chat, pager] =
            [("chat", "demo"), ("pager", "other")].map(|(to, sync)| alert(&outbox, ("shop", to), to, sync));
        for number in 0..1000 {
            fail(&outbox, "demo", &format!("{number} {}", "x".repeat(5000)));
        }
        match_all(&outbox);
        assert!(matches!(chat.next(), Next::Wait(_)), "a sum waits");
        assert_eq!(pager.next(), Next::Idle);
    }

    #[test]
    fn an_alert_of_a_trusted_namespace_matches_messages_of_others_until_it_is_gone() {
        let outbox = Outbox::default();
        let spec = serde_json::json!({
            "providerRef": {"name": "chat"}, "eventSources": [{"kind": "GitSync", "name": "*", "namespace": "other"}],
        });
        let selection = Selection::new(&serde_json::from_value(spec).unwrap(), &ALERT, true).unwrap();
        outbox.set_alert(&name("all"), Some(("chat".to_owned(), selection)));
        let line = outbox.open(&name("chat"), ProviderType::Generic);
        fail_in("other", &outbox, "demo", "one");
        fail_in("third", &outbox, "demo", "two");
        fail(&outbox, "demo", "three");
        assert_eq!(sent(&outbox, &line).as_deref(), Some("failed: one"));
        assert_eq!(sent(&outbox, &line), None);
        outbox.set_alert(&name("all"), None);
        fail_in("other", &outbox, "demo", "four");
        assert_eq!(sent(&outbox, &line), None);
    }

    #[tokio::test]
    async fn a_message_wakes_the_task_that_matches_it() {
        let outbox = Outbox::default();
        let line = alert(&outbox, ("shop", "one"), "chat", "demo");
        let sender = async {
            fail(&outbox, "demo", "wanted");
        };
        let (mut matching, ()) = tokio::join!(outbox.matching(), sender);
        matching.run(|| false);
        assert!(matching.is_done());
        assert_eq!(sent(&outbox, &line).as_deref(), Some("failed: wanted"));
    }
}
