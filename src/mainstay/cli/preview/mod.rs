//! What a work tree or a revision would change: `mainstay diff --path`, `--revision`, and `mainstay sync --dry-run`.
//!
//! - [`Wanted`]: what is compared with what; `remote`: where it is read from
//! - [`Report`]: what is shown of it, as text and as facts; `hunks`: the lines of one object; `markdown`: the comment on a pull
//!   request
//!
//! Invariant: nothing is written, neither in the cluster nor in a repository.
//! Invariant: what is printed has gone through a mask: no value of a Secret is in it.
//!
//! Deliberately absent: what a GitSync means; that is `gitsync`'s, as for the agent.

mod hunks;
mod markdown;
mod remote;
mod report;
mod wanted;

pub(super) use report::{PreviewOutput, Report, text_of};
pub(super) use wanted::{Wanted, diff, dry_run};
