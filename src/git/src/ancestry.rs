//! Whether one commit descends from another, as far as the commits at hand show it.
//!
//! Mirrors hold the commits that were followed, and little of the history between them: often it cannot be told.
//!
//! Invariant: "descends" and "does not descend" are said only when no commit that is missing could change that.

use std::collections::{BTreeSet, VecDeque};

use super::id::Id;

/// Commits that are looked at, on each side.
const MOST: usize = 2000;

/// How a commit is related to an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ancestry {
    /// It descends from the earlier one, or is it.
    Descends,
    /// It does not.
    Other,
    /// That cannot be told.
    Unknown,
}

/// How `new` is related to `old`. `parents` are those of a commit, `None` if it is not at hand.
pub(super) fn ancestry<E>(
    new: Id,
    old: Id,
    mut parents: impl FnMut(Id) -> Result<Option<Vec<Id>>, E>,
) -> Result<Ancestry, E> {
    if new == old {
        return Ok(Ancestry::Descends);
    }
    if parents(old)?.is_none() {
        // It may be of another repository.
        return Ok(Ancestry::Unknown);
    }
    // Most often only a few commits were added.
    let mut first = parents(new)?.and_then(|all| all.first().copied());
    for _ in 0..MOST {
        match first {
            Some(id) if id == old => return Ok(Ancestry::Descends),
            Some(id) => first = parents(id)?.and_then(|all| all.first().copied()),
            None => break,
        }
    }
    // No ancestor of `old` descends from it, whether it is at hand or not.
    let (before_old, _) = walk(old, &mut parents, |_| false)?;
    let (seen, is_complete) = walk(new, &mut parents, |id| id == old || before_old.contains(&id))?;
    Ok(match (seen.contains(&old), is_complete) {
        (true, _) => Ancestry::Descends,
        (false, true) => Ancestry::Other,
        (false, false) => Ancestry::Unknown,
    })
}

/// A commit and its ancestors, none beyond those at which it ends; and whether that is all of them.
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

    /// `commits`: each is a digit with those of its parents.
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
        // Amended: what its parent is like does not matter.
        check(&["20", "10"], '2', '1', Other);
        // Taken back.
        check(&["0", "10"], '0', '1', Other);
        check(&["3", "10"], '3', '1', Other);
        check(&["40", "325", "21"], '4', '3', Unknown);
        check(&["423", "20", "30"], '4', '3', Descends);
        check(&["45", "50", "30", "0"], '4', '3', Other);
    }
}
