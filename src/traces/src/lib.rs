//! Traces for an OpenTelemetry collector: spans of commits, reverts and builds.
//!
//! Invariant: until [`start`] is called, no span is created and no attribute is computed; the cost is one load of an
//! atomic. Invariant: a collector that is away delays nothing: the queue of spans is bounded, its own thread sends, and
//! spans beyond the queue are dropped.
//!
//! Attributes are names, commit ids, counts and reasons; values of objects and texts of servers never are.
//!
//! Not here: when a span begins and ends; the features decide that.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

#[expect(clippy::disallowed_methods, reason = "the client is built on a thread of its own")]
mod export;
#[expect(clippy::disallowed_methods, reason = "causes are kept for a time")]
mod parents;
mod span;
mod tracer;

pub use export::{Endpoint, Exporting, StartError, start};
pub use opentelemetry::KeyValue;
pub use parents::{Parent, parent_of, set_parent};
pub use span::Span;
pub use tracer::is_on;
