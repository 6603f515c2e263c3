//! Compresses and decompresses contents as gzip, with one compressor and one decompressor for each thread.
//!
//! Their states are much larger than most contents. If each of thousands of contents allocated its own, other allocations
//! would settle in the gaps that the freed states leave, and the heap of an agent would grow to a multiple of its use.
//!
//! Not here: the format of the contents (`inventory`, `places`).

use std::cell::RefCell;
use std::io::{self, Read, Write};

use flate2::read::GzDecoder;
use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc, Decompress, FlushDecompress, Status};

/// Header of a gzip stream (RFC 1952) without a name and a time, of the fastest level and an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// Length of the part of the header that is the same without a name and other fields: magic number, method and flags.
const FIXED: usize = 4;
/// Number of bytes after the compressed data: checksum and length.
const AFTER: usize = 8;
/// Maximum size of a content that [`compress_well`] compresses at the fastest level, in bytes.
const SMALL: usize = 64 << 10;
/// The first step in which the decompressed content grows, in bytes.
const STEP: usize = 4 << 10;

thread_local! {
    static FAST: RefCell<DeflateEncoder<Vec<u8>>> = RefCell::new(DeflateEncoder::new(Vec::new(), Compression::fast()));
    static DECOMPRESS: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// Returns the content as gzip, at the fastest level. The same content always results in the same bytes.
///
/// # Errors
/// Never in practice: memory is the only sink.
pub(super) fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = FAST.with_borrow_mut(|encoder| {
        encoder.reset(HEADER.to_vec())?;
        encoder.write_all(plain)?;
        encoder.reset(Vec::new())
    })?;
    let mut checksum = Crc::new();
    checksum.update(plain);
    gzip.extend(checksum.sum().to_le_bytes());
    gzip.extend(checksum.amount().to_le_bytes());
    Ok(gzip)
}

/// Same, at the default level for a large content. Its compressor is not kept.
///
/// # Errors
/// Never in practice: memory is the only sink.
pub(super) fn compress_well(plain: &[u8]) -> io::Result<Vec<u8>> {
    if plain.len() <= SMALL {
        return compress(plain);
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Returns the decompressed content of at most `longest` bytes; `None` if it is malformed, truncated or longer.
pub(super) fn decompress(content: &[u8], longest: usize) -> Option<Vec<u8>> {
    if !content.starts_with(&HEADER[..FIXED]) {
        return decompress_other(content, longest);
    }
    let packed = content.get(HEADER.len()..)?;
    let (plain, read) = DECOMPRESS.with_borrow_mut(|decompress| inflate(decompress, packed, longest))?;
    let mut checksum = Crc::new();
    checksum.update(&plain);
    let end = [checksum.sum().to_le_bytes(), checksum.amount().to_le_bytes()].concat();
    (packed.get(read..read + AFTER) == Some(&*end)).then_some(plain)
}

/// Same, for a header with a name or other fields, which a user's tool has written.
fn decompress_other(content: &[u8], longest: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let limit = longest as u64 + 1;
    GzDecoder::new(content).take(limit).read_to_end(&mut plain).ok()?;
    (plain.len() <= longest).then_some(plain)
}

/// Returns the decompressed content, and the number of bytes read.
fn inflate(decompress: &mut Decompress, packed: &[u8], longest: usize) -> Option<(Vec<u8>, usize)> {
    decompress.reset(false);
    let mut plain = Vec::new();
    loop {
        // One byte more than allowed shows that the content is too long.
        plain.reserve_exact(plain.len().clamp(STEP, (longest + 1 - plain.len()).max(STEP)));
        let (read, written) = (decompress.total_in(), plain.len());
        let rest = packed.get(usize::try_from(read).ok()?..)?;
        let status = decompress.decompress_vec(rest, &mut plain, FlushDecompress::None).ok()?;
        let is_stuck = decompress.total_in() == read && plain.len() == written;
        match status {
            _ if plain.len() > longest => return None,
            Status::StreamEnd => break,
            _ if is_stuck => return None,
            Status::Ok | Status::BufError => {}
        }
    }
    let read = usize::try_from(decompress.total_in()).ok()?;
    Some((plain, read))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: usize = 1 << 20;

    fn by_library(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn contents() -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut contents = vec![Vec::new(), b"a".to_vec(), vec![7; LONGEST], b"mainstay".repeat(1000)];
        contents.extend([1, 4095, 4096, 4097, 200_000].map(|length| (0..length).map(|_| random.u8(..)).collect()));
        contents
    }

    #[test]
    fn contents_are_those_of_the_library_in_both_directions() {
        for plain in contents() {
            let gzip = compress(&plain).unwrap();
            assert_eq!(gzip, by_library(&plain), "{} bytes", plain.len());
            assert_eq!(decompress(&gzip, LONGEST).unwrap(), plain);
            assert_eq!(decompress(&gzip, plain.len()).unwrap(), plain);
            assert_eq!(decompress(&compress_well(&plain).unwrap(), LONGEST).unwrap(), plain);
        }
    }

    #[test]
    fn truncated_changed_and_long_contents_are_refused_and_the_next_one_is_read() {
        for plain in contents() {
            let gzip = compress(&plain).unwrap();
            for length in [0, 1, 5, HEADER.len(), gzip.len() / 2, gzip.len() - AFTER, gzip.len() - 1] {
                assert_eq!(decompress(&gzip[..length], LONGEST), None, "{length} bytes");
            }
            for position in [0, 2, gzip.len() - AFTER, gzip.len() - 1] {
                let mut changed = gzip.clone();
                changed[position] ^= 0x40;
                assert_eq!(decompress(&changed, LONGEST), None, "byte {position}");
            }
            if let Some(less) = plain.len().checked_sub(1) {
                assert_eq!(decompress(&gzip, less), None);
            }
            assert_eq!(decompress(&gzip, LONGEST).unwrap(), plain);
        }
    }

    #[test]
    fn a_content_that_a_tool_has_compressed_with_a_name_is_read() {
        let mut encoder = flate2::GzBuilder::new().filename("inventory").write(Vec::new(), Compression::best());
        encoder.write_all(b"content").unwrap();
        let gzip = encoder.finish().unwrap();
        assert_eq!(decompress(&gzip, 7).unwrap(), b"content");
        assert_eq!(decompress(&gzip, 6), None);
    }
}
