//! Describes why a directory does not exist in a commit, and what exists in its place.

use std::fmt;

use super::id::Commit;
use super::reference::BaseDir;
use mainstay_object::printable;

/// Maximum number of names in a message, and of characters in each.
const SHOWN: usize = 20;
const SHOWN_CHARACTERS: usize = 80;

/// A directory that a commit does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingDirectory {
    /// The requested directory.
    pub base_dir: BaseDir,
    /// The commit.
    pub commit: Commit,
    /// The deepest existing directory on the path.
    pub parent: BaseDir,
    /// The kind of the entry that exists in place of the next directory, such as `is a file`; `None` if there is no
    /// entry.
    pub instead: Option<&'static str>,
    /// The directories in `parent`, in order.
    pub directories: Vec<String>,
}

impl MissingDirectory {
    /// Returns the first part of the path that does not exist in `parent`.
    pub(super) fn child<'b>(base_dir: &'b BaseDir, parent: &BaseDir) -> &'b str {
        base_dir.parts().nth(parent.parts().count()).unwrap_or_default()
    }
}

/// Example: `baseDir /nope is not a directory at commit 1234…: there is no /nope; / holds the directories apps,
/// docs`.
impl fmt::Display for MissingDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base_dir, parent) = (self.base_dir.to_string(), self.parent.to_string());
        let first = format!("{}/{}", parent.trim_end_matches('/'), Self::child(&self.base_dir, &self.parent));
        let (base_dir, parent, first) = (printable(&base_dir), printable(&parent), printable(&first));
        write!(f, "baseDir {base_dir} is not a directory at commit {}: ", self.commit)?;
        if let Some(what) = self.instead {
            return write!(f, "{first} {what}");
        }
        let named = self.directories.iter().take(SHOWN);
        let named = named.map(|name| printable(name).chars().take(SHOWN_CHARACTERS).collect::<String>());
        let named = named.collect::<Vec<_>>().join(", ");
        write!(f, "there is no {first}; {parent} holds ")?;
        match self.directories.len() {
            0 => write!(f, "no directory"),
            1 => write!(f, "the directory {named}"),
            count if count > SHOWN => write!(f, "the directories {named} and {} more", count - SHOWN),
            _ => write!(f, "the directories {named}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(base_dir: &str, parent: &str, instead: Option<&'static str>, directories: &[&str]) -> String {
        let parse = |text| BaseDir::parse(text).unwrap();
        let directories = directories.iter().map(ToString::to_string).collect();
        let commit = "1".repeat(40).parse().unwrap();
        let said = MissingDirectory { base_dir: parse(base_dir), commit, parent: parse(parent), instead, directories };
        said.to_string().replace(&"1".repeat(40), "C")
    }

    #[test]
    fn names_what_is_there_instead() {
        let check = |said: String, expected: &str| assert_eq!(said, format!("baseDir {expected}"));
        check(
            missing("nope", "/", None, &["apps", "docs"]),
            "/nope is not a directory at commit C: there is no /nope; / holds the directories apps, docs",
        );
        check(
            missing("apps/gone/deeper", "apps", None, &["web"]),
            "/apps/gone/deeper is not a directory at commit C: there is no /apps/gone; /apps holds the directory web",
        );
        check(
            missing("a/b", "a", None, &[]),
            "/a/b is not a directory at commit C: there is no /a/b; /a holds no directory",
        );
        check(
            missing("a.yaml", "/", Some("is a file"), &["b"]),
            "/a.yaml is not a directory at commit C: /a.yaml is a file",
        );
    }

    #[test]
    fn is_one_line_of_bounded_length_whatever_the_names() {
        let long = "x".repeat(5000);
        let mut names = vec!["a\nGitSync forged/line: applied", "\u{202e}b", long.as_str()];
        names.resize(1000, "more");
        let said = missing("nope", "/", None, &names);
        assert!(said.contains("a\\nGitSync forged/line: applied, \\u{202e}b, xxx"), "{said}");
        assert!(said.ends_with("more and 980 more") && said.len() < 1000 && said.lines().count() == 1, "{said}");
    }
}
