//! Errors of the commands for a Function and its directory.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::document::Problem;
use mainstay_cluster::FieldConflict;

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("{} cannot be used:\n{}", path.display(), .problems.iter().map(|problem| format!("  {problem}")).collect::<Vec<_>>().join("\n"))]
    Config { path: PathBuf, problems: Vec<String> },
    #[error("the Function of {} is not valid:\n{}", path.display(), .words.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"))]
    Invalid { path: PathBuf, words: String },
    #[error("unsupported runtime: {given}; {supported}")]
    Runtime { given: String, supported: String },
    #[error("{name} cannot be the name of a Function: {words}")]
    Name { name: String, words: String },
    #[error("could not read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("could not write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{} does not exist, and the code of this Function is in a Git repository", path.display())]
    CodeInGit { path: PathBuf },
    #[error("{} is not read: {why}", path.display())]
    NotRead { path: PathBuf, why: &'static str },
    #[error("{} is not written: {why}", path.display())]
    NotWritten { path: PathBuf, why: &'static str },
    #[error("nothing was written: {} in {} would be lost", files.join(", "), directory.display())]
    WouldBeLost { directory: PathBuf, files: Vec<String> },
    #[error("could not write config.yaml")]
    Text(#[source] serde_json::Error),
    #[error("nothing was changed: {what} is managed by the GitSync {sync}, which would revert it")]
    Managed { what: String, sync: String },
    #[error("other field managers own some fields of {what}:\n{}", .fields.iter().map(|one| format!("  {}: {}", mainstay_object::hide_logins(&one.field), one.manager)).collect::<Vec<_>>().join("\n"))]
    Conflict { what: String, fields: Vec<FieldConflict> },
    #[error("nothing was changed: {} cannot be applied here:\n{}", path.display(), .missing.iter().map(|one| format!("  {one}")).collect::<Vec<_>>().join("\n"))]
    NotServed { path: PathBuf, missing: Vec<String> },
    #[error("could not run {program}")]
    Run {
        program: String,
        #[source]
        cause: io::Error,
    },
    #[error("could not watch {}", path.display())]
    Watch {
        path: PathBuf,
        #[source]
        cause: notify::Error,
    },
    #[error("could not listen on this port of 127.0.0.1")]
    Port(#[source] io::Error),
    #[error("{what} does not exist")]
    Missing { what: String },
}

impl Error {
    /// Returns the error for a file with these problems.
    pub(super) fn unusable(path: &Path, problems: &[Problem]) -> Self {
        let lines = problems.iter().map(|problem| format!("{}: {}", problem.mark, problem.what));
        Self::Config { path: path.to_owned(), problems: lines.collect() }
    }

    /// Returns a hint about how to fix the error, if there is one.
    pub(in crate::cli) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::WouldBeLost { .. } => Some("--overwrite replaces them; --dir DIR selects a different directory"),
            Self::Managed { .. } => Some(
                "commit the output of `mainstay function apply --dry-run -o yaml`; or change it here with --force, \
                 after `mainstay pause`",
            ),
            Self::Conflict { .. } => Some("--force takes ownership of these fields"),
            Self::NotServed { .. } => Some(
                "triggers need Knative Eventing, subscriptions Kyma's eventing, or either one Mainstay's component \
                 manifests/eventing; \
                 apiRules need Kyma's API gateway; install it, or remove the section from config.yaml; Functions: \
                 mainstay crd | kubectl \
                 apply -f -",
            ),
            Self::Run { .. } => Some("Node.js with npm, or Python 3 with pip, is needed on this machine"),
            Self::CodeInGit { .. } => Some("--source-dir DIR names the directory of the code in your clone"),
            Self::Missing { .. } => Some("-n NAMESPACE looks in another namespace; kubectl get functions -A lists all"),
            _ => None,
        }
    }
}
