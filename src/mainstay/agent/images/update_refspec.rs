//! The destination of an ImageUpdateAutomation: a branch, a reference for reviews, or both.
//!
//! Invariant: nothing is forced or deleted, and a refspec pushes no other commit than the new one.

use mainstay_git::Reference;
use mainstay_object::failure::chain;

/// Prefix of branches.
pub(super) const BRANCHES: &str = "refs/heads/";
/// Prefix of references for reviews in Gerrit. The server turns a push to one into a change, and shows no such reference.
const REVIEWS: &str = "refs/for/";

/// The references that commits are pushed to. All names are full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// A branch; `None` for the branch that is read.
    Branch(Option<String>),
    /// A branch, which has the commits, and the destination of a refspec.
    Both(String, String),
    /// A reference for reviews. The commits are made upon the branch that is read.
    Review(String),
}

impl Destination {
    /// Returns where `branch` and a refspec with this destination push.
    pub(super) fn new(branch: Option<String>, reference: String) -> Self {
        match branch {
            Some(branch) if branch != reference => Self::Both(branch, reference),
            None if is_for_review(&reference) => Self::Review(reference),
            _ => Self::Branch(Some(reference)),
        }
    }

    /// Returns the pushed branch upon which commits are made, if the spec names one.
    pub(super) fn branch(&self) -> Option<&str> {
        match self {
            Self::Branch(branch) => branch.as_deref(),
            Self::Both(branch, _) => Some(branch),
            Self::Review(_) => None,
        }
    }

    /// Returns the reference of a push that asks for a review.
    pub(super) fn review(&self) -> Option<&str> {
        match self {
            Self::Branch(_) => None,
            Self::Both(_, to) | Self::Review(to) => Some(&**to).filter(|to| is_for_review(to)),
        }
    }
}

/// Whether a push to this reference asks for a review.
pub(super) fn is_for_review(reference: &str) -> bool {
    reference.starts_with(REVIEWS)
}

/// Returns the full name of a branch.
pub(super) fn full_name(branch: &str) -> String {
    format!("{BRANCHES}{}", branch.strip_prefix(BRANCHES).unwrap_or(branch))
}

/// Returns the destination of a refspec. Its source must be HEAD or the branch of the commits, `committed`, which is
/// unknown for the default branch of the repository.
///
/// # Errors
/// The violated rule.
pub(super) fn destination(refspec: &str, committed: Option<&str>) -> Result<String, String> {
    let form = "must be SOURCE:DESTINATION, such as refs/heads/main:refs/heads/auto";
    if refspec.starts_with('+') {
        return Err("a forced push (`+`) could remove commits of others; remove the `+`".to_owned());
    }
    if refspec.contains('*') {
        return Err(format!("patterns are not supported; it {form}"));
    }
    let (source, destination) = refspec.split_once(':').ok_or(form)?;
    if source.is_empty() {
        return Err(format!("an empty source would delete the destination; it {form}"));
    }
    let committed = match committed {
        Some(committed) => committed,
        None if source == "HEAD" => source,
        None => {
            return Err("the branch of the commits is unknown; name it in spec.git.checkout.ref.branch".to_owned());
        }
    };
    if source != "HEAD" && source != committed {
        return Err(format!("the source must be the branch of the commits: HEAD or {committed}"));
    }
    Reference::parse(destination).map_err(|error| format!("the destination: {}", chain(&error)))?;
    if ![BRANCHES, REVIEWS].iter().any(|prefix| destination.starts_with(prefix)) {
        return Err(format!("the destination must begin with {BRANCHES} or {REVIEWS}"));
    }
    Ok(destination.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_refspec_names_the_branch_of_the_commits_and_a_full_destination() {
        let main = Some("refs/heads/main");
        for (refspec, committed, expected) in [
            ("refs/heads/main:refs/heads/auto", main, "refs/heads/auto"),
            ("HEAD:refs/heads/auto", main, "refs/heads/auto"),
            ("HEAD:refs/for/main%topic=images", None, "refs/for/main%topic=images"),
        ] {
            assert_eq!(destination(refspec, committed), Ok(expected.to_owned()), "{refspec}");
        }
        for (refspec, committed, expected) in [
            ("+refs/heads/main:refs/heads/auto", main, "a forced push"),
            (":refs/heads/auto", main, "an empty source would delete"),
            ("refs/heads/*:refs/heads/*", main, "patterns are not supported"),
            ("refs/heads/main", main, "must be SOURCE:DESTINATION"),
            ("main:refs/heads/auto", main, "the source must be the branch of the commits: HEAD or refs/heads/main"),
            ("refs/heads/main:refs/heads/auto", None, "the branch of the commits is unknown"),
            ("HEAD:auto", main, "the destination must begin with"),
            ("HEAD:refs/tags/v1", main, "the destination must begin with"),
            ("HEAD:refs/heads/", main, "the destination: "),
            ("HEAD:refs/heads/a b", main, "the destination: "),
            ("HEAD:refs/heads/a:b", main, "the destination: "),
            ("HEAD:", main, "the destination: "),
        ] {
            let said = destination(refspec, committed).unwrap_err();
            assert!(said.starts_with(expected), "{refspec}: {said}");
        }
    }

    #[test]
    fn a_refspec_replaces_the_branch_or_adds_a_destination() {
        let [auto, main, review] = ["refs/heads/auto", "refs/heads/main", "refs/for/main"].map(str::to_owned);
        assert_eq!(Destination::new(None, auto.clone()), Destination::Branch(Some(auto.clone())));
        assert_eq!(Destination::new(Some(auto.clone()), auto.clone()), Destination::Branch(Some(auto.clone())));
        assert_eq!(Destination::new(Some(auto.clone()), main.clone()), Destination::Both(auto.clone(), main));
        assert_eq!(Destination::new(Some(auto.clone()), review.clone()), Destination::Both(auto, review.clone()));
        assert_eq!(Destination::new(None, review.clone()), Destination::Review(review));
        let both = |to: &str| Destination::new(Some("refs/heads/auto".to_owned()), to.to_owned());
        assert_eq!(both("refs/for/main%wip").review(), Some("refs/for/main%wip"));
        assert_eq!((both("refs/heads/main").review(), both("refs/heads/auto").review()), (None, None));
    }

    proptest! {
        #[test]
        fn reads_any_refspec_without_panic(text: String, parts in "[+:*a-z/]{0,40}") {
            for refspec in [&text, &parts] {
                if let Ok(name) = destination(refspec, Some("refs/heads/a")) {
                    prop_assert!(name.starts_with("refs/") && !name.contains(['\n', ' ', ':', '*']));
                }
            }
        }
    }
}
