//! Git's packet lines: four hexadecimal digits of length, then that many bytes.
//!
//! Invariant: any bytes give packets or a [`Fault`], never a panic.

use bytes::{Bytes, BytesMut};

use crate::error::Fault;

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// `0000`: the end of a message.
    Flush,
    /// `0001`: the end of a section (version 2).
    Delimiter,
    /// A packet with data.
    Data(Bytes),
}

impl Packet {
    /// Returns the number of the packet's side band and the content, if it has a side band.
    pub(super) fn band(&self) -> Option<(u8, &[u8])> {
        match self {
            Self::Data(data) => data.split_first().map(|(number, content)| (*number, content)),
            Self::Flush | Self::Delimiter => None,
        }
    }

    /// Returns the length of the packet in bytes, including the length field.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Data(data) => data.len() + 4,
            Self::Flush | Self::Delimiter => 4,
        }
    }
}

/// Removes the next packet from `buffer`; `None` if more bytes are needed.
pub(super) fn split(buffer: &mut BytesMut) -> Result<Option<Packet>, Fault> {
    let Some(digits) = buffer.get(..4) else { return Ok(None) };
    let mut length = [0; 2];
    hex::decode_to_slice(digits, &mut length).map_err(|_| Fault::Protocol { why: "a packet has no length" })?;
    match usize::from(u16::from_be_bytes(length)) {
        0 => {
            let _ = buffer.split_to(4);
            Ok(Some(Packet::Flush))
        }
        1 => {
            let _ = buffer.split_to(4);
            Ok(Some(Packet::Delimiter))
        }
        2 | 3 => Err(Fault::Protocol { why: "a packet has an impossible length" }),
        length if buffer.len() < length => Ok(None),
        length => Ok(Some(Packet::Data(buffer.split_to(length).split_off(4).freeze()))),
    }
}

/// Appends `text` as a packet.
pub(super) fn write(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(format!("{:04x}{text}", text.len() + 4).as_bytes());
}

/// Returns a packet's text without its line break.
pub(super) fn line(data: &[u8]) -> &[u8] {
    data.strip_suffix(b"\n").unwrap_or(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_it_writes() {
        let mut bytes = Vec::new();
        write(&mut bytes, "hello\n");
        bytes.extend_from_slice(b"00010000");
        let mut buffer = BytesMut::from(&bytes[..]);
        assert_eq!(split(&mut buffer).unwrap(), Some(Packet::Data(Bytes::from_static(b"hello\n"))));
        assert_eq!(split(&mut buffer).unwrap(), Some(Packet::Delimiter));
        assert_eq!(split(&mut buffer).unwrap(), Some(Packet::Flush));
        assert_eq!(split(&mut buffer).unwrap(), None);
    }

    proptest! {
        #[test]
        fn cuts_any_bytes_without_panic(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = split(&mut buffer) {}
        }
    }
}
