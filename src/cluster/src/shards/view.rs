//! The view of a member, as its Lease shows it, with the pushes that the leader passes on to other members and the Leases
//! that have expired.
//!
//! Invariant: a Lease that another client changed cannot cost more than [`LONGEST`] bytes, and counts as one without a
//! view if it is not valid.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::member::{Member, Members};
use mainstay_api::names::{LEASE, SHARD_LEASE, SHARD_LEASE_LEADER, SHARD_LEASE_MEMBER, SHARD_VIEW};

/// Maximum length of a view, in bytes.
const LONGEST: usize = 16 << 10;
/// Maximum number of repositories in a [`PushNote`].
const RUNG: usize = 32;
/// Maximum length of the version of a Lease, in bytes.
const LONGEST_VERSION: usize = 64;

/// The Leases that have expired, each with its resourceVersion.
pub(super) type Expired = BTreeMap<Member, String>;

/// The members by which a member acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Differs for each published view.
    pub(super) generation: u64,
    pub(super) members: Members,
}

/// The repositories whose pushes the leader has received last, and a number that increases with each push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushNote {
    /// Increases with each push; higher than that of an earlier leader.
    pub count: u64,
    /// Namespace and name of the repositories, the last one at the end.
    pub reported: Vec<(String, String)>,
}

impl PushNote {
    /// Returns the note of a leader that begins `now`, without pushes.
    pub fn begin(now: Timestamp) -> Self {
        let count = u64::try_from(now.as_microsecond()).unwrap_or_default();
        Self { count, reported: Vec::new() }
    }

    /// Adds a push.
    pub fn ring(&mut self, namespace: &str, name: &str) {
        self.count += 1;
        let reported = (namespace.to_owned(), name.to_owned());
        self.reported.retain(|known| *known != reported);
        self.reported.push(reported);
        if self.reported.len() > RUNG {
            self.reported.remove(0);
        }
    }
}

impl View {
    /// Returns the annotation of the Lease.
    pub(super) fn text(self, push_note: &PushNote, expired: &Expired) -> String {
        let members: Vec<String> = self.members.iter().map(|member| member.to_string()).collect();
        let mut text = json!({"generation": self.generation, "members": members});
        if !expired.is_empty() {
            let versions = expired.iter().map(|(member, version)| (member.to_string(), json!(version)));
            text["expired"] = Value::Object(versions.collect::<Map<_, _>>());
        }
        if !push_note.reported.is_empty() {
            text["pushes"] = json!({"count": push_note.count, "repositories": push_note.reported});
        }
        text.to_string()
    }

    /// Reads the annotation of a Lease.
    fn parse(text: &str) -> Option<(Self, PushNote)> {
        if text.len() > LONGEST {
            return None;
        }
        let read: Value = serde_json::from_str(text).ok()?;
        let members = read["members"].as_array()?.iter().map(|name| Member::parse(name.as_str()?));
        let view = Self { generation: read["generation"].as_u64()?, members: members.collect::<Option<_>>()? };
        let reported: Vec<(String, String)> =
            serde_json::from_value(read["pushes"]["repositories"].clone()).unwrap_or_default();
        let push_note = PushNote { count: read["pushes"]["count"].as_u64().unwrap_or_default(), reported };
        Some((view, push_note))
    }
}

/// The parts of a Lease of shards that members read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shown {
    /// The spec, which changes with each renewal.
    pub(super) spec: Value,
    /// The annotation; `None` if it is longer than [`LONGEST`].
    pub(super) note: Option<String>,
    /// The resourceVersion. Empty if it is longer than [`LONGEST_VERSION`].
    pub(super) version: String,
    is_leaders: bool,
}

impl Shown {
    /// Reads a Lease. Returns `None` if it is not one of shards.
    pub(super) fn of(lease: &Value) -> Option<Self> {
        let metadata = &lease["metadata"];
        let role = metadata["labels"][SHARD_LEASE].as_str()?;
        let is_leaders = role == SHARD_LEASE_LEADER;
        let note = metadata["annotations"][SHARD_VIEW].as_str().filter(|note| note.len() <= LONGEST).map(str::to_owned);
        let is_known = is_leaders || role == SHARD_LEASE_MEMBER;
        let version = metadata["resourceVersion"].as_str().filter(|version| version.len() <= LONGEST_VERSION);
        let version = version.unwrap_or_default().to_owned();
        is_known.then(|| Self { spec: lease["spec"].clone(), note, version, is_leaders })
    }

    pub(super) fn holder(&self) -> &str {
        self.spec["holderIdentity"].as_str().unwrap_or_default()
    }

    pub(super) fn view(&self) -> Option<(View, PushNote)> {
        View::parse(self.note.as_deref()?)
    }

    /// Returns the Leases that have expired by the clock of the member.
    pub(super) fn expired(&self) -> Expired {
        let read: Option<Value> = self.note.as_deref().and_then(|note| serde_json::from_str(note).ok());
        let listed = read.as_ref().and_then(|read| read["expired"].as_object()).into_iter().flatten();
        let expired = listed.filter_map(|(name, version)| Some((Member::parse(name)?, version.as_str()?)));
        let is_valid = |version: &str| !version.is_empty() && version.len() <= LONGEST_VERSION;
        expired.filter(|(_, version)| is_valid(version)).map(|(member, version)| (member, version.to_owned())).collect()
    }

    /// Whether no agent without shards holds the Lease of the leader. Such an agent removes the label. One of an earlier
    /// version keeps it, but not the identity of the member that led before.
    pub(super) fn is_led_by_member(&self) -> bool {
        self.is_leaders && (self.holder().is_empty() || self.note.as_deref() == Some(self.holder()))
    }
}

/// Returns the member of a Lease with this name.
pub(super) fn member_of(lease: &str) -> Option<Member> {
    Member::parse(lease.strip_prefix(LEASE)?.strip_prefix('-')?)
}

/// Returns the member of a Lease that is held, with the parts of the Lease. `None` for any other Lease. An expired Lease
/// counts as held.
fn held(lease: &Value) -> Option<(Member, Shown)> {
    let member = member_of(lease["metadata"]["name"].as_str()?)?;
    Some((member, Shown::of(lease).filter(|shown| !shown.is_leaders && !shown.holder().is_empty())?))
}

/// Returns the members whose Leases are held, for a client that reads them once. An expired Lease counts as held.
pub fn members_of<'l>(leases: impl IntoIterator<Item = &'l Value>) -> Members {
    leases.into_iter().filter_map(|lease| held(lease).map(|(member, _)| member)).collect()
}

/// Returns the other Leases that have expired by the clock of the member that holds this one. Without a member that holds
/// it, there are none.
pub(super) fn expired_by(lease: &Value) -> Option<Expired> {
    let (member, shown) = held(lease)?;
    let mut expired = shown.expired();
    expired.remove(&member);
    Some(expired)
}

/// Whether the holder of a Lease has published a set of members in which it owns a GitSync without a pin. An expired Lease
/// counts as held.
pub fn claims(lease: &Value, namespace: &str, name: &str) -> bool {
    let Some((member, shown)) = held(lease) else { return false };
    let members = shown.view().map(|(view, _)| view.members);
    members.and_then(|members| members.owner(namespace, name, None)) == Some(member)
}

/// Whether a Lease of the leader was held by a member last.
pub(crate) fn is_of_members(lease: &Value) -> bool {
    Shown::of(lease).is_some_and(|shown| shown.is_leaders)
}

/// Returns the annotation without the Leases that have expired; `None` if it shows none.
pub(super) fn without_expired(note: &str) -> Option<String> {
    let mut read: Value = serde_json::from_str(note).ok()?;
    read.as_object_mut()?.remove("expired")?;
    Some(read.to_string())
}

/// Removes the view from a Lease that is released.
pub(crate) fn released(lease: &mut Value) {
    if let Some(annotations) = lease.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(SHARD_VIEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_read_as_it_was_written() {
        let members: Members = [0, 3, 63].into_iter().filter_map(Member::new).collect();
        let view = View { generation: 7, members };
        let (mut push_note, begun) = (PushNote::default(), PushNote::begin(Timestamp::MAX));
        assert_eq!(View::parse(&view.text(&push_note, &Expired::new())), Some((view, push_note.clone())));
        assert_eq!(View::parse(&view.text(&begun, &Expired::new())), Some((view, PushNote::default())), "no push yet");
        for number in 0..40 {
            push_note.ring("shop", &format!("repository-{}", number % 36));
        }
        assert_eq!((push_note.count, push_note.reported.len(), &*push_note.reported[31].1), (40, 32, "repository-3"));
        assert!(begun.count > push_note.count, "a new leader does not begin with the numbers of another");
        assert_eq!(View::parse(&view.text(&push_note, &Expired::new())), Some((view, push_note)));
    }

    #[test]
    fn a_view_of_another_client_has_no_effect_unless_it_is_valid() {
        let long = format!(r#"{{"generation": 1, "members": [], "x": "{}"}}"#, "é".repeat(LONGEST));
        let wrong =
            ["", "[]", "{}", r#"{"generation": 1, "members": ["shard-64"]}"#, r#"{"generation": -1, "members": []}"#];
        for text in wrong.into_iter().chain([&*long]) {
            assert_eq!(View::parse(text), None, "{text}");
        }
        let note = |length: usize| {
            let metadata = json!({"labels": {SHARD_LEASE: "member"}, "annotations": {SHARD_VIEW: "a".repeat(length)}});
            Shown::of(&json!({"metadata": metadata, "spec": {}})).unwrap().note
        };
        assert!(note(LONGEST).is_some() && note(LONGEST + 1).is_none());
    }

    #[test]
    fn a_lease_shows_which_others_have_expired() {
        let shown = |note: &str| {
            let metadata = json!({"labels": {SHARD_LEASE: "member"}, "annotations": {SHARD_VIEW: note}});
            Shown::of(&json!({"metadata": metadata, "spec": {}})).unwrap()
        };
        let expired = Expired::from([(Member::new(2).unwrap(), "41".to_owned())]);
        let view = View::default();
        let read = shown(&view.text(&PushNote::default(), &expired));
        assert_eq!((read.expired(), read.view()), (expired, Some((view, PushNote::default()))));
        assert!(shown(&view.text(&PushNote::default(), &Expired::new())).expired().is_empty());
        let long = "4".repeat(LONGEST_VERSION + 1);
        for wrong in [
            "[]",
            r#"{"shard-64": "1"}"#,
            r#"{"shard-1": 1}"#,
            r#"{"shard-1": ""}"#,
            &*format!(r#"{{"shard-1": "{long}"}}"#),
        ] {
            assert!(shown(&format!(r#"{{"expired": {wrong}}}"#)).expired().is_empty(), "{wrong}");
        }
        assert!(shown("{").expired().is_empty());
    }

    #[test]
    fn an_annotation_without_expired_leases_keeps_the_rest() {
        let mut push_note = PushNote::begin(Timestamp::UNIX_EPOCH);
        push_note.ring("shop", "web");
        let view = View { generation: 7, members: [0, 1].into_iter().filter_map(Member::new).collect() };
        let expired = Expired::from([(Member::new(2).unwrap(), "41".to_owned())]);
        let rest = without_expired(&view.text(&push_note, &expired));
        assert_eq!(rest, Some(view.text(&push_note, &Expired::new())));
        assert_eq!((without_expired(&rest.unwrap()), without_expired("{"), without_expired("[]")), (None, None, None));
    }

    #[test]
    fn a_lease_that_an_agent_without_shards_took_is_not_led_by_a_member() {
        let lease = |holder: &str, label: &str, note: &str| {
            let metadata = json!({"labels": {SHARD_LEASE: label}, "annotations": {SHARD_VIEW: note}});
            let shown = Shown::of(&json!({"metadata": metadata, "spec": {"holderIdentity": holder}}));
            shown.is_some_and(|shown| shown.is_led_by_member())
        };
        assert!(lease("a", "leader", "a") && lease("", "leader", "a"));
        assert!(!lease("b", "leader", "a") && !lease("a", "member", "a") && !lease("a", "other", "a"));
        assert_eq!(Shown::of(&json!({"metadata": {}, "spec": {}})), None);
    }

    #[test]
    fn a_published_set_shows_who_owns_a_git_sync() {
        let members: Members = [0, 1].into_iter().filter_map(Member::new).collect();
        let text = View { generation: 7, members }.text(&PushNote::default(), &Expired::new());
        let lease = |number: usize, holder: &str, note: Option<&str>| {
            let metadata = json!({
                "name": format!("mainstay-shard-{number}"), "labels": {SHARD_LEASE: "member"}, "annotations": {SHARD_VIEW: note},
            });
            json!({"metadata": metadata, "spec": {"holderIdentity": holder}})
        };
        for name in ["a", "b", "c", "d"] {
            let is_owner = |number: usize| members.owner("shop", name, None) == Member::new(number);
            for number in 0..3 {
                assert_eq!(
                    claims(&lease(number, "one", Some(&text)), "shop", name),
                    is_owner(number),
                    "{number} of {name}"
                );
                assert!(!claims(&lease(number, "", Some(&text)), "shop", name), "released");
                assert!(!claims(&lease(number, "one", None), "shop", name), "no set is published");
            }
        }
    }

    #[test]
    fn a_lease_that_is_held_is_a_member() {
        let lease = |name: &str, holder: &str| {
            let metadata = json!({"name": name, "labels": {SHARD_LEASE: "member"}});
            json!({"metadata": metadata, "spec": {"holderIdentity": holder}})
        };
        let all = [lease("mainstay-shard-1", "a"), lease("mainstay-shard-2", ""), lease("mainstay", "a")];
        assert_eq!(members_of(&all).iter().map(|member| member.to_string()).collect::<Vec<_>>(), ["shard-1"]);
    }
}
