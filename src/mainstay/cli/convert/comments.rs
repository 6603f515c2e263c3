//! Comments of YAML, kept across a conversion: a comment above or behind a field moves to the field that replaces it.
//!
//! Not here: comments in lists and in block scalars, which are dropped.

use std::collections::BTreeMap;

/// The comments of one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Comment {
    above: Vec<String>,
    behind: Option<String>,
}

/// The comments of one document, by the dotted paths of their fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comments(BTreeMap<String, Comment>);

impl Comments {
    /// Reads the comments of a document.
    pub(super) fn read(text: &str) -> Self {
        let mut comments = BTreeMap::new();
        let mut above = Vec::new();
        let mut places = Places::default();
        for line in text.lines() {
            let trimmed = line.trim();
            if places.is_in_scalar(line) {
                continue;
            }
            if trimmed.starts_with('#') {
                above.push(trimmed.to_owned());
                continue;
            }
            if trimmed.is_empty() {
                continue;
            }
            let above = std::mem::take(&mut above);
            let Some(path) = places.path(line) else { continue };
            let behind = behind(line).map(str::to_owned);
            if !above.is_empty() || behind.is_some() {
                comments.insert(path, Comment { above, behind });
            }
        }
        Self(comments)
    }

    /// Takes over the comments of a field of another document and of its nested fields. Several fields may be merged
    /// into one.
    pub(super) fn carry(&mut self, to: &str, other: &Self, from: &str) {
        let within = |path: &str| Some((path.strip_prefix(from)?.strip_prefix('.')?.to_owned(), path.to_owned()));
        for (rest, path) in other.0.keys().filter_map(|path| within(path)).collect::<Vec<_>>() {
            self.carry_one(&format!("{to}.{rest}"), other, &path);
        }
        self.carry_one(to, other, from);
    }

    fn carry_one(&mut self, to: &str, other: &Self, from: &str) {
        let Some(comment) = other.0.get(from) else { return };
        let own = self.0.entry(to.to_owned()).or_default();
        own.above.extend(comment.above.iter().cloned());
        match (&mut own.behind, &comment.behind) {
            (None, Some(_)) => own.behind.clone_from(&comment.behind),
            (Some(_), Some(second)) => own.above.push(second.clone()),
            (_, None) => {}
        }
    }

    /// Writes the comments into a document.
    pub(super) fn write(&self, text: &str) -> String {
        let mut written = String::with_capacity(text.len());
        let mut places = Places::default();
        for line in text.lines() {
            let comment = if places.is_in_scalar(line) { None } else { places.path(line) };
            match comment.and_then(|path| self.0.get(&path)) {
                Some(comment) => {
                    let indentation = &line[..line.len() - line.trim_start().len()];
                    for above in &comment.above {
                        written.push_str(&format!("{indentation}{above}\n"));
                    }
                    let behind = comment.behind.as_ref().map(|behind| format!("  {behind}")).unwrap_or_default();
                    written.push_str(&format!("{line}{behind}\n"));
                }
                None => written.push_str(&format!("{line}\n")),
            }
        }
        written
    }
}

/// Follows the lines of a document and determines the fields that the lines begin.
#[derive(Debug, Default)]
struct Places {
    /// Indentation and key of the open maps.
    open: Vec<(usize, String)>,
    /// Indentation of the field whose block scalar is being read.
    scalar: Option<usize>,
    /// Indentation of the list that is being read.
    list: Option<usize>,
}

impl Places {
    /// Whether the line belongs to a block scalar.
    fn is_in_scalar(&mut self, line: &str) -> bool {
        let Some(indentation) = self.scalar else { return false };
        if line.trim().is_empty() || indent(line) > indentation {
            return true;
        }
        self.scalar = None;
        false
    }

    /// Returns the dotted path of the field that the line begins; `None` in a list.
    fn path(&mut self, line: &str) -> Option<String> {
        let indentation = indent(line);
        let content = line.trim_start();
        let is_item = content.starts_with("- ") || content == "-";
        let ends_in_scalar = |line: &str| {
            let bare = line.rsplit_once(" #").map_or(line, |(bare, _)| bare).trim_end();
            let last = bare.rsplit(' ').next().unwrap_or_default();
            last.starts_with(['|', '>']) && last.len() <= 3
        };
        if is_item || self.list.is_some_and(|list| indentation > list) {
            if is_item {
                self.list = Some(self.list.map_or(indentation, |list| list.min(indentation)));
            }
            self.scalar = ends_in_scalar(line).then_some(indentation);
            return None;
        }
        self.list = None;
        let key = key(content)?;
        self.open.retain(|(open, _)| *open < indentation);
        self.open.push((indentation, key.to_owned()));
        self.scalar = ends_in_scalar(line).then_some(indentation);
        Some(self.open.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join("."))
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns the key that a line of a block map begins with.
fn key(content: &str) -> Option<&str> {
    let end = content.find(": ").or_else(|| content.ends_with(':').then(|| content.len() - 1))?;
    let key = content[..end].trim_matches(['"', '\'']);
    (!key.is_empty() && !key.contains([' ', '{', '['])).then_some(key)
}

/// Returns the comment at the end of a line.
fn behind(line: &str) -> Option<&str> {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') if before == ' ' => return Some(line[at..].trim_end()),
            (Some(_) | None, _) => {}
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
# The shop.
apiVersion: a/v1
spec:
  # Where it lies.
  path: ./apps # of the repository
  url: 'https://example.org/#a'
  list: # all of them
    - a: 1 # lost
      b: 2
  text: |
    # no comment
    path: no field
  interval: 10m # slow
  # A ghost.
";

    #[test]
    fn comments_follow_their_fields() {
        let source = Comments::read(SOURCE);
        let mut target = Comments::default();
        for (from, to) in [
            ("apiVersion", "apiVersion"),
            ("spec.path", "spec.baseDir"),
            ("spec.interval", "spec.interval"),
            ("spec.list", "spec.interval"),
            ("spec.url", "spec.interval"),
        ] {
            target.carry(to, &source, from);
        }
        let written =
            target.write("apiVersion: b/v1\nspec:\n  baseDir: /apps\n  interval: 10m\n  items:\n  - interval: 1\n");
        let expected = "\
# The shop.
apiVersion: b/v1
spec:
  # Where it lies.
  baseDir: /apps  # of the repository
  # all of them
  interval: 10m  # slow
  items:
  - interval: 1
";
        assert_eq!(written, expected);
        assert_eq!(Comments::read(&written).write("a: |\n  spec: x\n"), "a: |\n  spec: x\n");
    }
}
