//! The Secrets that GitSyncs and Functions need, each watched by its name, so that a corrected password works at once.
//!
//! Whoever needs a Secret follows it ([`Secrets::follow`]) and is woken when it says something else ([`Followed`]); what
//! is known of it is a [`Known`]. A few names that are the same in every namespace, those of registries, are watched in
//! all namespaces at once; every other Secret is watched by itself for as long as somebody follows it.
//!
//! Invariant: however many follow a Secret, it is watched once; a change of it wakes those who follow it and nobody else.
//! Invariant: "it is not there" is never said of a Secret that could not be read.
//! Invariant: nothing is left of a Secret that nobody follows; whoever follows it again learns what it holds then.
//!
//! Deliberately absent: what the data means; Secrets that nobody named.

mod account;
#[expect(clippy::disallowed_methods, reason = "it waits until a watch is to be tried again")]
mod watch;

pub use account::{Known, SecretData};
pub use watch::{Followed, Secrets};
