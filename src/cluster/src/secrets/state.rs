//! The state of a Secret or ConfigMap, built from the events of a watch.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::ByteString;
use serde_json::Value;

use super::purpose::{Purpose, Purposes, by_object, excluding};
use super::register::Referrer;
use crate::WatchEvent;
use crate::reflector::{Cache, Change};
use mainstay_object::Digest;
use mainstay_object::failure::{Class, chain};

/// The `data` of a Secret.
pub type SecretData = BTreeMap<String, ByteString>;

/// The kind of a followed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// A Secret.
    Secret,
    /// A ConfigMap. Its data is stored like that of a Secret.
    ConfigMap,
    /// A Secret with digests in place of its values.
    Digests,
}

/// The content of a Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The `type` of the Secret, such as `Opaque`.
    pub kind: String,
    /// The data of the Secret.
    pub data: SecretData,
    /// The purpose in its metadata.
    pub purpose: Option<Purpose>,
}

/// The state of a Secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Known {
    /// Not known yet.
    Nothing,
    /// The Secret could not be read.
    Unreadable {
        /// The class of the failure. [`Class::Denied`] stands for a missing permission.
        class: Class,
        /// The cause.
        why: String,
    },
    /// The Secret does not exist.
    Absent,
    /// The Secret has a purpose that excludes its use.
    Withheld {
        /// The purpose of the Secret.
        has: Purpose,
        /// The excluded use.
        used_for: Purpose,
        /// Kind and name of an object of the namespace that gives the Secret its purpose, if there is one.
        by: Option<String>,
    },
    /// The content.
    Data(Arc<Contents>),
}

impl Known {
    /// Returns the data, if there is any.
    pub fn data(&self) -> Option<&SecretData> {
        match self {
            Self::Data(contents) => Some(&contents.data),
            Self::Nothing | Self::Unreadable { .. } | Self::Absent | Self::Withheld { .. } => None,
        }
    }

    /// Returns the `type`, if the content is known.
    pub fn kind(&self) -> Option<&str> {
        match self {
            Self::Data(contents) => Some(&contents.kind),
            Self::Nothing | Self::Unreadable { .. } | Self::Absent | Self::Withheld { .. } => None,
        }
    }

    /// Whether the state can be used now: it is known, or a permission is missing.
    pub fn is_settled(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Unreadable { class, .. } => *class == Class::Denied,
            Self::Absent | Self::Withheld { .. } | Self::Data(_) => true,
        }
    }

    /// Returns why there is no data; `None` if there is data. The reason completes a sentence that begins with the
    /// name.
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
            Self::Withheld { has, used_for, by } => Some((
                Class::Denied,
                format!(
                    "holds the credentials for {}, so it is not used for {}; name a separate Secret{}",
                    has.text(),
                    used_for.text(),
                    by.as_ref().map(|by| format!(" here or in {by}")).unwrap_or_default()
                ),
            )),
        }
    }

    /// Withholds the content if a different purpose of the Secret excludes this use. An `Err` in `purposes` means that
    /// they are unknown, because this kind is not listed yet.
    pub(super) fn for_use(self, used_for: Purpose, purposes: Result<Purposes, Referrer>) -> Self {
        let Self::Data(contents) = &self else { return self };
        let mut purposes = match purposes {
            Ok(purposes) => purposes,
            Err(referrer) => {
                let why = format!(
                    "{} have not been listed yet, and one of them may use the Secret for another purpose",
                    referrer.plural()
                );
                return Self::Unreadable { class: Class::NotReady, why };
            }
        };
        purposes.extend(contents.purpose);
        match excluding(&purposes, used_for) {
            Some(has) => Self::Withheld { has, used_for, by: None },
            None => self,
        }
    }

    /// Names the object that gives a withheld Secret its purpose. `find` returns its kind and name.
    pub(super) fn named_by(self, find: impl FnOnce(Purpose) -> Option<String>) -> Self {
        match self {
            Self::Withheld { has, used_for, .. } => Self::Withheld { has, used_for, by: find(has) },
            known => known,
        }
    }

    /// Whether followers with the state `old` must be woken. A different message of the same failure is no reason.
    pub(super) fn differs_from(&self, old: &Self) -> bool {
        match (self, old) {
            (Self::Unreadable { class, .. }, Self::Unreadable { class: before, .. }) => class != before,
            _ => self != old,
        }
    }
}

/// Formats the state without the data.
impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::Unreadable { class, why } => write!(f, "Unreadable({class:?}: {why})"),
            Self::Absent => f.write_str("Absent"),
            Self::Withheld { has, used_for, .. } => write!(f, "Withheld({has:?} for {used_for:?})"),
            Self::Data(_) => f.write_str("Data"),
        }
    }
}

/// The state of all Secrets of one name, in one namespace or in all.
pub(super) struct State {
    holder: Holder,
    name: String,
    cache: Cache<Arc<Contents>>,
    /// The class and the cause if the first list failed.
    trouble: Option<(Class, String)>,
}

/// The Secrets whose state may have changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Affected {
    None,
    /// The Secret in this namespace.
    One(String),
    All,
}

impl Affected {
    /// Merges two sets.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, one) | (one, Self::None) => one,
            _ => Self::All,
        }
    }
}

impl State {
    pub(super) fn of(holder: Holder, name: &str) -> Self {
        Self { holder, name: name.to_owned(), cache: Cache::default(), trouble: None }
    }

    /// Returns the state of the Secret in a namespace.
    pub(super) fn known(&self, namespace: &str) -> Known {
        match (self.cache.get(namespace, &self.name), &self.trouble) {
            (Some(data), _) => Known::Data(Arc::clone(data)),
            (None, _) if self.cache.is_complete() => Known::Absent,
            (None, Some((class, why))) => Known::Unreadable { class: *class, why: why.clone() },
            (None, None) => Known::Nothing,
        }
    }

    pub(super) fn observe(&mut self, event: WatchEvent) -> Affected {
        let (mut affected, holder) = (Affected::None, self.holder);
        for change in self.cache.take(event, |live| Ok(Some(contents_of(holder, live)))) {
            affected = affected.and(match change {
                Change::Changed { name, .. } | Change::Gone { name, .. } => Affected::One(name.0),
                Change::Complete { .. } => {
                    self.trouble = None;
                    Affected::All
                }
                Change::Failed(error) if !self.cache.is_complete() => {
                    let class = if error.is_forbidden() { Class::Denied } else { Class::Unavailable };
                    self.trouble = Some((class, chain(&error)));
                    Affected::All
                }
                // The last known state stays.
                Change::Unreadable { .. } | Change::Failed(_) | Change::Resumed => Affected::None,
            });
        }
        affected
    }
}

/// Reads the content of a Secret or ConfigMap.
pub(super) fn contents_of(holder: Holder, live: &Value) -> Arc<Contents> {
    let data = live.get("data").cloned();
    let data: Option<SecretData> = match holder {
        Holder::Secret => data.and_then(|data| serde_json::from_value(data).ok()),
        Holder::Digests => data.and_then(|data| serde_json::from_value(data).ok()).map(|data| digests(live, data)),
        Holder::ConfigMap => {
            let data: Option<BTreeMap<String, String>> = data.and_then(|data| serde_json::from_value(data).ok());
            data.map(|data| data.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))).collect())
        }
    };
    let kind = live.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let purpose = if holder == Holder::ConfigMap { None } else { by_object(live) };
    Arc::new(Contents { kind, data: data.unwrap_or_default(), purpose })
}

/// Replaces each value by a digest, salted with the UID of the Secret. Only readers of the Secret know the UID, so
/// other users cannot guess short values from their digests.
fn digests(live: &Value, data: SecretData) -> SecretData {
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let digest = |value: ByteString| {
        let salted = [uid.as_bytes(), &[0], &value.0].concat();
        ByteString(Digest::of(&salted).as_bytes().to_vec())
    };
    data.into_iter().map(|(key, value)| (key, digest(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Attempt, Cause, Error, Target};

    fn secret(namespace: &str, password: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": "git"}, "data": {"password": password}})
    }

    /// Returns the state of the Secret in the namespace `a` after these events.
    fn known(events: impl IntoIterator<Item = WatchEvent>) -> Known {
        let mut account = State::of(Holder::Secret, "git");
        for event in events {
            account.observe(event);
        }
        account.known("a")
    }

    fn trouble() -> WatchEvent {
        let cause = Box::new(Cause::TimedOut(std::time::Duration::from_secs(7)));
        WatchEvent::Failed(Error { attempt: Attempt::Watch, subject: Box::new(Target::Cluster), cause })
    }

    #[test]
    fn a_secret_is_absent_only_after_a_complete_list() {
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
        assert!(!unread.differs_from(&Known::Unreadable { class: Class::Unavailable, why: "else".into() }));
    }

    #[test]
    fn digests_differ_with_the_value_and_with_the_secret_and_hold_no_value() {
        let of = |uid: &str, value: &str| {
            let live = json!({"metadata": {"namespace": "a", "uid": uid}, "data": {"password": value}});
            contents_of(Holder::Digests, &live).data["password"].0.clone()
        };
        assert_eq!(of("1", "eA=="), of("1", "eA=="));
        assert_ne!(of("1", "eA=="), of("1", "eQ=="));
        assert_ne!(of("1", "eA=="), of("2", "eA=="), "what it is for one Secret says nothing of another");
        assert_eq!(of("1", "eA==").len(), 16);
    }

    #[test]
    fn a_secret_waits_for_the_kinds_that_may_use_it_for_something_else() {
        let there = known([WatchEvent::Applied(secret("a", "eA=="))]);
        let waits = there.clone().for_use(Purpose::Repository, Err(Referrer::Receiver));
        let said = "cannot be read: Receivers have not been listed yet, and one of them may use the Secret for \
                    another purpose";
        assert_eq!((waits.problem(), waits.is_settled()), (Some((Class::NotReady, said.to_owned())), false));
        assert_eq!(there.clone().for_use(Purpose::Repository, Ok(Purposes::new())), there);
        let withheld = there.for_use(Purpose::Repository, Ok(Purposes::from([Purpose::KubeConfig])));
        assert_eq!((withheld.data(), withheld.is_settled()), (None, true));
        let said =
            "holds the credentials for another cluster, so it is not used for a Git repository; name a separate Secret";
        assert_eq!(withheld.problem(), Some((Class::Denied, said.to_owned())));
        let named = withheld.named_by(|has| Some(format!("GitSync far ({has:?})")));
        let said = format!("{said} here or in GitSync far (KubeConfig)");
        assert_eq!(named.problem(), Some((Class::Denied, said)));
    }

    #[test]
    fn shows_no_value() {
        let there = known([WatchEvent::Applied(secret("a", "aHVudGVyMg=="))]);
        assert_eq!(format!("{there:?}"), "Data");
    }
}
