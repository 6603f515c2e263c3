//! The web page of Mainstay: what is deployed, what is wrong, what drifted and who changed it.
//!
//! [`Console`] responds to requests of browsers. Each session has its own [`Cluster`](mainstay_cluster::Cluster):
//! everything that a page shows or changes is read and written with the permissions of its user.
//!
//! `serve` performs: it reads and watches the cluster, and responds. All other modules decide: objects become rows, and
//! rows become pages.
//!
//! Invariant: no session reads data that was fetched with the permissions of another session. Invariant: each string
//! from the cluster goes through [`text::plain`] and the escaping of the templates. Invariant: no page contains a value
//! of a Secret, or loads anything from another host. A link to another host is built from checked names. Invariant: a
//! request that changes something contains the token of its session and comes from a page of this server.
//!
//! Not here: reading inventories and Git repositories. The program passes functions that do so ([`Readers`]).
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod action;
mod address;
mod again;
mod asked;
mod assessment;
mod attempt;
mod axis;
mod batch;
mod bearer;
mod belonging;
mod call;
mod command;
mod csv;
mod deletion;
mod deviation;
mod difference;
mod drift;
mod edits;
mod facts;
mod field;
mod files;
mod filter;
mod form;
mod freshness;
mod function_form;
mod function_rows;
mod git_place;
mod guard;
mod highlight;
mod history;
mod lanes;
mod limited;
mod lookup;
mod network;
mod objects_cluster;
mod page;
mod readers;
mod remote;
mod repository_form;
mod row;
mod rule_form;
mod selector;
#[expect(clippy::disallowed_methods, reason = "it reads the cluster and answers requests")]
mod serve;
mod session;
mod shown;
mod source;
mod sync_options;
mod sync_preview;
mod text;
mod trace;
mod tree;
mod web_origin;
mod window;

pub use facts::Facts;
pub use files::{Files, FilesReader};
pub use freshness::{Agent, AgentReader};
pub use readers::{ChangedInputs, FunctionRules, ObjectRule, ObjectRules, PartRule, Readers};
pub use serve::{Certificate, CertificateError, Console, IssuerAddress, IssuerSettings, Settings, Users};
pub use trace::{FieldManager, Manager, ManifestPart, Trace, TraceReader};
pub use tree::{Children, Mark, Node, Presence, Tree, TreeReader};
pub use web_origin::WebOrigin;
