//! The server's advertisement: its version and capabilities, and in version 0 all of its references.
//!
//! Invariant: only the requested references are kept, however many are sent.

use std::collections::BTreeSet;

use super::body::Body;
use super::http::Version;
use super::packet::{self, Packet};
use crate::error::Fault;
use crate::id::Id;
use crate::ref_list::{At, RefNames, Refs, branch_of_head};

/// The capabilities of a server that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) version: Version,
    /// Whether the server can omit history.
    pub(super) shallow: bool,
    /// Whether the server can omit files (version 2 only).
    pub(super) filter: bool,
    /// Whether the server can send commits without a reference. Version 2 servers do not advertise this, so it is
    /// assumed.
    pub(super) any_commit: bool,
    /// Whether the server advertises its object format, and expects it in requests.
    pub(super) names_format: bool,
    /// Whether the server takes options of a push.
    pub(super) push_options: bool,
    /// Whether the server changes either all references of a push or none.
    pub(super) atomic: bool,
}

impl Capabilities {
    /// Returns the capabilities of a version 0 server that advertises neither references nor capabilities.
    fn of_empty_repository() -> Self {
        Self {
            version: Version::Zero,
            shallow: false,
            filter: false,
            any_commit: false,
            names_format: false,
            push_options: false,
            atomic: false,
        }
    }
}

/// Reads the whole advertisement, which contains references in version 0 only.
pub(super) async fn read(body: &mut Body, wanted: &RefNames) -> Result<(Capabilities, Option<Refs>), Fault> {
    let mut first = body.expected().await?;
    let announced = matches!(&first, Packet::Data(data) if data.starts_with(b"# service=git-"));
    if announced {
        if body.expected().await? != Packet::Flush {
            return Err(Fault::Protocol { why: "the service line is not followed by a flush" });
        }
        first = body.expected().await?;
    }
    let first = match first {
        Packet::Data(first) => first,
        // In version 0, Git before 2.42 advertises nothing for an empty repository, not even capabilities.
        Packet::Flush if announced || body.is_duplex() => {
            return Ok((Capabilities::of_empty_repository(), Some(Refs::default())));
        }
        Packet::Flush | Packet::Delimiter => return Err(Fault::Protocol { why: "the advertisement is empty" }),
    };
    if let Some(text) = first.strip_prefix(b"ERR ") {
        return Err(Fault::Refused { text: super::words::clean(text) });
    }
    if packet::line(&first) == b"version 2" {
        return Ok((version_two(body).await?, None));
    }
    let mut refs = Refs::default();
    let line = packet::line(&first);
    if line == b"version 1" {
        return Err(Fault::Protocol { why: "it answers in version 1 of the protocol, which was not requested" });
    }
    let (line, capabilities) = match line.iter().position(|byte| *byte == 0) {
        Some(at) => (&line[..at], &line[at + 1..]),
        None => (line, &b""[..]),
    };
    let (capabilities, default) = version_zero(capabilities)?;
    keep(line, wanted, &mut refs)?;
    loop {
        match body.expected().await? {
            Packet::Data(data) => keep(packet::line(&data), wanted, &mut refs)?,
            Packet::Flush => break,
            Packet::Delimiter => return Err(Fault::Protocol { why: "there is a delimiter among the references" }),
        }
    }
    if let Some(head) = refs.0.get_mut("HEAD") {
        head.symbolic = default;
    }
    Ok((capabilities, Some(refs)))
}

async fn version_two(body: &mut Body) -> Result<Capabilities, Fault> {
    let mut capabilities =
        Capabilities { version: Version::Two, any_commit: true, ..Capabilities::of_empty_repository() };
    let mut commands = BTreeSet::new();
    loop {
        let data = match body.expected().await? {
            Packet::Data(data) => data,
            Packet::Flush => break,
            Packet::Delimiter => return Err(Fault::Protocol { why: "there is a delimiter among the capabilities" }),
        };
        let line = String::from_utf8_lossy(packet::line(&data)).into_owned();
        let (name, value) = line.split_once('=').unwrap_or((&line, ""));
        match name {
            "ls-refs" | "fetch" => {
                commands.insert(name.to_owned());
                let offers = |what| name == "fetch" && value.split(' ').any(|word| word == what);
                capabilities.shallow |= offers("shallow");
                capabilities.filter |= offers("filter");
            }
            "object-format" => {
                check_format(value)?;
                capabilities.names_format = true;
            }
            _ => {}
        }
    }
    if commands.len() < 2 {
        return Err(Fault::Protocol { why: "version 2 without `ls-refs` and `fetch`" });
    }
    Ok(capabilities)
}

/// Parses the capabilities, and the branch that HEAD points to.
fn version_zero(words: &[u8]) -> Result<(Capabilities, Option<String>), Fault> {
    let words = String::from_utf8_lossy(words);
    let words: Vec<&str> = words.split(' ').collect();
    if !words.contains(&"side-band-64k") {
        return Err(Fault::Protocol { why: "it lacks the capability side-band-64k" });
    }
    if let Some(format) = words.iter().find_map(|word| word.strip_prefix("object-format=")) {
        check_format(format)?;
    }
    let default = words.iter().find_map(|word| word.strip_prefix("symref=HEAD:")).and_then(branch_of_head);
    let capabilities = Capabilities {
        version: Version::Zero,
        shallow: words.contains(&"shallow"),
        filter: false,
        any_commit: words.contains(&"allow-reachable-sha1-in-want") || words.contains(&"allow-any-sha1-in-want"),
        names_format: false,
        push_options: words.contains(&"push-options"),
        atomic: words.contains(&"atomic"),
    };
    Ok((capabilities, default))
}

fn check_format(format: &str) -> Result<(), Fault> {
    if format == "sha1" {
        return Ok(());
    }
    Err(Fault::Unsupported { what: "a repository with SHA-256 object ids", instead: "use one with SHA-1 object ids" })
}

/// Adds the reference in a line `<id> <name>` if it was requested. A line `<id> <name>^{}` contains the target of an
/// annotated tag.
fn keep(line: &[u8], wanted: &RefNames, refs: &mut Refs) -> Result<(), Fault> {
    let (id, name) = id_and_rest(line)?;
    let name = String::from_utf8_lossy(name);
    if let Some(tag) = name.strip_suffix("^{}") {
        if let Some(at) = refs.0.get_mut(tag) {
            at.peeled = Some(id);
        }
    } else {
        refs.add(name.into_owned(), At { id, peeled: None, symbolic: None }, wanted);
    }
    Ok(())
}

/// Splits `<id> <rest>`.
pub(super) fn id_and_rest(line: &[u8]) -> Result<(Id, &[u8]), Fault> {
    const NOT_A_REFERENCE: Fault = Fault::Protocol { why: "a line is not a reference" };
    let (id, rest) = line.split_at_checked(40).ok_or(NOT_A_REFERENCE)?;
    let id = Id::parse(id).ok_or(NOT_A_REFERENCE)?;
    Ok((id, rest.strip_prefix(b" ").ok_or(NOT_A_REFERENCE)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the name of HEAD if a version 0 server sends this target.
    async fn name_of_head(target: &str) -> Option<String> {
        let mut sent = Vec::new();
        packet::write(&mut sent, &format!("{} HEAD\0side-band-64k symref=HEAD:{target}\n", "1".repeat(40)));
        sent.extend_from_slice(b"0000");
        let (_, refs) = read(&mut Body::given(&sent), &RefNames::tips()).await.unwrap();
        refs.unwrap().0["HEAD"].symbolic.clone()
    }

    #[tokio::test]
    async fn head_is_called_as_a_branch_and_nothing_else() {
        assert_eq!(name_of_head("refs/heads/main").await.as_deref(), Some("refs/heads/main"));
        for other in ["refs/tags/v1", "main", "refs/heads/", "refs/heads/\u{1b}[31mred", "refs/heads/\u{202e}niam"] {
            assert_eq!(name_of_head(other).await, None, "{other:?}");
        }
    }
}
