//! What several integration tests need: a Git server over HTTP and repositories to serve.

pub(crate) mod git_server;
pub(crate) mod remote;
