//! The functions of the program that read data which this crate cannot read itself.

use crate::freshness::AgentReader;
use crate::trace::TraceReader;
use crate::tree::TreeReader;

/// The functions of the program that read inventories and the Lease. Each function receives the connection of the session.
#[derive(Clone)]
pub struct Readers {
    /// Reads the tree of a GitSync.
    pub tree: TreeReader,
    /// Reads the origin of an object.
    pub trace: TraceReader,
    /// Reads whether an agent leads.
    pub agent: AgentReader,
}
