//! Frames: eight bytes that say what follows, and the payload.

use super::{Error, LARGEST_CONTROL};

/// Bytes of a frame before its payload.
pub(crate) const HEAD: usize = 8;
/// Longest payload of a frame that is written.
pub(crate) const LONGEST_DATA: usize = 32 << 10;

/// The frame says that its sender will not write to the stream again.
const LAST: u8 = 1;
/// The version and the bit that makes a control frame.
const CONTROL: u16 = 0x8003;
/// A stream that is not accepted.
pub(crate) const REFUSED: u32 = 3;
/// A stream that nobody wants to go on.
pub(crate) const CANCELLED: u32 = 5;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Bytes of a stream.
    Data {
        /// Number of the stream.
        stream: u32,
        /// Whether they are the last ones.
        last: bool,
        /// Length of the payload.
        length: usize,
    },
    /// Anything else.
    Control {
        /// Number of the kind.
        kind: u16,
        /// Whether the sender writes to the stream no more.
        last: bool,
        /// Length of the payload.
        length: usize,
    },
}

/// The payload of a control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control<'a> {
    /// A stream begins.
    Open {
        /// Its number.
        stream: u32,
        /// Its compressed headers.
        block: &'a [u8],
    },
    /// Further headers of a stream.
    Headers {
        /// Number of the stream.
        stream: u32,
        /// The compressed headers.
        block: &'a [u8],
    },
    /// The other side accepts a stream; its headers must be read to be able to read later ones.
    Reply {
        /// The compressed headers.
        block: &'a [u8],
    },
    /// A stream ends in both directions.
    Reset {
        /// Its number.
        stream: u32,
    },
    /// To be sent back.
    Ping(u32),
    /// No more streams come.
    GoAway,
    /// Settings and windows.
    Other,
}

/// Reads the first bytes of a frame.
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

/// Reads the payload of a control frame.
pub(crate) fn control(kind: u16, payload: &[u8]) -> Result<Control<'_>, Error> {
    Ok(match kind {
        1 => {
            let (stream, rest) = number(payload)?;
            // The stream that it belongs to, its priority and its slot.
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

/// The number of a stream, and what follows it.
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

/// Bytes of a stream, at most [`LONGEST_DATA`].
pub(crate) fn data(stream: u32, last: bool, bytes: &[u8]) -> Vec<u8> {
    frame(stream, if last { LAST } else { 0 }, &[bytes])
}

/// Accepts a stream; with the compressed headers of the answer.
pub(crate) fn reply(stream: u32, block: &[u8]) -> Vec<u8> {
    control_frame(2, &[&stream.to_be_bytes(), block])
}

/// Ends a stream.
pub(crate) fn reset(stream: u32, reason: u32) -> Vec<u8> {
    control_frame(3, &[&stream.to_be_bytes(), &reason.to_be_bytes()])
}

/// Sends back what was sent to see whether somebody is there.
pub(crate) fn ping(id: u32) -> Vec<u8> {
    control_frame(6, &[&id.to_be_bytes()])
}

/// Opens a stream; only tests are clients.
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
                // It answers, whatever it is.
                let _ = control(kind, &vec![0xff; length]);
            }
        }
        assert_eq!(control(1, &[0, 0, 0, 1]), Err(Error::Truncated));
    }
}
