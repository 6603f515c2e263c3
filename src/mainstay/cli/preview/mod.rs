//! Previews the changes of a work tree or a revision: `mainstay diff --path`, `--revision`, and `mainstay sync
//! --dry-run`.
//!
//! - [`Wanted`]: the two sides of the comparison; `remote`: the places that they are read from
//! - [`Report`]: the result, as text and as data; `hunks`: the lines of one object; `markdown`: the pull request
//!   comment
//!
//! Invariant: nothing is written, neither in the cluster nor in a repository. Invariant: all output is masked, so that
//! it contains no value of a Secret.
//!
//! Not here: the semantics of a GitSync. The crate `gitsync` implements them for the preview and for the agent.

mod hunks;
mod markdown;
mod remote;
mod report;
mod wanted;

pub(super) use report::{PreviewOutput, Report, text_of};
pub(super) use wanted::{Wanted, diff, dry_run};
