//! The binary format of a record: length, truncated digest of the rest, a head in JSON, and an event's data.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::super::cloud_event::CloudEvent;

/// Number of bytes for the length, the digest, and the length of the head.
const FRAME: usize = 4 + 8 + 4;
/// Maximum size of a record in bytes. The limit for events is much lower.
const LONGEST: usize = 1 << 20;

/// The head of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub(super) enum Head {
    /// An event for these subscribers. A later record with the same number replaces this record.
    Event {
        number: u64,
        /// Time of publication in milliseconds since 1970.
        published: i64,
        to: Vec<Recipient>,
        attributes: BTreeMap<String, String>,
    },
    /// A subscriber has received the event, or will never receive it.
    Ended { number: u64, to: String },
    /// A delivery failed.
    Tried { number: u64, to: String, attempts: u32 },
}

/// A subscriber, and the number of failed deliveries to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recipient {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) attempts: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Appends a record.
pub(super) fn encode(head: &Head, data: &[u8], into: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let head = serde_json::to_vec(head)?;
    let length = u32::try_from(4 + head.len() + data.len()).unwrap_or(u32::MAX);
    into.extend(length.to_le_bytes());
    let begin = into.len();
    into.extend([0; 8]);
    into.extend(u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
    into.extend(head);
    into.extend(data);
    let digest = Sha256::digest(&into[begin + 8..]);
    into[begin..begin + 8].copy_from_slice(&digest[..8]);
    Ok(())
}

/// Parses the first record of these bytes: head, data and length. Returns `None` if the record is incomplete or
/// damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<(Head, &[u8], usize)> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize);
    let length = number(0).filter(|length| (4..=LONGEST).contains(length))?;
    let digest = bytes.get(4..12)?;
    let body = bytes.get(12..12 + length)?;
    if Sha256::digest(body)[..8] != *digest {
        return None;
    }
    let head = number(12).filter(|head| head + 4 <= length)?;
    let (head, data) = body[4..].split_at(head);
    Some((serde_json::from_slice(head).ok()?, data, 12 + length))
}

/// Returns the start of the record after a damaged record, which is determined from the damaged record's length.
/// Returns `None` if no valid record follows.
pub(super) fn after_damaged(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let next = 12 + length;
    (length <= LONGEST && decode(bytes.get(next..)?).is_some()).then_some(next)
}

/// Returns the event of a record.
pub(super) fn event(bytes: &[u8]) -> Option<CloudEvent> {
    let (head, data, _) = decode(bytes)?;
    match head {
        Head::Event { attributes, .. } => Some(CloudEvent { attributes, data: Bytes::copy_from_slice(data) }),
        Head::Ended { .. } | Head::Tried { .. } => None,
    }
}

/// Whether a record of this length can be read again.
pub(super) fn is_readable(length: usize) -> bool {
    length.saturating_sub(FRAME - 4) <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Vec<u8> {
        let to = vec![Recipient { id: "trigger/a/b".into(), attempts: 0 }];
        let attributes = [("id".to_owned(), "1".to_owned())].into();
        let mut bytes = Vec::new();
        encode(&Head::Event { number: 7, published: 1, to, attributes }, b"data", &mut bytes).unwrap();
        encode(&Head::Ended { number: 7, to: "trigger/a/b".into() }, b"", &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let bytes = bytes();
        let (head, data, length) = decode(&bytes).unwrap();
        assert!(matches!(head, Head::Event { number: 7, .. }) && data == b"data");
        assert_eq!(event(&bytes).unwrap().attribute("id"), Some("1"));
        let (head, _, rest) = decode(&bytes[length..]).unwrap();
        assert_eq!((head, length + rest), (Head::Ended { number: 7, to: "trigger/a/b".into() }, bytes.len()));
    }

    #[test]
    fn a_torn_or_changed_record_is_none() {
        let bytes = bytes();
        let (_, _, length) = decode(&bytes).unwrap();
        for end in 0..length {
            assert_eq!(decode(&bytes[..end]), None, "torn after {end} bytes");
        }
        for at in 0..length {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(decode(&changed), None, "byte {at}");
        }
        assert_eq!(decode(&[0xff; 64]), None);
        let mut changed = bytes.clone();
        changed[20] ^= 1;
        assert_eq!((after_damaged(&changed), after_damaged(&changed[..length])), (Some(length), None));
        assert_eq!((after_damaged(&[0xff; 64]), after_damaged(&[]), after_damaged(&[0; 12])), (None, None, None));
    }
}
