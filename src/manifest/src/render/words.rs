//! How much of a tool's own words a problem shows.

use crate::Problem;
use mainstay_object::printable;

/// How much is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// Only what is known to be a name: they may quote Secrets, and a status has more readers than a repository.
    #[default]
    Reduced,
    /// All of them, on the machine of a developer who has the files.
    Full,
}

impl Words {
    /// A problem with what a tool said of it. `root` is where the files lay that it read.
    pub(super) fn add(self, problem: Problem, said: &str, root: &str) -> Problem {
        let said = said.replace(&format!("{}/", root.trim_end_matches('/')), "");
        let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).map(printable).collect();
        if self == Self::Reduced || lines.is_empty() {
            return problem;
        }
        // The hints that lead to these words.
        let hint = problem.hint.filter(|hint| !hint.contains("in a checkout"));
        Problem { what: format!("{}: {}", problem.what, lines.join(" ")), hint, ..problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_object::Place;

    #[test]
    fn a_developer_sees_all_that_the_tool_says_and_nobody_else_does() {
        let problem = |hint| Problem::new(Place::file("a/kustomization.yaml"), "kustomize refuses it", Some(hint));
        let said = "Error: in '/scratch/x/a/p.yaml':\n  no such key hush\n\n";
        let told = |words: Words, hint| words.add(problem(hint), said, "/scratch/x").to_string();
        let see = "`kubectl kustomize` in a checkout says why";
        assert_eq!(
            told(Words::Full, see),
            "a/kustomization.yaml: kustomize refuses it: Error: in 'a/p.yaml': no such key hush"
        );
        assert_eq!(told(Words::Reduced, see), problem(see).to_string());
        assert!(told(Words::Full, "mend it").ends_with("hush (mend it)"));
    }
}
