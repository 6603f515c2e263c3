//! SPDY frames: an eight-byte header and a payload.

use super::{Error, LARGEST_CONTROL};

/// Size of a frame header, in bytes.
pub(crate) const HEAD: usize = 8;
/// Maximum payload of a sent data frame, in bytes.
pub(crate) const LONGEST_DATA: usize = 32 << 10;

/// The flag of the sender's last frame on a stream.
const LAST: u8 = 1;
/// The version and the control bit.
const CONTROL: u16 = 0x8003;
/// The status of a refused stream.
pub(crate) const REFUSED: u32 = 3;
/// The status of a cancelled stream.
pub(crate) const CANCELLED: u32 = 5;

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// A data frame.
    Data {
        /// Stream number.
        stream: u32,
        /// Whether this is the last data of the stream.
        last: bool,
        /// Length of the payload.
        length: usize,
    },
    /// A control frame.
    Control {
        /// Frame type.
        kind: u16,
        /// Whether the sender half-closes the stream.
        last: bool,
        /// Length of the payload.
        length: usize,
    },
}

/// The payload of a control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control<'a> {
    /// Opens a stream.
    Open {
        /// Stream number.
        stream: u32,
        /// Compressed headers.
        block: &'a [u8],
    },
    /// Sends further headers of a stream.
    Headers {
        /// Stream number.
        stream: u32,
        /// Compressed headers.
        block: &'a [u8],
    },
    /// Accepts a stream. The headers of this frame must be decompressed before those of later frames.
    Reply {
        /// Compressed headers.
        block: &'a [u8],
    },
    /// Ends a stream in both directions.
    Reset {
        /// Stream number.
        stream: u32,
    },
    /// Asks for the same frame in return.
    Ping(u32),
    /// Announces that no more streams follow.
    GoAway,
    /// Settings and window updates.
    Other,
}

/// Parses a frame header.
pub(crate) fn head(bytes: [u8; HEAD]) -> Result<Head, Error> {
    let first = u32::from_be_bytes(bytes[..4].try_into().map_err(|_| Error::Truncated)?);
    let length = u32::from_be_bytes(bytes[4..].try_into().map_err(|_| Error::Truncated)?);
    let last = bytes[4] & LAST != 0;
    let length = usize::try_from(length & 0x00ff_ffff).map_err(|_| Error::TooLarge)?;
    let [version, kind] = [first >> 16, first & 0xffff].map(|half| u16::try_from(half).unwrap_or_default());
    if version & 0x8000 == 0 {
        return if first == 0 { Err(Error::Number(0)) } else { Ok(Head::Data { stream: first, last, length }) };
    }
    if version != CONTROL {
        return Err(Error::Version);
    }
    if length > LARGEST_CONTROL {
        return Err(Error::TooLarge);
    }
    Ok(Head::Control { kind, last, length })
}

/// Parses the payload of a control frame.
pub(crate) fn control(kind: u16, payload: &[u8]) -> Result<Control<'_>, Error> {
    Ok(match kind {
        1 => {
            let (stream, rest) = number(payload)?;
            // Skips the associated stream, the priority and the slot.
            let block = rest.get(6..).ok_or(Error::Truncated)?;
            if stream.is_multiple_of(2) {
                return Err(Error::Number(stream));
            }
            Control::Open { stream, block }
        }
        2 => Control::Reply { block: number(payload)?.1 },
        3 => Control::Reset { stream: number(payload)?.0 },
        6 => Control::Ping(raw(payload)?.0),
        7 => Control::GoAway,
        8 => {
            let (stream, block) = number(payload)?;
            Control::Headers { stream, block }
        }
        _ => Control::Other,
    })
}

fn raw(payload: &[u8]) -> Result<(u32, &[u8]), Error> {
    let (number, rest) = payload.split_first_chunk().ok_or(Error::Truncated)?;
    Ok((u32::from_be_bytes(*number), rest))
}

/// Splits off a stream number.
fn number(payload: &[u8]) -> Result<(u32, &[u8]), Error> {
    let (number, rest) = raw(payload)?;
    Ok((number & 0x7fff_ffff, rest))
}

fn frame(first: u32, flags: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).expect("what is written here is short").to_be_bytes();
    let mut out = Vec::with_capacity(HEAD + parts.iter().map(|part| part.len()).sum::<usize>());
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&[flags, length[1], length[2], length[3]]);
    out.extend(parts.iter().flat_map(|part| part.iter()));
    out
}

fn control_frame(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    frame(u32::from(CONTROL) << 16 | u32::from(kind), 0, parts)
}

/// Builds a data frame with at most [`LONGEST_DATA`] bytes.
pub(crate) fn data(stream: u32, last: bool, bytes: &[u8]) -> Vec<u8> {
    frame(stream, if last { LAST } else { 0 }, &[bytes])
}

/// Builds the frame that accepts a stream, with compressed headers.
pub(crate) fn reply(stream: u32, block: &[u8]) -> Vec<u8> {
    control_frame(2, &[&stream.to_be_bytes(), block])
}

/// Builds the frame that ends a stream.
pub(crate) fn reset(stream: u32, reason: u32) -> Vec<u8> {
    control_frame(3, &[&stream.to_be_bytes(), &reason.to_be_bytes()])
}

/// Builds the response to a ping.
pub(crate) fn ping(id: u32) -> Vec<u8> {
    control_frame(6, &[&id.to_be_bytes()])
}

/// Builds the frame that opens a stream. Only tests are clients.
#[cfg(test)]
pub(crate) fn open(stream: u32, block: &[u8]) -> Vec<u8> {
    control_frame(1, &[&stream.to_be_bytes(), &[0; 6], block])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Result<Head, Error>) {
        assert_eq!(head(bytes[..HEAD].try_into().unwrap()), expected, "{bytes:?}");
    }

    #[test]
    fn reads_what_it_writes() {
        check(&data(3, true, b"abc"), Ok(Head::Data { stream: 3, last: true, length: 3 }));
        check(&ping(7), Ok(Head::Control { kind: 6, last: false, length: 4 }));
        assert_eq!(control(6, &ping(7)[HEAD..]), Ok(Control::Ping(7)));
        assert_eq!(control(3, &reset(5, CANCELLED)[HEAD..]), Ok(Control::Reset { stream: 5 }));
        assert_eq!(control(1, &open(5, b"x")[HEAD..]), Ok(Control::Open { stream: 5, block: b"x" }));
        assert_eq!(control(2, &reply(5, b"x")[HEAD..]), Ok(Control::Reply { block: b"x" }));
    }

    #[test]
    fn refuses_what_no_client_sends() {
        check(&[0; 8], Err(Error::Number(0)));
        check(&[0x80, 2, 0, 1, 0, 0, 0, 0], Err(Error::Version));
        check(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff], Err(Error::TooLarge));
        assert_eq!(control(1, &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0]), Err(Error::Number(2)));
        for kind in 0..20 {
            for length in 0..12 {
                // The call must return, with any result.
                let _ = control(kind, &vec![0xff; length]);
            }
        }
        assert_eq!(control(1, &[0, 0, 0, 1]), Err(Error::Truncated));
    }
}
