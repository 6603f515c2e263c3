//! Checks an arriving pack: the number of objects, their sizes, and the length of delta chains.
//!
//! libgit2 trusts the size in a delta and allocates that much memory; a kilobyte of delta can claim gigabytes. So every
//! object is inflated here once, without keeping the result, and its sizes are checked against the limits first.
//!
//! Invariant: libgit2 needs at most `working_bytes` for any object, unless a delta misstates the size of its base. For
//! that case, [`Weight`] contains the bound.
//! Invariant: memory is constant plus some bytes per delta; time grows with the pack and with `unpacked_bytes`.
//! Not here: checksums and ids, which libgit2 verifies when it indexes.

use std::collections::{BTreeSet, HashMap};

use flate2::{Decompress, FlushDecompress, Status};

use crate::Limits;
use crate::error::Fault;
use crate::id::Id;

/// Maximum length of a delta chain. Git itself writes at most this.
const MAX_CHAIN: u16 = 4095;
/// Maximum number of remembered base ids, of 20 bytes each.
const MAX_BASES: usize = 4096;

/// The cost of indexing a pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Number of objects.
    pub(crate) objects: u64,
    /// Upper bound for the total bytes of base objects outside of the pack.
    pub(crate) bases: u64,
    /// Size of the largest object, in bytes.
    pub(crate) largest: u64,
    /// Size of the largest delta, in bytes; 0 without deltas.
    pub(crate) delta: u64,
    /// Ids of the base objects that deltas reference; `None` if there are too many.
    pub(crate) named: Option<BTreeSet<Id>>,
}

/// The state of checking one pack.
pub(super) struct Scan {
    limits: Limits,
    state: State,
    /// Number of processed bytes.
    position: u64,
    objects_left: u32,
    unpacked: u64,
    weight: Weight,
    object: Object,
    inflate: Decompress,
    scratch: Vec<u8>,
    /// Length of the delta chain that ends at the object at this position.
    chains: HashMap<u64, u16>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// `PACK`, the version and the number of objects.
    Header(Vec<u8>),
    /// Type and size.
    Object { shift: u32 },
    /// Offset of the delta's base.
    Distance { first: bool, distance: u64 },
    /// Id of the delta's base.
    BaseId(Vec<u8>),
    /// Compressed content.
    Content,
    /// Checksum.
    Trailer { left: usize },
    /// The end. No further bytes are allowed.
    End,
}

#[derive(Debug, Default)]
struct Object {
    start: u64,
    kind: u8,
    size: u64,
    produced: u64,
    /// The first bytes of a delta, which contain the sizes of its base and its result.
    claims: Vec<u8>,
}

impl Scan {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Header(Vec::with_capacity(12)),
            position: 0,
            objects_left: 0,
            unpacked: 0,
            weight: Weight { named: Some(BTreeSet::new()), ..Weight::default() },
            object: Object::default(),
            inflate: Decompress::new(true),
            scratch: vec![0; 64 << 10],
            chains: HashMap::new(),
        }
    }

    /// Checks the next bytes.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let used = if self.state == State::Content {
                self.content(bytes)?
            } else {
                self.byte(bytes[0])?;
                1
            };
            self.position += used as u64;
            if self.position > self.limits.pack_bytes {
                return Err(Fault::TooLarge { what: "the pack in bytes", limit: self.limits.pack_bytes });
            }
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// Checks that the pack is complete. Returns the cost of indexing it.
    pub(super) fn finish(self) -> Result<Weight, Fault> {
        if self.state == State::End { Ok(self.weight) } else { Err(damaged("it ends too early")) }
    }

    fn byte(&mut self, byte: u8) -> Result<(), Fault> {
        match &mut self.state {
            State::Header(header) => {
                header.push(byte);
                if header.len() == 12 {
                    let header = std::mem::take(header);
                    self.header(&header)?;
                }
            }
            State::Object { shift } => {
                let shift = *shift;
                self.object_byte(byte, shift)?;
            }
            State::Distance { first, distance } => {
                let more =
                    if *first { 0 } else { distance.checked_add(1).ok_or(damaged("a base offset is too large"))? };
                let value =
                    more.checked_mul(128).ok_or(damaged("a base offset is too large"))? | u64::from(byte & 0x7f);
                if byte & 0x80 == 0 {
                    self.chain(value)?;
                    self.begin_content();
                } else {
                    self.state = State::Distance { first: false, distance: value };
                }
            }
            State::BaseId(id) => {
                id.push(byte);
                if let Some(id) = Id::from_bytes(id) {
                    self.weight.named.as_mut().map(|named| named.insert(id));
                    if self.weight.named.as_ref().is_some_and(|named| named.len() > MAX_BASES) {
                        self.weight.named = None;
                    }
                    self.begin_content();
                }
            }
            State::Trailer { left } => {
                *left -= 1;
                if *left == 0 {
                    self.state = State::End;
                }
            }
            State::Content => {}
            State::End => return Err(damaged("there are bytes after its end")),
        }
        Ok(())
    }

    fn header(&mut self, header: &[u8]) -> Result<(), Fault> {
        let number = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&header[at..at + 4]);
            u32::from_be_bytes(bytes)
        };
        if !header.starts_with(b"PACK") || !matches!(number(4), 2 | 3) {
            return Err(damaged("it is not a pack of version 2"));
        }
        self.objects_left = number(8);
        self.weight.objects = self.objects_left.into();
        if self.objects_left > self.limits.pack_objects {
            let limit = self.limits.pack_objects.into();
            return Err(Fault::TooLarge { what: "the number of objects in the pack", limit });
        }
        self.next_object();
        Ok(())
    }

    fn next_object(&mut self) {
        self.state = if self.objects_left == 0 { State::Trailer { left: 20 } } else { State::Object { shift: 0 } };
    }

    fn object_byte(&mut self, byte: u8, shift: u32) -> Result<(), Fault> {
        if shift == 0 {
            let claims = std::mem::take(&mut self.object.claims);
            self.object =
                Object { start: self.position, kind: byte >> 4 & 7, size: u64::from(byte & 0x0f), produced: 0, claims };
            self.object.claims.clear();
        } else if shift > 60 {
            return Err(damaged("an object's size has too many digits"));
        } else {
            self.object.size |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(u64::MAX);
        }
        if byte & 0x80 != 0 {
            self.state = State::Object { shift: if shift == 0 { 4 } else { shift + 7 } };
            return Ok(());
        }
        self.fits(self.object.size)?;
        match self.object.kind {
            1..=4 => self.begin_content(),
            6 => self.state = State::Distance { first: true, distance: 0 },
            7 => self.state = State::BaseId(Vec::with_capacity(20)),
            _ => return Err(damaged("an object has an unknown type")),
        }
        Ok(())
    }

    fn chain(&mut self, distance: u64) -> Result<(), Fault> {
        let base = self.object.start.checked_sub(distance).filter(|base| *base < self.object.start);
        let base = base.ok_or(damaged("a base object lies outside the pack"))?;
        let length = self.chains.get(&base).copied().unwrap_or(0) + 1;
        if length > MAX_CHAIN {
            return Err(Fault::TooLarge { what: "a chain of deltas", limit: MAX_CHAIN.into() });
        }
        self.chains.insert(self.object.start, length);
        Ok(())
    }

    fn begin_content(&mut self) {
        self.inflate.reset(true);
        self.state = State::Content;
    }

    /// Inflates some bytes. Returns how many were consumed.
    fn content(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self.inflate.decompress(bytes, &mut self.scratch, FlushDecompress::None);
        let status = status.map_err(|_| damaged("an object does not inflate"))?;
        let used = usize::try_from(self.inflate.total_in() - before_in).unwrap_or(bytes.len());
        let produced = self.inflate.total_out() - before_out;
        self.object.produced += produced;
        if self.object.produced > self.object.size {
            return Err(damaged("an object is larger than it claims"));
        }
        if self.object.kind > 4 && self.object.claims.len() < 20 {
            let room = 20 - self.object.claims.len();
            let fresh = usize::try_from(produced).unwrap_or(0).min(room);
            self.object.claims.extend_from_slice(&self.scratch[..fresh]);
        }
        match status {
            Status::StreamEnd => self.end_object()?,
            _ if used == 0 && produced == 0 => return Err(damaged("an object does not inflate")),
            _ => {}
        }
        Ok(used)
    }

    fn end_object(&mut self) -> Result<(), Fault> {
        if self.object.produced != self.object.size {
            return Err(damaged("an object is smaller than it claims"));
        }
        let mut size = self.object.size;
        if self.object.kind > 4 {
            let (base, rest) = claim(&self.object.claims)?;
            let (result, _) = claim(rest)?;
            self.fits(base)?;
            self.fits(result)?;
            self.works(base, result)?;
            size = size.saturating_add(result);
            self.weight.largest = self.weight.largest.max(result);
            if self.object.kind == 7 {
                self.weight.bases = self.weight.bases.saturating_add(base);
            }
        } else {
            self.weight.largest = self.weight.largest.max(size);
        }
        self.unpacked = self.unpacked.saturating_add(size);
        if self.unpacked > self.limits.unpacked_bytes {
            let limit = self.limits.unpacked_bytes;
            return Err(Fault::TooLarge { what: "the unpacked pack in bytes", limit });
        }
        self.objects_left -= 1;
        self.next_object();
        Ok(())
    }

    /// Checks the limit for a delta, its base and its result, which are in memory together.
    fn works(&mut self, base: u64, result: u64) -> Result<(), Fault> {
        let (delta, limits) = (self.object.size, self.limits);
        if delta > limits.delta_bytes {
            return Err(Fault::TooLarge { what: "a delta of the pack in bytes", limit: limits.delta_bytes });
        }
        if delta.saturating_add(base).saturating_add(result) > limits.working_bytes {
            let what = "a delta of the pack, together with its base and its result, in bytes";
            return Err(Fault::TooLarge { what, limit: limits.working_bytes });
        }
        self.weight.delta = self.weight.delta.max(delta);
        Ok(())
    }

    fn fits(&self, size: u64) -> Result<(), Fault> {
        if size > self.limits.object_bytes {
            return Err(Fault::TooLarge { what: "an object of the pack in bytes", limit: self.limits.object_bytes });
        }
        Ok(())
    }
}

/// Parses a size at the start of a delta: seven bits per byte, the lowest bits first.
fn claim(bytes: &[u8]) -> Result<(u64, &[u8]), Fault> {
    let mut size = 0;
    for (place, byte) in bytes.iter().take(9).enumerate() {
        size |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((size, &bytes[place + 1..]));
        }
    }
    Err(damaged("a delta does not state its sizes"))
}

fn damaged(what: &str) -> Fault {
    Fault::Pack { what: what.to_owned() }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // sizes of test data
mod tests {
    use super::*;
    use flate2::{Compression, write::ZlibEncoder};
    use proptest::prelude::*;
    use std::io::Write;

    fn size_and_kind(kind: u8, mut size: usize) -> Vec<u8> {
        let mut out = vec![kind << 4 | (size & 15) as u8];
        size >>= 4;
        while size > 0 {
            *out.last_mut().unwrap() |= 0x80;
            out.push((size & 0x7f) as u8);
            size >>= 7;
        }
        out
    }

    fn object(kind: u8, base: &[u8], claimed: usize, content: &[u8]) -> Vec<u8> {
        let mut out = size_and_kind(kind, claimed);
        out.extend_from_slice(base);
        let mut deflate = ZlibEncoder::new(Vec::new(), Compression::best());
        deflate.write_all(content).unwrap();
        out.extend(deflate.finish().unwrap());
        out
    }

    fn pack(objects: &[Vec<u8>]) -> Vec<u8> {
        let mut out = b"PACK\0\0\0\x02".to_vec();
        out.extend((objects.len() as u32).to_be_bytes());
        out.extend(objects.concat());
        out.extend([7; 20]);
        out
    }

    fn judge(bytes: &[u8], piece: usize) -> Result<(), Fault> {
        let limits = Limits {
            object_bytes: 1 << 20,
            delta_bytes: 1000,
            working_bytes: 3 << 19,
            unpacked_bytes: 4 << 20,
            pack_objects: 10,
            ..Limits::default()
        };
        let mut scan = Scan::new(limits);
        bytes.chunks(piece).try_for_each(|piece| scan.feed(piece))?;
        scan.finish().map(drop)
    }

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        for piece in [1, 7, 1 << 20] {
            let got = judge(bytes, piece).map_or_else(|fault| fault.to_string(), |()| "good".to_owned());
            assert_eq!(got, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn accepts_a_pack() {
        let blob = object(3, &[], 300_000, &vec![b'x'; 300_000]);
        let delta = object(7, &[9; 20], 3, &[5, 5, 0x90]);
        check(&pack(&[blob.clone(), object(3, &[], 0, b""), delta]), "good");
        let near = (blob.len() as u8) & 0x7f;
        let far = [0x80 | ((blob.len() >> 7) as u8).wrapping_sub(1), near];
        let distance = if blob.len() < 128 { vec![near] } else { far.to_vec() };
        check(&pack(&[blob, object(6, &distance, 3, &[5, 5, 0x90])]), "good");
    }

    #[test]
    fn refuses_bombs() {
        let large = "an object of the pack in bytes is larger than the limit of 1048576";
        check(&pack(&[object(3, &[], 2 << 20, &vec![0; 2 << 20])]), large);
        check(
            &pack(&[object(3, &[], 10, &vec![0; 900_000])]),
            "the server sent a damaged pack (an object is larger than it claims)",
        );
        check(&pack(&[object(7, &[9; 20], 8, &[5, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x90])]), large);
        let many: Vec<_> = (0..6).map(|_| object(3, &[], 1 << 20, &vec![0; 1 << 20])).collect();
        check(&pack(&many), "the unpacked pack in bytes is larger than the limit of 4194304");
        let mut claims = pack(&[]);
        claims[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        check(&claims, "the number of objects in the pack is larger than the limit of 10");
    }

    #[test]
    fn refuses_deltas_that_take_much_together_with_their_base_and_their_result() {
        let delta = |bytes: usize, base: &[u8], result: &[u8]| {
            let content = [base, result, &vec![0x90; bytes - base.len() - result.len()]].concat();
            pack(&[object(7, &[9; 20], content.len(), &content)])
        };
        let (small, half, whole) = ([5], [0x80, 0x80, 0x20], [0x80, 0x80, 0x40]);
        check(&delta(1000, &small, &small), "good");
        check(&delta(1001, &small, &small), "a delta of the pack in bytes is larger than the limit of 1000");
        let together =
            "a delta of the pack, together with its base and its result, in bytes is larger than the limit of 1572864";
        check(&delta(8, &whole, &half), together);
        check(&delta(8, &half, &half), "good");
    }

    #[test]
    fn says_what_indexing_takes() {
        let mut scan = Scan::new(Limits::default());
        let named = |id: u8| object(7, &[id; 20], 4, &[0x80, 0x10, 5, 0x90]);
        scan.feed(&pack(&[object(3, &[], 300, &[0; 300]), named(9), named(9), named(8)])).unwrap();
        let named = Some([8, 9].map(|id| Id::from_bytes(&[id; 20]).unwrap()).into());
        assert_eq!(scan.finish().unwrap(), Weight { objects: 4, bases: 3 << 11, largest: 300, delta: 4, named });
    }

    #[test]
    fn refuses_damaged_packs() {
        check(b"", "the server sent a damaged pack (it ends too early)");
        check(b"<!doctype html>", "the server sent a damaged pack (it is not a pack of version 2)");
        let good = pack(&[object(3, &[], 3, b"abc")]);
        check(&good[..good.len() - 1], "the server sent a damaged pack (it ends too early)");
        check(&[&good[..], b"x"].concat(), "the server sent a damaged pack (there are bytes after its end)");
        check(&pack(&[object(5, &[], 3, b"abc")]), "the server sent a damaged pack (an object has an unknown type)");
        check(
            &pack(&[object(6, &[50], 3, &[5, 5, 1])]),
            "the server sent a damaged pack (a base object lies outside the pack)",
        );
        check(
            &pack(&[object(3, &[], 4, b"abc")]),
            "the server sent a damaged pack (an object is smaller than it claims)",
        );
    }

    proptest! {
        #[test]
        fn checks_any_bytes_without_panic(tail: Vec<u8>, objects in 0u32..5) {
            let bytes = [&b"PACK\0\0\0\x02"[..], &objects.to_be_bytes(), &tail].concat();
            let _ = judge(&bytes, 3);
            let _ = judge(&tail, 1000);
        }
    }
}
