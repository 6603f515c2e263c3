//! Packs that are small on the wire and large in memory.

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};

/// Size of a base and of the result of a delta, in bytes.
const LARGE: usize = 63 << 20;

/// Returns a pack with one large blob and some deltas on it. Each delta needs the memory of its base and its result.
pub(super) fn expanding(deltas: usize) -> Vec<u8> {
    let mut pack = [b"PACK\0\0\0\x02".as_slice(), &u32::try_from(deltas + 1).unwrap().to_be_bytes()].concat();
    let base = pack.len();
    pack.extend(head(3, LARGE));
    pack.extend(deflated(&vec![0; LARGE]));
    let delta = delta();
    let packed = deflated(&delta);
    for _ in 0..deltas {
        let at = pack.len();
        pack.extend(head(6, delta.len()));
        pack.extend(distance(at - base));
        pack.extend(&packed);
    }
    let sum = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &pack);
    pack.extend(sum.as_ref());
    pack
}

/// Returns a pack of different blobs of 1 MiB each, which is small on the wire.
pub(super) fn large(mib: usize) -> Vec<u8> {
    let mut pack = [b"PACK\0\0\0\x02".as_slice(), &u32::try_from(mib).unwrap().to_be_bytes()].concat();
    let mut blob = vec![0; 1 << 20];
    for number in 0..mib {
        blob[..8].copy_from_slice(&number.to_be_bytes());
        pack.extend(head(3, blob.len()));
        pack.extend(deflated(&blob));
    }
    let sum = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &pack);
    pack.extend(sum.as_ref());
    pack
}

/// Returns a delta that contains its whole result.
fn delta() -> Vec<u8> {
    let mut delta = [size(LARGE), size(LARGE)].concat();
    let mut left = LARGE;
    while left > 0 {
        let piece = left.min(127);
        delta.push(u8::try_from(piece).unwrap());
        delta.extend(vec![1; piece]);
        left -= piece;
    }
    delta
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
    deflate.write_all(bytes).unwrap();
    deflate.finish().unwrap()
}

/// Encodes kind and size at the start of an object.
fn head(kind: u8, mut size: usize) -> Vec<u8> {
    let mut out = vec![kind << 4 | u8::try_from(size & 15).unwrap()];
    size >>= 4;
    while size > 0 {
        *out.last_mut().unwrap() |= 0x80;
        out.push(u8::try_from(size & 0x7f).unwrap());
        size >>= 7;
    }
    out
}

/// Encodes a size at the start of a delta.
fn size(mut size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let more = size > 0x7f;
        out.push(u8::try_from(size & 0x7f).unwrap() | if more { 0x80 } else { 0 });
        size >>= 7;
        if !more {
            return out;
        }
    }
}

/// Encodes the distance to the base.
fn distance(mut distance: usize) -> Vec<u8> {
    let mut out = vec![u8::try_from(distance & 0x7f).unwrap()];
    distance >>= 7;
    while distance > 0 {
        distance -= 1;
        out.insert(0, 0x80 | u8::try_from(distance & 0x7f).unwrap());
        distance >>= 7;
    }
    out
}
