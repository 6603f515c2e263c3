//! The web page of Mainstay: what is deployed, what is wrong, what drifted and who changed it.
//!
//! [`Console`] answers requests of browsers. A session has a [`Cluster`](mainstay_cluster::Cluster) of its own: all that a page
//! shows or changes is read and written with the rights of its user.
//!
//! `serve` acts: it reads the cluster, watches it and answers. All other files decide: objects become rows, rows become pages.
//!
//! Invariant: no session reads what the rights of another session have fetched.
//! Invariant: each text of the cluster goes through [`text::plain`] and the escaping of the templates.
//! Invariant: no page contains a value of a Secret, a script, a style or an address of another host.
//! Invariant: a request that changes something has the token of its session and comes from a page of this server.
//!
//! Not here: inventories, and what is read from them. The program passes functions that read it ([`Readers`]).
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod action;
mod address;
mod bearer;
mod call;
mod csv;
mod difference;
mod drift;
mod edits;
mod field;
mod filter;
mod guard;
mod history;
mod lanes;
mod page;
mod readers;
mod row;
#[expect(clippy::disallowed_methods, reason = "it reads the cluster and answers requests")]
mod serve;
mod session;
mod shown;
mod text;
mod trace;
mod tree;
mod web_origin;

pub use readers::Readers;
pub use serve::{Certificate, CertificateError, Console, Settings, Users};
pub use trace::{FieldManager, Manager, ManifestPart, Trace, TraceReader};
pub use tree::{Mark, Node, Tree, TreeReader};
pub use web_origin::WebOrigin;
