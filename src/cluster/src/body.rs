//! Reads the body of a request up to a limit, within the available memory.
//!
//! Invariant: the memory for a body does not depend on the size of its frames.
//!
//! Not here: deadlines, which the caller sets.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;

/// Step in bytes by which the buffer of a body without a length grows.
const STEP: usize = 256 << 10;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// The body is larger than allowed.
    TooLarge,
    /// The memory limit is reached.
    NoRoom,
    /// The client closed the connection.
    Broken,
}

/// Reads a body of at most `most` bytes. Before each allocation, `room` decides whether this many bytes may be
/// allocated.
///
/// # Errors
/// The body is too large, `room` refuses, or the client closes the connection.
pub async fn read<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
    most: usize,
    mut room: impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, BodyFault> {
    let size = body.size_hint();
    let bytes_of = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    if bytes_of(size.lower()) > most {
        return Err(BodyFault::TooLarge);
    }
    let mut bytes = Vec::new();
    let mut reserve = |bytes: &mut Vec<u8>, length: usize| {
        if !room(length) {
            return Err(BodyFault::NoRoom);
        }
        bytes.reserve_exact(length - bytes.len());
        Ok(())
    };
    // For a body with a known length, all memory is reserved before the first byte. Otherwise concurrent bodies could
    // block each other halfway.
    reserve(&mut bytes, size.exact().map(bytes_of).unwrap_or_default())?;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyFault::Broken)?.into_data() else { continue };
        let length = bytes.len() + data.len();
        if length > most {
            return Err(BodyFault::TooLarge);
        }
        if length > bytes.capacity() {
            reserve(&mut bytes, length.next_multiple_of(STEP).min(most))?;
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    #[tokio::test]
    async fn a_body_in_single_bytes_takes_no_more_room_than_one_in_large_pieces() {
        const MOST: usize = 1 << 20;
        for piece in [1, 16 << 10] {
            let pieces = |length: usize| {
                let all = (0..length / piece).map(move |_| Ok::<_, Infallible>(Frame::data(vec![b'x'; piece].into())));
                StreamBody::new(stream::iter(all))
            };
            let mut held = 0;
            let room = |length| {
                held = length;
                true
            };
            let body = read(&mut pieces(MOST), MOST, room).await.unwrap();
            assert_eq!((body.len(), held), (MOST, MOST), "in pieces of {piece}");
            assert!(body.capacity() <= MOST, "{} bytes in pieces of {piece}", body.capacity());
            assert_eq!(read(&mut pieces(MOST + piece), MOST, |_| true).await, Err(BodyFault::TooLarge));
            assert_eq!(read(&mut pieces(MOST), MOST, |length| length <= STEP).await, Err(BodyFault::NoRoom));
        }
    }
}
