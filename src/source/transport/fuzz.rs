//! See [`crate::fuzz`].

use bytes::BytesMut;

use super::pack::Scan;
use super::packet::split;
use crate::source::Limits;

/// What a Git server sends, in lines: nothing is invented, and each line but the last takes something off.
pub fn pkt_line(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    let mut left = buffer.len();
    while let Ok(Some(_)) = split(&mut buffer) {
        assert!(buffer.len() < left, "a line has a length");
        left = buffer.len();
    }
}

/// A pack, however it arrives: as a whole, byte by byte, it is judged as the same.
pub fn pack(bytes: &[u8]) {
    let limits = Limits { pack_objects: 1000, object_bytes: 1 << 16, unpacked_bytes: 1 << 20, ..Limits::default() };
    let judged = |size: usize| {
        let mut scan = Scan::new(limits);
        bytes.chunks(size).try_for_each(|piece| scan.feed(piece)).and_then(|()| scan.finish()).ok()
    };
    let whole = judged(bytes.len().max(1));
    assert_eq!(judged(1), whole);
    assert!(whole.is_none_or(|weight| weight.objects <= 1000 && weight.largest <= 1 << 16), "the limits hold");
}
