//! Decides which objects may be deleted for a commit. Each object is checked again right before its deletion
//! ([`may_delete`]).
//!
//! Invariant: an object is deleted only if the inventory lists it, no other GitSync wants it, and no guard holds it.
//! Invariant: only `mainstay.dev/allow-prune` with the full commit id lifts a guard.
//!
//! Not here: the deletions.

use std::collections::HashSet;

pub use super::registry::{Elsewhere, Pending};
use mainstay_api::names::{ALLOW_PRUNE, GIT_SYNC_DEFINITION, RECONCILE};
pub use mainstay_engine::managed::deletion::{Deletion, Kept, Permission, deletes_objects, may_delete, takes_much};
use mainstay_engine::managed::inventory::Inventory;
use mainstay_git::Commit;
use mainstay_object::{Key, Owner, prune_order};

/// A commit may delete 1/`SHARE` of the inventory without permission. The guard starts at [`MANY`] deletions.
const SHARE: usize = 2;
const MANY: usize = 10;
/// Maximum number of objects in the message about a guard.
const NAMED: usize = 5;
/// The text between an object and the GitSync to which it is handed over, in `status.held`.
pub(super) const HANDOVER: &str = ": handover to GitSync ";
/// Maximum number of shown characters of an annotation.
const SHOWN: usize = 80;

/// The deletions that are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prune {
    /// None: `prune: false`.
    Off,
    /// None yet: another GitSync has not planned the commit.
    Deferred(Pending),
    /// The removed objects that no guard holds.
    Guarded,
    /// All removed objects: `mainstay.dev/allow-prune` names the commit.
    Allowed,
}

/// The removed objects of a commit.
#[derive(Clone, Debug, Default)]
pub struct Leaving {
    /// Objects to delete, in order.
    pub prune: Vec<Key>,
    /// Objects that another GitSync wants. They are removed from the inventory only.
    pub handed_over: Vec<Key>,
    /// Objects that are kept, with the reason.
    pub held: Vec<(Key, Held)>,
    /// The guard that holds all removed objects.
    pub guard: Option<Guard>,
}

/// The reason why a removed object is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// The GitSync does not prune.
    Off,
    /// Another GitSync may want the object.
    Awaits(Pending),
    /// A guard holds all objects.
    Guard,
    /// The deletion would delete other objects, too.
    Much(&'static str),
    /// This GitSync needs the object to read its repository.
    Read(String),
}

impl Held {
    /// Whether a user must release the object, although its GitSync prunes.
    pub(super) fn needs_release(&self) -> bool {
        matches!(self, Self::Much(_) | Self::Read(_))
    }

    /// Returns the text for the status, with the command to release the object.
    pub fn text(&self, sync: &Owner, commit: &str) -> String {
        let to_delete = || format!("to delete it: {}", allow_prune(sync, commit));
        match self {
            Self::Off => "spec.prune is false; to delete the object, set spec.prune to true".to_owned(),
            Self::Awaits(pending) => format!("waits for {pending}"),
            Self::Guard => format!("held by a guard; {}", to_delete()),
            Self::Much(why) => format!("{why}; {}", to_delete()),
            Self::Read(reader) => format!("GitSync {reader} uses it to read its repository; {}", to_delete()),
        }
    }
}

/// Returns the text for the status of an object that is kept because of its live state, with the command to release it.
pub(super) fn kept(why: Kept, key: &Key, sync: &Owner, commit: &str) -> String {
    let namespace = key.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    let kind = if key.group.is_empty() { key.kind.to_string() } else { format!("{}.{}", key.kind, key.group) };
    let name = &key.name;
    let release = match why {
        Kept::Annotation(annotation) => {
            let annotation = annotation.split(": ").next().unwrap_or_default();
            format!("kubectl annotate {kind} {name}{namespace} {annotation}-")
        }
        Kept::Paused => format!("kubectl annotate {kind} {name}{namespace} {RECONCILE}-"),
        Kept::Unproven => format!("kubectl delete {kind} {name}{namespace}"),
        Kept::Suspended => {
            let (namespace, name) = (sync.resource().namespace(), sync.resource().name());
            format!("mainstay resume {name} -n {namespace}")
        }
        Kept::TakesObjects | Kept::Installed => allow_prune(sync, commit),
    };
    format!("{why}; to delete it: {release}")
}

/// Removed objects that are kept.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    /// Objects with the reason.
    pub(super) all: Vec<String>,
    /// Objects that a user must release, with the reason.
    pub(super) safeguarded: Vec<(String, String)>,
}

impl HeldBack {
    pub(super) fn add(&mut self, key: &Key, why: String, needs_release: bool) {
        self.all.push(format!("{key}: {why}"));
        if needs_release {
            self.safeguarded.push((key.to_string(), why));
        }
    }
}

/// Returns the command that allows all deletions of a commit.
pub(super) fn allow_prune(sync: &Owner, commit: &str) -> String {
    let (namespace, name) = (sync.resource().namespace(), sync.resource().name());
    format!("kubectl annotate --overwrite gitsync {name} -n {namespace} {ALLOW_PRUNE}={commit}")
}

/// Returns the error in the value of [`ALLOW_PRUNE`], if it is not a full commit id.
pub(super) fn refused_permission(value: &str, sync: &Owner, commit: &str) -> Option<String> {
    let shown = value.chars().take(SHOWN).collect::<String>();
    let command = allow_prune(sync, commit);
    value.parse::<Commit>().is_err().then(|| {
        format!(
            "{ALLOW_PRUNE}: {shown:?} is not a full commit id, so it allows nothing; to allow these deletions: \
                 {command}"
        )
    })
}

/// A reason to hold all deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No object would remain.
    Everything,
    /// At least `MANY` objects, and more than half of the inventory, would be deleted.
    TooMany,
}

impl Leaving {
    /// Returns all removed objects.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.prune.iter().chain(self.held.iter().map(|(key, _)| key)).chain(&self.handed_over)
    }

    /// Returns the status message about the guard.
    pub fn guard_text(&self, sync: &Owner, commit: &str) -> Option<String> {
        let names = self.held.iter().take(NAMED).map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(", ");
        let count = self.held.len();
        let what = match self.guard? {
            Guard::Everything => "the commit holds no objects; nothing is deleted".to_owned(),
            Guard::TooMany if count == 1 => "1 object would be deleted, more than half of all; it is kept".to_owned(),
            Guard::TooMany => format!("{count} objects would be deleted, more than half of all; they are kept"),
        };
        let more = if count > NAMED { ", …" } else { "" };
        Some(format!("{what} ({names}{more}). To delete them: {}", allow_prune(sync, commit)))
    }
}

/// Decides for each object in the inventory of the GitSync `own` that is not in `desired`: it is deleted, handed over
/// or held. An object that is already being deleted is only watched, and does not count for guards. `read_by` returns a
/// GitSync outside of the given set that needs an object to read its repository.
pub(super) fn decide(
    own: &Key,
    desired: &HashSet<&Key>,
    inventory: &Inventory,
    terminating: &HashSet<Key>,
    desired_elsewhere: &dyn Fn(&Key) -> Elsewhere,
    read_by: &dyn Fn(&Key, &HashSet<Key>) -> Option<String>,
    prune: Prune,
) -> Leaving {
    let mut leaving = inventory.0.keys().filter(|key| !desired.contains(key)).cloned().collect::<Vec<_>>();
    leaving.sort_by(|a, b| prune_order(a).cmp(&prune_order(b)).then_with(|| b.cmp(a)));
    let is_terminating = |key: &Key| prune != Prune::Off && terminating.contains(key);
    let mut to_tenants = 0;
    let (handed_over, leaving): (Vec<_>, Vec<_>) = leaving.into_iter().partition(|key| {
        let elsewhere = desired_elsewhere(key);
        to_tenants += usize::from(elsewhere == Elsewhere::Tenant && !is_terminating(key));
        elsewhere != Elsewhere::Nobody
    });
    let (terminating, leaving): (Vec<_>, Vec<_>) = leaving.into_iter().partition(is_terminating);
    let mut plan = Leaving { handed_over, prune: terminating, ..Leaving::default() };
    if leaving.is_empty() {
        return plan;
    }
    // Objects that tenants take over count as well, so that a tenant's claim cannot lift a guard.
    let left = leaving.len() + to_tenants;
    let guard = if desired.is_empty() {
        Some(Guard::Everything)
    } else if left >= MANY && left * SHARE > inventory.0.len() {
        Some(Guard::TooMany)
    } else {
        None
    };
    match (prune, guard) {
        (Prune::Off, _) => plan.held = leaving.into_iter().map(|key| (key, Held::Off)).collect(),
        (Prune::Deferred(pending), _) => {
            plan.held = leaving.into_iter().map(|key| (key, Held::Awaits(pending.clone()))).collect();
        }
        (Prune::Allowed, _) => plan.prune.extend(leaving),
        (Prune::Guarded, Some(guard)) => {
            plan.guard = Some(guard);
            plan.held = leaving.into_iter().map(|key| (key, Held::Guard)).collect();
        }
        (Prune::Guarded, None) => {
            let going = leaving.iter().filter(|key| key.is(&own.group, &own.kind) && *key != own).cloned().collect();
            for key in leaving {
                let much = holds_much(own, &key).map(Held::Much);
                match much.or_else(|| read_by(&key, &going).map(Held::Read)) {
                    Some(why) => plan.held.push((key, why)),
                    None => plan.prune.push(key),
                }
            }
        }
    }
    plan
}

/// Returns why the deletion of an object, for the GitSync `own`, would delete data that no repository can restore. The
/// effect of deleting a different GitSync depends on its live state ([`may_delete`]).
pub(crate) fn holds_much(own: &Key, key: &Key) -> Option<&'static str> {
    if key == own { Some("deleting the GitSync itself ends its work") } else { takes_much(key) }
}

/// Whether the deleted GitSync `own` waits for the deletion of one of its objects. It does not wait for its own
/// Namespace and CRD, which are deleted after it, or for other GitSyncs, which may wait for `own` in turn.
pub fn awaits(own: &Key, key: &Key) -> bool {
    let holds_own = key.is("", "Namespace") && own.namespace.as_deref() == Some(&*key.name);
    let defines_own = key.is("apiextensions.k8s.io", "CustomResourceDefinition") && &*key.name == GIT_SYNC_DEFINITION;
    !(holds_own || defines_own || key.is(&own.group, &own.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_sync_waits_for_nothing_that_waits_for_it() {
        let own = Owner::git_sync("shop", "demo").key();
        let awaits = |group, kind, namespace, name| awaits(&own, &Key::new(group, kind, namespace, name));
        assert!(!awaits("mainstay.dev", "GitSync", Some("shop"), "demo"));
        assert!(!awaits("mainstay.dev", "GitSync", Some("elsewhere"), "other"));
        assert!(!awaits("", "Namespace", None, "shop"));
        assert!(!awaits("apiextensions.k8s.io", "CustomResourceDefinition", None, "gitsyncs.mainstay.dev"));
        assert!(awaits("", "Namespace", None, "elsewhere"));
        assert!(awaits("", "ConfigMap", Some("shop"), "shop"));
        assert!(awaits("apiextensions.k8s.io", "CustomResourceDefinition", None, "receivers.mainstay.dev"));
    }

    #[test]
    fn only_a_full_commit_id_is_a_permission() {
        let own = Owner::git_sync("shop", "demo");
        let refused = |value: &str| refused_permission(value, &own, "c2");
        assert_eq!(refused(&"a".repeat(40)), None);
        let text = refused("0123abcd").unwrap();
        assert!(text.contains(r#""0123abcd" is not a full commit id"#), "{text}");
        assert!(
            text.ends_with("kubectl annotate --overwrite gitsync demo -n shop mainstay.dev/allow-prune=c2"),
            "{text}"
        );
        assert!(refused("a\u{202e}b\nc").unwrap().contains(r#""a\u{202e}b\nc""#), "nothing forges a line");
    }
}
