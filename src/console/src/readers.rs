//! The functions of the program that read data which this crate cannot read itself.

use crate::trace::TraceReader;
use crate::tree::TreeReader;

/// The functions of the program that read inventories. Each function receives the connection of the session.
#[derive(Clone)]
pub struct Readers {
    /// Reads the tree of a GitSync.
    pub tree: TreeReader,
    /// Reads the origin of an object.
    pub trace: TraceReader,
}
