//! Pushes one commit to a reference or to several, with version 0 of the protocol, which is the only one that pushes have.
//!
//! Invariant: the server changes a reference only if it still has the expected commit. Nothing is forced. Invariant:
//! either all references of a push change, or none.

use std::iter;

use super::Wire;
use super::advertisement;
use super::body::Body;
use super::packet::{self, Packet};
use super::refs::AGENT_LINE;
use super::words::clean;
use crate::Credentials;
use crate::error::Fault;
use crate::id::{Commit, Id};
use crate::ref_list::RefNames;

/// Maximum number of bytes of the server's report.
const REPORT: u64 = 64 << 10;

/// A reference that a push changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushTarget {
    /// Its full name.
    pub reference: String,
    /// Its expected commit; `None` if the push creates the reference.
    pub old: Option<Commit>,
}

/// A push of one commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushRequest<'a> {
    pub(crate) targets: &'a [PushTarget],
    /// The options for the server, each in one line.
    pub(crate) options: &'a [String],
    pub(crate) new: Id,
    pub(crate) pack: &'a [u8],
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PushAnswer {
    Done,
    /// A reference has another commit than expected.
    Moved,
    /// The server refused the push, with this message.
    Refused(String),
}

/// Pushes the commit. `limit` bounds the size of the server's list of references.
pub(crate) async fn push_pack(
    wire: &Wire<'_>,
    credentials: &Credentials,
    push: PushRequest<'_>,
    limit: u64,
) -> Result<PushAnswer, Fault> {
    let mut body = match wire {
        Wire::Http(http, url) => {
            let (at, mut body) = http.push_advertisement(url, credentials, limit).await?;
            let Some(request) = negotiated(&mut body, push).await? else { return Ok(PushAnswer::Moved) };
            http.ask_to_push(&at, credentials, request, REPORT).await?
        }
        Wire::Ssh(ssh) => {
            let mut body = ssh.open_for_push(credentials, limit.saturating_add(REPORT)).await?;
            let Some(request) = negotiated(&mut body, push).await? else {
                body.finish();
                return Ok(PushAnswer::Moved);
            };
            body.send(request).await?;
            body
        }
        Wire::Git(_) => {
            let instead = "use an address with https:// or ssh://";
            return Err(Fault::Unsupported { what: "a push over the protocol git://", instead });
        }
    };
    let answer = report(&mut body, push.targets).await?;
    body.finish();
    Ok(answer)
}

/// Reads the advertisement, and returns the request; `None` if a reference has another commit than expected.
async fn negotiated(body: &mut Body, push: PushRequest<'_>) -> Result<Option<Vec<u8>>, Fault> {
    let wanted = RefNames::new(push.targets.iter().map(|target| target.reference.clone()));
    let (capabilities, refs) = advertisement::read(body, &wanted).await?;
    let refs = refs.ok_or(Fault::Protocol { why: "it answers a push in version 2 of the protocol" })?;
    let is_expected =
        |target: &PushTarget| refs.0.get(&target.reference).map(|at| at.id) == target.old.map(|commit| commit.0);
    if !push.targets.iter().all(is_expected) {
        return Ok(None);
    }
    if !push.options.is_empty() && !capabilities.push_options {
        let instead = "remove spec.git.push.options, or let the server accept them (receive.advertisePushOptions)";
        return Err(Fault::Unsupported { what: "a push with options to this server", instead });
    }
    if push.targets.len() > 1 && !capabilities.atomic {
        let instead = "remove one of spec.git.push.branch and spec.git.push.refspec";
        return Err(Fault::Unsupported { what: "an atomic push of two references to this server", instead });
    }
    Ok(Some(request(push)))
}

fn request(push: PushRequest<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(push.pack.len() + 1024);
    let atomic = if push.targets.len() > 1 { " atomic" } else { "" };
    let options = if push.options.is_empty() { "" } else { " push-options" };
    let capabilities = format!("\0 report-status{atomic}{options} {}", AGENT_LINE.trim_end());
    // Only the first line has the capabilities.
    for (target, capabilities) in push.targets.iter().zip(iter::once(&*capabilities).chain(iter::repeat(""))) {
        let old = target.old.map_or_else(|| "0".repeat(40), |commit| commit.to_string());
        packet::write(&mut out, &format!("{old} {} {}{capabilities}", push.new, target.reference));
    }
    out.extend_from_slice(b"0000");
    if !push.options.is_empty() {
        for option in push.options {
            packet::write(&mut out, option);
        }
        out.extend_from_slice(b"0000");
    }
    out.extend_from_slice(push.pack);
    out
}

/// Reads the server's report.
async fn report(body: &mut Body, targets: &[PushTarget]) -> Result<PushAnswer, Fault> {
    let (mut changed, mut refused) = (vec![false; targets.len()], Vec::new());
    while let Some(Packet::Data(data)) = body.packet().await? {
        let line = packet::line(&data);
        if let Some(text) = line.strip_prefix(b"unpack ") {
            if text != b"ok" {
                return Ok(PushAnswer::Refused(format!("the server cannot read the commit: {}", clean(text))));
            }
        } else if let Some(name) = line.strip_prefix(b"ok ") {
            for (changed, _) in changed.iter_mut().zip(targets).filter(|(_, to)| to.reference.as_bytes() == name) {
                *changed = true;
            }
        } else if let Some(text) = line.strip_prefix(b"ng ") {
            let text = match targets {
                [one] => text.strip_prefix(one.reference.as_bytes()).unwrap_or(text),
                _ => text,
            };
            if refused.len() < targets.len() {
                refused.push(clean(text));
            }
        } else if let Some(text) = line.strip_prefix(b"ERR ") {
            return Err(Fault::Refused { text: clean(text) });
        }
    }
    if !refused.is_empty() {
        return Ok(PushAnswer::Refused(refused.join("; ")));
    }
    if changed.contains(&false) {
        return Err(Fault::Protocol { why: "its report does not name each reference of the push" });
    }
    Ok(PushAnswer::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(names: &[&str]) -> Vec<PushTarget> {
        names.iter().map(|name| PushTarget { reference: (*name).to_owned(), old: None }).collect()
    }

    fn sent(lines: &[&str]) -> Body {
        let mut sent = Vec::new();
        for line in lines {
            packet::write(&mut sent, line);
        }
        sent.extend_from_slice(b"0000");
        Body::given(&sent)
    }

    async fn read(lines: &[&str], names: &[&str]) -> Result<PushAnswer, Fault> {
        report(&mut sent(lines), &targets(names)).await
    }

    #[tokio::test]
    async fn a_report_names_each_reference() {
        let main = ["refs/heads/main"];
        assert_eq!(read(&["unpack ok\n", "ok refs/heads/main\n"], &main).await.unwrap(), PushAnswer::Done);
        let declined = ["unpack ok\n", "ng refs/heads/main pre-receive hook declined\n"];
        let said = read(&declined, &main).await.unwrap();
        assert_eq!(said, PushAnswer::Refused("pre-receive hook declined".to_owned()));
        let unread = read(&["unpack index-pack failed\n"], &main).await.unwrap();
        assert!(matches!(unread, PushAnswer::Refused(why) if why.contains("index-pack failed")));
        assert!(read(&["unpack ok\n", "ok refs/heads/other\n"], &main).await.is_err());
        assert!(read(&["ERR no\n"], &main).await.is_err());
        let both = ["refs/heads/main", "refs/heads/auto"];
        let done = ["unpack ok\n", "ok refs/heads/auto\n", "ok refs/heads/main\n"];
        assert_eq!(read(&done, &both).await.unwrap(), PushAnswer::Done);
        assert!(read(&done[..2], &both).await.is_err());
        let one = ["unpack ok\n", "ok refs/heads/main\n", "ng refs/heads/auto no\n"];
        assert_eq!(read(&one, &both).await.unwrap(), PushAnswer::Refused("refs/heads/auto no".to_owned()));
    }

    #[tokio::test]
    async fn options_and_two_references_are_sent_only_to_servers_that_take_them() {
        let (id, old) = ("1".repeat(40), "2".repeat(40));
        let both = targets(&["refs/heads/main", "refs/for/main"]);
        let options = ["topic=images".to_owned()];
        let new = Id::parse(id.as_bytes()).unwrap();
        let asked = async |capabilities: &str, targets: &[PushTarget], options: &[String]| {
            let mut body = sent(&[&format!("{old} refs/heads/other\0report-status side-band-64k{capabilities}\n")]);
            let request = negotiated(&mut body, PushRequest { targets, options, new, pack: b"PACK" }).await;
            request.map(|request| String::from_utf8(request.unwrap()).unwrap()).map_err(|fault| fault.to_string())
        };
        let sent = asked(" atomic push-options", &both, &options).await.unwrap();
        let zero = "0".repeat(40);
        let ends = format!("{zero} {id} refs/for/main00000010topic=images0000PACK");
        assert!(sent.contains(" report-status atomic push-options agent="), "{sent}");
        assert!(sent.ends_with(&ends), "{sent}");
        let plain = asked("", &both[..1], &[]).await.unwrap();
        assert!(plain.ends_with("0000PACK") && !plain.contains("atomic") && !plain.contains("push-options"), "{plain}");
        assert!(asked(" atomic", &both, &options).await.unwrap_err().contains("spec.git.push.options"));
        assert!(asked("", &both, &[]).await.unwrap_err().contains("spec.git.push.refspec"));
    }
}
