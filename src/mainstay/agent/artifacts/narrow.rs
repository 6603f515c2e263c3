//! Bounds of the sets in a certificate, before a library reads it.
//!
//! Invariant: a certificate that is read has sets of at most [`MOST`] elements. The library sorts the elements of each set,
//! such as the attributes in one part of a name, and its time grows with the square of their number.

use x509_cert::der::{Reader as _, SliceReader, Tag};

/// Maximum number of elements of a set.
const MOST: usize = 8;
/// Maximum levels of nesting.
const LEVELS: usize = 32;
const UNREADABLE: &str = "cannot be read";

/// Checks the sets of a document in DER. Values of extensions are not opened.
///
/// # Errors
/// A set has too many elements, or the document cannot be read. The error is the end of a sentence about the document.
pub(super) fn check(der: &[u8]) -> Result<(), &'static str> {
    elements(der, LEVELS)?;
    Ok(())
}

/// Returns the number of elements.
fn elements(der: &[u8], levels: usize) -> Result<usize, &'static str> {
    let mut reader = SliceReader::new(der).map_err(|_| UNREADABLE)?;
    let mut count = 0;
    while !reader.is_finished() {
        let header = reader.peek_header().map_err(|_| UNREADABLE)?;
        let element = reader.tlv_bytes().map_err(|_| UNREADABLE)?;
        if header.tag.is_constructed() {
            let length = usize::try_from(header.length).map_err(|_| UNREADABLE)?;
            let begin = element.len().checked_sub(length).ok_or(UNREADABLE)?;
            let inside = elements(&element[begin..], levels.checked_sub(1).ok_or(UNREADABLE)?)?;
            if header.tag == Tag::Set && inside > MOST {
                return Err("has a set with more than 8 elements");
            }
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns an element of DER.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        let [high, low] = length.to_be_bytes();
        let header = match length {
            0..=127 => vec![tag, low],
            128..=255 => vec![tag, 0x81, low],
            _ => vec![tag, 0x82, high, low],
        };
        [header, content.to_vec()].concat()
    }

    #[test]
    fn refuses_wide_sets_at_any_level() {
        let set = |count: usize| element(0x31, &element(0x05, b"").repeat(count));
        let around = |inside: &[u8]| element(0x30, &element(0xa0, &element(0x30, inside)));
        assert_eq!(check(&around(&set(8))), Ok(()));
        for wide in [set(9), around(&set(9)), around(&set(1000)), element(0x30, &[set(1), set(9)].concat())] {
            assert_eq!(check(&wide), Err("has a set with more than 8 elements"));
        }
        assert_eq!(check(&element(0x30, &element(0x05, b"").repeat(1000))), Ok(()), "a sequence");
    }

    #[test]
    fn refuses_documents_that_cannot_be_read() {
        let deep = (0..100).fold(Vec::new(), |inside, _| element(0x30, &inside));
        for document in [vec![0x30, 0x05, 0x00], vec![0x30, 0x80, 0, 0], vec![0x30], deep] {
            assert_eq!(check(&document), Err(UNREADABLE));
        }
    }

    proptest! {
        #[test]
        fn reads_any_document_without_panic(bytes: Vec<u8>) {
            let _ = check(&bytes);
        }
    }
}
