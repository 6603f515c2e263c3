//! The inventory of a GitSync: the objects that it manages, with the verified state of each.
//!
//! An entry is added before its object is created. It stays while the commit contains the object, even if a user
//! deletes the object. It is removed for one of these reasons:
//!
//! - The commit lacks the object, and the object is gone or no longer belongs to the GitSync.
//! - The commit lacks the object, and another GitSync lists it as applied.
//! - The object was not created: its first apply was denied, or such an object exists and is refused or paused.
//!
//! The whole inventory is deleted with its GitSync, or when the GitSync moves to a different cluster.
//!
//! The inventory is stored as gzip in the `binaryData` of ConfigMaps ([`Shard`]). One ConfigMap holds up to 18 000
//! entries.
//!
//! Invariant: encoding is deterministic, so an unchanged shard is never written.
//! Invariant: decoding trusts no content. Malformed, truncated or oversized content is [`Unreadable`].
//!
//! Not here: reads and writes of the ConfigMaps (`gitsync`), and changes of entries (`written`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::desired::Desired;
use super::gzip;
use mainstay_object::{Digest, Ended, Identity, Key};

/// Maximum number of entries in a shard: about 850 kB compressed, below the API's limit of 1 MiB.
const SHARD: usize = 18_000;
/// Maximum size of a decompressed shard, in bytes.
const LONGEST: usize = 12 << 20;
/// Maximum number of entries read from a shard. Entries are spread evenly, so no shard has twice its share.
const MOST: usize = 2 * SHARD;
/// Approximate memory of an entry without its name, in bytes.
const ENTRY_BYTES: usize = 240;
/// Maximum memory of an inventory, in bytes: 100 000 objects, the maximum of a commit, with names of 80 bytes.
const MEMORY: usize = 32 << 20;
/// First bytes of every shard, with the format version.
const MAGIC: &[u8] = b"mainstay-inventory/1\n";
/// Flags of an entry whose object ended.
const SUCCEEDED: u8 = 8;
const FAILED: u8 = 16;

/// The entry of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Version of the API group, as last written in Git.
    pub version: Arc<str>,
    /// UID, as 16 bytes; `None` until the server has responded to the first apply.
    pub uid: Option<[u8; 16]>,
    /// Digest of the verified projection.
    pub digest: Option<Digest>,
    /// First half of the digest of the applied document.
    pub source: Option<[u8; 8]>,
    /// How the object ended with that document. Such an object is not recreated when it is gone.
    pub ended: Option<Ended>,
}

/// The objects that a GitSync manages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(pub HashMap<Key, Entry>);

/// An owner's inventory as it will be written next.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Shared with its readers.
    pub(crate) inventory: Arc<Inventory>,
    /// Whether the inventory changed since it was saved.
    pub(crate) unsaved: bool,
    /// Whether the end of an object is not saved yet. An agent that does not know about the end would run the object
    /// again.
    pub(crate) is_urgent: bool,
}

/// The part of an inventory in one ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Index of the shard, from 0.
    pub index: usize,
    /// Content for `binaryData`, before base64.
    pub content: Vec<u8>,
    /// The objects in the shard, in order.
    pub keys: Vec<Key>,
}

/// The content is not a complete inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the inventory cannot be read")]
pub struct Unreadable;

impl Written {
    /// Changes an existing entry.
    pub(crate) fn set(&mut self, key: &Key, entry: Entry) {
        if let Some(known) = self.inventory.0.get(key).filter(|known| **known != entry) {
            self.is_urgent |= entry.ended.is_some() && known.ended != entry.ended;
            Arc::make_mut(&mut self.inventory).0.insert(key.clone(), entry);
            self.unsaved = true;
        }
    }
}

impl Entry {
    /// Returns the entry of an object to which `desired` was applied.
    pub fn of(desired: &Desired, uid: &str, digest: Option<Digest>) -> Self {
        let mut source = [0; 8];
        source.copy_from_slice(&desired.source().as_bytes()[..8]);
        Self {
            version: Arc::clone(&desired.kind.version),
            uid: Some(uid_bytes(uid)),
            digest,
            source: digest.is_some().then_some(source),
            ended: None,
        }
    }

    /// Whether `desired` was last applied and its result verified.
    pub fn is_for(&self, desired: &Desired) -> bool {
        self.is_of(&desired.source()) && *self.version == *desired.kind.version
    }

    /// Whether the document with this digest was last applied and its result verified.
    pub fn is_of(&self, source: &Digest) -> bool {
        self.digest.is_some() && self.source.is_some_and(|s| s == source.as_bytes()[..8])
    }
}

/// Returns a UID as the bytes of an entry: those of a UUID, else the first half of its SHA-256.
pub fn uid_bytes(uid: &str) -> [u8; 16] {
    let (mut digits, mut length) = ([0; 32], 0);
    for byte in uid.bytes().filter(|byte| *byte != b'-') {
        if length < digits.len() {
            digits[length] = byte;
        }
        length += 1;
    }
    let mut bytes = [0; 16];
    if uid.len() == 36 && length == digits.len() && hex::decode_to_slice(digits, &mut bytes).is_ok() {
        return bytes;
    }
    *Digest::of(uid.as_bytes()).as_bytes()
}

/// Formats 16 bytes as the UUID of a UID.
pub fn uid_text(bytes: [u8; 16]) -> String {
    let hex = hex::encode(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

impl Inventory {
    /// Returns the shards in the order in which they are written. The first shard contains their number and comes last.
    pub fn encode(&self) -> Vec<Shard> {
        let total = self.0.len().div_ceil(SHARD).max(1);
        let mut parts = vec![BTreeMap::new(); total];
        for (key, entry) in &self.0 {
            parts[shard_of(key, total)].insert(key, entry);
        }
        let mut shards = Vec::with_capacity(total);
        for (index, part) in parts.into_iter().enumerate().rev() {
            let keys = part.keys().map(|&key| key.clone()).collect();
            shards.push(Shard { index, content: encode_part(index, total, &part), keys });
        }
        shards
    }

    /// Returns the approximate memory in bytes.
    pub fn memory(&self) -> usize {
        self.0.keys().map(memory).sum()
    }

    /// Returns the objects of one shard, in order.
    pub fn keys_of(content: &[u8]) -> Result<Vec<Key>, Unreadable> {
        let (_, _, entries) = decode_part(content)?;
        Ok(entries.into_iter().map(|(key, _)| key).collect())
    }

    /// Decodes an inventory from the contents of all its ConfigMaps, in any order.
    pub fn decode<'a>(contents: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, Unreadable> {
        let mut parts = Parts::default();
        contents.into_iter().try_for_each(|content| parts.add(content))?;
        parts.join().map(|(inventory, _)| inventory)
    }
}

/// A partly decoded inventory.
#[derive(Debug, Default)]
pub struct Parts {
    /// The number of shards, and the entries, by index of the shard.
    entries: BTreeMap<usize, (usize, Vec<(Key, Entry)>)>,
    /// Digests of the contents, by index of the shard.
    digests: BTreeMap<usize, Digest>,
    /// Approximate memory of all shards, in bytes.
    memory: usize,
}

impl Parts {
    /// Whether there is no shard yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the content of one ConfigMap.
    ///
    /// # Errors
    /// The content is unreadable, a shard with its index was added before, or all shards exceed the memory of an
    /// inventory.
    pub fn add(&mut self, content: &[u8]) -> Result<(), Unreadable> {
        let (index, of, entries) = decode_part(content)?;
        self.memory += entries.iter().map(|(key, _)| memory(key)).sum::<usize>();
        self.digests.insert(index, Digest::of(content));
        let is_new = self.entries.insert(index, (of, entries)).is_none();
        if is_new && self.memory <= MEMORY { Ok(()) } else { Err(Unreadable) }
    }

    /// Returns the whole inventory, and the digest of each of its contents.
    ///
    /// # Errors
    /// A shard is missing or belongs to another version.
    pub fn join(mut self) -> Result<(Inventory, BTreeMap<usize, Digest>), Unreadable> {
        let total = self.entries.get(&0).map(|(of, _)| *of).ok_or(Unreadable)?;
        // Shards beyond the total remain from a larger inventory. A shard with a different total belongs to an
        // interrupted write.
        let mut inventory = Inventory::default();
        for index in 0..total {
            let (_, entries) = self.entries.remove(&index).filter(|(of, _)| *of == total).ok_or(Unreadable)?;
            inventory.0.extend(entries);
        }
        let _left_behind = self.digests.split_off(&total);
        Ok((inventory, self.digests))
    }
}

/// Returns the approximate memory of an entry in bytes.
fn memory(key: &Key) -> usize {
    key.name.len() + ENTRY_BYTES
}

fn shard_of(key: &Key, total: usize) -> usize {
    if total == 1 {
        return 0;
    }
    let digest = *Digest::of(key.to_string().as_bytes()).as_bytes();
    usize::from(u16::from_le_bytes([digest[0], digest[1]])) % total
}

fn encode_part(index: usize, total: usize, entries: &BTreeMap<&Key, &Entry>) -> Vec<u8> {
    let mut plain = MAGIC.to_vec();
    for number in [index, total, entries.len()] {
        plain.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    }
    for (key, entry) in entries {
        for text in [&key.group, &entry.version, &key.kind, key.namespace.as_ref().unwrap_or(&Arc::from("")), &key.name]
        {
            let bytes = text.as_bytes();
            // Names in Kubernetes have at most 253 bytes. The server rejects longer ones when the object is created.
            let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            plain.extend(length.to_le_bytes());
            plain.extend(&bytes[..usize::from(length)]);
        }
    }
    // Names compress well and digests do not, so each group is written in one run.
    for entry in entries.values() {
        let flags = u8::from(entry.uid.is_some())
            | u8::from(entry.digest.is_some()) << 1
            | u8::from(entry.source.is_some()) << 2
            | match entry.ended {
                None => 0,
                Some(Ended::Succeeded) => SUCCEEDED,
                Some(Ended::Failed) => FAILED,
            };
        plain.push(flags);
        plain.extend(entry.uid.iter().flatten());
        plain.extend(entry.digest.iter().flat_map(|d| *d.as_bytes()));
        plain.extend(entry.source.iter().flatten());
    }
    gzip::compress(&plain).unwrap_or_default()
}

/// A shard: its index, the number of shards, and its entries.
type Part = (usize, usize, Vec<(Key, Entry)>);

fn decode_part(content: &[u8]) -> Result<Part, Unreadable> {
    let plain = gzip::decompress(content, LONGEST).ok_or(Unreadable)?;
    let mut rest = plain.strip_prefix(MAGIC).ok_or(Unreadable)?;
    let rest = &mut rest;
    let (index, total, count) = (number(rest)?, number(rest)?, number(rest)?);
    if count > MOST {
        return Err(Unreadable);
    }
    let mut entries = Vec::new();
    let mut known: HashMap<Vec<u8>, Arc<str>> = HashMap::new();
    for _ in 0..count {
        let group = text(rest, &mut known)?;
        let version = text(rest, &mut known)?;
        let kind = text(rest, &mut known)?;
        let namespace = text(rest, &mut known)?;
        let name = Arc::from(std::str::from_utf8(sized(rest)?).map_err(|_| Unreadable)?);
        let namespace = Some(namespace).filter(|n| !n.is_empty());
        entries.push((Identity { group, kind, namespace, name }.into(), Entry { version, ..Entry::default() }));
    }
    for (_, entry) in &mut entries {
        let flags = take(rest, 1)?[0];
        if flags & 1 != 0 {
            entry.uid = Some(array(rest)?);
        }
        if flags & 2 != 0 {
            entry.digest = Some(Digest::from_bytes(array(rest)?));
        }
        if flags & 4 != 0 {
            entry.source = Some(array(rest)?);
        }
        // Older agents ignore these flags.
        entry.ended = match flags & (SUCCEEDED | FAILED) {
            0 => None,
            SUCCEEDED => Some(Ended::Succeeded),
            FAILED => Some(Ended::Failed),
            _ => return Err(Unreadable),
        };
    }
    if rest.is_empty() { Ok((index, total, entries)) } else { Err(Unreadable) }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Unreadable> {
    let (taken, left) = rest.split_at_checked(length).ok_or(Unreadable)?;
    *rest = left;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Unreadable> {
    take(rest, N)?.try_into().map_err(|_| Unreadable)
}

fn number(rest: &mut &[u8]) -> Result<usize, Unreadable> {
    Ok(u32::from_le_bytes(array(rest)?) as usize)
}

fn sized<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Unreadable> {
    let length = u16::from_le_bytes(array(rest)?);
    take(rest, usize::from(length))
}

/// Reads a string. Strings that repeat (groups, kinds, namespaces) are stored once.
fn text(rest: &mut &[u8], known: &mut HashMap<Vec<u8>, Arc<str>>) -> Result<Arc<str>, Unreadable> {
    let bytes = sized(rest)?;
    if let Some(text) = known.get(bytes) {
        return Ok(Arc::clone(text));
    }
    let text: Arc<str> = std::str::from_utf8(bytes).map_err(|_| Unreadable)?.into();
    known.insert(bytes.to_vec(), Arc::clone(&text));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(count: usize) -> Inventory {
        let entry = |i: usize| {
            let digest = Digest::of(&i.to_le_bytes());
            let mut source = [0; 8];
            source.copy_from_slice(&digest.as_bytes()[8..]);
            let uid = uid_bytes(&format!("00000000-0000-4000-8000-{:012x}", i * 7919));
            let ended = [None, Some(Ended::Succeeded), Some(Ended::Failed)][i % 3];
            Entry { version: "v1".into(), uid: Some(uid), digest: Some(digest), source: Some(source), ended }
        };
        let key = |i: usize| Key::new("", "ConfigMap", Some("load"), format!("settings-{i}"));
        Inventory((0..count).map(|i| (key(i), entry(i))).collect())
    }

    fn decode(shards: &[Shard]) -> Result<Inventory, Unreadable> {
        Inventory::decode(shards.iter().map(|s| s.content.as_slice()))
    }

    #[test]
    fn decodes_to_the_same_inventory_from_one_or_several_shards() {
        for count in [0, 1, 10_000, 40_000] {
            let inventory = inventory(count);
            let shards = inventory.encode();
            assert_eq!(shards.len(), count.div_ceil(SHARD).max(1));
            assert_eq!(decode(&shards), Ok(inventory));
        }
    }

    #[test]
    fn ten_thousand_entries_fit_one_config_map() {
        let mut inventory = inventory(10_000);
        for entry in inventory.0.values_mut() {
            entry.uid = entry.digest.map(|d| *Digest::of(d.as_bytes()).as_bytes());
        }
        let shards = inventory.encode();
        let base64 = shards[0].content.len() * 4 / 3;
        assert!(shards.len() == 1 && base64 < 700_000, "{base64}");
    }

    #[test]
    fn refuses_missing_truncated_and_foreign_content() {
        let shards = inventory(40_000).encode();
        assert_eq!(decode(&shards[1..]), Err(Unreadable));
        assert_eq!(decode(&shards[..2]), Err(Unreadable));
        let mut cut = shards.clone();
        cut[0].content.truncate(500);
        assert_eq!(decode(&cut), Err(Unreadable));
        let next = inventory(60_000).encode();
        let mixed = [&next[..next.len() - 1], &shards[shards.len() - 1..]].concat();
        assert_eq!(decode(&mixed), Err(Unreadable), "the writing of a larger one was cut off");
        let all = inventory(MOST + 1).0;
        let bomb = encode_part(0, 1, &all.iter().collect());
        assert_eq!(Inventory::decode([bomb.as_slice()]), Err(Unreadable));
        assert_eq!(Inventory::decode([b"rubbish".as_slice()]), Err(Unreadable));
        assert_eq!(Inventory::decode([]), Err(Unreadable));
    }

    #[test]
    fn refuses_too_much_content_before_reading_all_of_it() {
        let long = |count: usize| {
            let key = |i: usize| Key::new("", "ConfigMap", Some("load"), format!("{i:0250}"));
            Inventory((0..count).map(|i| (key(i), Entry::default())).collect()).encode()
        };
        assert!(decode(&long(40_000)).is_ok());
        let (shards, mut parts) = (long(80_000), Parts::default());
        let added = shards.iter().take_while(|shard| parts.add(&shard.content).is_ok()).count();
        assert!(added < shards.len(), "{added}");
    }

    #[test]
    fn encodes_the_same_entries_to_the_same_bytes() {
        assert_eq!(inventory(500).encode(), inventory(500).encode());
    }
}
