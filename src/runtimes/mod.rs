//! The table of language runtimes, and the servers that run users' code.
