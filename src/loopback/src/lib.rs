//! The TCP listeners of every process in this repository. One type accepts connections, so one place decides who may
//! connect.
//!
//! A [`Listener`] with [`Reach::SameUser`] accepts connections of root and of the user who started the process. [`web`]
//! rejects cross-site requests and requests for hosts other than this machine (DNS rebinding). A [`Front`] applies both
//! to a server that listens on a Unix socket.
//!
//! Invariant: outside of tests, no other code binds a TCP port.
//!
//! Not here: tokens. On Linux, the kernel reports the user of a connection. On other systems, [`Reach::SameUser`]
//! accepts every user of the machine.

mod diagnosis;
mod front;
mod listener;
mod peer;
mod served;
mod table;
pub mod web;

pub use front::Front;
pub use listener::{Listener, Reach, Reserved};
pub use served::{finish, last_of_connection};
