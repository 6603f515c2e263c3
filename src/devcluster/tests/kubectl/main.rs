//! A tour of `kubectl`: chapters of commands with the output of a real cluster.
//!
//! A chapter (`*.tour`) is a transcript. `$ command` is run by bash, lines `> …` continue it, and its output follows,
//! with the exit code if it is not 0. `% command` must succeed; its output is ignored. `# …` and empty lines are for
//! the reader. Run-specific values are normalised ([`normalise`]).
//!
//! The transcripts are recorded from a real cluster (`UPDATE_GOLDEN=1` with `MAINSTAY_TEST_KUBECONFIG`). The embedded
//! cluster must produce the same output.
//!
//! Not here: alignment of columns. A run of spaces counts as one.
#![expect(clippy::disallowed_methods, reason = "a test acts")]

mod chapter;
mod cluster;
mod greeter;
mod normalise;
#[path = "../server/process.rs"]
mod process;

use parking_lot::RwLock;

use self::cluster::Pods;

/// Shared by chapters; exclusive for a chapter that changes cluster-wide state.
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

/// Nodes, kinds, and information about the server.
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
