//! The budget of all mirrors: their sizes, the bytes that are reserved for packs in transfer, and which mirrors to
//! evict.
//!
//! The share of a namespace is the budget divided by the number of active namespaces. A namespace is active if it has
//! mirrors, receives packs, or its last reservation was refused. A mirror belongs to the namespace that fetched it, or
//! after a restart to the namespace that uses it first. Mirrors that are unused since a restart count as one additional
//! namespace.
//!
//! Invariant: mirrors of a namespace are evicted for another namespace only while the former exceeds its share and the
//! latter does not. So each namespace keeps what fits into its share, however much the others fetch.
//! Invariant: a namespace above its share must leave an eighth of the budget free, so that others need not wait for its
//! packs.
//! Invariant: no mirror is evicted for a reservation that would still not fit afterwards.
//! Not here: whether a mirror is in use (`room` checks its remote), and the disk (`storage`).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::fair_queue::Tenant;

/// Extension of a mirror that is being removed.
pub(super) const UNREAD: &str = "unread";
/// Fraction (1/8) of the budget that namespaces above their share leave free.
const LEFT_TO_OTHERS: u64 = 8;

/// The bytes of all mirrors.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    limit: u64,
    /// Sizes of generations, by directory. The directory of a generation is inside the directory of its mirror.
    generations: HashMap<PathBuf, u64>,
    /// Last use of each mirror.
    used: HashMap<PathBuf, SystemTime>,
    /// The namespace to which each mirror belongs.
    owners: HashMap<PathBuf, Tenant>,
    reserved: HashMap<Tenant, u64>,
    /// Namespaces whose last reservation did not fit.
    refused: HashSet<Tenant>,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            generations: HashMap::new(),
            used: HashMap::new(),
            owners: HashMap::new(),
            reserved: HashMap::new(),
            refused: HashSet::new(),
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Sets the size of a generation.
    pub(super) fn set_size(&mut self, generation: &Path, bytes: u64) {
        self.generations.insert(generation.to_owned(), bytes);
    }

    /// Adds bytes to the size of a generation.
    pub(super) fn grow(&mut self, generation: &Path, bytes: u64) {
        if let Some(size) = self.generations.get_mut(generation) {
            *size = size.saturating_add(bytes);
        }
    }

    /// Removes a generation.
    pub(super) fn remove(&mut self, generation: &Path) {
        self.generations.remove(generation);
        if let Some(mirror) = generation.parent()
            && !self.generations.keys().any(|other| other.starts_with(mirror))
        {
            self.remove_mirror(mirror);
        }
    }

    /// Removes a mirror.
    pub(super) fn remove_mirror(&mut self, mirror: &Path) {
        self.generations.retain(|generation, _| !generation.starts_with(mirror));
        self.used.remove(mirror);
        self.owners.remove(mirror);
    }

    /// Renames a mirror's generations to those of a mirror that is being removed.
    pub(super) fn rename(&mut self, mirror: &Path, unread: &Path) {
        let moved = |(generation, bytes): (&PathBuf, &u64)| {
            generation.strip_prefix(mirror).ok().map(|number| (unread.join(number), *bytes))
        };
        let moved: Vec<_> = self.generations.iter().filter_map(moved).collect();
        self.remove_mirror(mirror);
        self.generations.extend(moved);
    }

    /// Records that a mirror was used at this time. A time that is earlier than the recorded one has no effect.
    pub(super) fn set_used(&mut self, mirror: &Path, at: SystemTime) {
        let used = self.used.entry(mirror.to_owned()).or_insert(at);
        *used = at.max(*used);
    }

    /// Assigns the mirror to this namespace, unless it already belongs to one.
    pub(super) fn set_owner(&mut self, mirror: &Path, tenant: &Tenant) {
        if !self.owners.contains_key(mirror) {
            self.owners.insert(mirror.to_owned(), Tenant::clone(tenant));
        }
    }

    /// Reserves bytes if they fit. Returns whether they fit.
    pub(super) fn reserve(&mut self, tenant: &Tenant, bytes: u64) -> bool {
        let fits = self.fits(tenant, bytes, self.limit);
        if fits {
            self.refused.remove(tenant);
            *self.reserved.entry(Tenant::clone(tenant)).or_default() += bytes;
        }
        fits
    }

    /// Records that a reservation of this namespace failed.
    pub(super) fn set_refused(&mut self, tenant: &Tenant) {
        self.refused.insert(Tenant::clone(tenant));
    }

    /// Ends a reservation.
    pub(super) fn release(&mut self, tenant: &Tenant, bytes: u64) {
        if let Some(reserved) = self.reserved.get_mut(tenant) {
            *reserved = reserved.saturating_sub(bytes);
        }
        self.reserved.retain(|_, reserved| *reserved > 0);
    }

    /// Returns the bytes on the disk plus all reservations.
    pub(super) fn total(&self) -> u64 {
        self.generations.values().chain(self.reserved.values()).fold(0, |total, bytes| total.saturating_add(*bytes))
    }

    /// Returns the mirrors to evict, in order, so that the bytes fit; `None` if they would not fit even then.
    pub(super) fn plan(&self, tenant: &Tenant, bytes: u64, is_idle: impl Fn(&Path) -> bool) -> Option<Vec<PathBuf>> {
        self.plan_within(self.limit, tenant, bytes, is_idle)
    }

    /// Same as `plan`, for a full volume, which has less space than the budget.
    pub(super) fn plan_on_full_volume(
        &self,
        tenant: &Tenant,
        bytes: u64,
        is_idle: impl Fn(&Path) -> bool,
    ) -> Option<Vec<PathBuf>> {
        self.plan_within(self.total().min(self.limit), tenant, bytes, is_idle)
    }

    fn plan_within(
        &self,
        limit: u64,
        tenant: &Tenant,
        bytes: u64,
        is_idle: impl Fn(&Path) -> bool,
    ) -> Option<Vec<PathBuf>> {
        let (mut after, mut going) = (self.clone(), Vec::new());
        while !after.fits(tenant, bytes, limit) {
            let next = after.removable(tenant, bytes, limit).into_iter().find(|mirror| is_idle(mirror))?;
            after.remove_mirror(&next);
            going.push(next);
        }
        Some(going)
    }

    /// Returns the mirrors to evict until the total is within the limit, least recently used first, of any namespace.
    pub(super) fn plan_to_limit(&self, is_idle: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut after = self.clone();
        let mut going = self.oldest_first();
        going.retain(|mirror| {
            let goes = after.total() > after.limit && is_idle(mirror);
            if goes {
                after.remove_mirror(mirror);
            }
            goes
        });
        going
    }

    fn fits(&self, tenant: &Tenant, bytes: u64, limit: u64) -> bool {
        let tenants = self.tenants(tenant);
        let within_share = self.held(Some(tenant)).saturating_add(bytes) <= limit / tenants;
        let left = if within_share || tenants == 1 { 0 } else { limit / LEFT_TO_OTHERS };
        self.total().saturating_add(bytes).saturating_add(left) <= limit
    }

    /// Returns candidates for eviction in order. Directories that are not mirrors come first, then mirrors of
    /// namespaces above their share if this namespace is within its own share, and then the mirrors of this namespace.
    /// Within each of these groups, the least recently used mirror comes first.
    fn removable(&self, tenant: &Tenant, bytes: u64, limit: u64) -> Vec<PathBuf> {
        let share = limit / self.tenants(tenant);
        let within_share = self.held(Some(tenant)).saturating_add(bytes) <= share;
        let mut ranked = Vec::new();
        for mirror in self.oldest_first() {
            let owner = self.owners.get(&mirror);
            if !self.is_mirror(&mirror) {
                ranked.push((0, mirror));
            } else if owner == Some(tenant) {
                ranked.push((2, mirror));
            } else if within_share && self.held(owner) > share {
                ranked.push((1, mirror));
            }
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, mirror)| mirror).collect()
    }

    /// Returns the bytes of a namespace; without one, those of the mirrors that belong to no namespace.
    fn held(&self, tenant: Option<&Tenant>) -> u64 {
        let is_its = |generation: &Path| {
            let mirror = generation.parent();
            mirror
                .is_some_and(|mirror| self.owners.get(mirror) == tenant && (tenant.is_some() || self.is_mirror(mirror)))
        };
        let mirrors = self.generations.iter().filter(|(generation, _)| is_its(generation));
        let reserved = tenant.and_then(|tenant| self.reserved.get(tenant)).copied().unwrap_or(0);
        mirrors.fold(reserved, |held, (_, bytes)| held.saturating_add(*bytes))
    }

    /// Returns the number of active namespaces, including this one.
    fn tenants(&self, tenant: &Tenant) -> u64 {
        let mirrors = self.generations.keys().filter_map(|generation| generation.parent());
        let owners = mirrors.filter(|mirror| self.is_mirror(mirror)).map(|mirror| self.owners.get(mirror));
        let asking = self.reserved.keys().chain(&self.refused).chain([tenant]);
        owners.chain(asking.map(Some)).collect::<HashSet<_>>().len() as u64
    }

    /// Returns whether the directory is a mirror that was used or is being fetched, and is not being removed.
    fn is_mirror(&self, mirror: &Path) -> bool {
        let is_named = mirror.extension().is_none_or(|end| end != UNREAD);
        is_named && (self.used.contains_key(mirror) || self.owners.contains_key(mirror))
    }

    /// Returns all mirrors that have generations, least recently used first.
    pub(super) fn oldest_first(&self) -> Vec<PathBuf> {
        let mut mirrors: Vec<_> = self.generations.keys().filter_map(|path| path.parent()).collect();
        mirrors.sort_by_key(|mirror| (self.used.get(*mirror), *mirror));
        mirrors.dedup();
        mirrors.into_iter().map(Path::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    fn tenant(name: &str) -> Tenant {
        name.into()
    }

    /// Creates mirrors with these owners and sizes, least recently used first.
    fn budget(limit: u64, mirrors: &[(&str, &str, u64)]) -> Budget {
        let mut budget = Budget::new(limit);
        for (second, (mirror, owner, bytes)) in (0..).zip(mirrors) {
            let mirror = Path::new(mirror);
            budget.set_size(&mirror.join("1"), *bytes);
            budget.set_used(mirror, at(second));
            if !owner.is_empty() {
                budget.set_owner(mirror, &tenant(owner));
            }
        }
        budget
    }

    fn plan(budget: &Budget, of: &str, bytes: u64) -> Option<Vec<String>> {
        let going = budget.plan(&tenant(of), bytes, |mirror| !mirror.starts_with("busy.git"));
        going.map(|going| going.into_iter().map(|path| path.display().to_string()).collect())
    }

    #[test]
    fn own_mirrors_go_and_those_of_others_only_if_they_have_too_much_and_one_has_not() {
        let both = budget(100, &[("o.git", "other", 40), ("a.git", "web", 30), ("b.git", "web", 30)]);
        assert_eq!(plan(&both, "web", 20).unwrap(), ["a.git"], "its own, although that of the other is older");
        assert_eq!(plan(&both, "web", 48).unwrap(), ["a.git", "b.git"]);
        assert_eq!(plan(&both, "web", 70), None, "that of the other stays, and so nothing goes");
        assert_eq!(plan(&both, "other", 50).unwrap(), ["o.git", "a.git"], "without its own it has not too much");
        assert_eq!(plan(&both, "third", 30).unwrap(), ["o.git"], "of those that have too much, the oldest");
        assert_eq!(plan(&both, "third", 34), None, "more than its share");
        let greedy = budget(100, &[("o.git", "other", 30), ("busy.git", "web", 30), ("a.git", "web", 40)]);
        assert_eq!(plan(&greedy, "other", 20).unwrap(), ["a.git"], "within its share it need not lose its own");
    }

    #[test]
    fn a_namespace_whose_packs_fill_all_room_leaves_an_eighth_to_the_others() {
        let mut slow = budget(80, &[("o.git", "other", 10)]);
        let (web, third) = (tenant("web"), tenant("third"));
        assert!(slow.reserve(&web, 30) && slow.reserve(&web, 30) && !slow.reserve(&web, 1));
        assert_eq!(plan(&slow, "web", 1), None);
        assert!(slow.reserve(&third, 9));
        let mut alone = Budget::new(80);
        assert!(alone.reserve(&web, 80), "nobody else is there");
        assert!(!alone.reserve(&third, 1));
        alone.set_refused(&third);
        alone.release(&web, 80);
        assert!(!alone.reserve(&web, 71) && alone.reserve(&web, 70), "somebody waits");
    }

    #[test]
    fn a_repository_that_is_larger_than_the_room_removes_nothing_of_others() {
        let mut all = budget(80, &[("o.git", "other", 30), ("a.git", "web", 5)]);
        let web = tenant("web");
        while plan(&all, "web", 1).is_some_and(|going| {
            for mirror in &going {
                all.remove_mirror(Path::new(mirror));
            }
            all.reserve(&web, 1)
        }) {}
        assert_eq!(all.oldest_first(), [Path::new("o.git")]);
        assert_eq!(all.total(), 70);
    }

    #[test]
    fn directories_that_are_no_mirror_are_evicted_first() {
        let mut all = budget(100, &[("o.git", "other", 20), ("x.git", "", 20)]);
        all.set_size(Path::new("half.git/1"), 30);
        all.set_size(Path::new("d.unread/1"), 30);
        assert_eq!(plan(&all, "web", 33).unwrap(), ["d.unread", "half.git"]);
        all.rename(Path::new("x.git"), Path::new("x.unread"));
        assert_eq!((all.total(), plan(&all, "other", 80).unwrap().len()), (100, 3), "its size is known");
    }

    #[test]
    fn a_full_volume_has_less_room_than_the_budget() {
        let all = budget(1000, &[("o.git", "other", 50), ("a.git", "web", 30), ("b.git", "web", 40)]);
        let plan = |of: &str, bytes| all.plan_on_full_volume(&tenant(of), bytes, |_| true);
        assert_eq!(plan("web", 5).unwrap(), [Path::new("a.git")]);
        assert_eq!(plan("other", 10).unwrap(), [Path::new("a.git")], "within its share, of those that have too much");
        assert_eq!(plan("web", 71), None);
    }

    #[test]
    fn a_lower_limit_removes_the_oldest_that_are_idle() {
        let all = budget(60, &[("busy.git", "other", 50), ("a.git", "web", 30), ("b.git", "web", 10)]);
        let going = all.plan_to_limit(|mirror| !mirror.starts_with("busy.git"));
        assert_eq!(going, [Path::new("a.git")]);
    }

    #[test]
    fn reserves_what_fits_beside_mirrors_and_other_reservations() {
        let mut budget = Budget::new(100);
        let web = tenant("web");
        budget.set_size(Path::new("a.git/1"), 40);
        assert!(budget.reserve(&web, 30) && budget.reserve(&web, 30) && !budget.reserve(&web, 1));
        budget.set_size(Path::new("a.git/1"), 20);
        assert!(budget.reserve(&web, 20) && !budget.reserve(&web, 1));
        budget.release(&web, 50);
        budget.remove(Path::new("a.git/1"));
        assert!(!budget.reserve(&web, u64::MAX), "a sum that overflows does not fit");
        assert!(budget.reserve(&web, 70) && !budget.reserve(&web, 1));
    }

    #[test]
    fn names_the_mirror_that_was_used_longest_ago_first() {
        let mut budget = Budget::new(100);
        for (mirror, used) in [("a.git", Some(3)), ("b.git", Some(1)), ("c.git", Some(2)), ("d.unread", None)] {
            for generation in ["1", "2"] {
                budget.set_size(&Path::new(mirror).join(generation), 1);
            }
            if let Some(second) = used {
                budget.set_used(Path::new(mirror), at(second));
            }
        }
        budget.set_used(Path::new("b.git"), at(9));
        budget.set_used(Path::new("a.git"), at(1));
        let names = |budget: &Budget| -> Vec<_> {
            budget.oldest_first().into_iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names(&budget), ["d.unread", "c.git", "a.git", "b.git"]);
        budget.remove_mirror(Path::new("d.unread"));
        budget.remove(Path::new("c.git/1"));
        assert_eq!(names(&budget), ["c.git", "a.git", "b.git"], "it has another generation");
        budget.remove(Path::new("c.git/2"));
        assert_eq!(names(&budget), ["a.git", "b.git"]);
        assert_eq!(budget.total(), 4);
        assert_eq!(budget.used.len(), 2, "nothing is kept of mirrors that are gone");
    }
}
