//! Which images the registry in the cluster may lose: what its storage holds, and a policy, become what goes.
//!
//! The agent writes the [`Policy`] from what the cluster uses; `mainstay registry sweep` judges by it in the registry's pod
//! while the registry does not serve, so nothing is pushed meanwhile.
//!
//! Invariant: nothing that is in use goes, nor what was in use at the policy before, nor what was pushed, or found to be there
//! by a build, within the grace period.
//! Invariant: only manifests that Mainstay has built go, and those of Kaniko's cache beside them. An index is never removed,
//! and keeps its children.
//! Invariant: a repository that cannot be understood is left as it is, and a policy that is not for this moment removes nothing.
//!
//! Deliberately absent: reading and removing files (`storage`), and removing blobs, which is the registry's own work.

mod content;
mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Digest, image_name};

pub use content::{Content, Parsed, is_of_function};
pub use used::Used;

/// The version of the written form of policies and reports.
const VERSION: u32 = 1;
/// How long a policy holds after it was made, and how far clocks may differ.
const VALID: SignedDuration = SignedDuration::from_mins(30);
/// Age from which entries of Kaniko's cache of a living Function go: it does not use older ones (`--cache-ttl`).
const CACHE: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Last part of the name of the repository in which Kaniko keeps what `RUN` made.
const CACHE_NAME: &str = "/cache";
/// Longest policy in bytes: a ConfigMap has room for a megabyte, with its report.
const LONGEST: usize = 900 << 10;

/// What may go, as the operator chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Builds of each living Function that are kept, the newest first; at least 1.
    pub builds: usize,
    /// Younger images are kept.
    pub grace: Duration,
}

/// What a sweep is to keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    version: u32,
    /// The sweep that it is for.
    pub id: String,
    /// When it was made.
    pub at: Timestamp,
    builds: usize,
    grace_seconds: u64,
    /// The repositories of living Functions, and how many of them each is of.
    functions: BTreeMap<String, usize>,
    /// What was in use when it was made.
    in_use: Used,
    /// What was in use when the policy before it was made, and is not any more.
    held: Used,
    /// A digest of what decides whether another sweep can find anything.
    changes: String,
}

/// Why nothing is removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not what a policy looks like.
    #[error("the policy cannot be read: {0}")]
    Unreadable(String),
    /// It is larger than a ConfigMap.
    #[error("the policy has {0} bytes, and a ConfigMap has room for {LONGEST}: too many images are in use")]
    TooLarge(usize),
    /// It is of another release.
    #[error("the policy is of another release")]
    Version,
    /// The pod was started for another one.
    #[error("the policy is not the one that this pod was started for")]
    Other,
    /// It is old, or of the future.
    #[error("the policy is of {at}, and it is {now} here: it is too old, or the clocks of the nodes differ")]
    Stale {
        /// When it was made.
        at: Timestamp,
        /// The time of the sweep.
        now: Timestamp,
    },
}

impl Policy {
    /// The policy that keeps what is in use, and what was in use at the one before.
    pub fn new(id: String, at: Timestamp, rules: Rules, observed: Observed, before: Option<&Self>) -> Self {
        let Observed { functions, in_use, of_functions } = observed;
        let mut repositories = BTreeMap::new();
        for repository in functions.iter().flat_map(LivingFunction::repositories) {
            *repositories.entry(repository).or_insert(0) += 1;
        }
        let held = before.map(|before| before.in_use.without(&in_use)).unwrap_or_default();
        let mut states: Vec<_> = functions.iter().map(|function| (&function.uid, function.generation)).collect();
        states.sort();
        let decisive = (rules.builds, rules.grace.as_secs(), &repositories, &of_functions, states);
        let changes = serde_json::to_vec(&decisive).unwrap_or_default();
        Self {
            version: VERSION,
            id,
            at,
            builds: rules.builds.max(1),
            grace_seconds: rules.grace.as_secs(),
            functions: repositories,
            in_use,
            held,
            changes: Digest::of(&changes).hex().to_owned(),
        }
    }

    /// Reads what [`text`](Self::text) wrote.
    pub fn read(text: &str) -> Result<Self, Refusal> {
        if text.len() > LONGEST {
            return Err(Refusal::TooLarge(text.len()));
        }
        let policy: Self = serde_json::from_str(text).map_err(|error| Refusal::Unreadable(error.to_string()))?;
        if policy.version == VERSION { Ok(policy) } else { Err(Refusal::Version) }
    }

    /// The written form; an error if a ConfigMap has no room for it.
    pub fn text(&self) -> Result<String, Refusal> {
        let text = serde_json::to_string(self).map_err(|error| Refusal::Unreadable(error.to_string()))?;
        if text.len() > LONGEST { Err(Refusal::TooLarge(text.len())) } else { Ok(text) }
    }

    /// Whether the sweep of this id may act by it now.
    pub fn check(&self, id: &str, now: Timestamp) -> Result<(), Refusal> {
        if id.is_empty() || self.id != id {
            return Err(Refusal::Other);
        }
        if now.duration_since(self.at).abs() > VALID {
            return Err(Refusal::Stale { at: self.at, now });
        }
        Ok(())
    }

    /// Whether a sweep by this policy may find anything that the one before, with its report, did not.
    pub fn is_worth_a_sweep(&self, before: &Self, report: Option<&Report>) -> bool {
        let Some(report) = report.filter(|report| report.policy == before.id && report.problem.is_none()) else {
            return true;
        };
        self.changes != before.changes || report.next.is_some_and(|next| next <= self.at)
    }
}

/// What a cluster uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The Functions that there are.
    pub functions: Vec<LivingFunction>,
    /// The images in use.
    pub in_use: Used,
    /// Those of them that Functions, and what they consist of, use: others come and go, and a sweep is no more worth it.
    pub of_functions: Used,
}

/// A Function that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingFunction {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: i64,
}

impl LivingFunction {
    /// The repositories of its images, in a registry without a path: the present one, and that of earlier releases.
    fn repositories(&self) -> BTreeSet<String> {
        [image_name(&self.namespace, &self.name), format!("{}-{}", self.namespace, self.name)].into()
    }
}

/// What a sweep has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// The id of its policy.
    pub policy: String,
    /// Manifests that were removed.
    pub manifests: u64,
    /// Repositories of which nothing is left.
    pub repositories: u64,
    /// Bytes of blobs that nothing needs any more; `None` if that is not known.
    pub bytes: Option<u64>,
    /// When more can go, as far as it is known now.
    pub next: Option<Timestamp>,
    /// Why not everything, or nothing, was removed.
    pub problem: Option<String>,
}

/// A repository of the registry's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Its name.
    pub name: String,
    /// Its manifests; `None` if it cannot be understood.
    pub manifests: Option<Vec<Stored>>,
    /// Its tags.
    pub tags: BTreeMap<String, Digest>,
}

/// A manifest in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its digest.
    pub digest: Digest,
    /// When it, or a tag of it, was pushed last.
    pub pushed: Timestamp,
    /// What it is.
    pub content: Content,
    /// The blobs that it needs, its own among them.
    pub needs: Vec<Digest>,
}

/// What goes of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its name.
    pub repository: String,
    /// The tags.
    pub tags: Vec<String>,
    /// The manifests.
    pub manifests: Vec<Digest>,
    /// Whether nothing is left of it.
    pub is_all: bool,
}

/// What a sweep is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// What goes.
    pub removals: Vec<Removal>,
    /// When more can go.
    pub next: Option<Timestamp>,
    /// Repositories that cannot be understood.
    pub not_understood: Vec<String>,
}

/// Decides what goes. `policy` has been [checked](Policy::check).
pub fn decide(repositories: &[Repository], policy: &Policy, now: Timestamp) -> Sweep {
    let judge = Judge { policy, reference: now.min(policy.at) };
    let known: BTreeMap<&str, &Repository> = repositories.iter().map(|one| (one.name.as_str(), one)).collect();
    let mut sweep = Sweep::default();
    let not_understood = repositories.iter().filter(|one| one.manifests.is_none());
    sweep.not_understood = not_understood.map(|one| one.name.clone()).collect();
    // No repository of a Function has such a name.
    for repository in repositories.iter().filter(|one| !one.name.ends_with(CACHE_NAME)) {
        let mut fate = judge.images(repository);
        let cache_name = format!("{}{CACHE_NAME}", repository.name);
        if let Some(cache) = known.get(cache_name.as_str()).filter(|cache| is_cache(cache, repository)) {
            let of_cache = judge.cache(cache, &fate);
            // What is left of the cache is known as Mainstay's by the images beside it.
            if fate.is_all && !of_cache.is_all {
                fate.keep_newest(of_cache.next);
            }
            sweep.take(cache, of_cache);
        }
        sweep.take(repository, fate);
    }
    sweep.removals.sort_by(|a, b| a.repository.cmp(&b.repository));
    sweep
}

impl Sweep {
    fn take(&mut self, repository: &Repository, fate: Fate<'_>) {
        self.next = earlier(self.next, fate.next);
        if fate.goes.is_empty() {
            return;
        }
        let manifests: Vec<Digest> = fate.goes.iter().map(|stored| stored.digest.clone()).collect();
        let tags = repository.tags.iter().filter(|(_, digest)| manifests.contains(digest));
        let tags = tags.map(|(tag, _)| tag.clone()).collect();
        let is_all = fate.is_all;
        self.removals.push(Removal { repository: repository.name.clone(), tags, manifests, is_all });
    }
}

/// What becomes of the manifests of a repository.
struct Fate<'r> {
    goes: Vec<&'r Stored>,
    /// Whether nothing stays.
    is_all: bool,
    next: Option<Timestamp>,
    /// Whether its Function lives.
    is_living: bool,
}

impl Fate<'_> {
    fn keep_newest(&mut self, next: Option<Timestamp>) {
        self.goes.sort_by(|a, b| (a.pushed, &a.digest).cmp(&(b.pushed, &b.digest)));
        self.goes.pop();
        self.is_all = false;
        self.next = earlier(self.next, next);
    }
}

/// Whether a repository of that name is Kaniko's cache: it has no images of Functions, and the one that it would be for has some.
fn is_cache(cache: &Repository, images: &Repository) -> bool {
    let has_ours = |one: &Repository| one.manifests.iter().flatten().any(|stored| stored.content == Content::Function);
    has_ours(images) && !has_ours(cache)
}

struct Judge<'p> {
    policy: &'p Policy,
    /// The time that ages are measured from.
    reference: Timestamp,
}

impl Judge<'_> {
    /// What becomes of the images of a Function.
    fn images<'r>(&self, repository: &'r Repository) -> Fate<'r> {
        let functions = self.policy.functions.get(&repository.name).copied().unwrap_or_default();
        let mut fate = Fate { goes: Vec::new(), is_all: false, next: None, is_living: functions > 0 };
        let Some(manifests) = &repository.manifests else { return fate };
        let children = children(manifests);
        let is_ours = |stored: &&Stored| stored.content == Content::Function && has_tags_of_ours(repository, stored);
        let mut ours: Vec<&Stored> = manifests.iter().filter(is_ours).collect();
        ours.sort_by(|a, b| (b.pushed, &b.digest).cmp(&(a.pushed, &a.digest)));
        let kept = self.policy.builds.saturating_mul(functions);
        for stored in ours.into_iter().skip(kept).filter(|stored| !children.contains(&stored.digest)) {
            self.judge(repository, stored, self.grace(), &mut fate);
        }
        fate.is_all = fate.goes.len() == manifests.len() && functions == 0;
        fate
    }

    /// What becomes of a cache, given what becomes of the images.
    fn cache<'r>(&self, repository: &'r Repository, images: &Fate<'_>) -> Fate<'r> {
        let mut fate = Fate { goes: Vec::new(), is_all: false, next: None, is_living: images.is_living };
        let Some(manifests) = &repository.manifests else { return fate };
        let age = if images.is_all { self.grace() } else { CACHE.max(self.grace()) };
        let children = children(manifests);
        let is_entry = |stored: &&Stored| stored.content == Content::Image && has_tags_of_ours(repository, stored);
        for stored in manifests.iter().filter(is_entry).filter(|stored| !children.contains(&stored.digest)) {
            self.judge(repository, stored, age, &mut fate);
        }
        fate.is_all = fate.goes.len() == manifests.len() && !images.is_living;
        fate
    }

    fn judge<'r>(&self, repository: &Repository, stored: &'r Stored, age: SignedDuration, fate: &mut Fate<'r>) {
        let tags = || repository.tags.iter().filter(|(_, digest)| **digest == stored.digest).map(|(tag, _)| &**tag);
        let is_in = |used: &Used| used.has(&repository.name, &stored.digest, tags());
        if is_in(&self.policy.in_use) {
            return;
        }
        // A time beyond all times never comes.
        let old_at = stored.pushed.checked_add(age).unwrap_or(Timestamp::MAX);
        if old_at > self.reference {
            fate.next = earlier(fate.next, Some(old_at));
        } else if is_in(&self.policy.held) {
            fate.next = earlier(fate.next, Some(self.reference));
        } else {
            fate.goes.push(stored);
        }
    }

    fn grace(&self) -> SignedDuration {
        SignedDuration::from_secs(i64::try_from(self.policy.grace_seconds).unwrap_or(i64::MAX))
    }
}

/// What the indexes of a repository need of it.
fn children(manifests: &[Stored]) -> BTreeSet<&Digest> {
    let of = |stored: &Stored| !matches!(stored.content, Content::Function | Content::Image);
    manifests.iter().filter(|stored| of(stored)).flat_map(|stored| &stored.needs).collect()
}

/// Whether all tags of a manifest are such as builds give: 64 hexadecimal digits. Whoever gave it another one wants to keep it.
fn has_tags_of_ours(repository: &Repository, stored: &Stored) -> bool {
    let mut tags = repository.tags.iter().filter(|(_, digest)| **digest == stored.digest);
    tags.all(|(tag, _)| content::is_tag_of_ours(tag))
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
