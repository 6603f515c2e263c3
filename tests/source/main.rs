//! Integration tests of Git remotes: transports, credentials, references, submodules and signatures.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod abbreviations;
mod found_commits;
mod hosting;
mod made_keys;
mod pinning;
mod private_example;
mod private_https;
mod private_matrix;
mod references;
mod repository_status;
mod shared_remotes;
mod source;
mod ssh;
mod submodules;
mod verification;
