//! The source locations of an inventory's objects in the repository: file, document and line.
//!
//! Each encoded content belongs to one shard of an inventory and follows the order of the shard's objects. It is stored
//! as gzip and used only for output (`mainstay trace`). If it is missing or does not match its shard, the locations are
//! unknown.
//!
//! Invariant: decoding trusts no content. Malformed, truncated or oversized content is [`Unreadable`].
//! Invariant: no object gets the location of a different object, because the content contains the digest of the shard's
//! keys.
//!
//! Not here: reads and writes of the ConfigMaps (`gitsync`).

use std::collections::HashMap;
use std::sync::Arc;

use super::gzip;
use super::inventory::Unreadable;
use mainstay_object::{Digest, Key, Place};

/// First bytes of every content, with the format version.
pub(super) const MAGIC: &[u8] = b"mainstay-places/1\n";
/// Maximum size of a shard's content in bytes. With the shard it stays below the API's limit of 1 MiB.
const LARGEST: usize = 192 << 10;
/// Maximum size of decompressed content, in bytes.
const LONGEST: usize = 16 << 20;
/// Maximum length of a stored file path, in bytes.
pub(super) const LONGEST_PATH: usize = 1024;

/// The source locations of a shard's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The commit of the locations.
    pub commit: String,
    /// File, document and line of each object with a known location.
    pub of: HashMap<Key, Place>,
}

impl Places {
    /// Encodes the locations of a shard's objects, in their order. `None` if they are too large.
    pub fn encode<'a>(commit: &str, objects: impl Iterator<Item = (&'a Key, Option<&'a Place>)>) -> Option<Vec<u8>> {
        let mut files: Vec<&str> = Vec::new();
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let (mut of_files, mut documents, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        let mut keys = String::new();
        for (key, place) in objects {
            keys.push_str(&format!("{key}\n"));
            let place = place.filter(|place| place.file.len() <= LONGEST_PATH);
            let number = place.map_or(0, |place| {
                *numbers.entry(&place.file).or_insert_with(|| {
                    files.push(&place.file);
                    u32::try_from(files.len()).unwrap_or(0)
                })
            });
            // Columns of the same field compress best.
            of_files.extend(number.to_le_bytes());
            documents.extend(place.map_or(0, |place| place.document).to_le_bytes());
            lines.extend(place.map_or(0, |place| place.line).to_le_bytes());
        }
        let mut plain = MAGIC.to_vec();
        plain.extend(Digest::of(keys.as_bytes()).as_bytes());
        let count = lines.len() / 4;
        let texts = std::iter::once(commit).chain(files.iter().copied());
        for number in [count, files.len()] {
            plain.extend(u32::try_from(number).ok()?.to_le_bytes());
        }
        for text in texts {
            plain.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
            plain.extend(text.as_bytes());
        }
        for column in [&of_files, &documents, &lines] {
            plain.extend(column);
        }
        gzip::compress_well(&plain).ok().filter(|content| content.len() <= LARGEST)
    }

    /// Decodes the locations of a shard's objects.
    pub fn decode(content: &[u8], keys: &[&Key]) -> Result<Self, Unreadable> {
        let plain = gzip::decompress(content, LONGEST).ok_or(Unreadable)?;
        let mut rest = plain.strip_prefix(MAGIC).ok_or(Unreadable)?;
        let mut all = String::new();
        for key in keys {
            all.push_str(&format!("{key}\n"));
        }
        if take(&mut rest, 16)? != Digest::of(all.as_bytes()).as_bytes() || number(&mut rest)? != keys.len() {
            return Err(Unreadable);
        }
        let files = number(&mut rest)?;
        let commit = text(&mut rest)?.to_owned();
        // There is at most one file for each object.
        if files > keys.len() {
            return Err(Unreadable);
        }
        let files = (0..files).map(|_| text(&mut rest).map(Arc::from)).collect::<Result<Vec<Arc<str>>, _>>()?;
        let length = keys.len() * 4;
        let (mut of_files, mut documents, mut lines) =
            (take(&mut rest, length)?, take(&mut rest, length)?, take(&mut rest, length)?);
        let mut of = HashMap::new();
        for key in keys {
            let (file, document, line) = (number(&mut of_files)?, number(&mut documents)?, number(&mut lines)?);
            let Some(file) = file.checked_sub(1) else { continue };
            let place = Place {
                file: Arc::clone(files.get(file).ok_or(Unreadable)?),
                document: u32::try_from(document).map_err(|_| Unreadable)?,
                line: u32::try_from(line).map_err(|_| Unreadable)?,
                column: 0,
                built_by: None,
            };
            of.insert((*key).clone(), place);
        }
        if rest.is_empty() { Ok(Self { commit, of }) } else { Err(Unreadable) }
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Unreadable> {
    let (taken, left) = rest.split_at_checked(length).ok_or(Unreadable)?;
    *rest = left;
    Ok(taken)
}

fn number(rest: &mut &[u8]) -> Result<usize, Unreadable> {
    let bytes = take(rest, 4)?.try_into().map_err(|_| Unreadable)?;
    Ok(u32::from_le_bytes(bytes) as usize)
}

fn text<'a>(rest: &mut &'a [u8]) -> Result<&'a str, Unreadable> {
    let length = u16::from_le_bytes(take(rest, 2)?.try_into().map_err(|_| Unreadable)?);
    std::str::from_utf8(take(rest, usize::from(length))?).map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "1111111111111111111111111111111111111111";

    fn objects(count: usize) -> Vec<(Key, Place)> {
        let one = |number: usize| {
            let line = u32::try_from(number % 97 + 1).unwrap();
            let key = Key::new("apps", "Deployment", Some("load"), format!("service-{:05}", number * 7919 % 100_000));
            let file = format!("clusters/production/team-{}/service-{number}/deployment.yaml", number % 40);
            (key, Place { document: 1, line, ..Place::file(file) })
        };
        let mut all: Vec<_> = (0..count).map(one).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    fn encode(objects: &[(Key, Place)]) -> Option<Vec<u8>> {
        Places::encode(COMMIT, objects.iter().map(|(key, place)| (key, Some(place))))
    }

    #[test]
    fn decodes_to_the_same_places() {
        let mut objects = objects(1000);
        objects[7].1.file = "a".repeat(LONGEST_PATH + 1).into();
        let keys: Vec<_> = objects.iter().map(|(key, _)| key).collect();
        let places = Places::decode(&encode(&objects).unwrap(), &keys).unwrap();
        assert_eq!((places.commit.as_str(), places.of.len()), (COMMIT, 999));
        for (number, (key, place)) in objects.iter().enumerate() {
            assert_eq!(places.of.get(key), (number != 7).then_some(place));
        }
    }

    #[test]
    fn ten_thousand_places_are_a_small_part_of_the_inventory() {
        let size = encode(&objects(10_000)).unwrap().len();
        assert!(size < 100_000, "{size}");
    }

    #[test]
    fn refuses_truncated_content_and_that_of_other_objects() {
        let objects = objects(100);
        let content = encode(&objects).unwrap();
        let keys: Vec<_> = objects.iter().map(|(key, _)| key).collect();
        assert!(Places::decode(&content, &keys).is_ok());
        assert_eq!(Places::decode(&content, &keys[1..]), Err(Unreadable));
        let others: Vec<_> = keys.iter().rev().copied().collect();
        assert_eq!(Places::decode(&content, &others), Err(Unreadable));
        assert_eq!(Places::decode(&content[..content.len() / 2], &keys), Err(Unreadable));
        assert_eq!(Places::decode(b"rubbish", &keys), Err(Unreadable));
    }
}
