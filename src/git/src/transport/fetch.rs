//! Requests commits with or without their files, and receives the pack into a spool.
//!
//! The pack is checked in pieces as it arrives ([`Scan`]), so that a decompression bomb is refused before it is
//! unpacked.
//! Invariant: data in addition to the pack (progress text, lines) is bounded, too.
//! Invariant: server messages are shortened to one line, and hidden if they repeat the credentials.

use std::collections::BTreeSet;

use super::Wire;
use super::advertisement::{self, Capabilities};
use super::body::Body;
use super::http::Version;
use super::pack::Scan;
use super::packet::{self, Packet};
use super::refs::{AGENT_LINE, Negotiated};
use super::words::clean;
use crate::error::Fault;
use crate::id::Id;
use crate::ref_list::RefNames;
use crate::spool::PackSpool;
use crate::{Credentials, Limits};

/// Number of bytes that are collected before a blocking thread checks and writes them.
const PIECE: usize = 256 << 10;

/// Maximum bytes of lines and progress text in addition to a pack.
const BESIDE: usize = 1 << 20;

/// A request for a pack.
#[derive(Clone, Debug)]
pub(crate) struct PackRequest {
    /// The requested objects.
    pub(crate) want: Vec<Id>,
    /// Complete local commits, and whether their history is complete.
    pub(crate) have: Vec<(Id, History)>,
    /// How much history is requested.
    pub(crate) history: History,
    /// Whether files are requested.
    pub(crate) files: Files,
}

/// Whether a pack contains files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Files {
    /// All files.
    Whole,
    /// No files, if the server can omit them.
    Left,
}

/// How much of a commit's history a pack contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    /// All of the history.
    Whole,
    /// No history: only the commit and its files.
    Left,
}

/// A received pack.
#[derive(Debug)]
pub(crate) struct ReceivedPack {
    pub(crate) pack: PackSpool,
    /// Commits whose history was omitted.
    pub(crate) shallow: BTreeSet<Id>,
}

/// Fetches a pack into `into`.
pub(crate) async fn fetch_pack(
    wire: &Wire<'_>,
    known: &Negotiated,
    credentials: &Credentials,
    asked: &PackRequest,
    limits: &Limits,
    into: PackSpool,
) -> Result<ReceivedPack, Fault> {
    // 5 % more than the pack, for packet lengths and progress.
    let limit = limits.pack_bytes.saturating_add(limits.pack_bytes / 20).saturating_add(64 << 10);
    // On a stream, a version 0 server begins with a list of all of its references.
    let limit_of_stream = limit.saturating_add(limits.advertisement_bytes);
    let mut body = match wire {
        Wire::Http(http, _) => {
            let at = known.at.as_ref().ok_or(Fault::Stopped)?;
            let request_body = request(known.capabilities, asked);
            http.ask(at, credentials, known.capabilities.version, request_body, limit).await?
        }
        Wire::Ssh(ssh) => on_stream(ssh.open(credentials, limit_of_stream).await?, asked).await?,
        Wire::Git(git) => on_stream(Body::git(git.open().await?, limit_of_stream, git.silence), asked).await?,
    };
    let delivered = receive(&mut body, limits, into).await?;
    body.finish();
    Ok(delivered)
}

/// Requests the pack on a stream, which begins with the advertisement.
async fn on_stream(mut body: Body, asked: &PackRequest) -> Result<Body, Fault> {
    let (capabilities, _) = advertisement::read(&mut body, &RefNames::new([])).await?;
    body.send(request(capabilities, asked)).await?;
    Ok(body)
}

fn request(capabilities: Capabilities, asked: &PackRequest) -> Vec<u8> {
    let mut out = Vec::new();
    let deepen = asked.history == History::Left && capabilities.shallow;
    let shallow = asked.have.iter().filter(|(_, history)| *history == History::Left && capabilities.shallow);
    match capabilities.version {
        Version::Two => {
            packet::write(&mut out, "command=fetch\n");
            packet::write(&mut out, AGENT_LINE);
            if capabilities.names_format {
                packet::write(&mut out, "object-format=sha1\n");
            }
            out.extend_from_slice(b"0001");
            for word in ["thin-pack\n", "no-progress\n", "ofs-delta\n"] {
                packet::write(&mut out, word);
            }
            for want in &asked.want {
                packet::write(&mut out, &format!("want {want}\n"));
            }
        }
        Version::Zero => {
            let mut words = format!(" thin-pack ofs-delta side-band-64k no-progress {}", AGENT_LINE.trim_end());
            for want in &asked.want {
                packet::write(&mut out, &format!("want {want}{words}\n"));
                words.clear();
            }
        }
    }
    for (id, _) in shallow {
        packet::write(&mut out, &format!("shallow {id}\n"));
    }
    if deepen {
        packet::write(&mut out, "deepen 1\n");
    }
    if asked.files == Files::Left && capabilities.filter {
        packet::write(&mut out, "filter tree:0\n");
    }
    if capabilities.version == Version::Zero {
        out.extend_from_slice(b"0000");
    }
    for (id, _) in &asked.have {
        packet::write(&mut out, &format!("have {id}\n"));
    }
    packet::write(&mut out, "done\n");
    if capabilities.version == Version::Two {
        out.extend_from_slice(b"0000");
    }
    out
}

/// Receives a pack. In both versions, lines precede the pack. The side bands are 1 for the pack, 2 for progress and 3
/// for an error.
pub(super) async fn receive(body: &mut Body, limits: &Limits, into: PackSpool) -> Result<ReceivedPack, Fault> {
    let mut spool = Checked { sink: Some((Scan::new(*limits), into)), piece: Vec::new(), started: false };
    let mut shallow = BTreeSet::new();
    let mut beside: usize = 0;
    loop {
        let packet = body.packet().await?;
        if let Some((1, bytes)) = packet.as_ref().and_then(Packet::band) {
            spool.push(bytes).await?;
            continue;
        }
        beside += packet.as_ref().map_or(0, Packet::length);
        if beside > BESIDE {
            return Err(Fault::Protocol { why: "it sends more than 1 MiB of text beside the pack" });
        }
        let data = match packet {
            Some(Packet::Data(data)) => data,
            Some(Packet::Delimiter) => continue,
            Some(Packet::Flush) if !spool.started => continue,
            Some(Packet::Flush) | None => break,
        };
        match data.split_first() {
            Some((2, _)) | None => {}
            Some((3, text)) => return Err(Fault::Refused { text: clean(text) }),
            Some(_) => match Line::read(packet::line(&data)) {
                Line::Shallow(id) => drop(shallow.insert(id)),
                Line::Other => {}
                Line::Error(text) => return Err(Fault::Refused { text }),
                Line::Unknown => return Err(Fault::Protocol { why: "there is an unknown line before the pack" }),
            },
        }
    }
    Ok(ReceivedPack { pack: spool.finish().await?, shallow })
}

enum Line {
    Shallow(Id),
    Error(String),
    Other,
    Unknown,
}

impl Line {
    fn read(line: &[u8]) -> Self {
        if let Some(id) = line.strip_prefix(b"shallow ") {
            return Id::parse(id).map_or(Self::Unknown, Self::Shallow);
        }
        if let Some(text) = line.strip_prefix(b"ERR ") {
            return Self::Error(clean(text));
        }
        let known: [&[u8]; 8] = [
            b"NAK",
            b"ACK ",
            b"unshallow ",
            b"packfile",
            b"shallow-info",
            b"acknowledgments",
            b"ready",
            b"wanted-refs",
        ];
        if known.iter().any(|word| line.starts_with(word)) { Self::Other } else { Self::Unknown }
    }
}

/// Collects bytes into pieces, which a blocking thread checks and writes.
struct Checked {
    /// `None` while a blocking thread uses it.
    sink: Option<(Scan, PackSpool)>,
    piece: Vec<u8>,
    started: bool,
}

impl Checked {
    async fn push(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.started = true;
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE { self.write().await } else { Ok(()) }
    }

    async fn write(&mut self) -> Result<(), Fault> {
        let (mut scan, mut pack) = self.sink.take().ok_or(Fault::Stopped)?;
        let mut piece = std::mem::take(&mut self.piece);
        let work = tokio::task::spawn_blocking(move || {
            scan.feed(&piece)?;
            pack.write(&piece)?;
            piece.clear();
            Ok::<_, Fault>((scan, pack, piece))
        });
        let (scan, pack, piece) = work.await.map_err(|_| Fault::Stopped)??;
        self.sink = Some((scan, pack));
        self.piece = piece;
        Ok(())
    }

    async fn finish(mut self) -> Result<PackSpool, Fault> {
        if !self.started {
            return Err(Fault::Incomplete);
        }
        self.write().await?;
        let (scan, mut pack) = self.sink.take().ok_or(Fault::Stopped)?;
        pack.finish(scan.finish()?)?;
        Ok(pack)
    }
}

/// Returns the error, without the server's message if that repeats the credentials.
pub(crate) fn without_credentials(credentials: &Credentials, fault: Fault) -> Fault {
    match fault {
        Fault::Refused { text } => Fault::Refused { text: without(credentials, text) },
        other => other,
    }
}

fn without(credentials: &Credentials, text: String) -> String {
    // Shortening may have cut a repeated secret, so eight consecutive characters of a secret count as a repetition.
    if credentials.secrets().iter().any(|secret| repeats(&text, secret)) {
        "(its message repeats the credentials and is not shown)".to_owned()
    } else {
        text
    }
}

fn repeats(text: &str, secret: &str) -> bool {
    let secret: Vec<char> = secret.chars().collect();
    let size = secret.len().min(8);
    size > 0 && secret.windows(size).any(|part| text.contains(&part.iter().collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[test]
    fn hides_messages_that_repeat_the_credentials() {
        let credentials =
            Credentials::Basic { username: "u".into(), password: Secret::new("correct horse battery".into()) };
        let shown = |text: &str| without(&credentials, text.to_owned());
        assert_eq!(shown("not our ref"), "not our ref");
        for bad in ["you sent correct horse battery", "dTpjb3JyZWN0IGhvcnNlIGJhdHRlcnk=", "…orse batt"] {
            assert!(shown(bad).contains("not shown"), "{bad}");
        }
    }
}
