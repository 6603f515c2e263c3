//! The subset of SPDY/3.1 that Kubernetes uses: frames and header blocks.
//!
//! `kubectl port-forward` and clients without WebSockets use it to multiplex streams in one connection. [`frame`]
//! handles the outer form, [`headers`] the compressed blocks.
//!
//! Invariant: hostile bytes cause an [`Error`] and use no more memory than the limits here.
//!
//! Not here: flow control and priorities, which no Kubernetes client uses, and connections (`service::stream`).

pub(crate) mod frame;
pub(crate) mod headers;

/// Maximum payload of a control frame, in bytes.
pub(crate) const LARGEST_CONTROL: usize = 64 << 10;
/// Maximum size of a decompressed header block, in bytes.
const LARGEST_BLOCK: usize = 64 << 10;
/// Maximum number of headers in a block.
const MOST_HEADERS: u32 = 100;

/// Why bytes are not valid SPDY/3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The frame has another protocol version.
    #[error("the frame is not of SPDY/3.1")]
    Version,
    /// A control frame exceeds the limit.
    #[error("a control frame is larger than {LARGEST_CONTROL} bytes")]
    TooLarge,
    /// A frame is shorter than its fields.
    #[error("a frame ends in the middle of a field")]
    Truncated,
    /// A stream number is invalid for clients.
    #[error("a stream has number {0}")]
    Number(u32),
    /// A header block cannot be decompressed or parsed.
    #[error("a header block is malformed")]
    Headers,
}
