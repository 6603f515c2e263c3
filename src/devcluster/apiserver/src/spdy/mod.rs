//! SPDY/3.1 as far as Kubernetes speaks it: the bytes of frames and of header blocks.
//!
//! `kubectl port-forward`, and clients that know no WebSockets, open many streams in one connection with it. [`frame`]
//! is the outer form, [`headers`] the compressed blocks in it.
//!
//! Invariant: hostile bytes end in an [`Error`], and cost no more memory than the limits here.
//!
//! Deliberately absent: flow control and priorities, which no Kubernetes client uses, and connections
//! (`service::stream`).

pub(crate) mod frame;
pub(crate) mod headers;

/// Largest payload of a control frame, in bytes.
pub(crate) const LARGEST_CONTROL: usize = 64 << 10;
/// Largest header block, decompressed.
const LARGEST_BLOCK: usize = 64 << 10;
/// Headers of a block at most.
const MOST_HEADERS: u32 = 100;

/// Why bytes are not SPDY/3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// Another version of the protocol.
    #[error("the frame is not of SPDY/3.1")]
    Version,
    /// A frame that is larger than any client sends.
    #[error("a control frame is larger than {LARGEST_CONTROL} bytes")]
    TooLarge,
    /// A frame that is shorter than its fields.
    #[error("a frame ends in the middle of a field")]
    Truncated,
    /// A stream with a number that clients cannot use.
    #[error("a stream has number {0}")]
    Number(u32),
    /// A header block that cannot be decompressed, or holds something else than headers.
    #[error("a header block is malformed")]
    Headers,
}
