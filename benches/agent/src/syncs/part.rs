//! The parts of the GitSync benchmark.

/// Some of the situations; the first sync comes before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    // Syncs, an idle agent, and single manual changes. Not doc comments, because `--help` would need a page for them.
    Singles,
    Storms,
    Restarts,
    Events,
}
