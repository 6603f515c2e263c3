//! See [`crate::fuzz`].

use bytes::BytesMut;

use super::packet::split;

/// What a Git server sends, in lines: nothing is invented, and each line but the last takes something off.
pub fn pkt_line(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    let mut left = buffer.len();
    while let Ok(Some(_)) = split(&mut buffer) {
        assert!(buffer.len() < left, "a line has a length");
        left = buffer.len();
    }
}
