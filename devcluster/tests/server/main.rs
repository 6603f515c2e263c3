//! The server in process: store, lists, watches, deletion, definitions, levers and loopback rules.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod definitions;
mod deletion;
mod hostile;
mod images;
mod lists;
mod loopback;
mod machine;
mod pods;
mod simulations;
mod watches;
mod world;
mod writes;
