//! Compares a branch with the choices of ImagePolicies, and pushes a commit with the missing ones.
//!
//! Invariant: a commit that the verification of the GitRepository would refuse is not pushed.
//! Invariant: without a change of a file, there is no commit. Invariant: nothing is forced. A reference gets the commit
//! only if its own commit is an ancestor. Invariant: the same update is pushed for a review once.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::change_id::with_change_id;
use super::message::{data, listed};
use super::update::{Chosen, Task, Turn};
use super::update_files::{Edited, edited};
use super::update_refspec::{BRANCHES, Destination, is_for_review};
use mainstay_git::{
    Ancestry, Commit, Fault, NewCommit, PushTarget, Pushed, Reference, ResolvedRef, Snapshot, TreeId, Upload,
};
use mainstay_object::failure::chain;

/// Maximum age of the first lookup of a turn, which other objects may have caused.
const FRESH: Duration = Duration::from_secs(5);
/// Number of attempts while others push to the branch.
const ATTEMPTS: usize = 3;

/// The branch of an update.
struct Branch {
    /// The commit upon which the new one is made.
    found: ResolvedRef,
    /// Full name of the branch that has the commits.
    name: String,
    /// The commit of this branch; `None` if it does not exist.
    old: Option<Commit>,
}

impl Branch {
    fn short(&self) -> &str {
        short(&self.name)
    }

    /// Returns the revision of the status with this commit.
    fn revision(&self, commit: Commit) -> String {
        format!("{}@sha1:{commit}", self.short())
    }
}

/// The changed files of a commit.
struct Difference {
    edited: Edited,
    snapshot: Snapshot,
    tree: Option<TreeId>,
}

impl Task {
    /// Pushes a commit if files differ from the choices. Returns the branch.
    pub(super) async fn advance(&mut self, turn: &Turn<'_>) -> Result<String, String> {
        for attempt in 0..ATTEMPTS {
            let max_age = if attempt == 0 { FRESH } else { Duration::ZERO };
            let branch = self.branch(turn, max_age).await?;
            let difference =
                if self.is_in_review(turn, &branch) { None } else { self.differing(turn, &branch).await? };
            let Some(difference) = difference else {
                self.record(turn, branch.revision(branch.found.commit));
                return Ok(branch.short().to_owned());
            };
            let tree = difference.tree;
            let targets = self.targets(turn, &branch, &difference.snapshot).await?;
            let names: Vec<&str> = targets.iter().map(|target| short(&target.reference)).collect();
            let names = names.join(" and ");
            let upload = self.upload(turn, difference).await?;
            let pushed = self.source.push(&turn.remotes.write, &targets, &turn.update.options, &upload).await;
            match pushed.map_err(|fault| format!("push to {names}: {}", chain(&fault)))? {
                Pushed::Done => {
                    self.pushed(turn, &branch, tree, upload.commit);
                    return Ok(branch.short().to_owned());
                }
                Pushed::Moved => self.takes_reviews(turn).await?,
                // Another commit would be refused, too. The next turn tries again.
                Pushed::Refused(why) => return Err(format!("push to {names}: the server refused it: {why}")),
            }
        }
        Err("the push: others push to the branch at the same time".to_owned())
    }

    /// Records that the branch was compared with the choices, or has them.
    fn record(&mut self, turn: &Turn<'_>, revision: String) {
        self.new.observed_source_revision = Some(revision);
        self.new.observed_policies = self.used.clone();
        // An older CRD has neither reviews nor this field, and the server refuses a status with an unknown field.
        if let Destination::Review(_) = turn.update.destination {
            self.new.compared_generation = self.generation;
        }
    }

    /// Records a push.
    fn pushed(&mut self, turn: &Turn<'_>, branch: &Branch, tree: Option<TreeId>, commit: Commit) {
        self.new.last_push_commit = Some(commit.to_string());
        self.new.last_push_time = Some(Time(Timestamp::now()));
        if let Destination::Review(_) = turn.update.destination {
            self.done = Some((branch.found.commit, tree, self.used.clone()));
            self.record(turn, branch.revision(branch.found.commit));
        } else {
            self.wake(&turn.remotes.read);
            self.done = Some((commit, None, self.used.clone()));
            self.record(turn, branch.revision(commit));
        }
    }

    /// Whether the status says that an earlier process pushed the same update for a review, or that there is none. A
    /// later failure changes nothing about that.
    fn is_in_review(&self, turn: &Turn<'_>, branch: &Branch) -> bool {
        matches!(turn.update.destination, Destination::Review(_))
            && self.compared_generation() == turn.generation
            && self.written.observed_source_revision == Some(branch.revision(branch.found.commit))
            && self.written.observed_policies == self.used
    }

    /// Returns the generation of the last comparison. An earlier version of the agent shows it only while the object is
    /// ready.
    fn compared_generation(&self) -> Option<i64> {
        let ready = self.written.conditions.iter().find(|condition| condition.type_ == "Ready");
        let while_ready = || ready.filter(|ready| ready.status == "True")?.observed_generation;
        self.written.compared_generation.or_else(while_ready)
    }

    /// Makes the commit.
    async fn upload(&self, turn: &Turn<'_>, difference: Difference) -> Result<Upload, String> {
        let (Difference { edited, snapshot, .. }, update) = (difference, turn.update);
        let automation = format!("{}/{}", self.begun.name.0, self.begun.name.1);
        let message = match &update.message {
            Some(template) => template
                .render(&data(&automation, turn.values, &edited.changes))
                .map_err(|why| format!("spec.git.commit.messageTemplate: {why}"))?,
            None => listed(&edited.changes),
        };
        let message = match update.destination.review() {
            Some(_) => with_change_id(&message, &automation, &edited.changes),
            None => message,
        };
        let ((name, email), seconds) = (update.author.clone(), Timestamp::now().as_second());
        let new = NewCommit { name, email, message, seconds };
        let (signer, keys) = (turn.signer.clone(), turn.remotes.read.verification.clone());
        let make = move |snapshot: &Snapshot| -> Result<(Upload, Option<Fault>), mainstay_git::Error> {
            let upload = snapshot.with_files(&edited.files, &new, signer.as_deref())?;
            let refused = keys.and_then(|keys| upload.verify(&keys, Timestamp::now()).err());
            Ok((upload, refused))
        };
        let made = snapshot.blocking(make).await.and_then(|made| made);
        let (upload, refused) = made.map_err(|error| match error {
            error @ mainstay_git::Error::Sign { .. } => format!("spec.git.commit.signingKey: {}", chain(&error)),
            error => chain(&error),
        })?;
        let Some(fault) = refused else { return Ok(upload) };
        let (field, repository) = ("spec.git.commit.signingKey", &update.repository);
        Err(format!("{field}: spec.verify of GitRepository {repository} refuses the new commit: {}", chain(&fault)))
    }

    /// Returns the references to push, with their expected commits.
    async fn targets(&self, turn: &Turn<'_>, branch: &Branch, snapshot: &Snapshot) -> Result<Vec<PushTarget>, String> {
        let own = PushTarget { reference: branch.name.clone(), old: branch.old };
        let reference = match &turn.update.destination {
            Destination::Branch(_) => return Ok(vec![own]),
            Destination::Review(reference) => {
                return Ok(vec![PushTarget { reference: reference.clone(), old: None }]);
            }
            Destination::Both(_, reference) => reference.clone(),
        };
        if is_for_review(&reference) {
            return Ok(vec![own, PushTarget { reference, old: None }]);
        }
        let found = self.existing(turn, &reference, Duration::ZERO).await?;
        if let Some(found) = &found
            && !self.is_ancestor(turn, found, snapshot).await?
        {
            let (to, from) = (short(&reference), branch.short());
            return Err(format!(
                "spec.git.push.refspec: {to} has another commit than {from}, and the history does not show that {from} \
                 contains it; nothing is overwritten: merge {to} into {from}, or delete {to}"
            ));
        }
        Ok(vec![own, PushTarget { reference, old: found.map(|found| found.commit) }])
    }

    /// Checks that the server shows no reference for the reviews of the update. A server with reviews turns a push to one
    /// into a change, and keeps no such reference.
    async fn takes_reviews(&self, turn: &Turn<'_>) -> Result<(), String> {
        let Some(name) = turn.update.destination.review() else { return Ok(()) };
        match self.existing(turn, name, Duration::ZERO).await? {
            Some(_) => Err(format!(
                "push to {name}: the server shows {name}, so it has no reviews; name a branch in spec.git.push"
            )),
            None => Ok(()),
        }
    }

    /// Whether the commit of a snapshot is this one, or descends from it.
    async fn is_ancestor(&self, turn: &Turn<'_>, found: &ResolvedRef, snapshot: &Snapshot) -> Result<bool, String> {
        let old = found.commit;
        if old == snapshot.commit {
            return Ok(true);
        }
        // The mirror needs the commit to know its place in the history.
        self.source.fetch(&turn.remotes.read, found).await.map_err(|error| chain(&error))?;
        let related = snapshot.blocking(move |snapshot| snapshot.ancestry(old)).await.and_then(|related| related);
        related.map(|related| related == Ancestry::Descends).map_err(|error| chain(&error))
    }

    /// Looks up the branch.
    async fn branch(&self, turn: &Turn<'_>, max_age: Duration) -> Result<Branch, String> {
        let named = turn.update.destination.branch();
        if let Some(name) = named
            && let Some(found) = self.existing(turn, name, max_age).await?
        {
            return Ok(Branch { old: Some(found.commit), found, name: name.to_owned() });
        }
        let found = self.source.lookup(&turn.remotes.read, &turn.update.read, max_age).await;
        let found = found.map_err(|error| chain(&error))?;
        if let Some(name) = named {
            return Ok(Branch { found, name: name.to_owned(), old: None });
        }
        let name = found.full_name().filter(|name| name.starts_with(BRANCHES)).map(str::to_owned);
        let name = name.ok_or("HEAD of the repository is not a branch; set spec.git.checkout.ref.branch")?;
        Ok(Branch { old: Some(found.commit), found, name })
    }

    /// Looks up a reference by its full name; `None` if it does not exist.
    async fn existing(&self, turn: &Turn<'_>, name: &str, max_age: Duration) -> Result<Option<ResolvedRef>, String> {
        let reference = Reference::parse(name).map_err(|error| chain(&error))?;
        match self.source.lookup(&turn.remotes.read, &reference, max_age).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if matches!(error.fault(), Fault::MissingReference { empty: false, .. }) => Ok(None),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Returns the changed files of the branch; `None` if it has the choices.
    async fn differing(&mut self, turn: &Turn<'_>, branch: &Branch) -> Result<Option<Difference>, String> {
        let commit = branch.found.commit;
        let is_known = |done: &&(Commit, Option<TreeId>, Chosen)| done.2 == self.used;
        let known = self.done.as_ref().filter(is_known);
        if known.is_some_and(|done| done.0 == commit) {
            return Ok(None);
        }
        let directory = &turn.update.directory;
        let snapshot = self.source.fetch(&turn.remotes.read, &branch.found).await.map_err(|error| chain(&error))?;
        let tree = snapshot.tree(directory).await.map_err(|error| chain(&error))?;
        if tree.is_none() {
            return Err(format!("spec.update.path: {} is not a directory of the commit", directory.path()));
        }
        if known.is_none_or(|done| done.1 != tree) {
            let (directory, namespace, chosen) = (directory.clone(), self.begun.name.0.clone(), self.used.clone());
            let edit = move |snapshot: &Snapshot| edited(snapshot, &directory, &namespace, &chosen);
            let edited = snapshot.blocking(edit).await.map_err(|error| chain(&error))??;
            if !edited.files.is_empty() {
                return Ok(Some(Difference { edited, snapshot, tree }));
            }
        }
        self.done = Some((commit, tree, self.used.clone()));
        Ok(None)
    }
}

/// Returns the name of a branch without its prefix. Other names stay as they are.
fn short(reference: &str) -> &str {
    reference.strip_prefix(BRANCHES).unwrap_or(reference)
}
