//! Decides which images the in-cluster registry may remove, from the contents of its storage and a policy.
//!
//! The agent writes the [`Policy`] from the images in use. `mainstay registry sweep` applies the policy in the
//! registry's pod while the registry is not running, so no push can interfere.
//!
//! Invariant: a manifest is kept if it is in use, was in use when the previous policy was created, or was pushed or
//! reused by a build within the grace period. Invariant: only manifests that Mainstay built are removed, and the
//! entries of Kaniko's cache in the repositories beside them. An index is never removed, and its children are kept.
//! Invariant: a repository with unknown contents is left unchanged, and an outdated policy removes no images.
//! Invariant: a namespace whose objects have very many digests in their strings keeps its own images, and none of another
//! namespace.
//!
//! Not here: reading and removing files (`storage`), and removing blobs (the registry's garbage collection).

mod content;
mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Digest, image_name};

pub use content::{Content, Parsed, is_of_function};
use used::Kept;
pub use used::Used;

/// The format version of policies and reports.
const VERSION: u32 = 1;
/// Maximum difference between the policy's time and the current time, including clock skew.
const VALID: SignedDuration = SignedDuration::from_mins(30);
/// Age at which cache entries of an existing Function are removed. Kaniko ignores older entries (`--cache-ttl`).
const CACHE: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Last path segment of Kaniko's cache repositories, which hold the results of `RUN`.
const CACHE_NAME: &str = "/cache";
/// Maximum size of a policy in bytes. A ConfigMap holds 1 MiB, and the report is stored beside the policy.
const LONGEST: usize = 900 << 10;

/// The operator's retention rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Number of newest builds that are kept for each existing Function; at least 1.
    pub builds: usize,
    /// Minimum age of removed images.
    pub grace: Duration,
}

/// The images that a sweep keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    version: u32,
    /// The ID of the policy's sweep.
    pub id: String,
    /// When the policy was created.
    pub at: Timestamp,
    builds: usize,
    grace_seconds: u64,
    /// Repositories of existing Functions, with the number of Functions that use each repository.
    functions: BTreeMap<String, usize>,
    /// Images that were in use when the policy was created.
    in_use: Kept,
    /// Images that were in use at the previous policy and no longer are.
    held: Kept,
    /// Digest of the state that determines whether a new sweep can remove anything.
    changes: String,
}

/// Why a sweep refuses to remove anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The policy cannot be parsed.
    #[error("the policy cannot be read: {0}")]
    Unreadable(String),
    /// The policy does not fit into a ConfigMap.
    #[error("the policy has {0} bytes, and a ConfigMap can hold {LONGEST}: there are too many images in use")]
    TooLarge(usize),
    /// A different release wrote the policy.
    #[error("the policy is from a different release")]
    Version,
    /// The pod was started for a different policy.
    #[error("the policy is not the one that this pod was started for")]
    Other,
    /// The policy's time is too far in the past or in the future.
    #[error("the policy is too old (created {at}, now {now}), or the clocks of the nodes differ")]
    Stale {
        /// When the policy was created.
        at: Timestamp,
        /// The time of the sweep.
        now: Timestamp,
    },
}

impl Policy {
    /// Returns the namespaces whose Functions keep all images, because objects in them have too many digests in their strings.
    pub fn kept_namespaces(&self) -> impl Iterator<Item = &str> {
        self.in_use.whole().iter().map(String::as_str)
    }

    /// Returns a policy that keeps all images in use now or at the previous policy.
    pub fn new(id: String, at: Timestamp, rules: Rules, observed: Observed, before: Option<&Self>) -> Self {
        let Observed { functions, in_use, of_functions } = observed;
        let (in_use, of_functions) = (in_use.kept(), of_functions.kept());
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

    /// Parses a policy that [`text`](Self::text) wrote.
    pub fn read(text: &str) -> Result<Self, Refusal> {
        if text.len() > LONGEST {
            return Err(Refusal::TooLarge(text.len()));
        }
        let policy: Self = serde_json::from_str(text).map_err(|error| Refusal::Unreadable(error.to_string()))?;
        if policy.version == VERSION { Ok(policy) } else { Err(Refusal::Version) }
    }

    /// Returns the policy as JSON. Fails if it does not fit into a ConfigMap.
    pub fn text(&self) -> Result<String, Refusal> {
        let text = serde_json::to_string(self).map_err(|error| Refusal::Unreadable(error.to_string()))?;
        if text.len() > LONGEST { Err(Refusal::TooLarge(text.len())) } else { Ok(text) }
    }

    /// Checks that the sweep with this ID may apply the policy now.
    pub fn check(&self, id: &str, now: Timestamp) -> Result<(), Refusal> {
        if id.is_empty() || self.id != id {
            return Err(Refusal::Other);
        }
        if now.duration_since(self.at).abs() > VALID {
            return Err(Refusal::Stale { at: self.at, now });
        }
        Ok(())
    }

    /// Whether a sweep may remove more than the previous sweep, which wrote `report`.
    pub fn is_worth_a_sweep(&self, before: &Self, report: Option<&Report>) -> bool {
        let Some(report) = report.filter(|report| report.policy == before.id && report.problem.is_none()) else {
            return true;
        };
        self.changes != before.changes || report.next.is_some_and(|next| next <= self.at)
    }
}

/// The images and Functions of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The existing Functions.
    pub functions: Vec<LivingFunction>,
    /// The images in use.
    pub in_use: Used,
    /// The images in use by Functions and their children. Only changes of these images justify another sweep.
    pub of_functions: Used,
}

/// A Function that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingFunction {
    /// The Function's namespace.
    pub namespace: String,
    /// The Function's name.
    pub name: String,
    /// The Function's UID.
    pub uid: String,
    /// The Function's generation.
    pub generation: i64,
}

impl LivingFunction {
    /// Returns the repositories of the Function's images, relative to the registry: with the current name, and with the
    /// name of earlier releases.
    fn repositories(&self) -> BTreeSet<String> {
        [image_name(&self.namespace, &self.name), format!("{}-{}", self.namespace, self.name)].into()
    }
}

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// The ID of the sweep's policy.
    pub policy: String,
    /// Number of removed manifests.
    pub manifests: u64,
    /// Number of repositories that were removed completely.
    pub repositories: u64,
    /// Size in bytes of unreferenced blobs; `None` if unknown.
    pub bytes: Option<u64>,
    /// When more images can be removed, if known.
    pub next: Option<Timestamp>,
    /// Why some or all images were not removed.
    pub problem: Option<String>,
}

/// A repository in the registry's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The repository's name.
    pub name: String,
    /// The repository's manifests; `None` if the contents are unknown.
    pub manifests: Option<Vec<Stored>>,
    /// The repository's tags.
    pub tags: BTreeMap<String, Digest>,
}

/// A manifest in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The manifest's digest.
    pub digest: Digest,
    /// When the manifest or one of its tags was last pushed.
    pub pushed: Timestamp,
    /// The manifest's type.
    pub content: Content,
    /// Digests of all blobs that the manifest needs, including its own digest.
    pub needs: Vec<Digest>,
}

/// The manifests and tags to remove from a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Name of the repository.
    pub repository: String,
    /// The tags to remove.
    pub tags: Vec<String>,
    /// The manifests to remove.
    pub manifests: Vec<Digest>,
    /// Whether the repository becomes empty.
    pub is_all: bool,
}

/// The decision of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Removals, by repository.
    pub removals: Vec<Removal>,
    /// When more images can be removed.
    pub next: Option<Timestamp>,
    /// Repositories with unknown contents.
    pub not_understood: Vec<String>,
}

/// Decides which manifests to remove. The caller has [checked](Policy::check) `policy`.
pub fn decide(repositories: &[Repository], policy: &Policy, now: Timestamp) -> Sweep {
    let judge = Judge { policy, reference: now.min(policy.at) };
    let known: BTreeMap<&str, &Repository> = repositories.iter().map(|one| (one.name.as_str(), one)).collect();
    let mut sweep = Sweep::default();
    let not_understood = repositories.iter().filter(|one| one.manifests.is_none());
    sweep.not_understood = not_understood.map(|one| one.name.clone()).collect();
    // Repositories of Functions never end with this name.
    for repository in repositories.iter().filter(|one| !one.name.ends_with(CACHE_NAME)) {
        let mut fate = judge.images(repository);
        let cache_name = format!("{}{CACHE_NAME}", repository.name);
        if let Some(cache) = known.get(cache_name.as_str()).filter(|cache| is_cache(cache, repository)) {
            let of_cache = judge.cache(cache, &fate);
            // One image stays, because it marks the remaining cache as Mainstay's.
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

/// The decision about the manifests of a repository.
struct Fate<'r> {
    goes: Vec<&'r Stored>,
    /// Whether no manifest remains.
    is_all: bool,
    next: Option<Timestamp>,
    /// Whether the repository's Function exists.
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

/// Whether the repository is Kaniko's cache: it contains no images of Functions, but the repository beside it does.
fn is_cache(cache: &Repository, images: &Repository) -> bool {
    let has_ours = |one: &Repository| one.manifests.iter().flatten().any(|stored| stored.content == Content::Function);
    has_ours(images) && !has_ours(cache)
}

struct Judge<'p> {
    policy: &'p Policy,
    /// The time from which ages are measured.
    reference: Timestamp,
}

impl Judge<'_> {
    /// Decides about the images of a Function.
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

    /// Decides about a cache, given the decision about the images beside it.
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
        let is_in = |kept: &Kept| kept.has(&repository.name, &stored.digest, tags());
        if is_in(&self.policy.in_use) {
            return;
        }
        // On overflow, the image never becomes old enough to be removed.
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

/// Returns the children of a repository's indexes.
fn children(manifests: &[Stored]) -> BTreeSet<&Digest> {
    let of = |stored: &Stored| !matches!(stored.content, Content::Function | Content::Image);
    manifests.iter().filter(|stored| of(stored)).flat_map(|stored| &stored.needs).collect()
}

/// Whether builds wrote all tags of a manifest. Tags of builds have 64 hexadecimal digits. Any other tag marks an image
/// that a user keeps.
fn has_tags_of_ours(repository: &Repository, stored: &Stored) -> bool {
    let mut tags = repository.tags.iter().filter(|(_, digest)| **digest == stored.digest);
    tags.all(|(tag, _)| content::is_tag_of_ours(tag))
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
