//! Types for any Kubernetes object: identity, place in the repository, content, order and health.
//!
//! - [`Key`]: identity without a version: two versions of one kind are one object
//! - [`Owner`]: the resource for which an object is managed
//! - [`Place`]: location in the repository: file, document, line and column
//! - [`printable`]: the displayed form of a name or path; [`counted`]: a count with its noun
//! - [`Object`]: a desired object, stored once as compact JSON
//! - [`Digest`]: half a SHA-256
//! - [`stage`]: the order of applying and pruning
//! - [`health`]: the health of a live object; [`ended`]: whether it has ended
//! - [`Secret`]: a value that is not shown
//! - [`names`]: names that may become part of a URL or a host
//! - [`syntax`]: the syntax of names and labels; [`Selector`]: a label selector
//! - [`Pointer`]: a JSON pointer, the path of a field
//! - [`pattern_problem`]: why a regular expression is refused, with its position
//! - [`hide_logins`]: hides the logins of URLs; [`Mask`]: hides secret values in two states of an object
//! - [`redact_server_text`]: removes values from a server's message
//! - [`expression`]: expressions (CEL) that users write for health and dependencies, at a bounded cost
//! - [`egress`]: the addresses to which connections are allowed if the target comes from an object
//! - [`failure`]: the class of a failure, and the backoff of retries
//! - [`cron`](mod@cron): cron expressions in a time zone
//! - [`window`]: windows of time that recur
//! - [`yaml_excess`]: why a YAML text is refused before libyaml parses it
//! - [`unserved`]: the remedy for a kind that the cluster does not serve
//!
//! Not here: data from the API server (plural names, scope, schemas), which is in `cluster`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod confidential;
mod counted;
pub mod cron;
mod desired;
mod digest;
pub mod egress;
mod ended;
pub mod expression;
pub mod failure;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod health;
mod key;
mod logins;
mod mask;
pub mod names;
mod order;
mod owner;
mod pattern;
mod place;
pub mod pointer;
mod printable;
mod redact;
mod retyped;
mod secret;
mod selector;
pub mod syntax;
pub mod unserved;
pub mod window;
mod yaml_excess;

pub use counted::counted;
pub use desired::{Flaw, Object, Step, path_text, strip_status};
pub use digest::{Digest, ParseDigestError};
pub use ended::{Ended, can_end, ended};
pub use health::{Health, health, health_of, is_established, is_event_subscriber, unsettled};
pub use key::{Identity, Key, Names, split_api_version};
pub use logins::{has_login, hide_changed_logins, hide_logins, hide_logins_in};
pub use mask::Mask;
pub use order::{Stage, prune_order, stage};
pub use owner::{NamespacedName, Owner};
pub use pattern::{pattern_fault, pattern_problem};
pub use place::Place;
pub use pointer::Pointer;
pub use printable::{is_unprintable, printable, printable_lines};
pub use redact::{
    admission, redact_field_text, redact_server_text, with_remedy, withhold_server_text, without_item_names,
};
pub use retyped::Retyped;
pub use secret::Secret;
pub use selector::Selector;
pub use yaml_excess::yaml_excess;
