//! Renders directories that are not plain manifests into documents.
//!
//! A kustomization is built by the official tool, which is `kustomize` or, without it, `kubectl kustomize`. [`closure`]
//! determines the inputs. [`kustomize`] copies exactly these inputs into an empty directory, runs the tool there
//! ([`program`]) and converts its refusals into problems. A chart is rendered by `helm template` in the same way:
//! [`chart`] determines the inputs, [`helm`] runs the tool, and [`chart_objects`] decodes the output.
//!
//! The changes that a GitSync makes to rendered objects are an [`Overlay`]. If the directory contains a kustomization,
//! the overlay edits a copy of it. All other objects are written to a file ([`written_out`]), which becomes the only
//! resource of a new kustomization with the changes.
//!
//! In a cluster, the tools run in a separate container ([`serve`]) with its own memory limit and without credentials.
//!
//! Invariant: the tool sees no file outside of the commit, no environment variable of the agent and no credential. The
//! tool's time, memory and output are bounded. Inputs that need the network are a problem, and the tool does not run.
//! Invariant: only names, and text of the input files, are shown from the tool's messages, because the messages quote
//! values.
//! Invariant: a chart whose output differs between two runs is refused.
//!
//! Outputs are stored on disk, and are used again for the same inputs ([`kept`]).
//!
//! [`substitute()`] replaces the expressions in a text, and [`normal_form()`] writes an object as the text in which
//! expressions are replaced.
//!
//! Not here: decoding the documents (`manifest`), the origin of the substituted values, and SOPS.

mod added;
mod calls;
mod chart;
pub mod chart_objects;
mod closure;
#[expect(clippy::disallowed_methods, reason = "it copies files")]
mod copies;
mod error;
#[expect(clippy::disallowed_methods, reason = "it runs the tool, and waits")]
mod helm;
mod helm_refusal;
#[expect(clippy::disallowed_methods, reason = "it reads and writes files")]
mod kept;
mod kustomization;
#[expect(clippy::disallowed_methods, reason = "it removes what was left behind")]
mod kustomize;
mod network;
mod normal_form;
pub(crate) mod origins;
mod overlay;
mod patches;
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

pub use chart::{ChartFiles, ChartOptions};
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
