//! Detects commits that a lookup finds for the first time, and commits that other remotes of the same address must look
//! up.
//!
//! Invariant: each remote reports a commit once, so two disagreeing servers at one address cause no endless lookups.
//! Not here: who follows a reference (`pushes`), and the lookup.

use std::collections::{BTreeMap, BTreeSet};

use super::id::Commit;
use super::ref_list::Refs;
use super::reference::{BRANCHES, Reference, ResolvedRef};

/// Maximum number of remembered references of a remote.
const KEPT: usize = 1000;

/// A commit that a reference now points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundCommit {
    pub(super) commit: Commit,
    /// Whether the reference pointed to a different commit before.
    pub(super) has_moved: bool,
    reference: Reference,
    /// Full name of the branch or tag.
    name: Option<String>,
    /// Full name of the default branch, if the server sends it.
    default_branch: Option<String>,
}

impl FoundCommit {
    /// Returns whether a followed reference may now point to the commit.
    pub(super) fn concerns(&self, followed: &Reference) -> bool {
        let is_moved = |name: &String| followed.is_moved_by(name, self.default_branch.as_deref());
        *followed == self.reference || self.name.as_ref().is_some_and(is_moved)
    }

    /// Returns the names of the reference under which other remotes of the address may know it.
    fn names(&self) -> BTreeSet<String> {
        // The tag of a range has a different name each time.
        let own = (self.name.is_none() || self.reference == Reference::head() || self.reference.range().is_some())
            .then(|| self.reference.to_string());
        let name = self.name.clone().filter(|_| self.reference.range().is_none());
        own.into_iter().chain(name).collect()
    }
}

/// The last commits of the references of one remote.
#[derive(Debug, Default)]
pub(super) struct KnownCommits(BTreeMap<Reference, Commit>);

impl KnownCommits {
    /// Records the response of a lookup. Returns the references that moved or were not looked up before.
    pub(super) fn update(&mut self, covers: &BTreeSet<Reference>, refs: &Refs) -> Vec<FoundCommit> {
        let default_branch = refs.resolve(&Reference::head()).ok().and_then(|head| branch(&head));
        let mut found = Vec::new();
        for reference in covers {
            let Ok(resolved) = refs.resolve(reference) else { continue };
            let before = self.0.insert(reference.clone(), resolved.commit);
            if before != Some(resolved.commit) {
                found.push(FoundCommit {
                    commit: resolved.commit,
                    has_moved: before.is_some(),
                    reference: reference.clone(),
                    name: resolved.full_name().map(str::to_owned),
                    default_branch: default_branch.clone(),
                });
            }
        }
        if self.0.len() > KEPT {
            self.0.retain(|reference, _| covers.contains(reference));
        }
        found
    }
}

fn branch(resolved: &ResolvedRef) -> Option<String> {
    Some(resolved.name.clone()).filter(|name| name.starts_with(BRANCHES))
}

/// The last commits that any remote of an address has found.
#[derive(Debug, Default)]
pub(super) struct SharedHeads(BTreeMap<String, Commit>);

impl SharedHeads {
    /// Records a commit. Returns whether other remotes of the address may know an older commit. For the first commit of
    /// a reference, returns false, because the other remotes look it up themselves.
    pub(super) fn update(&mut self, found: &FoundCommit) -> bool {
        let mut is_new = false;
        for name in found.names() {
            is_new |= self.0.insert(name, found.commit).is_some_and(|old| old != found.commit);
        }
        while self.0.len() > KEPT {
            self.0.pop_first();
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::super::id::Id;
    use super::super::ref_list::{At, RefNames};
    use super::*;

    fn id(digit: u8) -> Id {
        Id([digit; 20])
    }

    fn references(texts: &[&str]) -> BTreeSet<Reference> {
        texts.iter().map(|text| Reference::parse(text).unwrap()).collect()
    }

    /// Returns the response of a server whose HEAD is `main`.
    fn answer(covers: &BTreeSet<Reference>, refs: &[(&str, u8)]) -> Refs {
        let names = covers.iter().flat_map(Reference::candidates).chain(["HEAD".to_owned()]);
        let wanted = RefNames::new(names).with_ranges(covers.iter().filter_map(Reference::range).cloned());
        let mut answer = Refs::default();
        for (name, digit) in refs {
            let at =
                |symbolic: Option<&str>| At { id: id(*digit), peeled: None, symbolic: symbolic.map(str::to_owned) };
            if *name == "refs/heads/main" {
                answer.add("HEAD".to_owned(), at(Some(name)), &wanted);
            }
            answer.add((*name).to_owned(), at(None), &wanted);
        }
        answer
    }

    /// Returns the references that moved with a response.
    fn update(known: &mut KnownCommits, texts: &[&str], refs: &[(&str, u8)]) -> Vec<FoundCommit> {
        let covers = references(texts);
        known.update(&covers, &answer(&covers, refs))
    }

    fn shown(found: &[FoundCommit]) -> Vec<String> {
        let shown = |found: &FoundCommit| {
            let moved = if found.has_moved { "moved" } else { "first" };
            format!("{} {} {moved}", found.reference, &found.commit.to_string()[..2])
        };
        found.iter().map(shown).collect()
    }

    #[test]
    fn a_reference_that_leads_elsewhere_is_found_once() {
        let mut known = KnownCommits::default();
        let both = ["dev", "main"];
        let first = update(&mut known, &both, &[("refs/heads/main", 1), ("refs/heads/dev", 1)]);
        assert_eq!(shown(&first), ["dev 01 first", "main 01 first"]);
        assert_eq!(update(&mut known, &both, &[("refs/heads/main", 1), ("refs/heads/dev", 1)]), []);
        let next = update(&mut known, &both, &[("refs/heads/main", 2), ("refs/heads/dev", 1)]);
        assert_eq!(shown(&next), ["main 02 moved"]);
        assert_eq!(update(&mut known, &both, &[("refs/heads/main", 2)]), [], "a branch that is gone");
        assert_eq!(update(&mut known, &["dev"], &[("refs/heads/dev", 1)]), [], "and comes back");
        assert_eq!(shown(&update(&mut known, &["main"], &[("refs/heads/main", 3)])), ["main 03 moved"]);
    }

    #[test]
    fn a_commit_concerns_consumers_whose_reference_may_lead_to_it() {
        let check = |asked: &str, refs: &[(&str, u8)], followed: &str, expected: bool| {
            let found = update(&mut KnownCommits::default(), &[asked], refs);
            let concerns = found[0].concerns(&Reference::parse(followed).unwrap());
            assert_eq!(concerns, expected, "{asked} found, {followed} followed");
        };
        let main = [("refs/heads/main", 1)];
        for asked in ["main", "refs/heads/main", "HEAD"] {
            for followed in ["main", "refs/heads/main", "HEAD"] {
                check(asked, &main, followed, true);
            }
            check(asked, &main, "dev", false);
            check(asked, &main, &"1".repeat(40), false);
            check(asked, &main, "semver:*", false);
        }
        check("dev", &[("refs/heads/main", 1), ("refs/heads/dev", 2)], "HEAD", false);
        check("v1.2.3", &[("refs/tags/v1.2.3", 1)], "semver:^1", true);
        check("semver:^1", &[("refs/tags/v1.2.3", 1)], "semver:^1", true);
        check("semver:^1", &[("refs/tags/v1.2.3", 1)], "main", false);
    }

    #[test]
    fn the_other_remotes_hear_of_a_commit_once_under_each_of_its_names() {
        let (mut one, mut two, mut heads) = (KnownCommits::default(), KnownCommits::default(), SharedHeads::default());
        let mut hear = |known: &mut KnownCommits, text: &str, digit: u8| {
            let found = update(known, &[text], &[("refs/heads/main", digit)]);
            found.iter().map(|found| heads.update(found)).collect::<Vec<_>>()
        };
        assert_eq!(hear(&mut one, "main", 1), [false], "whoever follows it has not looked it up either");
        assert_eq!(hear(&mut two, "refs/heads/main", 1), [false]);
        assert_eq!(hear(&mut one, "main", 2), [true]);
        assert_eq!(hear(&mut two, "refs/heads/main", 2), [false], "the first one was quicker");
        assert_eq!(hear(&mut two, "HEAD", 3), [true], "a new remote has found what the others do not know");
        // If one server lags behind, each remote trusts its own responses, and the lookups come to an end.
        assert_eq!(hear(&mut one, "main", 2), Vec::<bool>::new());
        assert_eq!(hear(&mut one, "main", 3), [false]);
    }

    #[test]
    fn the_next_version_in_a_range_is_heard_of() {
        let (mut known, mut heads) = (KnownCommits::default(), SharedHeads::default());
        let mut hear = |refs: &[(&str, u8)]| {
            let found = update(&mut known, &["semver:^1"], refs);
            found.iter().map(|found| heads.update(found)).collect::<Vec<_>>()
        };
        assert_eq!(hear(&[("refs/tags/v1.0.0", 1)]), [false]);
        assert_eq!(hear(&[("refs/tags/v1.0.0", 1), ("refs/tags/v1.1.0", 2)]), [true]);
    }

    #[test]
    fn only_so_many_references_are_remembered() {
        let (mut known, mut heads) = (KnownCommits::default(), SharedHeads::default());
        for number in 0..=KEPT {
            let (text, name) = (format!("b{number}"), format!("refs/heads/b{number}"));
            for found in update(&mut known, &[&text], &[(&name, 1)]) {
                heads.update(&found);
            }
        }
        assert_eq!((known.0.len(), heads.0.len()), (1, KEPT));
    }
}
