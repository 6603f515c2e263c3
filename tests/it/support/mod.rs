//! What several integration tests need: a Git server over HTTP, repositories to serve, and a whole world.

pub(crate) mod git_server;
pub(crate) mod remote;
pub(crate) mod world;
