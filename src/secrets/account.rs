//! What a watch has told so far, and what follows from that for a Secret.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::Value;

use crate::cluster::WatchEvent;
use crate::failure::{Class, chain};

/// The `data` of a Secret.
pub type SecretData = BTreeMap<String, ByteString>;

/// What is known of a Secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Known {
    /// Nothing yet.
    Nothing,
    /// It could not be read so far.
    Unreadable {
        /// What kind of failure it was; [`Class::Denied`]: we may not read it.
        class: Class,
        /// Why, for people.
        why: String,
    },
    /// It is not there.
    Absent,
    /// What it holds.
    Data(Arc<SecretData>),
}

impl Known {
    /// What it holds.
    pub fn data(&self) -> Option<&SecretData> {
        match self {
            Self::Data(data) => Some(data),
            Self::Nothing | Self::Unreadable { .. } | Self::Absent => None,
        }
    }

    /// Whether there is no use in waiting for a word about it: there was one, or we may not read it.
    pub fn is_settled(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Unreadable { class, .. } => *class == Class::Denied,
            Self::Absent | Self::Data(_) => true,
        }
    }

    /// Why it holds nothing, as the end of a sentence that begins with its name; `None` when it does.
    pub fn problem(&self) -> Option<(Class, String)> {
        match self {
            Self::Data(_) => None,
            Self::Absent => Some((Class::NotReady, "does not exist in this namespace".to_owned())),
            Self::Nothing => Some((Class::NotReady, "cannot be read yet".to_owned())),
            Self::Unreadable { class: Class::Denied, .. } => {
                let needed = "the agent needs get, list and watch on Secrets in this namespace";
                Some((Class::Denied, format!("may not be read: {needed}")))
            }
            Self::Unreadable { class, why } => Some((*class, format!("cannot be read: {why}"))),
        }
    }

    /// Whether whoever knew `old` has to hear of this. A failure that is only said in other words is no news.
    pub(super) fn is_news(&self, old: &Self) -> bool {
        match (self, old) {
            (Self::Unreadable { class, .. }, Self::Unreadable { class: before, .. }) => class != before,
            _ => self != old,
        }
    }
}

/// Shows no value of a Secret.
impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::Unreadable { class, why } => write!(f, "Unreadable({class:?}: {why})"),
            Self::Absent => f.write_str("Absent"),
            Self::Data(_) => f.write_str("Data"),
        }
    }
}

/// What one watch of a name has told, in one namespace or in all of them.
#[derive(Default)]
pub(super) struct Account {
    synced: bool,
    /// By namespace.
    data: HashMap<String, Arc<SecretData>>,
    /// Namespaces that a fresh account has shown so far.
    fresh: HashSet<String>,
    /// Why nothing has been heard so far.
    trouble: Option<(Class, String)>,
}

/// Of which Secrets something else may be known than before.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Touched {
    None,
    /// The one in this namespace.
    One(String),
    All,
}

impl Account {
    /// What is known of the Secret in a namespace.
    pub(super) fn known(&self, namespace: &str) -> Known {
        match (self.data.get(namespace), &self.trouble) {
            (Some(data), _) => Known::Data(Arc::clone(data)),
            (None, _) if self.synced => Known::Absent,
            (None, Some((class, why))) => Known::Unreadable { class: *class, why: why.clone() },
            (None, None) => Known::Nothing,
        }
    }

    pub(super) fn hear(&mut self, event: WatchEvent) -> Touched {
        match event {
            WatchEvent::Begin => {
                self.fresh.clear();
                Touched::None
            }
            WatchEvent::Initial(live) => {
                let Some(namespace) = namespace_of(&live) else { return Touched::None };
                self.fresh.insert(namespace.clone());
                self.data.insert(namespace.clone(), data_of(&live));
                Touched::One(namespace)
            }
            // What was read of it before is still the best that is known.
            WatchEvent::Unreadable(live, _) => {
                self.fresh.extend(namespace_of(&live));
                Touched::None
            }
            WatchEvent::Applied(live) => {
                let Some(namespace) = namespace_of(&live) else { return Touched::None };
                self.data.insert(namespace.clone(), data_of(&live));
                Touched::One(namespace)
            }
            WatchEvent::Deleted(live) => {
                let Some(namespace) = namespace_of(&live) else { return Touched::None };
                self.data.remove(&namespace);
                Touched::One(namespace)
            }
            WatchEvent::Synced(_) => {
                let fresh = std::mem::take(&mut self.fresh);
                self.data.retain(|namespace, _| fresh.contains(namespace));
                (self.synced, self.trouble) = (true, None);
                Touched::All
            }
            // What was heard before is still the best that is known.
            WatchEvent::Trouble(_) if self.synced => Touched::None,
            WatchEvent::Resumed => Touched::None,
            WatchEvent::Trouble(error) => {
                let class = if error.is_forbidden() { Class::Denied } else { Class::Unavailable };
                self.trouble = Some((class, chain(&error)));
                Touched::All
            }
        }
    }
}

fn namespace_of(live: &Value) -> Option<String> {
    live.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned)
}

fn data_of(live: &Value) -> Arc<SecretData> {
    let data = live.get("data").cloned().and_then(|data| serde_json::from_value(data).ok());
    Arc::new(data.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{Attempt, Cause, Error, Subject};

    fn secret(namespace: &str, password: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": "git"}, "data": {"password": password}})
    }

    /// What is known of the Secret in the namespace `a` after these events.
    fn known(events: impl IntoIterator<Item = WatchEvent>) -> Known {
        let mut account = Account::default();
        for event in events {
            account.hear(event);
        }
        account.known("a")
    }

    fn trouble() -> WatchEvent {
        let cause = Box::new(Cause::TimedOut(std::time::Duration::from_secs(7)));
        WatchEvent::Trouble(Error { attempt: Attempt::Watch, subject: Box::new(Subject::Cluster), cause })
    }

    #[test]
    fn nothing_is_absent_before_everything_was_seen() {
        use WatchEvent::{Applied, Begin, Deleted, Initial, Synced};
        assert_eq!(known([]), Known::Nothing);
        assert_eq!(known([Begin, Initial(secret("b", "eA=="))]), Known::Nothing);
        assert_eq!(known([Begin, Synced(String::new())]), Known::Absent);
        let there = known([Begin, Initial(secret("a", "eA==")), Synced(String::new())]);
        assert_eq!(there.data().unwrap()["password"].0, b"x");
        let replaced =
            known([Begin, Initial(secret("a", "eA==")), Synced(String::new()), Applied(secret("a", "eQ=="))]);
        assert_eq!(replaced.data().unwrap()["password"].0, b"y");
        let gone = [Begin, Initial(secret("a", "eA==")), Synced(String::new()), Deleted(secret("a", "eA=="))];
        assert_eq!(known(gone), Known::Absent);
        let missed = [Applied(secret("a", "eA==")), Begin, Initial(secret("b", "eA==")), Synced(String::new())];
        assert_eq!(known(missed), Known::Absent, "deleted while nobody watched");
    }

    #[test]
    fn a_failure_says_that_it_could_not_be_read_until_it_was() {
        use WatchEvent::{Begin, Synced};
        let unread = known([Begin, trouble()]);
        assert!(matches!(unread, Known::Unreadable { class: Class::Unavailable, .. }) && !unread.is_settled());
        assert!(unread.problem().unwrap().1.starts_with("cannot be read: could not watch"), "{unread:?}");
        assert_eq!(known([Begin, trouble(), Begin, Synced(String::new())]), Known::Absent);
        assert_eq!(known([Begin, Synced(String::new()), trouble()]), Known::Absent, "it is the last that is known");
        assert!(!unread.is_news(&Known::Unreadable { class: Class::Unavailable, why: "else".into() }));
    }

    #[test]
    fn shows_no_value() {
        let there = known([WatchEvent::Applied(secret("a", "aHVudGVyMg=="))]);
        assert_eq!(format!("{there:?}"), "Data");
    }
}
