//! The parts of the measurement of GitSyncs.

/// Some of the situations; the first sync comes before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    // Syncs, an idle agent, and single changes by hand. No texts for `--help`, which would take a page for them.
    Singles,
    Storms,
    Restarts,
    Events,
}
