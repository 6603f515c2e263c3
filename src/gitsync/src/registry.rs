//! What all GitSyncs of this agent manage and want, so that two of them never fight over an object, and an object that
//! moves from one to the other is handed over instead of deleted.
//!
//! Invariant: a GitSync reserves the objects that it is about to apply in the same step in which it checks that nobody
//! else has them.
//! Invariant: a GitSync that is confined to a namespace has no claim on anything outside of it, and none against one that is
//! not confined: it neither delays nor outranks that one. What it wants of what that one gives up is handed to it.
//! Invariant: one that acts as a ServiceAccount is as one that is confined to its namespace, but that what it has applied
//! elsewhere, by the label that is on it, is not taken from it by other tenants.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use mainstay_git::RemoteUrl;
use mainstay_object::{Key, Owner};

/// The kinds that repositories are read with.
const READ_WITH: [(&str, &str); 2] = [("serverless.kyma-project.io", "GitRepository"), ("", "Secret")];

/// What one GitSync manages and wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Value of its label.
    pub label: Arc<str>,
    /// What it follows: remote and reference, as one text.
    pub branch: Option<String>,
    /// What its inventory lists; `None` until it was read.
    pub managed: Option<Arc<HashSet<Key>>>,
    /// What of that it has applied, as its inventory says in the cluster.
    pub taken: Option<Arc<HashSet<Key>>>,
    /// What it wants; `None` until a commit could be decoded.
    pub desired: Option<Arc<HashSet<Key>>>,
    /// The commit that `desired` belongs to.
    pub planned: Option<String>,
    /// The only namespace that it may touch, if it is confined to one.
    pub confined_to: Option<Arc<str>>,
    /// It acts as a ServiceAccount, and may touch whatever that one may.
    pub by_account: bool,
    /// Both of its loops are stopped.
    pub suspended: bool,
    /// An attempt was made, whatever became of it: what it wants is known as far as it can be known now.
    pub tried: bool,
    /// It cannot be known now what it wants; `None` once it is.
    pub cannot_read: Option<CannotRead>,
    /// What it manages, is confined, and has lost to one that is not, until that one gives it up.
    pub outranked: HashSet<Key>,
    /// There is something in that which it has not planned for yet.
    pub has_lost: bool,
    /// What it reads its repository with: its GitRepository, and the Secrets that they name.
    pub reads_by: Arc<[Key]>,
    /// Its objects go with it when it is deleted, so it is kept where it only left a repository.
    pub takes_objects: bool,
}

/// Who wants an object besides the GitSync that manages it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// Nobody does.
    Nobody,
    /// Another GitSync does, or may.
    Peer,
    /// A GitSync does that is confined, as the one that manages it is not.
    Tenant,
}

/// A GitSync does not come to plan a commit until somebody has put something right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotRead {
    /// The commit that it cannot read; `None` when it cannot look any commit up.
    pub commit: Option<String>,
    /// Those objects of the commit that could be read.
    pub readable: Arc<HashSet<Key>>,
}

/// A GitSync that has to say what it wants before anything is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its name.
    name: String,
    why: &'static str,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitSync {}, which {}", self.name, self.why)
    }
}

/// Whether another GitSync has a claim on an object. Of several claims the first one counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// This one has it in its inventory and does not give it up.
    Held(String),
    /// This one follows the same branch and has not said yet whether it gives it up.
    Undecided(String),
    /// None has.
    Free,
}

/// What a GitSync follows, as one text: what follows the same is planned together.
pub(super) fn branch(url: &RemoteUrl, reference: &str) -> String {
    format!("{url} {reference}")
}

/// All of them.
#[derive(Debug, Default)]
pub struct Registry {
    rows: Mutex<HashMap<Owner, Row>>,
    changed: watch::Sender<u64>,
    outranked: watch::Sender<u64>,
    complete: watch::Sender<bool>,
}

/// The rows, while nobody else changes them.
pub struct View<'a> {
    rows: &'a mut HashMap<Owner, Row>,
    own: &'a Owner,
}

impl Row {
    /// Whether nobody need wait until it has planned this commit, because it read as much of it as it can until somebody has
    /// put something right.
    fn is_done_reading(&self, commit: &str) -> bool {
        self.cannot_read.as_ref().is_some_and(|one| one.commit.as_deref() == Some(commit))
    }

    /// Whether it may touch an object.
    fn covers(&self, key: &Key) -> bool {
        self.by_account || self.is_at_home(key)
    }

    /// Whether it may touch an object whatever the rights of a ServiceAccount are, or those are of the object's namespace.
    fn is_at_home(&self, key: &Key) -> bool {
        self.confined_to.is_none() || self.confined_to == key.namespace
    }

    /// Whether it has an object that the live label says is its own. What it merely says of objects elsewhere is no claim: only
    /// with rights there could it have put its label on them.
    fn has_labelled(&self, key: &Key, label: Option<&str>) -> bool {
        let manages = self.managed.as_ref().is_some_and(|managed| managed.contains(key));
        let wants = self.desired.as_ref().is_none_or(|desired| desired.contains(key));
        self.by_account && label.is_some_and(|label| *label == *self.label) && manages && wants
    }

    /// Whether it counts for `own`: it waits for that one, and has to be asked for what it has.
    fn is_peer_of(&self, own: Option<&Row>) -> bool {
        let theirs = self.confined_to.as_ref();
        theirs.is_none_or(|theirs| own.and_then(|own| own.confined_to.as_ref()) == Some(theirs))
    }

    /// Whether it takes an object over as soon as that is given up.
    fn takes(&self, key: &Key) -> bool {
        let wants = self.desired.as_ref().is_some_and(|desired| desired.contains(key));
        wants && self.is_at_home(key) && !self.suspended && self.cannot_read.is_none()
    }

    fn can_read_of_its_commit(&self, key: &Key) -> bool {
        self.cannot_read.as_ref().is_some_and(|one| one.readable.contains(key))
    }
}

impl Registry {
    /// Looks at the rows and changes the own one, as one step.
    pub fn with<T>(&self, own: &Owner, look: impl FnOnce(&mut View<'_>) -> T) -> T {
        let mut rows = self.rows.lock();
        look(&mut View { rows: &mut rows, own })
    }

    /// Changes the own row and, if that made a difference, wakes the GitSyncs that wait for others.
    pub fn update(&self, own: &Owner, change: impl FnOnce(&mut Row)) {
        let changed = self.with(own, |view| {
            let row = view.own();
            let before = row.clone();
            change(row);
            *row != before
        });
        if changed {
            self.notify();
        }
    }

    /// A GitSync is there; its objects carry this label, and it may be confined to one namespace.
    pub fn enter(&self, own: &Owner, label: Arc<str>, confined_to: Option<Arc<str>>) {
        self.update(own, |row| {
            row.label = label;
            row.confined_to = confined_to;
        });
    }

    /// Every GitSync of the cluster has a row by now.
    pub fn set_complete(&self) {
        self.complete.send_replace(true);
    }

    /// Waits until every GitSync of the cluster has a row: before that nobody can know what another one wants.
    pub async fn completed(&self) {
        // The sender lives as long as the registry does.
        let _ = self.complete.subscribe().wait_for(|complete| *complete).await;
    }

    /// Wakes the GitSyncs that wait for others: something came that they may have waited for.
    pub fn notify(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Wakes all GitSyncs: something was taken from one that need not wait for anything.
    pub(crate) fn notify_outranked(&self) {
        self.notify();
        self.outranked.send_modify(|count| *count += 1);
    }

    /// Hears of every change. With each commit every GitSync of the repository makes one: whoever waits for none of the others
    /// listens to [`Registry::listen_outranked`] only, or a commit would wake all of them as often as there are GitSyncs.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Hears of what is taken from GitSyncs.
    pub(crate) fn listen_outranked(&self) -> watch::Receiver<u64> {
        self.outranked.subscribe()
    }

    /// The GitSync is gone.
    pub fn remove(&self, own: &Owner) {
        self.rows.lock().remove(own);
        self.notify();
    }
}

impl View<'_> {
    /// The own row.
    pub fn own(&mut self) -> &mut Row {
        self.rows.entry(self.own.clone()).or_default()
    }

    /// The GitSync whose view this is, as an object.
    pub(super) fn key(&self) -> Key {
        self.own.key()
    }

    /// These objects count as ours from now on, also where a GitSync manages them that we outrank. Whether one does.
    pub(super) fn reserve(&mut self, keys: impl Iterator<Item = Key>) -> bool {
        let keys = keys.collect::<Vec<_>>();
        if keys.is_empty() {
            return false;
        }
        let row = self.own();
        let is_confined = row.confined_to.is_some();
        let mut managed: HashSet<_> = row.managed.as_deref().cloned().unwrap_or_default();
        let before = managed.len();
        managed.extend(keys.iter().cloned());
        if managed.len() != before {
            row.managed = Some(Arc::new(managed));
        }
        let mut outranks = false;
        for (_, row) in self.rows.iter_mut().filter(|(owner, row)| *owner != self.own && row.confined_to.is_some()) {
            if is_confined {
                break;
            }
            let manages = |key: &&Key| row.covers(key) && row.managed.as_ref().is_some_and(|keys| keys.contains(*key));
            let lost = keys.iter().filter(manages).cloned().collect::<Vec<_>>();
            row.has_lost |= !lost.is_empty();
            outranks |= !lost.is_empty();
            row.outranked.extend(lost);
        }
        outranks
    }

    /// Whether a GitSync that outranks us took an object that we manage.
    pub(super) fn is_outranked(&self, key: &Key) -> bool {
        self.rows.get(self.own).is_some_and(|row| row.outranked.contains(key))
    }

    /// What outranked us is planned for; this was given up by now.
    pub(super) fn regain(&mut self, keys: &[Key]) {
        let row = self.own();
        row.has_lost = false;
        for key in keys {
            row.outranked.remove(key);
        }
    }

    fn others(&self) -> impl Iterator<Item = (&Owner, &Row)> {
        self.rows.iter().filter(|(owner, _)| *owner != self.own)
    }

    /// The others that count for us.
    fn peers(&self) -> impl Iterator<Item = (&Owner, &Row)> {
        let own = self.rows.get(self.own);
        self.others().filter(move |(_, row)| row.is_peer_of(own))
    }

    /// Whether another GitSync has a claim on an object that carries `label` now and that we want at `commit`.
    pub fn claim(&self, key: &Key, label: Option<&str>, branch: &str, commit: &str) -> Claim {
        let claim = |owner: &Owner, row: &Row| {
            let Some(managed) = &row.managed else {
                return match label {
                    Some(label) if *label == *row.label => Claim::Undecided(owner.to_string()),
                    _ => Claim::Free,
                };
            };
            if !managed.contains(key) {
                return Claim::Free;
            }
            if row.branch.as_deref() == Some(branch) && row.planned.as_deref() != Some(commit) && !row.suspended {
                return Claim::Undecided(owner.to_string());
            }
            match &row.desired {
                // It gives it up, and keeps it in its inventory until we have taken it.
                Some(desired) if !desired.contains(key) => Claim::Free,
                _ => Claim::Held(owner.to_string()),
            }
        };
        // The first by name, so that equal rows give equal claims.
        let rows = self.peers().filter(|(_, row)| row.covers(key));
        let of_peers = rows.map(|(owner, row)| claim(owner, row)).min().unwrap_or(Claim::Free);
        let own = self.rows.get(self.own);
        if of_peers != Claim::Free || own.is_none_or(|own| own.confined_to.is_none()) {
            return of_peers;
        }
        let tenants = self.others().filter(|(_, row)| !row.is_peer_of(own) && row.has_labelled(key, label));
        tenants.map(|(owner, _)| Claim::Held(owner.to_string())).min().unwrap_or(Claim::Free)
    }

    /// Whether another GitSync wants an object, or may want it.
    pub(crate) fn desired_elsewhere(&self, key: &Key) -> Elsewhere {
        let may_want = |row: &Row| match &row.desired {
            Some(desired) => desired.contains(key),
            None => row.managed.as_ref().is_some_and(|managed| managed.contains(key)),
        };
        let mut peers = self.peers().filter(|(_, row)| row.covers(key));
        if peers.any(|(_, row)| may_want(row) || row.can_read_of_its_commit(key)) {
            Elsewhere::Peer
        } else if self.others().any(|(_, row)| row.takes(key)) {
            Elsewhere::Tenant
        } else {
            Elsewhere::Nobody
        }
    }

    /// The GitSync that is to take an object over and cannot read the commit with it.
    pub(super) fn taker_that_cannot_read(&self, key: &Key) -> Option<String> {
        let mut takers = self.peers().filter(|(_, row)| row.covers(key) && row.can_read_of_its_commit(key));
        takers.next().map(|(owner, _)| owner.to_string())
    }

    /// Whether another GitSync that counts for us has not said at all yet what it wants.
    pub(crate) fn others_untried(&self) -> bool {
        self.peers().any(|(_, row)| !row.tried)
    }

    /// The GitSync, ours or one that counts for us, that reads its repository with an object. Those that are `going` do so no
    /// longer, unless they are kept because their objects would go with them.
    pub(crate) fn reader_of(&self, key: &Key, going: &HashSet<Key>) -> Option<String> {
        if !READ_WITH.iter().any(|(group, kind)| key.is(group, kind)) {
            return None;
        }
        let own = self.rows.get(self.own);
        let counts = |owner: &Owner, row: &Row| *owner == *self.own || row.is_peer_of(own);
        let stays =
            |owner: &Owner, row: &Row| !going.contains(&owner.key()) || (row.takes_objects && *owner != *self.own);
        let readers = self.rows.iter().filter(|(_, row)| row.reads_by.contains(key));
        let readers = readers.filter(|(owner, row)| counts(owner, row) && stays(owner, row));
        // The first by name, so that equal rows give equal messages.
        readers.map(|(owner, _)| owner.to_string()).min()
    }

    /// Whether another GitSync has applied an object and says so in its inventory.
    pub(crate) fn taken_elsewhere(&self, key: &Key) -> bool {
        self.others().any(|(_, row)| row.taken.as_ref().is_some_and(|taken| taken.contains(key)))
    }

    /// The GitSync of the same branch that has yet to plan this commit, or any other one that has not said at all yet what
    /// it wants. One that cannot read the commit is not waited for: what it has, and what could be read of the commit,
    /// stays its own. Nor is one that is confined, unless we are, to the same namespace: whoever may create it could
    /// otherwise hold everyone's pruning.
    pub(crate) fn sibling_pending(&self, branch: &str, commit: &str) -> Option<Pending> {
        let why = |row: &Row| {
            let is_behind = row.branch.as_deref() == Some(branch) && row.planned.as_deref() != Some(commit);
            if !row.tried {
                Some("has not been read yet")
            } else if !is_behind {
                None
            } else if !row.is_done_reading(commit) {
                let is_away = row.cannot_read.as_ref().is_some_and(|one| one.commit.is_none());
                Some(if is_away {
                    "follows the same branch and cannot read the repository (suspend it if that may stay so)"
                } else {
                    "follows the same branch and has not planned this commit yet"
                })
            } else if row.managed.is_none() {
                Some("follows the same branch and cannot read it, nor its own inventory")
            } else {
                None
            }
        };
        let mut pending = self.peers().filter(|(_, row)| !row.suspended);
        // The first by name, so that equal rows give equal messages.
        let mut first: Option<Pending> = None;
        for (owner, why) in pending.by_ref().filter_map(|(owner, row)| Some((owner, why(row)?))) {
            let name = owner.to_string();
            if first.as_ref().is_none_or(|first| name < first.name) {
                first = Some(Pending { name, why });
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("", "ConfigMap", Some("a"), name)
    }

    fn set(names: &[&str]) -> Arc<HashSet<Key>> {
        Arc::new(names.iter().map(|n| key(n)).collect())
    }

    fn row(managed: &[&str], desired: &[&str], planned: &str) -> Row {
        Row {
            label: "x.other".into(),
            branch: Some("main".into()),
            managed: Some(set(managed)),
            desired: Some(set(desired)),
            planned: Some(planned.into()),
            tried: true,
            ..Row::default()
        }
    }

    fn claim(other: Row, branch: &str) -> Claim {
        let registry = Registry::default();
        registry.update(&Owner::git_sync("x", "other"), |r| *r = other);
        registry.with(&Owner::git_sync("x", "own"), |view| view.claim(&key("a"), None, branch, "c2"))
    }

    #[test]
    fn an_object_of_another_git_sync_is_held_until_that_one_gives_it_up() {
        assert_eq!(claim(row(&["a"], &["a"], "c2"), "main"), Claim::Held("x/other".into()));
        assert_eq!(claim(row(&["a"], &["a"], "c1"), "main"), Claim::Undecided("x/other".into()));
        assert_eq!(claim(row(&["a"], &["a"], "c1"), "release"), Claim::Held("x/other".into()));
        assert_eq!(claim(row(&["a"], &[], "c2"), "main"), Claim::Free);
        assert_eq!(claim(row(&[], &["a"], "c2"), "main"), Claim::Free);
    }

    #[test]
    fn a_git_sync_that_reads_with_an_object_holds_it_unless_it_is_deleted_too_or_a_tenant() {
        let secret = Key::new("", "Secret", Some("a"), "login");
        let own = Owner::git_sync("x", "own");
        let reader = |confined_to: Option<&str>, takes_objects| {
            let registry = Registry::default();
            let reads_by = [secret.clone()].into();
            let confined_to = confined_to.map(Into::into);
            registry.update(&Owner::git_sync("a", "other"), |r| {
                *r = Row { confined_to, reads_by, takes_objects, ..Row::default() }
            });
            registry
        };
        let check = |registry: &Registry, going: &[Key]| {
            registry.with(&own, |view| view.reader_of(&secret, &going.iter().cloned().collect()))
        };
        let other = [Owner::git_sync("a", "other").key()];
        assert_eq!(check(&reader(None, false), &[]), Some("a/other".to_owned()));
        assert_eq!(check(&reader(None, false), &other), None, "it goes, too");
        assert_eq!(
            check(&reader(None, true), &other),
            Some("a/other".to_owned()),
            "it is kept, for its objects would go with it"
        );
        assert_eq!(check(&reader(Some("a"), false), &[]), None, "whoever may create a GitSync could hold everything");
        let registry = reader(None, false);
        let another = registry.with(&own, |view| view.reader_of(&key("login"), &HashSet::new()));
        assert_eq!(another, None, "a ConfigMap of that name");
    }

    #[test]
    fn an_object_taken_from_a_tenant_stays_known_to_it_until_it_is_given_up() {
        let registry = Registry::default();
        let (platform, tenant) = (Owner::git_sync("x", "platform"), Owner::git_sync("a", "tenant"));
        registry.update(&tenant, |r| *r = Row { confined_to: Some("a".into()), ..row(&["a", "b"], &["a", "b"], "c2") });
        registry.update(&platform, |r| *r = row(&[], &["a"], "c2"));
        registry.with(&platform, |view| {
            assert_eq!(view.claim(&key("a"), Some("x.other"), "main", "c2"), Claim::Free);
            assert!(view.reserve([key("a"), key("c")].into_iter()));
            assert!(!view.reserve([key("c")].into_iter()));
        });
        registry.with(&tenant, |view| {
            assert!(view.own().has_lost && view.is_outranked(&key("a")) && !view.is_outranked(&key("b")));
            assert_eq!(view.claim(&key("a"), None, "main", "c2"), Claim::Held("x/platform".into()));
            view.regain(&[]);
            assert!(!view.own().has_lost && view.is_outranked(&key("a")));
            view.regain(&[key("a")]);
            assert!(!view.is_outranked(&key("a")));
        });
    }

    #[test]
    fn waits_with_pruning_for_the_siblings_of_its_branch_only() {
        let registry = Registry::default();
        registry.update(&Owner::git_sync("x", "other"), |r| *r = row(&[], &["a"], "c1"));
        registry.with(&Owner::git_sync("x", "own"), |view| {
            assert!(view.sibling_pending("main", "c2").is_some());
            assert!(view.sibling_pending("main", "c1").is_none());
            assert!(view.sibling_pending("release", "c2").is_none());
        });
        registry.update(&Owner::git_sync("x", "other"), |row| row.confined_to = Some("a".into()));
        for (confined_to, waits) in [(None, false), (Some("b".into()), false), (Some("a".into()), true)] {
            registry.with(&Owner::git_sync("x", "own"), |view| {
                view.own().confined_to = confined_to;
                assert_eq!(view.sibling_pending("main", "c2").is_some(), waits);
                let elsewhere = if waits { Elsewhere::Peer } else { Elsewhere::Tenant };
                assert_eq!(view.desired_elsewhere(&key("a")), elsewhere);
                assert_eq!(view.desired_elsewhere(&key("b")), Elsewhere::Nobody);
            });
        }
        registry.update(&Owner::git_sync("x", "other"), |r| r.tried = false);
        registry.with(&Owner::git_sync("x", "own"), |view| assert!(view.sibling_pending("release", "c2").is_some()));
    }

    #[test]
    fn a_sibling_that_cannot_read_a_commit_is_waited_for_by_name_as_long_as_its_inventory_is_unknown() {
        let registry = Registry::default();
        let other = Owner::git_sync("x", "other");
        registry.update(&other, |r| *r = row(&["b"], &["b"], "c1"));
        let pending =
            |commit: &str| registry.with(&Owner::git_sync("x", "own"), |view| view.sibling_pending("main", commit));
        let text = pending("c2").unwrap().to_string();
        assert_eq!(text, "GitSync x/other, which follows the same branch and has not planned this commit yet");
        let cannot_read =
            |commit: Option<&str>| Some(CannotRead { commit: commit.map(Into::into), readable: set(&["a"]) });
        registry.update(&other, |row| row.cannot_read = cannot_read(Some("c2")));
        assert_eq!(pending("c2"), None);
        assert!(pending("c3").is_some(), "it may be able to read the next one");
        registry.with(&Owner::git_sync("x", "own"), |view| {
            let elsewhere = ["a", "b", "c"].map(|name| view.desired_elsewhere(&key(name)));
            assert_eq!(elsewhere, [Elsewhere::Peer, Elsewhere::Peer, Elsewhere::Nobody]);
        });
        registry.update(&other, |row| row.cannot_read = cannot_read(None));
        assert!(
            pending("c3").unwrap().to_string().contains("cannot read the repository"),
            "what it wants is not known"
        );
        registry.update(&other, |row| row.confined_to = Some("a".into()));
        assert_eq!(pending("c3").map(|one| one.to_string()), None, "a tenant keeps nobody waiting who is none");
        registry.update(&Owner::git_sync("x", "own"), |row| row.confined_to = Some("a".into()));
        registry.update(&other, |row| row.confined_to = Some("a".into()));
        assert!(pending("c3").is_some());
        registry.update(&other, |row| {
            row.cannot_read = cannot_read(Some("c3"));
            row.managed = None;
        });
        assert!(pending("c3").unwrap().to_string().ends_with("cannot read it, nor its own inventory"));
    }
}
