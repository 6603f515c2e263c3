//! The listeners of every process of this repository. One type accepts connections, so access is decided in one
//! place.
//!
//! A [`Listener`] with [`Reach::SameUser`] accepts connections of root and of the user who started the process.
//! [`web`] refuses cross-site requests and hosts other than this machine (DNS rebinding). A [`Front`] applies both in
//! front of a server that listens on a Unix socket.
//!
//! Invariant: outside of tests, no other code binds a TCP port.
//!
//! Not here: tokens. On Linux the kernel names the user of a connection. On other systems [`Reach::SameUser`] accepts
//! every user of the machine.

mod diagnosis;
mod front;
mod listener;
mod peer;
mod table;
pub mod web;

pub use front::Front;
pub use listener::{Listener, Reach, Reserved};
