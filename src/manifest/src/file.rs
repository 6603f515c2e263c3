//! Reads the bytes of a file into objects and problems, with one document at a time in memory.
//!
//! Invariant: an invalid document does not hide problems of other documents. A file that cannot be split into documents
//! (too large, or not UTF-8) is one problem.
//!
//! As in `kubectl`, lines that begin with `---` separate documents. A file that begins with `{` is read as a sequence
//! of JSON documents, and as YAML if that fails.

use std::sync::Arc;

use super::Problem;
use super::chunks::{Chunk, chunks};
use super::document::{At, DocumentContent, objects};
use super::json::{self, Json, is_json};
use super::limits::{Budget, Limits, Spent, larger_than};
use super::load::{Loaded, load, locate};
use super::recognise;
use super::render::Origins;
use super::tokens::{Fault, Mark, Yaml, control_character};
use mainstay_object::{Flaw, Names, Object, Place, Step};

/// Maximum number of errors per document whose exact position is determined.
const MAX_LOOKUPS: usize = 50;

/// The content of a file.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) problems: Vec<Problem>,
    /// Number of documents with content.
    pub(super) documents: usize,
}

/// Reads at most `documents` documents of a file.
pub(super) fn read(path: &Arc<str>, bytes: &[u8], documents: usize, limits: &Limits, names: &mut Names) -> Read {
    let mut read = read_manifests(path, bytes, documents, limits, names);
    if !read.problems.is_empty()
        && let Some(problem) = recognise::file(path, bytes, &read.problems)
    {
        read.problems = vec![problem];
    }
    read
}

/// Reads a file as manifests. Files of other formats are not recognized.
pub(super) fn read_manifests(
    path: &Arc<str>,
    bytes: &[u8],
    documents: usize,
    limits: &Limits,
    names: &mut Names,
) -> Read {
    read_text(path, bytes, documents, limits, names, None)
}

/// Reads the output of a tool. The lines of the output are not those of a file, so problems name the input files.
pub(super) fn read_printed(origins: &Origins, bytes: &[u8], limits: &Limits) -> Read {
    let names = &mut Names::default();
    read_text(origins.shown(), bytes, limits.documents, limits, names, Some(origins))
}

fn read_text(
    path: &Arc<str>,
    bytes: &[u8],
    documents: usize,
    limits: &Limits,
    names: &mut Names,
    origins: Option<&Origins>,
) -> Read {
    let budget = Budget::new(limits, bytes.len());
    let mut reader = Reader { path, limits, names, budget, documents, origins, read: Read::default() };
    if bytes.len() as u64 > limits.file {
        reader.problem_at_file("the file is too large", Some("split it"));
        return reader.read;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            reader.not_text(bytes, error.valid_up_to());
            return reader.read;
        }
    };
    if let Some(at) = text.find('\0') {
        reader.not_text(text.as_bytes(), at);
        return reader.read;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let looks_like_json = text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{');
    if looks_like_json && reader.json(text, is_json(path)) {
        return reader.read;
    }
    reader.yaml(text);
    reader.read
}

struct Reader<'r> {
    path: &'r Arc<str>,
    limits: &'r Limits,
    names: &'r mut Names,
    budget: Budget<'r>,
    documents: usize,
    origins: Option<&'r Origins>,
    read: Read,
}

/// Whether to continue reading the file.
#[derive(PartialEq, Eq)]
enum Next {
    Document,
    Stop,
}

impl Reader<'_> {
    fn problem_at_file(&mut self, what: &str, hint: Option<&str>) {
        self.read.problems.push(Problem::new(Place::file(Arc::clone(self.path)), what, hint));
    }

    fn not_text(&mut self, bytes: &[u8], at: usize) {
        let before = &bytes[..at.min(bytes.len())];
        let line = before.split(|b| *b == b'\n').count();
        let column = before.iter().rev().take_while(|b| **b != b'\n').count() + 1;
        let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let place = match self.origins {
            Some(_) => Place::file(Arc::clone(self.path)),
            None => Place {
                file: Arc::clone(self.path),
                document: 0,
                line: narrow(line),
                column: narrow(column),
                built_by: None,
            },
        };
        let what = if bytes.get(at) == Some(&0) { "the file has a NUL byte" } else { "the file is not UTF-8 text" };
        self.read.problems.push(Problem::new(place, what, Some("save it as UTF-8")));
    }

    fn problem(&mut self, document: usize, lines_before: u32, fault: Fault) {
        let Fault { mark, what, hint } = fault;
        if self.origins.is_some() {
            let what = format!("its output is invalid: {what}");
            self.read.problems.push(Problem { place: Place::file(Arc::clone(self.path)), what, hint });
            return;
        }
        let place = Place {
            file: Arc::clone(self.path),
            document: u32::try_from(document).unwrap_or(u32::MAX),
            line: mark.line.saturating_add(lines_before),
            column: mark.column,
            built_by: None,
        };
        self.read.problems.push(Problem { place, what, hint });
    }

    fn yaml(&mut self, text: &str) {
        for chunk in chunks(text) {
            if let Some(mark) = chunk.bad_separator {
                let fault = Fault::new(mark, "there is text after the document separator `---`")
                    .with_hint("put it on the next line");
                self.problem(chunk.number, 0, fault);
                continue;
            }
            if chunk.text.is_empty() {
                continue;
            }
            if self.yaml_document(&chunk) == Next::Stop {
                return;
            }
        }
    }

    fn yaml_document(&mut self, chunk: &Chunk<'_>) -> Next {
        let fault = if chunk.text.len() > self.limits.document {
            Some(
                Fault::new(
                    Mark { line: 1, column: 1 },
                    format!("the document is {}", larger_than(self.limits.document)),
                )
                .with_hint("split it"),
            )
        } else {
            control_character(chunk.text)
        };
        if let Some(fault) = fault {
            self.problem(chunk.number, chunk.lines_before, fault);
            return Next::Document;
        }
        let depth = self.limits.depth;
        let tokens = || Yaml::new(chunk.text, depth);
        let loaded = load(&mut tokens(), tokens, &mut self.budget);
        let here = Here { number: chunk.number, lines_before: chunk.lines_before, bytes: chunk.text.len() };
        self.document(loaded, &here, |path| locate(&mut tokens(), path))
    }

    /// Reads the text as JSON documents. Returns false if the text is not JSON and may be YAML.
    fn json(&mut self, text: &str, only: bool) -> bool {
        let mut tokens = Json::new(text, self.limits.document);
        let mut number = 0;
        while tokens.next_document() {
            number += 1;
            let start = tokens.here();
            let again = || {
                let mut tokens = Json::new(text, self.limits.document);
                tokens.go_to(start);
                tokens
            };
            let loaded = load(&mut tokens, again, &mut self.budget);
            let cut_short = loaded.cut_short;
            if !only && loaded.faults.iter().any(|fault| fault.what.starts_with(json::INVALID)) {
                let limits = self.limits;
                self.budget = Budget::new(limits, text.len());
                self.read = Read::default();
                return false;
            }
            let here = Here { number, lines_before: 0, bytes: tokens.here().0 - start.0 };
            let go_on = self.document(loaded, &here, |path| locate(&mut again(), path));
            if cut_short || go_on == Next::Stop {
                return true;
            }
        }
        true
    }

    /// Extracts the objects of a loaded document.
    fn document(&mut self, loaded: Loaded, here: &Here, locate: impl Fn(&[Step]) -> Option<Mark>) -> Next {
        let Loaded { value, mark, items, faults, cost, aliased, cut_short, out_of_time } = loaded;
        if faults.is_empty() && value.is_null() {
            self.budget.give_back(cost);
            return Next::Document;
        }
        self.read.documents += 1;
        let sound = faults.is_empty();
        for fault in faults {
            self.problem(here.number, here.lines_before, fault);
        }
        // Memory is reserved because the JSON of the objects exists together with the value.
        let reserve = cost.min(3 * here.bytes + aliased);
        let mut found = DocumentContent::default();
        if !cut_short && self.budget.take(reserve).is_ok() {
            let shifted = |mark: &Mark| Mark { line: mark.line.saturating_add(here.lines_before), ..*mark };
            let marks: Vec<Mark> = items.iter().map(shifted).collect();
            let document = u32::try_from(here.number).unwrap_or(u32::MAX);
            let Limits { form, decryption, .. } = self.limits;
            let (mark, origins) = (shifted(&mark), self.origins);
            let at = At { file: self.path, document, mark, items: &marks, form: *form, decryption, origins };
            found = objects(value, &at, self.names);
            self.budget.give_back(reserve);
        } else if !cut_short {
            self.problem(here.number, here.lines_before, Fault::new(mark, Spent::Memory.what()).with_hint("split it"));
        }
        self.budget.give_back(cost);
        match found.printed.take() {
            Some((place, name)) => self.flaws_of_printed(std::mem::take(&mut found.flaws), &place, name.as_deref()),
            None => self.flaws(std::mem::take(&mut found.flaws), here, mark, &items, locate),
        }
        // Each item of a list counts as a document.
        self.read.documents += found.objects.len().saturating_sub(1);
        if self.read.documents > self.documents {
            self.read.problems.push(too_many_documents(self.path, self.limits.documents));
            return Next::Stop;
        }
        if sound && self.keep(found.objects) == Next::Stop {
            return Next::Stop;
        }
        if !out_of_time && self.budget.look_at_clock().is_err() {
            self.problem_at_file(Spent::Time.what(), Some("split the file"));
            return Next::Stop;
        }
        if out_of_time || self.read.problems.len() >= self.limits.problems { Next::Stop } else { Next::Document }
    }

    /// Reports the errors of a document's value. Determining the position of a path reads the document again, so only
    /// the first errors get an exact position. The other errors point to the item of the list, or to the document.
    fn flaws(
        &mut self,
        flaws: Vec<Flaw>,
        here: &Here,
        mark: Mark,
        items: &[Mark],
        locate: impl Fn(&[Step]) -> Option<Mark>,
    ) {
        for (count, Flaw { path, what, hint }) in flaws.into_iter().enumerate() {
            let looked_up =
                if count < MAX_LOOKUPS && self.budget.look_at_clock().is_ok() { locate(&path) } else { None };
            let item = match path.get(1) {
                Some(Step::Item(item)) => items.get(*item).copied(),
                _ => None,
            };
            let mark = looked_up.or(item).unwrap_or(mark);
            self.problem(here.number, here.lines_before, Fault { mark, what, hint: hint.map(str::to_owned) });
        }
    }

    /// Reports the errors of an object in a tool's output. Each error names its field.
    fn flaws_of_printed(&mut self, flaws: Vec<Flaw>, place: &Place, name: Option<&str>) {
        for Flaw { what, hint, .. } in flaws {
            let what = name.map_or_else(|| what.clone(), |name| format!("{name}: {what}"));
            self.read.problems.push(Problem { place: place.clone(), what, hint: hint.map(str::to_owned) });
        }
    }

    fn keep(&mut self, objects: Vec<Arc<Object>>) -> Next {
        let bytes = objects.iter().map(|object| object.json().len() + size_of::<Object>() + 64).sum();
        self.read.objects.extend(objects);
        if self.budget.take(bytes).is_err() {
            self.problem_at_file("the file takes too much memory", Some("split it"));
            return Next::Stop;
        }
        Next::Document
    }
}

/// Returns the problem that all files up to this one contain more than `most` documents.
pub(super) fn too_many_documents(path: &Arc<str>, most: usize) -> Problem {
    let what = format!("there are more than {most} documents");
    Problem::new(Place::file(Arc::clone(path)), what, Some("split the repository"))
}

/// The number, position and size of a document.
struct Here {
    number: usize,
    lines_before: u32,
    bytes: usize,
}
