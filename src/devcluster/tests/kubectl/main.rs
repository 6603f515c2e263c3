//! A tour of `kubectl`: chapters of commands with the output that a real cluster gives.
//!
//! A chapter (`*.tour`) is a transcript. A line `$ command` is run with bash, lines `> …` continue it, and what follows
//! is its output and, when it is not 0, its exit code; `% command` is awaited, must succeed, and its output does not
//! count; `# …` and empty lines are for the reader. What differs from run to run is normalised ([`normalise`]).
//!
//! The transcripts are recorded from a real cluster (`UPDATE_GOLDEN=1` with `MAINSTAY_TEST_KUBECONFIG`), and both it
//! and the embedded cluster must give exactly them.
//!
//! Deliberately absent: how `kubectl` aligns columns; runs of spaces are one.
#![expect(clippy::disallowed_methods, reason = "a test acts")]

mod chapter;
mod cluster;
mod greeter;
mod normalise;
#[path = "../server/process.rs"]
mod process;

use parking_lot::RwLock;

use self::cluster::Pods;

/// Held by every chapter; alone by one that changes what all see.
static CLUSTER: RwLock<()> = RwLock::new(());

/// Chapters that work in their own namespace.
macro_rules! chapters {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let _shared = CLUSTER.read();
            chapter::check(stringify!($name), Pods::Simulated);
        }
    )*};
}

chapters! { create get describe apply patch rollout pods delete access }

/// Files to and from containers.
#[test]
fn files() {
    let _shared = CLUSTER.read();
    chapter::check("files", Pods::Running);
}

/// Nodes, kinds and what the server says of itself.
#[test]
fn cluster_wide() {
    let _alone = CLUSTER.write();
    chapter::check("cluster_wide", Pods::Simulated);
}

/// Field documentation of built-in and custom kinds.
#[test]
fn explain() {
    let _alone = CLUSTER.write();
    chapter::check("explain", Pods::Simulated);
}
