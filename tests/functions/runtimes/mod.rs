//! The language runtimes: real Node.js and Python run the embedded servers, and real HTTP goes over real sockets.

mod bottle;
mod contract;
mod express;
mod hostile;
mod memory;
mod nodejs;
mod protocol;
mod python;
mod server;
mod streams;
