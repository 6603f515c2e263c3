//! The result of a preview: one value that is printed as text for users or as data.
//!
//! Invariant: only masked content is added to a report.

use serde_json::{Value, json};

use super::hunks::hunks;
use crate::cli::output::{Format, OutputArgument};
use crate::cli::{Exit, ids};
use mainstay_gitsync::{Changes, Fate, Previewed, Revision};
use mainstay_object::{Mask, Owner, printable};

/// The format of what a preview prints.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) enum PreviewOutput {
    /// Text for people
    #[default]
    Text,
    /// Text for people, without truncation
    Wide,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// The body of a comment on a pull request
    Markdown,
}

impl PreviewOutput {
    /// Returns the format; `None` for the format of comments.
    pub(in crate::cli) fn plain(self) -> Option<OutputArgument> {
        let output = match self {
            Self::Text => Format::Text,
            Self::Wide => Format::Wide,
            Self::Json => Format::Json,
            Self::Yaml => Format::Yaml,
            Self::Markdown => return None,
        };
        Some(OutputArgument { output })
    }
}

/// The changes of a revision.
#[derive(Debug)]
pub(in crate::cli) struct Report {
    owner: Owner,
    /// The previewed side, such as `commit 1a2b3c4d5e6f of main`, or the work tree.
    pub(super) what: String,
    /// The other side of the comparison.
    pub(super) against: String,
    /// Id of the commit; `None` for a work tree.
    commit: Option<String>,
    pub(super) objects: Vec<Shown>,
    /// Number of unchanged objects.
    pub(super) unchanged: usize,
    pub(super) notes: Vec<String>,
}

/// An object that changes or has a note.
#[derive(Debug)]
pub(super) struct Shown {
    object: Previewed,
    pub(super) name: String,
    /// The object's location in the repository.
    pub(super) place: Option<String>,
    pub(super) word: &'static str,
    pub(super) note: Option<String>,
    pub(super) lines: Vec<String>,
}

/// A side of the comparison, as text and as an id.
pub(super) struct Named {
    pub(super) what: String,
    pub(super) commit: Option<String>,
}

impl Named {
    /// Returns the side for a commit.
    pub(super) fn revision(revision: &Revision) -> Self {
        let (commit, reference) = (ids::short(&revision.commit), &revision.reference);
        let of = if *reference == revision.commit { String::new() } else { format!(" of {}", printable(reference)) };
        Self { what: format!("commit {commit}{of}"), commit: Some(revision.commit.clone()) }
    }

    /// Returns the side for a work tree.
    pub(super) fn work_tree() -> Self {
        Self { what: "the work tree".to_owned(), commit: None }
    }
}

/// The outcomes for objects, in the order in which their counts are printed.
pub(super) const WORDS: [&str; 7] = ["created", "changed", "replaced", "deleted", "waiting", "left alone", "failed"];

impl Report {
    pub(super) fn of(owner: Owner, named: Named, against: String, changes: Changes, secrets: &[String]) -> Self {
        let all = changes.objects.len();
        let is_changed = |one: &Previewed| one.fate != Fate::Unchanged;
        let objects: Vec<Shown> =
            changes.objects.into_iter().filter(is_changed).map(|object| Shown::of(object, secrets)).collect();
        let unmasked = Mask { is_confidential: false, secrets };
        let notes = changes.notes.iter().map(|note| unmasked.text(note)).collect();
        let unchanged = all - objects.len();
        Self { owner, what: named.what, against, commit: named.commit, objects, unchanged, notes }
    }

    /// Returns 2 if a part failed, or else 1 if there are differences.
    pub(in crate::cli) fn exit(&self) -> Exit {
        let exit = |shown: &Shown| match &shown.object.fate {
            Fate::Failed(_) => Exit::Failed,
            fate if fate.is_difference() => Exit::Differs,
            _ => Exit::Fine,
        };
        self.objects.iter().map(exit).max().unwrap_or(Exit::Fine)
    }

    pub(super) fn sync(&self) -> String {
        self.owner.resource().to_string()
    }

    /// Returns the number of objects per outcome, except for unchanged ones.
    pub(super) fn counts(&self) -> Vec<(&'static str, usize)> {
        let count = |word: &'static str| (word, self.objects.iter().filter(|shown| shown.word == word).count());
        WORDS.into_iter().map(count).collect()
    }

    /// Returns the report as text.
    pub(in crate::cli) fn text(&self) -> String {
        let mut text = format!("GitSync {}: {} against {}\n", self.sync(), self.what, self.against);
        for shown in &self.objects {
            let place = shown.place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default();
            text.push_str(&format!("{:<10} {}{place}\n", shown.word, shown.name));
            for note in shown.note.iter().flat_map(|note| note.lines()) {
                text.push_str(&format!("  {}\n", printable(note)));
            }
            text.extend(shown.lines.iter().map(|line| format!("  {}\n", printable(line))));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {}\n", printable(note)));
        }
        let counted = self.counts().into_iter().filter(|(_, count)| *count > 0);
        let counted: Vec<String> = counted.map(|(word, count)| format!("{count} {word}")).collect();
        let unchanged = format!("{} unchanged", self.unchanged);
        text.push_str(&[counted, vec![unchanged]].concat().join(", "));
        text.push('\n');
        text
    }

    /// Returns the report as data.
    pub(in crate::cli) fn facts(&self) -> Value {
        let mut counts: serde_json::Map<String, Value> =
            self.counts().into_iter().map(|(word, count)| (camel_case(word), count.into())).collect();
        counts.insert("unchanged".to_owned(), self.unchanged.into());
        json!({
            "namespace": self.owner.resource().namespace(), "name": self.owner.resource().name(),
            "what": self.what, "commit": self.commit, "against": self.against,
            "counts": counts, "objects": self.objects.iter().map(Shown::facts).collect::<Vec<_>>(), "notes": self.notes,
        })
    }
}

/// Returns several reports as one text.
pub(in crate::cli) fn text_of(reports: &[Report]) -> String {
    reports.iter().map(Report::text).collect::<Vec<_>>().join("\n")
}

impl Shown {
    fn of(object: Previewed, secrets: &[String]) -> Self {
        let mask = Mask { is_confidential: object.is_confidential, secrets };
        let (before, after) = object.fate.states();
        let (before, after) = mask.apply(before, after);
        Self {
            name: object.key.to_string(),
            place: object.place.as_ref().map(mainstay_object::Place::short),
            word: object.fate.word(),
            note: object.fate.note().map(|note| mask.text(note)),
            lines: hunks(before.as_ref(), after.as_ref()),
            object,
        }
    }

    fn facts(&self) -> Value {
        let (key, place) = (&self.object.key, self.object.place.as_ref());
        json!({
            "apiVersion": self.object.api_version, "kind": &*key.kind, "namespace": key.namespace.as_deref(),
            "name": &*key.name, "file": place.map(|place| &*place.file),
            "line": place.and_then(mainstay_object::Place::known_line),
            "change": camel_case(self.word), "note": self.note, "diff": self.lines.join("\n"),
        })
    }
}

/// Converts `left alone` to `leftAlone`.
fn camel_case(word: &str) -> String {
    let mut parts = word.split(' ');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut all, part| {
        let (initial, rest) = part.split_at(1);
        all.push_str(&initial.to_uppercase());
        all + rest
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use mainstay_object::{Key, Place};

    /// Returns a report with this number of objects, each with this name and content.
    pub(in crate::cli::preview) fn report(count: usize, name: &str, text: &str) -> Report {
        let object = |_| Previewed {
            key: Key::new("", "ConfigMap", Some("shop"), name),
            api_version: "v1".to_owned(),
            place: Some(Place::file(name)),
            is_confidential: false,
            fate: Fate::Changed {
                before: json!({"data": {"a": "b"}}),
                after: json!({"data": {"a": text}}),
                note: Some(text.to_owned()),
            },
        };
        let changes = Changes { objects: (0..count).map(object).collect(), notes: vec![text.to_owned()] };
        let named = Named { what: "commit 1a2b3c4d5e6f of main".to_owned(), commit: Some("1a2b".to_owned()) };
        Report::of(Owner::git_sync("shop", "demo"), named, "the cluster".to_owned(), changes, &[])
    }

    #[test]
    fn shows_each_object_and_counts_them() {
        let report = report(1, "a", "x");
        assert_eq!(
            report.text(),
            "GitSync shop/demo: commit 1a2b3c4d5e6f of main against the cluster
changed    ConfigMap shop/a (a)
  x
  @@ data @@
   data:
  -  a: b
  +  a: x
note: x
1 changed, 0 unchanged
"
        );
        let facts = report.facts();
        assert_eq!((&facts["counts"]["changed"], &facts["objects"][0]["change"]), (&json!(1), &json!("changed")));
        assert_eq!((report.exit(), camel_case("left alone")), (Exit::Differs, "leftAlone".to_owned()));
    }
}
