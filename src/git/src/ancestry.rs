//! Decides whether one commit descends from another, from the locally available commits.
//!
//! Mirrors contain the followed commits and little of the history between them, so the result is often unknown.
//!
//! Invariant: a definite result means that no missing commit could change it.

use std::collections::{BTreeSet, VecDeque};

use super::id::Id;

/// Maximum number of commits to visit on each side.
const MOST: usize = 2000;

/// Relation of a commit to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ancestry {
    /// The commit descends from the earlier one, or is the same.
    Descends,
    /// The commit does not descend from the earlier one.
    Other,
    /// The available commits do not show the relation.
    Unknown,
}

/// Returns the relation of `new` to `old`. `parents` returns the parents of a commit, or `None` if it is not
/// available.
pub(super) fn ancestry<E>(
    new: Id,
    old: Id,
    mut parents: impl FnMut(Id) -> Result<Option<Vec<Id>>, E>,
) -> Result<Ancestry, E> {
    if new == old {
        return Ok(Ancestry::Descends);
    }
    if parents(old)?.is_none() {
        // The commit may belong to a different repository.
        return Ok(Ancestry::Unknown);
    }
    // Fast path: usually only a few commits were added.
    let mut first = parents(new)?.and_then(|all| all.first().copied());
    for _ in 0..MOST {
        match first {
            Some(id) if id == old => return Ok(Ancestry::Descends),
            Some(id) => first = parents(id)?.and_then(|all| all.first().copied()),
            None => break,
        }
    }
    // The search stops at ancestors of `old`: none of them descends from `old`.
    let (before_old, _) = walk(old, &mut parents, |_| false)?;
    let (seen, is_complete) = walk(new, &mut parents, |id| id == old || before_old.contains(&id))?;
    Ok(match (seen.contains(&old), is_complete) {
        (true, _) => Ancestry::Descends,
        (false, true) => Ancestry::Other,
        (false, false) => Ancestry::Unknown,
    })
}

/// Collects a commit and its ancestors, up to those for which `ends` is true. Returns whether the set is complete.
fn walk<E>(
    from: Id,
    parents: &mut impl FnMut(Id) -> Result<Option<Vec<Id>>, E>,
    ends: impl Fn(Id) -> bool,
) -> Result<(BTreeSet<Id>, bool), E> {
    let (mut seen, mut open, mut is_complete) = (BTreeSet::from([from]), VecDeque::from([from]), true);
    for _ in 0..MOST {
        let Some(id) = open.pop_front() else { return Ok((seen, is_complete)) };
        if ends(id) {
            continue;
        }
        match parents(id)? {
            Some(all) => open.extend(all.into_iter().filter(|id| seen.insert(*id))),
            None => is_complete = false,
        }
    }
    let is_complete = is_complete && open.iter().all(|id| ends(*id));
    Ok((seen, is_complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each string in `commits` is the digit of a commit, followed by the digits of its parents.
    #[track_caller]
    fn check(commits: &[&str], new: char, old: char, expected: Ancestry) {
        let id = |digit: char| Id::parse(digit.to_string().repeat(40).as_bytes()).unwrap();
        let parents = |asked: Id| -> Result<Option<Vec<Id>>, ()> {
            let commit = commits.iter().find(|commit| commit.starts_with(|digit| id(digit) == asked));
            Ok(commit.map(|commit| commit.chars().skip(1).map(id).collect()))
        };
        assert_eq!(ancestry(id(new), id(old), parents), Ok(expected), "{commits:?}");
    }

    #[test]
    fn a_few_commits_on_top_of_a_long_history_are_a_few_steps() {
        let id = |number: u32| Id::parse(format!("{number:040x}").as_bytes()).unwrap();
        let mut asked = 0;
        let parents = |of: Id| -> Result<Option<Vec<Id>>, ()> {
            asked += 1;
            let number = (1..5000).find(|number| id(*number) == of);
            Ok(number.map(|number| vec![id(number - 1)]))
        };
        assert_eq!(ancestry(id(4999), id(4996), parents), Ok(Ancestry::Descends));
        assert!(asked <= 4, "{asked}");
    }

    #[test]
    fn says_what_the_commits_at_hand_show() {
        use Ancestry::{Descends, Other, Unknown};
        check(&["21", "10"], '2', '1', Descends);
        check(&["21"], '2', '1', Unknown);
        check(&["32", "10"], '3', '1', Unknown);
        check(&["32", "21", "10", "0"], '3', '1', Descends);
        // An amended commit: its parent's history does not matter.
        check(&["20", "10"], '2', '1', Other);
        // A removed commit.
        check(&["0", "10"], '0', '1', Other);
        check(&["3", "10"], '3', '1', Other);
        check(&["40", "325", "21"], '4', '3', Unknown);
        check(&["423", "20", "30"], '4', '3', Descends);
        check(&["45", "50", "30", "0"], '4', '3', Other);
    }
}
