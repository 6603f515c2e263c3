//! Abbreviated commit ids, and the commits that they resolved to at a remote.
//!
//! Invariant: a resolved abbreviation is not searched again. An unknown one is searched again only after the remote
//! has changed.
//! Not here: the search itself. Times are arguments.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::error::Fault;
use super::id::{Commit, Id};

/// Minimum digits of an abbreviation. Git itself writes at least as many.
const SHORTEST: usize = 7;
/// Maximum number of cached abbreviations per remote.
const REMEMBERED: usize = 200;
/// Time for which a history counts as too large, regardless of pushes, because a search is expensive.
const TOO_LARGE_FOR: Duration = Duration::from_secs(3600);

/// The first 7 to 39 hexadecimal digits of a commit's id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Abbreviation(Arc<str>);

impl Abbreviation {
    /// Parses an abbreviation in either case; `None` if the text is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let fits = (SHORTEST..40).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// Returns whether the commit's id begins with the abbreviation.
    pub(super) fn begins(&self, commit: Commit) -> bool {
        commit.to_string().starts_with(&*self.0)
    }

    /// Returns the only commit whose id begins with the abbreviation; `None` if there is none. Several such commits are
    /// an error.
    pub(super) fn among(&self, commits: impl IntoIterator<Item = Commit>) -> Result<Option<Commit>, Fault> {
        let hits: BTreeSet<_> = commits.into_iter().filter(|commit| self.begins(*commit)).collect();
        if hits.len() > 1 {
            return Err(Fault::AmbiguousCommit { among: hits.into_iter().collect() });
        }
        Ok(hits.into_iter().next())
    }

    /// Returns the abbreviation in libgit2's form, and the number of its digits.
    pub(super) fn oid(&self) -> Result<(git2::Oid, usize), Fault> {
        Ok((git2::Oid::from_str(&self.0).map_err(Fault::git)?, self.0.len()))
    }
}

/// A digest of the ids of all branches and tags of a remote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tips([u8; 32]);

impl Tips {
    pub(super) fn of(ids: &BTreeSet<Id>) -> Self {
        Self(ids.iter().fold(Sha256::new(), |digest, id| digest.chain_update(id.0)).finalize().into())
    }
}

/// The resolutions of the abbreviations of one remote.
#[derive(Debug, Default)]
pub(super) struct Resolutions(HashMap<Abbreviation, (Resolution, Instant)>);

#[derive(Debug)]
enum Resolution {
    Commit(Commit),
    /// The resolved commit could not be fetched.
    Doubtful,
    /// The history of these tips does not resolve it.
    Unknown(Tips, Arc<Fault>),
}

impl Resolutions {
    /// Returns the commit that the abbreviation resolved to, if known.
    pub(super) fn commit(&self, abbreviation: &Abbreviation) -> Option<Commit> {
        match self.0.get(abbreviation) {
            Some((Resolution::Commit(commit), _)) => Some(*commit),
            _ => None,
        }
    }

    /// Returns why the abbreviation does not resolve, if the remote's tips have not changed since the last search. A
    /// history that was too large counts as too large for `TOO_LARGE_FOR`, even if its tips change.
    pub(super) fn fault(&self, abbreviation: &Abbreviation, tips: Tips, now: Instant) -> Option<Arc<Fault>> {
        match self.0.get(abbreviation)? {
            (Resolution::Unknown(_, fault), at) if matches!(**fault, Fault::HistoryTooLarge { .. }) => {
                (now.saturating_duration_since(*at) < TOO_LARGE_FOR).then(|| Arc::clone(fault))
            }
            (Resolution::Unknown(known, fault), _) if *known == tips => Some(Arc::clone(fault)),
            _ => None,
        }
    }

    /// Records that the abbreviation resolved to a commit.
    pub(super) fn found(&mut self, abbreviation: &Abbreviation, commit: Commit, now: Instant) {
        self.put(abbreviation, Resolution::Commit(commit), now);
    }

    /// Records a resolution from an earlier process, unless a newer one is known.
    pub(super) fn hint(&mut self, abbreviation: &Abbreviation, commit: Commit, now: Instant) {
        if !self.0.contains_key(abbreviation) && abbreviation.begins(commit) {
            self.put(abbreviation, Resolution::Commit(commit), now);
        }
    }

    /// Records that the remote lacks this commit. Abbreviations that resolved to it are searched again.
    pub(super) fn lost(&mut self, commit: Commit) {
        for (resolution, _) in self.0.values_mut() {
            if matches!(resolution, Resolution::Commit(known) if *known == commit) {
                *resolution = Resolution::Doubtful;
            }
        }
    }

    /// Records that the history of these tips does not resolve the abbreviation. Temporary errors are not recorded.
    pub(super) fn not_found(&mut self, abbreviation: &Abbreviation, tips: Tips, fault: &Arc<Fault>, now: Instant) {
        let lasts = matches!(
            **fault,
            Fault::MissingAbbreviated { .. } | Fault::AmbiguousCommit { .. } | Fault::HistoryTooLarge { .. }
        );
        if lasts {
            self.put(abbreviation, Resolution::Unknown(tips, Arc::clone(fault)), now);
        }
    }

    fn put(&mut self, abbreviation: &Abbreviation, resolution: Resolution, now: Instant) {
        while self.0.len() >= REMEMBERED && !self.0.contains_key(abbreviation) {
            let oldest = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(oldest, _)| oldest.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.insert(abbreviation.clone(), (resolution, now));
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
    fn resolves_to_the_only_commit_that_begins_with_it() {
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
    fn an_unresolved_abbreviation_is_searched_again_when_the_remote_has_changed() {
        let (now, a, b) = (Instant::now(), tips(&['a']), tips(&['a', 'b']));
        let mut resolutions = Resolutions::default();
        resolutions.not_found(&short("1234567"), a, &missing(), now);
        assert!(resolutions.fault(&short("1234567"), a, now + TOO_LARGE_FOR).is_some());
        assert!(resolutions.fault(&short("1234567"), b, now).is_none());
        assert!(resolutions.fault(&short("7654321"), a, now).is_none());

        let large = Arc::new(Fault::HistoryTooLarge { what: "the pack in bytes", limit: 1 });
        resolutions.not_found(&short("1234567"), a, &large, now);
        assert!(resolutions.fault(&short("1234567"), b, now).is_some(), "it will not have become smaller");
        assert!(resolutions.fault(&short("1234567"), b, now + TOO_LARGE_FOR).is_none());

        resolutions.not_found(&short("abcdef0"), a, &Arc::new(Fault::WebPage), now);
        assert!(resolutions.fault(&short("abcdef0"), a, now).is_none(), "the server may be well the next time");
    }

    #[test]
    fn a_hint_counts_until_it_is_wrong() {
        let now = Instant::now();
        let (wrong, right) = (commit("12345678"), commit("12345679"));
        let mut resolutions = Resolutions::default();
        resolutions.hint(&short("1234567"), commit("abcdef0"), now);
        assert_eq!(resolutions.commit(&short("1234567")), None, "it begins otherwise");
        resolutions.hint(&short("1234567"), wrong, now);
        assert_eq!(resolutions.commit(&short("1234567")), Some(wrong));
        resolutions.lost(wrong);
        resolutions.hint(&short("1234567"), wrong, now);
        assert_eq!(resolutions.commit(&short("1234567")), None);
        resolutions.found(&short("1234567"), right, now);
        resolutions.hint(&short("1234567"), wrong, now);
        resolutions.lost(wrong);
        assert_eq!(resolutions.commit(&short("1234567")), Some(right));
    }

    #[test]
    fn forgets_the_oldest_when_there_are_too_many() {
        let start = Instant::now();
        let mut resolutions = Resolutions::default();
        for number in 0..1000_u32 {
            let at = start + Duration::from_secs(number.into());
            resolutions.found(&short(&format!("{number:07}")), commit(&format!("{number:07}")), at);
        }
        assert_eq!(resolutions.0.len(), REMEMBERED);
        assert!(resolutions.commit(&short("0000999")).is_some() && resolutions.commit(&short("0000001")).is_none());
    }
}
