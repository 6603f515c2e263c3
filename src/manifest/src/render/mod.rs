//! Directories that are not plain manifests become documents.
//!
//! A directory with a kustomization is built by the official tool, `kustomize`, or `kubectl kustomize` where only that is
//! there. [`closure`] finds out what the tool will read; [`kustomize`] copies exactly that into an empty directory, runs the
//! tool there ([`program`]) and says in our words what it refused. A chart is rendered by `helm template` in the same way:
//! [`chart`] says what it reads, [`helm`] runs the tool, and [`chart_objects`] makes objects of what it printed. What a GitSync
//! changes itself is an [`Overlay`]: a kustomization in its directory is edited, and whatever else is there becomes the resource
//! of one ([`written_out`]).
//!
//! In a cluster the tools run in a container of their own ([`serve`]), whose memory and whose credentials, which it does not have,
//! are not the agent's.
//!
//! Invariant: the tool sees no file that the commit does not hold, no variable, and no credential; it has a deadline, and
//! bounds on time, memory and output. What would make it use the network is a problem before it runs.
//! Invariant: nothing that the tool says is shown but names, and what stands in the files themselves: its words quote values.
//! Invariant: a chart that would be rendered to something else the next time is refused.
//!
//! [`substitute()`] gives a text the values of its expressions, and [`normal_form()`] is the text of an object for that.
//!
//! Deliberately absent: reading the documents (`manifest`), where values come from, and SOPS.

mod added;
mod chart;
pub mod chart_objects;
mod closure;
#[expect(clippy::disallowed_methods, reason = "it copies files")]
mod copies;
mod error;
#[expect(clippy::disallowed_methods, reason = "it runs the tool, and waits")]
mod helm;
mod helm_refusal;
mod kustomization;
#[expect(clippy::disallowed_methods, reason = "it removes what was left behind")]
mod kustomize;
mod network;
mod normal_form;
pub(crate) mod origins;
mod overlay;
mod pattern;
#[expect(clippy::disallowed_methods, reason = "it looks for programs and runs them")]
mod program;
mod refusal;
#[expect(clippy::disallowed_methods, reason = "it asks the renderer, and is it")]
mod renderer;
mod schema;
mod substitute;
mod templates;
mod tool;
mod turns;
mod words;
pub mod written_out;

pub use chart::ChartOptions;
pub use closure::{Closure, closure};
pub use error::Error;
pub use helm::{Capabilities, ChartKey, Helm, Outputs, RenderedChart};
pub use kustomize::{Built, Kustomize, Rendered};
pub use normal_form::normal_form;
pub use origins::Origins;
pub use overlay::Overlay;
pub use renderer::serve;
pub use substitute::{ExpressionFault, Substituted, Undefined, may_hold_expressions, substitute};
pub use words::Words;
