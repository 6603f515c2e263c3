//! `mainstay dev`: an embedded cluster, a repository and the agent in one process, to try things out.

mod demonstration;
