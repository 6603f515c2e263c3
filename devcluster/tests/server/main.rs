//! The server in process: store, lists, watches, deletion, definitions, levers and loopback rules.

mod definitions;
mod deletion;
mod lists;
mod loopback;
mod watches;
mod world;
mod writes;
