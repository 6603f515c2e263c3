//! A revision in Git's notation: a reference, or an ancestor of its commit, such as `main~3` or `HEAD^2~1`.
//!
//! Not here: access to the history (`search`). A followed [`Reference`] cannot be an expression.

use super::error::{Error, Fault};
use super::id::{Commit, Id};
use super::reference::Reference;

/// Maximum number of generations of one step.
const FARTHEST: u32 = 1_000_000;

/// A reference with steps to an ancestor of its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    pub(super) reference: Reference,
    pub(super) steps: Vec<Step>,
}

/// A step to an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// `~N`: the first parent, N times.
    Generations(u32),
    /// `^N`: the parent with this number, from 1; 0 is the commit itself.
    Parent(u32),
}

impl Expression {
    /// Parses a reference with any number of `~`, `~N`, `^` and `^N` after it.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let at = text.find(['~', '^']).unwrap_or(text.len());
        let (reference, mut rest) = text.split_at(at);
        let reference = Reference::parse(reference)?;
        let mut steps = Vec::new();
        while let Some(sign) = rest.chars().next() {
            let digits = rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1);
            let number = &rest[1..=digits];
            let number = if number.is_empty() { Some(1) } else { number.parse().ok() };
            let step = match (sign, number) {
                ('~', Some(number)) if number <= FARTHEST => Step::Generations(number),
                ('^', Some(number)) => Step::Parent(number),
                _ => return Err(Error::parse("revision", Fault::Malformed { why: MALFORMED })),
            };
            steps.push(step);
            rest = &rest[1 + digits..];
        }
        Ok(Self { reference, steps })
    }

    /// Returns the ancestor of `commit`. `parents` returns the parents of a commit, or `None` if it is not available.
    pub(super) fn ancestor(
        &self,
        commit: Commit,
        mut parents: impl FnMut(Commit) -> Result<Option<Vec<Id>>, Fault>,
    ) -> Result<Commit, Fault> {
        let mut at = commit;
        let mut up = |at: Commit, number: usize| {
            let all = parents(at)?.unwrap_or_default();
            all.get(number).map(|id| Commit(*id)).ok_or(Fault::MissingAncestor)
        };
        for step in &self.steps {
            match *step {
                Step::Generations(number) => {
                    for _ in 0..number {
                        at = up(at, 0)?;
                    }
                }
                Step::Parent(0) => {}
                Step::Parent(number) => at = up(at, number as usize - 1)?,
            }
        }
        Ok(at)
    }
}

const MALFORMED: &str = "only ~N and ^N may follow the reference, as in main~3; resolve other expressions with `git \
                         rev-parse`, and use the commit";

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> Commit {
        Commit(Id::parse(format!("{number:040x}").as_bytes()).unwrap())
    }

    #[test]
    fn steps_lead_to_ancestors_as_in_git() {
        // 9 is a merge of 8 and 5; 8 → 7 → 6 → 1 and 5 → 1.
        let parents = |of: Commit| {
            let all: &[u32] = match of {
                of if of == id(9) => &[8, 5],
                of if of == id(8) => &[7],
                of if of == id(7) => &[6],
                of if of == id(6) || of == id(5) => &[1],
                of if of == id(1) => &[],
                _ => return Ok(None),
            };
            Ok(Some(all.iter().map(|number| id(*number).0).collect()))
        };
        for (text, expected) in [
            ("main", Some(9)),
            ("main~", Some(8)),
            ("main^", Some(8)),
            ("HEAD~3", Some(6)),
            ("HEAD~~~", Some(6)),
            ("main^2", Some(5)),
            ("main^2~1", Some(1)),
            ("main^0~0", Some(9)),
            ("main~4", Some(1)),
            ("main~5", None),
            ("main^3", None),
        ] {
            let found = Expression::parse(text).unwrap().ancestor(id(9), parents);
            assert_eq!(found.ok(), expected.map(id), "{text}");
        }
        assert!(matches!(Expression::parse("a~1").unwrap().ancestor(id(4), parents), Err(Fault::MissingAncestor)));
    }

    #[test]
    fn other_expressions_are_refused() {
        for text in
            ["", "~3", "main~x", "main^{commit}", "main~3x", "main~99999999999", "main~1000001", "a..b", "main@{1}"]
        {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
        assert_eq!(Expression::parse("semver:>=1").unwrap().steps, []);
    }
}
