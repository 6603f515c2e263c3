//! Limits for decoding one commit.

use std::sync::Arc;
use std::time::Duration;

use super::decryption::Decryption;
use mainstay_object::Object;

/// The form in which objects are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// The form in which objects are applied.
    #[default]
    Final,
    /// Objects with expressions keep the form of the file. These objects are decoded again after substitution.
    WithExpressions,
}

/// The limits. The problem of a commit that exceeds a limit names the limit.
#[derive(Clone)]
pub struct Limits {
    /// Maximum size of a document, in bytes.
    pub document: usize,
    /// Maximum size of a file, in bytes.
    pub file: u64,
    /// Maximum nesting depth of maps and lists in a document.
    pub depth: usize,
    /// Maximum number of documents in all files.
    pub documents: usize,
    /// Maximum time for all files of a commit, because decoding occupies a thread.
    pub time: Duration,
    /// Maximum time for one file, as measured by `clock`.
    pub file_time: Duration,
    /// Maximum memory for one file, in bytes: its text, its objects, and the current document.
    pub file_memory: usize,
    /// Maximum number of listed problems. Further problems are only counted.
    pub problems: usize,
    /// Returns whether all objects of the commit may take this many bytes of memory. The function is called repeatedly
    /// while the objects are decoded.
    pub admit: Arc<dyn Fn(usize) -> bool + Send + Sync>,
    /// Returns the CPU time of the current thread, so that a busy machine does not affect the result. The clock is a
    /// parameter because code that decides has no clock.
    pub clock: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The form in which objects are decoded.
    pub form: Form,
    /// The handling of SOPS-encrypted documents. By default, such documents are problems.
    pub decryption: Decryption,
}

impl Limits {
    /// Returns the agent's limits: 3 MiB per document, 16 MiB per file, depth 100, 100 000 documents, 5 min for all
    /// files, and 2 s and 40 MiB for one file.
    pub fn new(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            document: 3 << 20,
            file: 16 << 20,
            depth: 100,
            documents: 100_000,
            time: Duration::from_secs(300),
            file_time: Duration::from_secs(2),
            file_memory: 40 << 20,
            problems: 1000,
            admit: Arc::new(|_| true),
            clock: Arc::new(clock),
            form: Form::default(),
            decryption: Decryption::default(),
        }
    }
}

impl std::fmt::Debug for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limits")
            .field("document", &self.document)
            .field("file", &self.file)
            .field("depth", &self.depth)
            .field("documents", &self.documents)
            .field("time", &self.time)
            .field("file_time", &self.file_time)
            .field("file_memory", &self.file_memory)
            .field("decryption", &self.decryption)
            .finish_non_exhaustive()
    }
}

/// Approximate memory of an object besides its content, including its state after an apply, in bytes.
const OBJECT_BYTES: usize = 1024;
/// Steps in which memory for objects is requested, in bytes: of a small commit, and of a larger one. With the small
/// step, a small commit requests only the memory that it needs.
const ADMITTED: [usize; 2] = [2 << 10, 256 << 10];

/// The memory of all objects of a commit.
pub(super) struct Kept<'l> {
    limits: &'l Limits,
    bytes: usize,
    admitted: usize,
}

impl<'l> Kept<'l> {
    pub(super) fn new(limits: &'l Limits) -> Self {
        Self { limits, bytes: 0, admitted: 0 }
    }

    /// Adds objects. Returns whether they are admitted.
    pub(super) fn add(&mut self, objects: &[Arc<Object>]) -> bool {
        self.bytes += memory(objects);
        if self.bytes > self.admitted {
            self.admitted = self.bytes.next_multiple_of(ADMITTED[usize::from(self.bytes > ADMITTED[1])]);
            return (self.limits.admit)(self.admitted);
        }
        true
    }

    /// Returns the bytes of all objects.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the approximate memory of objects, in bytes.
pub fn memory(objects: &[Arc<Object>]) -> usize {
    objects.iter().map(|object| object.json().len() + OBJECT_BYTES).sum()
}

/// The deadline for all files of a commit.
#[derive(Clone, Copy)]
pub(super) struct Deadline<'l> {
    limits: &'l Limits,
    until: Duration,
}

impl<'l> Deadline<'l> {
    /// Starts the time of the commit now.
    pub(super) fn new(limits: &'l Limits) -> Self {
        Self { limits, until: (limits.clock)().saturating_add(limits.time) }
    }

    pub(super) fn is_over(self) -> bool {
        (self.limits.clock)() > self.until
    }
}

/// Formats memory: `3 MiB`.
pub(super) fn size(bytes: usize) -> String {
    if bytes < 1 << 20 {
        format!("{} KiB", bytes.div_ceil(1 << 10))
    } else {
        format!("{} MiB", bytes.div_ceil(1 << 20))
    }
}

/// Formats a size limit: `larger than 3 MiB`.
pub(super) fn larger_than(bytes: usize) -> String {
    match bytes >> 20 {
        0 => format!("larger than {bytes} bytes"),
        mebibytes => format!("larger than {mebibytes} MiB"),
    }
}

/// The remaining time and memory of a file.
pub(super) struct Budget<'l> {
    limits: &'l Limits,
    until: Duration,
    memory: usize,
    steps: u32,
}

/// The time or memory of a file is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    Time,
    Memory,
}

impl Spent {
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Time => "timed out while reading the file",
            Self::Memory => "the document takes too much memory",
        }
    }
}

impl<'l> Budget<'l> {
    /// Returns a new budget for a file of this many bytes.
    pub(super) fn new(limits: &'l Limits, file: usize) -> Self {
        let until = (limits.clock)().saturating_add(limits.file_time);
        Self { limits, until, memory: limits.file_memory.saturating_sub(file), steps: 0 }
    }

    pub(super) fn limits(&self) -> &'l Limits {
        self.limits
    }

    /// Counts a small step. The clock is read only every few hundred steps.
    pub(super) fn step(&mut self) -> Result<(), Spent> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(256) { self.look_at_clock() } else { Ok(()) }
    }

    pub(super) fn look_at_clock(&self) -> Result<(), Spent> {
        if (self.limits.clock)() > self.until { Err(Spent::Time) } else { Ok(()) }
    }

    /// Takes memory, which [`Budget::give_back`] returns.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Spent> {
        self.memory = self.memory.checked_sub(bytes).ok_or(Spent::Memory)?;
        Ok(())
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.memory = self.memory.saturating_add(bytes);
    }

    pub(super) fn left(&self) -> usize {
        self.memory
    }
}
