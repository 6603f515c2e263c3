//! Looks up only the requested references.
//!
//! The caller caches the result of the negotiation: an unchanged remote then costs one request of a few hundred
//! bytes.

use super::Wire;
use super::advertisement::{self, Capabilities, id_and_rest};
use super::body::Body;
use super::endpoint::Endpoint;
use super::http::{Http, Version};
use super::packet::{self, Packet};
use crate::Credentials;
use crate::error::Fault;
use crate::id::Id;
use crate::ref_list::{At, RefNames, Refs, branch_of_head};
use mainstay_object::failure::Class;

/// The agent name in protocol messages.
pub(super) const AGENT_LINE: &str = concat!("agent=mainstay/", env!("CARGO_PKG_VERSION"), "\n");

/// The negotiated endpoint of a repository, and its server's capabilities.
#[derive(Clone, Debug)]
pub(crate) struct Negotiated {
    /// The endpoint, for HTTP.
    pub(super) at: Option<Endpoint>,
    pub(super) capabilities: Capabilities,
}

impl Negotiated {
    /// Returns whether a pack can omit files.
    pub(crate) fn leaves_files_out(&self) -> bool {
        self.capabilities.filter
    }

    /// Returns whether a commit can be requested by its id, without a reference.
    pub(crate) fn any_commit(&self) -> bool {
        self.capabilities.any_commit
    }
}

/// Returns the requested references that the remote has.
pub(crate) async fn list_refs(
    wire: &Wire<'_>,
    credentials: &Credentials,
    known: Option<&Negotiated>,
    wanted: &RefNames,
    limit: u64,
) -> Result<(Negotiated, Refs), Fault> {
    let (http, url) = match wire {
        Wire::Http(http, url) => (http, url),
        Wire::Ssh(ssh) => {
            let body = ssh.open(credentials, limit).await?;
            return ask_on_stream(body, wanted).await;
        }
        Wire::Git(git) => {
            let body = Body::git(git.open().await?, limit, git.silence);
            return ask_on_stream(body, wanted).await;
        }
    };
    let at = known.filter(|known| known.capabilities.version == Version::Two);
    if let Some((known, at)) = at.and_then(|known| Some((known, known.at.as_ref()?))) {
        match ls_refs(http, at, known.capabilities, credentials, wanted, limit).await {
            Ok(refs) => return Ok((known.clone(), refs)),
            Err(fault @ (Fault::Denied { .. } | Fault::Timeout { .. } | Fault::TooLarge { .. })) => return Err(fault),
            // A server that is overloaded or failing is not asked again immediately, in particular after a
            // `Retry-After`.
            Err(fault @ Fault::Status { .. }) if fault.class() == Class::Unavailable => return Err(fault),
            // The server may have moved or changed, so negotiate again.
            Err(_) => {}
        }
    }
    let (at, mut body) = http.advertisement(url, credentials, limit).await?;
    let (capabilities, refs) = advertisement::read(&mut body, wanted).await?;
    let refs = match refs {
        Some(refs) => refs,
        None => ls_refs(http, &at, capabilities, credentials, wanted, limit).await?,
    };
    Ok((Negotiated { at: Some(at), capabilities }, refs))
}

/// Requests references on a stream. Over SSH and TCP, requests and responses share one stream.
async fn ask_on_stream(mut body: Body, wanted: &RefNames) -> Result<(Negotiated, Refs), Fault> {
    let (capabilities, refs) = advertisement::read(&mut body, wanted).await?;
    let refs = if let Some(refs) = refs {
        refs
    } else {
        body.send(request(capabilities, wanted)).await?;
        answer(&mut body, wanted).await?
    };
    body.finish();
    Ok((Negotiated { at: None, capabilities }, refs))
}

async fn ls_refs(
    http: &Http,
    at: &Endpoint,
    capabilities: Capabilities,
    credentials: &Credentials,
    wanted: &RefNames,
    limit: u64,
) -> Result<Refs, Fault> {
    let request_body = request(capabilities, wanted);
    let mut body = http.ask(at, credentials, Version::Two, request_body, limit).await?;
    answer(&mut body, wanted).await
}

fn request(capabilities: Capabilities, wanted: &RefNames) -> Vec<u8> {
    let mut out = Vec::new();
    packet::write(&mut out, "command=ls-refs\n");
    packet::write(&mut out, AGENT_LINE);
    if capabilities.names_format {
        packet::write(&mut out, "object-format=sha1\n");
    }
    out.extend_from_slice(b"0001");
    packet::write(&mut out, "peel\n");
    packet::write(&mut out, "symrefs\n");
    for name in wanted.names() {
        packet::write(&mut out, &format!("ref-prefix {name}\n"));
    }
    out.extend_from_slice(b"0000");
    out
}

pub(super) async fn answer(body: &mut Body, wanted: &RefNames) -> Result<Refs, Fault> {
    let mut refs = Refs::default();
    loop {
        match body.expected().await? {
            Packet::Flush => return Ok(refs),
            Packet::Delimiter => return Err(Fault::Protocol { why: "there is a delimiter among the references" }),
            Packet::Data(data) => {
                if let Some(text) = data.strip_prefix(b"ERR ") {
                    return Err(Fault::Refused { text: super::words::clean(text) });
                }
                if let Some((name, at)) = reference(packet::line(&data))? {
                    refs.add(name, at, wanted);
                }
            }
        }
    }
}

/// Parses `<id> <name>[ symref-target:<name>][ peeled:<id>]`; `unborn` lines are skipped.
fn reference(line: &[u8]) -> Result<Option<(String, At)>, Fault> {
    if line.starts_with(b"unborn ") {
        return Ok(None);
    }
    let (id, rest) = id_and_rest(line)?;
    let rest = String::from_utf8_lossy(rest);
    let mut words = rest.split(' ');
    let name = words.next().unwrap_or_default().to_owned();
    let mut at = At { id, peeled: None, symbolic: None };
    for word in words {
        if let Some(target) = word.strip_prefix("symref-target:") {
            at.symbolic = branch_of_head(target).filter(|_| name == "HEAD");
        } else if let Some(peeled) = word.strip_prefix("peeled:") {
            at.peeled = Some(Id::parse(peeled.as_bytes()).ok_or(Fault::Protocol { why: "a peeled id is malformed" })?);
        }
    }
    Ok(Some((name, at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_reference_with_its_attributes() {
        let id = "1".repeat(40);
        let line = format!("{id} HEAD symref-target:refs/heads/main peeled:{id}");
        let (name, at) = reference(line.as_bytes()).unwrap().unwrap();
        assert_eq!((name.as_str(), at.symbolic.as_deref()), ("HEAD", Some("refs/heads/main")));
        assert_eq!(at.peeled, Some(at.id));
        for renamed in ["refs/tags/v2 symref-target:refs/tags/v1", "HEAD symref-target:refs/tags/v1"] {
            let (_, at) = reference(format!("{id} {renamed}").as_bytes()).unwrap().unwrap();
            assert_eq!(at.symbolic, None, "{renamed}");
        }
        for bad in ["", "123", &id, &format!("{id} x peeled:zz"), &"z".repeat(60)] {
            assert!(reference(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn reads_any_line_without_panic(line: Vec<u8>) {
            let _ = reference(&line);
        }
    }
}
