//! Responds to requests: checks them, finds their session, reads the cluster, and renders a page.

mod act;
mod anonymous_bodies;
mod answer;
mod assets;
mod attempt;
mod batch;
mod call;
mod certificate;
mod connection_permits;
mod console;
mod differences;
mod entry;
mod files;
mod follow;
mod form;
mod form_memory;
mod function;
mod group_permits;
mod held;
mod issuer;
mod lists;
mod live;
mod log;
mod own;
mod page_memory;
mod pages;
mod read;
mod row_memory;
mod session;
mod shared;
mod shared_rows;
mod sources;
mod watched;

pub use certificate::{Certificate, CertificateError};
pub use console::{Console, Settings, Users};
pub use issuer::{IssuerAddress, IssuerSettings};
