//! The language runtimes: real Node.js and Python run the embedded servers, with real HTTP over sockets.

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
