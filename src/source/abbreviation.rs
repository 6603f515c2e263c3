//! The beginning of a commit's id in the place of the whole, and what is known of what it means at a remote.
//!
//! Invariant: what was found once is not looked for again, and what was not found only when the remote has changed.
//! Deliberately not here: looking for it; the clock comes in as an argument.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::error::Fault;
use super::id::{Commit, Id};

/// Digits that git itself writes at least.
const SHORTEST: usize = 7;
/// Abbreviations of one remote that are remembered.
const REMEMBERED: usize = 200;
/// A history that is too large stays so for a while, whatever is pushed: looking is dear.
const TOO_LARGE_FOR: Duration = Duration::from_secs(3600);

/// 7 to 39 hexadecimal digits, the first ones of a commit's id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Abbreviation(Arc<str>);

impl Abbreviation {
    /// In either case; `None`: it is something else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fits = (SHORTEST..40).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// Whether the commit's id begins so.
    pub(super) fn begins(&self, commit: Commit) -> bool {
        commit.to_string().starts_with(&*self.0)
    }

    /// The one commit whose id begins so; `None`: there is none.
    pub(super) fn among(&self, commits: impl IntoIterator<Item = Commit>) -> Result<Option<Commit>, Fault> {
        let hits: BTreeSet<_> = commits.into_iter().filter(|commit| self.begins(*commit)).collect();
        if hits.len() > 1 {
            return Err(Fault::AmbiguousCommit { among: hits.into_iter().collect() });
        }
        Ok(hits.into_iter().next())
    }

    /// libgit2's form, and how many digits of it count.
    pub(super) fn oid(&self) -> Result<(git2::Oid, usize), Fault> {
        Ok((git2::Oid::from_str(&self.0).map_err(Fault::git)?, self.0.len()))
    }
}

/// All that a remote's branches and tags point to, as one digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tips([u8; 32]);

impl Tips {
    pub(super) fn of(ids: &BTreeSet<Id>) -> Self {
        Self(ids.iter().fold(Sha256::new(), |digest, id| digest.chain_update(id.0)).finalize().into())
    }
}

/// What the abbreviations mean that were used for one remote.
#[derive(Debug, Default)]
pub(super) struct Meanings(HashMap<Abbreviation, (Meaning, Instant)>);

#[derive(Debug)]
enum Meaning {
    Commit(Commit),
    /// What was taken for it is not to be had.
    Doubtful,
    /// It was not found among what these tips lead to.
    Unknown(Tips, Arc<Fault>),
}

impl Meanings {
    /// The commit that it means, as far as that is known.
    pub(super) fn commit(&self, abbreviation: &Abbreviation) -> Option<Commit> {
        match self.0.get(abbreviation) {
            Some((Meaning::Commit(commit), _)) => Some(*commit),
            _ => None,
        }
    }

    /// Why it means nothing, if that has not changed with what the remote has now.
    pub(super) fn fault(&self, abbreviation: &Abbreviation, tips: Tips, now: Instant) -> Option<Arc<Fault>> {
        match self.0.get(abbreviation)? {
            (Meaning::Unknown(_, fault), at) if matches!(**fault, Fault::HistoryTooLarge { .. }) => {
                (now.saturating_duration_since(*at) < TOO_LARGE_FOR).then(|| Arc::clone(fault))
            }
            (Meaning::Unknown(known, fault), _) if *known == tips => Some(Arc::clone(fault)),
            _ => None,
        }
    }

    /// It was found.
    pub(super) fn found(&mut self, abbreviation: &Abbreviation, commit: Commit, now: Instant) {
        self.put(abbreviation, Meaning::Commit(commit), now);
    }

    /// Somebody remembers what it meant, which counts as long as nothing better is known.
    pub(super) fn reminded(&mut self, abbreviation: &Abbreviation, commit: Commit, now: Instant) {
        if !self.0.contains_key(abbreviation) && abbreviation.begins(commit) {
            self.put(abbreviation, Meaning::Commit(commit), now);
        }
    }

    /// The remote does not have this commit: what means it is looked for again.
    pub(super) fn lost(&mut self, commit: Commit) {
        for (meaning, _) in self.0.values_mut() {
            if matches!(meaning, Meaning::Commit(known) if *known == commit) {
                *meaning = Meaning::Doubtful;
            }
        }
    }

    /// It is not to be found among what these tips lead to. A fault that may be gone the next time is not remembered.
    pub(super) fn not_found(&mut self, abbreviation: &Abbreviation, tips: Tips, fault: &Arc<Fault>, now: Instant) {
        let lasts = matches!(
            **fault,
            Fault::MissingAbbreviated { .. } | Fault::AmbiguousCommit { .. } | Fault::HistoryTooLarge { .. }
        );
        if lasts {
            self.put(abbreviation, Meaning::Unknown(tips, Arc::clone(fault)), now);
        }
    }

    fn put(&mut self, abbreviation: &Abbreviation, meaning: Meaning, now: Instant) {
        while self.0.len() >= REMEMBERED && !self.0.contains_key(abbreviation) {
            let oldest = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(oldest, _)| oldest.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(abbreviation.clone(), (meaning, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(text: &str) -> Abbreviation {
        Abbreviation::parse(text).unwrap()
    }

    fn commit(beginning: &str) -> Commit {
        format!("{beginning:0<40}").parse().unwrap()
    }

    fn tips(digits: &[char]) -> Tips {
        Tips::of(&digits.iter().map(|digit| commit(&digit.to_string()).0).collect())
    }

    fn missing() -> Arc<Fault> {
        Arc::new(Fault::MissingAbbreviated { default_branch: None })
    }

    #[test]
    fn seven_digits_are_the_fewest_and_forty_are_no_abbreviation() {
        assert_eq!(short("ABCDEF0"), short("abcdef0"));
        assert!(Abbreviation::parse(&"1".repeat(39)).is_some());
        for other in ["abcdef", "abcdefg", "main", "", &"1".repeat(40), "refs/heads/abcdef0", "abcdef0 "] {
            assert_eq!(Abbreviation::parse(other), None, "{other}");
        }
    }

    #[test]
    fn means_the_only_commit_that_begins_so() {
        let all = || ["abcdef01", "abcdef02", "1234567"].map(commit);
        assert_eq!(short("1234567").among(all()).unwrap(), Some(commit("1234567")));
        assert_eq!(short("abcdef02").among(all()).unwrap(), Some(commit("abcdef02")));
        assert_eq!(short("7654321").among(all()).unwrap(), None);
        let twice = [commit("1234567"), commit("1234567")];
        assert!(short("1234567").among(twice).unwrap().is_some(), "two branches at one commit");
        let text = short("abcdef0").among(all()).unwrap_err().to_string();
        assert!(text.contains(&commit("abcdef01").to_string()) && text.contains(&commit("abcdef02").to_string()));
    }

    #[test]
    fn what_was_not_found_is_looked_for_again_when_the_remote_has_changed() {
        let (now, a, b) = (Instant::now(), tips(&['a']), tips(&['a', 'b']));
        let mut meanings = Meanings::default();
        meanings.not_found(&short("1234567"), a, &missing(), now);
        assert!(meanings.fault(&short("1234567"), a, now + TOO_LARGE_FOR).is_some());
        assert!(meanings.fault(&short("1234567"), b, now).is_none());
        assert!(meanings.fault(&short("7654321"), a, now).is_none());

        let large = Arc::new(Fault::HistoryTooLarge { what: "the pack in bytes", limit: 1 });
        meanings.not_found(&short("1234567"), a, &large, now);
        assert!(meanings.fault(&short("1234567"), b, now).is_some(), "it will not have become smaller");
        assert!(meanings.fault(&short("1234567"), b, now + TOO_LARGE_FOR).is_none());

        meanings.not_found(&short("abcdef0"), a, &Arc::new(Fault::WebPage), now);
        assert!(meanings.fault(&short("abcdef0"), a, now).is_none(), "the server may be well the next time");
    }

    #[test]
    fn what_somebody_remembers_counts_until_it_turns_out_wrong() {
        let now = Instant::now();
        let (wrong, right) = (commit("12345678"), commit("12345679"));
        let mut meanings = Meanings::default();
        meanings.reminded(&short("1234567"), commit("abcdef0"), now);
        assert_eq!(meanings.commit(&short("1234567")), None, "it begins otherwise");
        meanings.reminded(&short("1234567"), wrong, now);
        assert_eq!(meanings.commit(&short("1234567")), Some(wrong));
        meanings.lost(wrong);
        meanings.reminded(&short("1234567"), wrong, now);
        assert_eq!(meanings.commit(&short("1234567")), None);
        meanings.found(&short("1234567"), right, now);
        meanings.reminded(&short("1234567"), wrong, now);
        meanings.lost(wrong);
        assert_eq!(meanings.commit(&short("1234567")), Some(right));
    }

    #[test]
    fn forgets_the_oldest_when_there_are_too_many() {
        let start = Instant::now();
        let mut meanings = Meanings::default();
        for number in 0..1000_u32 {
            let at = start + Duration::from_secs(number.into());
            meanings.found(&short(&format!("{number:07}")), commit(&format!("{number:07}")), at);
        }
        assert_eq!(meanings.0.len(), REMEMBERED);
        assert!(meanings.commit(&short("0000999")).is_some() && meanings.commit(&short("0000001")).is_none());
    }
}
