//! Renders directories that are not plain manifests into documents.
//!
//! A kustomization is built by the official tool, `kustomize`, or else `kubectl kustomize`. [`closure`] determines
//! its inputs. [`kustomize`] copies exactly those into an empty directory, runs the tool there ([`program`]) and
//! converts its refusals into problems. A chart is rendered by `helm template` in the same way: [`chart`] determines
//! its inputs, [`helm`] runs the tool, and [`chart_objects`] decodes the output. The changes of a GitSync are an
//! [`Overlay`]: it edits a kustomization in the directory; other objects become the resource of a new one
//! ([`written_out`]).
//!
//! In a cluster, the tools run in a separate container ([`serve`]) with its own memory limit and without credentials.
//!
//! Invariant: the tool sees no file outside of the commit, no environment variable and no credential. Its time,
//! memory and output are bounded. Inputs that need the network are a problem before it runs.
//! Invariant: of the tool's messages, only names and text of the files are shown, because the messages quote values.
//! Invariant: a chart with unstable output is refused.
//!
//! Outputs are kept on disk for the same inputs ([`kept`]).
//!
//! [`substitute()`] replaces the expressions in a text, and [`normal_form()`] writes an object as a text for that.
//!
//! Not here: decoding the documents (`manifest`), the origin of values, and SOPS.

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
