//! The results of a conversion and the report about it.

use std::collections::BTreeSet;

use mainstay_object::{counted, printable};

use super::converted::Converted;
use super::document::Document;
use super::fields::{Fate, Note};
use super::references::copies;
use super::refused::{field_of, problems};

/// The result of a conversion.
#[derive(Debug, Default)]
pub(super) struct Conversion {
    /// The new objects, GitRepositories first.
    pub(super) objects: Vec<Converted>,
    pub(super) judged: Vec<Judged>,
}

/// An object that was read, and the notes about its fields.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) subject: String,
    pub(super) file: String,
    pub(super) notes: Vec<Note>,
}

impl Judged {
    pub(super) fn new(document: &Document, notes: Vec<Note>) -> Self {
        Self { subject: document.subject(), file: document.file.clone(), notes }
    }

    /// Returns the report about an object that has no counterpart.
    pub(super) fn lost(document: &Document, text: impl Into<String>) -> Self {
        Self::new(document, vec![Note { fate: Fate::Lost, field: String::new(), text: text.into() }])
    }
}

/// Returns whether the notes say that a reference is left out. A note about a list need not be about all of its entries.
fn is_left_out(notes: &[Note], field: &str) -> bool {
    !field.ends_with("From") && notes.iter().any(|note| note.fate != Fate::ToDo && note.field == field)
}

/// Returns the text about a value that the agent refuses.
pub(super) fn refused(why: &str) -> String {
    format!("the agent refuses the object: {why}")
}

/// Returns whether the notes say already that a field is refused.
fn is_reported(notes: &[Note], field: &str) -> bool {
    let is_in = |whole: &str| {
        let rest = field.strip_prefix(whole).filter(|_| !whole.is_empty());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    notes.iter().any(|note| match note.fate {
        Fate::Lost => is_in(&note.field),
        // The note about the identity of a cloud is not about the registry.
        Fate::ToDo => note.field == field && field != "spec.provider",
        Fate::Differs => false,
    })
}

impl Conversion {
    pub(super) fn count(&self, fate: Fate) -> usize {
        self.judged.iter().flat_map(|judged| &judged.notes).filter(|note| note.fate == fate).count()
    }

    /// Adds an object. If the API server would refuse the object, this is reported as a loss.
    pub(super) fn add(&mut self, converted: Converted, document: &Document, mut notes: Vec<Note>) {
        if let Some(problem) = converted.problem().or_else(|| self.taken(&converted)) {
            notes.insert(0, Note { fate: Fate::Lost, field: String::new(), text: problem });
        } else {
            for problem in problems(&converted) {
                let (field, why) = field_of(&problem);
                if !is_reported(&notes, field) {
                    notes.push(Note { fate: Fate::ToDo, field: field.to_owned(), text: refused(why) });
                }
            }
            // References of a GitRepository are reported with the GitSyncs that use it.
            if document.kind() != "GitRepository" {
                let namespace = converted.object["metadata"]["namespace"].as_str().unwrap_or_default();
                let copies = copies(document, namespace).into_iter().filter(|copy| !is_left_out(&notes, &copy.field));
                let copies: Vec<Note> = copies.collect();
                notes.extend(copies);
            }
            self.objects.push(converted);
        }
        self.judged.push(Judged::new(document, notes));
    }

    /// Returns the problem of an object whose name another object has.
    fn taken(&self, converted: &Converted) -> Option<String> {
        let identity = |made: &Converted| {
            ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"].map(|at| made.object.pointer(at).cloned())
        };
        let is_taken = self.objects.iter().any(|other| identity(other) == identity(converted));
        is_taken.then(|| "another object gets the same kind, namespace and name: rename one of the two".to_owned())
    }

    /// Returns whether there is no new object for a document that was read.
    pub(super) fn has_lost(&self, document: &Document) -> bool {
        let subject = document.subject();
        let of = self.judged.iter().filter(|judged| judged.subject == subject);
        of.flat_map(|judged| &judged.notes).any(|note| note.fate == Fate::Lost && note.field.is_empty())
    }

    /// Warns that GitSyncs outside of the namespace of the agent are confined to their namespace; empty if there are no
    /// such GitSyncs.
    pub(super) fn confinement(&self) -> String {
        let syncs = self.objects.iter().filter(|made| made.object["kind"] == "GitSync");
        let namespaces: BTreeSet<_> =
            syncs.filter_map(|made| made.object["metadata"]["namespace"].as_str()).map(printable).collect();
        let Some(first) = namespaces.first() else { return String::new() };
        let all: Vec<_> = namespaces.iter().map(ToString::to_string).collect();
        format!(
            "note: outside of the namespace of the agent, a GitSync may manage objects of its own namespace only. This concerns {}. \
             `-n mainstay-system` prints all objects for the namespace of the agent; \
             `mainstay install --extra-arg=--allow-namespace={first}` trusts another one\n",
            all.join(", ")
        )
    }

    /// Returns the report for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for judged in self.judged.iter().filter(|judged| !judged.notes.is_empty()) {
            let file = if judged.file.is_empty() { String::new() } else { format!(" ({})", judged.file) };
            text.push_str(&format!("{}\n", printable(&format!("{}{file}", judged.subject))));
            for Note { fate, field, text: why } in &judged.notes {
                let fate = match fate {
                    Fate::Lost => "lost    ",
                    Fate::Differs => "differs ",
                    Fate::ToDo => "to do   ",
                };
                let field = if field.is_empty() { String::new() } else { format!("{field}: ") };
                text.push_str(&format!("  {fate} {}\n", printable(&format!("{field}{why}"))));
            }
        }
        let [lost, differs, to_do] = [Fate::Lost, Fate::Differs, Fate::ToDo].map(|fate| self.count(fate));
        let [read, made] = [counted(self.judged.len(), "object"), counted(self.objects.len(), "object")];
        text + &format!("{read} read, {made} printed; {lost} lost, {differs} different, {to_do} to do\n")
    }
}
