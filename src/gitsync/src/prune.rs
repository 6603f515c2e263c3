//! What may be deleted for a commit as a whole. Each object is judged again as it is found right before its deletion
//! ([`may_delete`]).
//!
//! Invariant: nothing is deleted that the inventory does not list, that another GitSync desires, or that a guard holds.
//! Invariant: a guard is lifted by `mainstay.dev/allow-prune` with the full id of the commit, and by nothing else.
//!
//! Deliberately absent: the deletions.

use std::collections::HashSet;

pub use super::registry::{Elsewhere, Pending};
use mainstay_api::names::{ALLOW_PRUNE, GIT_SYNC_DEFINITION, RECONCILE};
pub use mainstay_engine::managed::deletion::{Deletion, Kept, Permission, deletes_objects, may_delete, takes_much};
use mainstay_engine::managed::inventory::Inventory;
use mainstay_git::Commit;
use mainstay_object::{Key, Owner, prune_order};

/// Share of the inventory that one commit may delete unasked, from [`MANY`] objects on.
const SHARE: usize = 2;
const MANY: usize = 10;
/// How many objects the message about a guard names.
const NAMED: usize = 5;
/// Characters of an annotation that are shown.
const SHOWN: usize = 80;

/// What may be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Nothing: `prune: false`.
    Off,
    /// Nothing yet: another GitSync has not said what it wants.
    Deferred(Pending),
    /// What the guards allow.
    Guarded,
    /// Everything that left: the commit was named in `mainstay.dev/allow-prune`.
    Allowed,
}

impl Prune {
    /// What a GitSync may delete: as its spec says (`is_on`), while another one may still take something over (`pending`),
    /// and with the annotation for this commit (`is_allowed`).
    pub fn of(is_on: bool, pending: Option<Pending>, is_allowed: bool) -> Self {
        if !is_on {
            Self::Off
        } else if let Some(pending) = pending {
            Self::Deferred(pending)
        } else if is_allowed {
            Self::Allowed
        } else {
            Self::Guarded
        }
    }
}

/// What becomes of the objects that left.
#[derive(Clone, Debug, Default)]
pub struct Leaving {
    /// Objects to delete, in order.
    pub prune: Vec<Key>,
    /// Objects that another GitSync desires: they only leave the inventory.
    pub handed_over: Vec<Key>,
    /// Objects that are kept, with the reason.
    pub held: Vec<(Key, Held)>,
    /// The guard that holds all of them.
    pub guard: Option<Guard>,
}

/// Why an object that left is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// The GitSync deletes nothing.
    Off,
    /// Another GitSync may want it.
    Awaits(Pending),
    /// A guard holds everything.
    Guard,
    /// It takes other things with it.
    Much(&'static str),
    /// This GitSync reads its repository with it.
    Read(String),
}

impl Held {
    /// Whether it is kept until somebody releases it, although its GitSync deletes what leaves.
    pub(super) fn needs_release(&self) -> bool {
        matches!(self, Self::Much(_) | Self::Read(_))
    }

    /// What the status says of it, with how to release it.
    pub fn text(&self, sync: &Owner, commit: &str) -> String {
        let to_delete = || format!("to delete it: {}", allow_prune(sync, commit));
        match self {
            Self::Off => "spec.prune is false; set it to true to have it deleted".to_owned(),
            Self::Awaits(pending) => format!("waits for {pending}"),
            Self::Guard => format!("held by a guard; {}", to_delete()),
            Self::Much(why) => format!("{why}; {}", to_delete()),
            Self::Read(reader) => format!("GitSync {reader} reads its repository with it; {}", to_delete()),
        }
    }
}

/// What the status says of an object that is kept as it was found, with how to release it.
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
        Kept::TakesObjects | Kept::Installed => allow_prune(sync, commit),
    };
    format!("{why}; to delete it: {release}")
}

/// The objects that left and are kept.
#[derive(Debug, Default)]
pub(super) struct HeldBack {
    /// Each, with the reason.
    pub(super) all: Vec<String>,
    /// Those that somebody has to release, each with the reason.
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

/// The command that allows whatever a commit deletes.
pub(super) fn allow_prune(sync: &Owner, commit: &str) -> String {
    let (namespace, name) = (sync.resource().namespace(), sync.resource().name());
    format!("kubectl annotate --overwrite gitsync {name} -n {namespace} {ALLOW_PRUNE}={commit}")
}

/// What is wrong with the value of [`ALLOW_PRUNE`], if it is no full commit id.
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

/// Why objects that left are not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing would be left.
    Everything,
    /// More than half would go.
    TooMany,
}

impl Leaving {
    /// All objects that left.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.prune.iter().chain(self.held.iter().map(|(key, _)| key)).chain(&self.handed_over)
    }

    /// What the status says of the guard.
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

/// Decides for every object of the inventory of the GitSync `own` that is not `desired` any more whether it is deleted,
/// handed over or held. What is being deleted already is only looked at, and counts for no guard. `read_by` names a GitSync
/// that reads its repository with an object, and does not go with these.
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
    // What goes to tenants leaves as well: by wanting it nobody makes less of what is deleted.
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

/// What takes other things with it when it is deleted for the GitSync `own`, which no repository can bring back. Another
/// GitSync may do so too: only what is found in the cluster tells ([`may_delete`]).
pub(crate) fn holds_much(own: &Key, key: &Key) -> Option<&'static str> {
    if key == own { Some("deleting the GitSync itself ends its work") } else { takes_much(key) }
}

/// Whether the GitSync `own`, which is being deleted itself, waits until an object of its is gone. What goes only after
/// `own` is not waited for: the Namespace that holds it and the definition of its kind. Nor is any GitSync, for it may
/// wait for `own` in turn.
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
