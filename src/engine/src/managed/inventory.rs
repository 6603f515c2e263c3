//! The inventory: which objects a GitSync manages, and what was verified of each. It is written before objects are
//! created and shrinks only when their absence is confirmed, so nothing leaks and nothing is deleted by guess.
//!
//! It is kept as gzip in the `binaryData` of ConfigMaps ([`Shard`]); 10 000 entries fit one of them.
//!
//! Invariant: encoding is deterministic, so an unchanged shard is never written.
//! Invariant: decoding trusts nothing: any malformed, truncated or oversized content is [`Unreadable`].
//!
//! Deliberately absent: reading and writing the ConfigMaps (`gitsync`), and when an entry changes (`written`).

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::sync::Arc;

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use super::desired::Desired;
use mainstay_object::{Digest, Ended, Identity, Key};

/// Entries in one shard, at most: about 850 kB compressed, below the API's limit of 1 MiB.
const SHARD: usize = 18_000;
/// Longest content of a shard once decompressed, in bytes.
const LONGEST: u64 = 12 << 20;
/// Entries that are read from one shard, at most. They are spread evenly, so none ever holds twice its share.
const MOST: usize = 2 * SHARD;
/// Memory that an entry takes beside its name, about.
const ENTRY_BYTES: usize = 240;
/// Memory that an inventory may take: 100 000 objects, as many as a commit may have, with names of 80 bytes.
const MEMORY: usize = 32 << 20;
/// First bytes of every shard, with the format's number.
const MAGIC: &[u8] = b"mainstay-inventory/1\n";
/// Flags of an entry whose object ended.
const SUCCEEDED: u8 = 8;
const FAILED: u8 = 16;

/// What is remembered of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Version of its API group, as Git wrote it last.
    pub version: Arc<str>,
    /// UID, as 16 bytes; `None` until its first apply has been answered.
    pub uid: Option<[u8; 16]>,
    /// Digest of the projection that was verified.
    pub digest: Option<Digest>,
    /// First half of the digest of the document that was applied.
    pub source: Option<[u8; 8]>,
    /// How the object ended with that document: it is not reverted when it is gone.
    pub ended: Option<Ended>,
}

/// The objects that a GitSync manages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(pub HashMap<Key, Entry>);

/// The inventory of one owner, as it is written down next.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Shared with whoever reads it.
    pub(crate) inventory: Arc<Inventory>,
    /// It has changed since it was saved.
    pub(crate) unsaved: bool,
    /// That an object ended was not saved yet: an agent that does not know it would run it again.
    pub(crate) is_urgent: bool,
}

/// One ConfigMap's worth of an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Position, from 0.
    pub index: usize,
    /// Content for `binaryData`, before base64.
    pub content: Vec<u8>,
    /// Its objects, in their order.
    pub keys: Vec<Key>,
}

/// The content is not an inventory, or not all of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the inventory cannot be read")]
pub struct Unreadable;

impl Written {
    /// Changes an entry, if there is one and it differs.
    pub(crate) fn set(&mut self, key: &Key, entry: Entry) {
        if let Some(known) = self.inventory.0.get(key).filter(|known| **known != entry) {
            self.is_urgent |= entry.ended.is_some() && known.ended != entry.ended;
            Arc::make_mut(&mut self.inventory).0.insert(key.clone(), entry);
            self.unsaved = true;
        }
    }
}

impl Entry {
    /// For an object to which `desired` was applied.
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

    /// Whether exactly this is what was last applied and verified.
    pub fn is_for(&self, desired: &Desired) -> bool {
        self.is_of(&desired.source()) && *self.version == *desired.kind.version
    }

    /// Whether `source` is the document that was last applied and verified.
    pub fn is_of(&self, source: &Digest) -> bool {
        self.digest.is_some() && self.source.is_some_and(|s| s == source.as_bytes()[..8])
    }
}

/// A UID as the bytes that an entry keeps. A UID that is no UUID keeps the first half of its SHA-256.
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

/// The UUID that 16 bytes stand for, as a UID is written.
pub fn uid_text(bytes: [u8; 16]) -> String {
    let hex = hex::encode(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

impl Inventory {
    /// The shards, in the order to write them: the first one, which says how many there are, comes last.
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

    /// Memory that it takes, about, in bytes.
    pub fn memory(&self) -> usize {
        self.0.keys().map(memory).sum()
    }

    /// The objects of one content, in their order.
    pub fn keys_of(content: &[u8]) -> Result<Vec<Key>, Unreadable> {
        let (_, _, entries) = decode_part(content)?;
        Ok(entries.into_iter().map(|(key, _)| key).collect())
    }

    /// Puts an inventory together from the contents of all its ConfigMaps, in any order.
    pub fn decode<'a>(contents: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, Unreadable> {
        let mut parts = Parts::default();
        contents.into_iter().try_for_each(|content| parts.add(content))?;
        parts.join().map(|(inventory, _)| inventory)
    }
}

/// An inventory that is being put together.
#[derive(Debug, Default)]
pub struct Parts {
    /// By position: how many there are, and the entries.
    entries: BTreeMap<usize, (usize, Vec<(Key, Entry)>)>,
    /// Digests of the contents by position.
    digests: BTreeMap<usize, Digest>,
    /// Memory that all of them take, about, in bytes.
    memory: usize,
}

impl Parts {
    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the content of one ConfigMap.
    ///
    /// # Errors
    /// It does not read, was there already, or all of them take more memory than an inventory may.
    pub fn add(&mut self, content: &[u8]) -> Result<(), Unreadable> {
        let (index, of, entries) = decode_part(content)?;
        self.memory += entries.iter().map(|(key, _)| memory(key)).sum::<usize>();
        self.digests.insert(index, Digest::of(content));
        let is_new = self.entries.insert(index, (of, entries)).is_none();
        if is_new && self.memory <= MEMORY { Ok(()) } else { Err(Unreadable) }
    }

    /// The whole inventory, and the digest of each content that belongs to it.
    ///
    /// # Errors
    /// A part is missing, or is of another writing.
    pub fn join(mut self) -> Result<(Inventory, BTreeMap<usize, Digest>), Unreadable> {
        let total = self.entries.get(&0).map(|(of, _)| *of).ok_or(Unreadable)?;
        // What lies beyond was left behind when the inventory had more of them.
        // One that counts otherwise is of another writing, which did not come to its end.
        let mut inventory = Inventory::default();
        for index in 0..total {
            let (_, entries) = self.entries.remove(&index).filter(|(of, _)| *of == total).ok_or(Unreadable)?;
            inventory.0.extend(entries);
        }
        let _left_behind = self.digests.split_off(&total);
        Ok((inventory, self.digests))
    }
}

/// Memory that an entry takes, about, in bytes.
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
            // Names in Kubernetes have at most 253 bytes; a longer one was refused by the server long before.
            let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            plain.extend(length.to_le_bytes());
            plain.extend(&bytes[..usize::from(length)]);
        }
    }
    // Texts compress well, digests not at all: kept apart, each in one run.
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
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a Vec cannot fail.
    let _ = gzip.write_all(&plain);
    gzip.finish().unwrap_or_default()
}

/// One shard: its position, how many there are, and its entries.
type Part = (usize, usize, Vec<(Key, Entry)>);

fn decode_part(content: &[u8]) -> Result<Part, Unreadable> {
    let mut plain = Vec::new();
    GzDecoder::new(content).take(LONGEST).read_to_end(&mut plain).map_err(|_| Unreadable)?;
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
        // Agents before these flags pass over them.
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

/// The few texts that repeat (groups, kinds, namespaces) are kept once.
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
    fn comes_back_as_it_was_written_in_one_shard_or_several() {
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
    fn refuses_what_is_missing_truncated_or_no_inventory() {
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
    fn refuses_more_than_may_be_kept_before_it_has_read_all_of_it() {
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
