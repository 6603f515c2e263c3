//! The listeners of every process of this repository: one type accepts connections, so one place decides who gets in.
//!
//! A [`Listener`] with [`Reach::SameUser`] accepts connections of the user who started the process, and of root. [`web`]
//! refuses requests that a page of a foreign site makes, and hosts that are not of this machine (DNS rebinding). A
//! [`Front`] puts both before a server that listens on a Unix socket.
//!
//! Invariant: outside of tests, no other code binds a TCP port.
//!
//! Deliberately absent: tokens. The kernel says whose connection it is on Linux; elsewhere [`Reach::SameUser`] lets every
//! user of the machine in.

mod diagnosis;
mod front;
mod listener;
mod peer;
mod table;
pub mod web;

pub use front::Front;
pub use listener::{Listener, Reach, Reserved};
