//! Words for any Kubernetes object: what it is called, where it was written, what it says, and when its turn is.
//!
//! - [`Key`]: identity, without a version: two versions of one kind are one object
//! - [`Place`]: file, document, line and column
//! - [`Object`]: one desired object, kept once as compact JSON
//! - [`Digest`]: half a SHA-256
//! - [`stage`]: the order of applying and pruning
//! - [`health`]: how a live object is doing
//! - [`Secret`]: a value that is not shown
//! - [`redact_server_text`]: what of a server's message may be shown
//!
//! Deliberately absent: the server's knowledge (plural names, scope, schemas); that is `cluster`'s.

mod desired;
mod digest;
mod health;
mod key;
mod order;
mod place;
mod redact;
mod secret;

pub use desired::{Flaw, Object, Step, path_text, strip_status};
pub use digest::{Digest, ParseDigestError};
pub use health::{Health, health};
pub use key::{Identity, Key, Names, split_api_version};
pub use order::{Stage, prune_order, stage};
pub use place::Place;
pub use redact::redact_server_text;
pub use secret::Secret;
