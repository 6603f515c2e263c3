//! Fuzz targets for parsers of untrusted input. Each accepts any bytes, ends soon, does not panic, and checks an
//! invariant.

use std::io::{self, Write as _};
use std::sync::LazyLock;

use bytes::BytesMut;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use tokio::runtime::{Builder, Runtime};

use super::body::Body;
use super::pack::Scan;
use super::packet::split;
use super::{advertisement, fetch, refs};
use crate::Limits;
use crate::error::Fault;
use crate::ref_list::{RefNames, Refs};
use crate::reference::Reference;
use crate::spool::{PackSpool, Space};
use mainstay_object::is_unprintable;

/// Parses the packet lines of a Git server. The result must contain no bytes that are not in the input, and each
/// complete line must consume input. The same bytes are parsed as an advertisement, as references, and as a pack in
/// side bands.
pub fn pkt_line(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    let mut left = buffer.len();
    while let Ok(Some(_)) = split(&mut buffer) {
        assert!(buffer.len() < left, "a line has a length");
        left = buffer.len();
    }
    let Ok(runtime) = &*RUNTIME else { return };
    runtime.block_on(async {
        let wanted = wanted();
        let mut body = Body::given(bytes);
        match advertisement::read(&mut body, &wanted).await {
            Ok((_, Some(refs))) => resolved(&refs),
            // On a stream, the references follow.
            Ok((_, None)) => asked(refs::answer(&mut body, &wanted).await),
            Err(fault) => is_shown(&fault),
        }
        asked(refs::answer(&mut Body::given(bytes), &wanted).await);
        let spool = PackSpool::new(&std::env::temp_dir(), 1 << 16, Enough);
        match fetch::receive(&mut Body::given(bytes), &limits(), spool).await {
            Ok(received) => assert!(received.shallow.len() <= bytes.len() / 40, "no commit is invented"),
            Err(fault) => is_shown(&fault),
        }
    });
}

/// Checks a pack in one piece and byte by byte, which must give the same result. Also checks a pack that is built from
/// the objects which the bytes describe.
pub fn pack(bytes: &[u8]) {
    for bytes in [bytes, &assembled(bytes)] {
        let judged = |size: usize| {
            let mut scan = Scan::new(limits());
            bytes.chunks(size).try_for_each(|piece| scan.feed(piece)).and_then(|()| scan.finish()).ok()
        };
        let whole = judged(bytes.len().max(1));
        assert_eq!(judged(1), whole);
        assert!(whole.is_none_or(|weight| weight.objects <= 1000 && weight.largest <= 1 << 16), "the limits hold");
    }
}

/// Builds a pack from described objects: a byte for the type, one for the length, and the content. This is necessary
/// because fuzzers cannot produce compressed data.
fn assembled(mut bytes: &[u8]) -> Vec<u8> {
    let (mut count, mut objects) = (0_u32, Vec::new());
    while let [kind, length, rest @ ..] = bytes {
        let (content, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = rest;
        count += 1;
        // Four bits of the size, then the rest of it.
        objects.push(kind << 4 | 0x80 | length & 0x0f);
        objects.push(length >> 4);
        match kind & 7 {
            6 => objects.push(kind >> 3),
            7 => objects.extend([kind >> 3; 20]),
            _ => {}
        }
        let mut zlib = ZlibEncoder::new(objects, Compression::fast());
        // Writing to a Vec cannot fail.
        let _ = zlib.write_all(content);
        objects = zlib.finish().unwrap_or_default();
    }
    [b"PACK\0\0\0\x02", &count.to_be_bytes()[..], &objects, &[0; 20]].concat()
}

fn limits() -> Limits {
    Limits { pack_objects: 1000, object_bytes: 1 << 16, unpacked_bytes: 1 << 20, ..Limits::default() }
}

static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| Builder::new_current_thread().enable_time().build());

/// Requests references of every kind, and version ranges.
fn wanted() -> RefNames {
    RefNames::tips().with_ranges(references().iter().filter_map(Reference::range).cloned())
}

fn references() -> Vec<Reference> {
    ["main", "HEAD", "refs/tags/v1", "semver:>=1.0.0 <3", "semver:*"]
        .iter()
        .filter_map(|text| Reference::parse(text).ok())
        .collect()
}

fn asked(refs: Result<Refs, Fault>) {
    match refs {
        Ok(refs) => resolved(&refs),
        Err(fault) => is_shown(&fault),
    }
}

/// Checks that each reference resolves only to an object that was sent.
fn resolved(refs: &Refs) {
    for reference in references() {
        match refs.resolve(&reference) {
            Ok(found) => {
                assert!(refs.0.values().any(|at| at.id == found.tip), "no object is invented");
                assert!(!found.name.chars().any(is_unprintable), "a name is text: {:?}", found.name);
            }
            Err(fault) => is_shown(&fault),
        }
    }
}

/// Checks that a server's message is shown as one short line.
fn is_shown(fault: &Fault) {
    let text = fault.to_string();
    assert!(text.chars().count() <= 600 && !text.chars().any(is_unprintable), "{text:?}");
}

/// Space for any pack of a fuzzer.
struct Enough;

impl Space for Enough {
    fn take(&mut self, _: u64) -> Result<(), Fault> {
        Ok(())
    }

    fn relieve(&mut self, _: u64) -> bool {
        false
    }
}
