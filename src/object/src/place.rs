//! The location of an object in a repository.

use std::fmt;
use std::sync::Arc;

use super::printable;

/// A location in a file of the repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Path of the file, relative to the repository's root.
    pub file: Arc<str>,
    /// Number of the document in the file, from 1; 0 for the whole file.
    pub document: u32,
    /// Line in the file, from 1; 0 for the whole file.
    pub line: u32,
    /// Column in characters, from 1; 0 for the whole line.
    pub column: u32,
    /// If a tool built the object from `file`: the file of the kustomization or chart, with the patches for the object.
    /// Fields of the object may come from any of these files.
    pub built_by: Option<Arc<str>>,
}

impl Place {
    /// Returns the location of a whole file.
    pub fn file(file: impl Into<Arc<str>>) -> Self {
        Self { file: file.into(), document: 0, line: 0, column: 0, built_by: None }
    }

    /// Returns the line, if known.
    pub fn known_line(&self) -> Option<u32> {
        Some(self.line).filter(|line| *line > 0)
    }

    /// Returns the number of the document, if known.
    pub fn known_document(&self) -> Option<u32> {
        Some(self.document).filter(|document| *document > 0)
    }

    /// Returns the short form for lists: `apps/web.yaml:14 (document 2)`.
    pub fn short(&self) -> String {
        let mut text = printable(&self.file).into_owned();
        if self.line > 0 {
            text = format!("{text}:{}", self.line);
        }
        if self.document > 0 { format!("{text} (document {})", self.document) } else { text }
    }
}

impl Place {
    /// Returns `, built by FILE` if a tool built the object; otherwise an empty string.
    pub fn builder(&self) -> String {
        self.built_by.as_ref().map(|builder| format!(", built by {}", printable(builder))).unwrap_or_default()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.file))?;
        for (word, number) in [("document", self.document), ("line", self.line), ("column", self.column)] {
            if number > 0 {
                write!(f, ", {word} {number}")?;
            }
        }
        f.write_str(&self.builder())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_it_knows() {
        let place = Place { file: "apps/web.yaml".into(), document: 2, line: 14, column: 3, built_by: None };
        assert_eq!(place.to_string(), "apps/web.yaml, document 2, line 14, column 3");
        assert_eq!(Place::file("a.yaml").to_string(), "a.yaml");
        let built = Place { built_by: Some("over\n/kustomization.yaml".into()), ..Place::file("a.yaml") };
        assert_eq!(built.to_string(), "a.yaml, built by over\\n/kustomization.yaml");
        assert_eq!(place.short(), "apps/web.yaml:14 (document 2)");
        assert_eq!(Place::file("a\n.yaml").short(), "a\\n.yaml");
    }
}
