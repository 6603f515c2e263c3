//! Pushes one commit to a branch, with version 0 of the protocol, which is the only one that pushes have.
//!
//! Invariant: the server changes the branch only if it still has the expected commit. Nothing is forced.

use super::Wire;
use super::advertisement;
use super::body::Body;
use super::packet::{self, Packet};
use super::refs::AGENT_LINE;
use super::words::clean;
use crate::Credentials;
use crate::error::Fault;
use crate::id::Id;
use crate::ref_list::RefNames;

/// Maximum number of bytes of the server's report.
const REPORT: u64 = 64 << 10;

/// A push of one commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushRequest<'a> {
    /// Full name of the branch.
    pub(crate) branch: &'a str,
    /// The expected commit of the branch; `None` if the push creates the branch.
    pub(crate) old: Option<Id>,
    pub(crate) new: Id,
    pub(crate) pack: &'a [u8],
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PushAnswer {
    Done,
    /// The branch has another commit than expected.
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
    let wanted = RefNames::new([push.branch.to_owned()]);
    let mut body = match wire {
        Wire::Http(http, url) => {
            let (at, mut body) = http.push_advertisement(url, credentials, limit).await?;
            if !is_expected(&mut body, &wanted, push).await? {
                return Ok(PushAnswer::Moved);
            }
            http.ask_to_push(&at, credentials, request(push), REPORT).await?
        }
        Wire::Ssh(ssh) => {
            let mut body = ssh.open_for_push(credentials, limit.saturating_add(REPORT)).await?;
            if !is_expected(&mut body, &wanted, push).await? {
                body.finish();
                return Ok(PushAnswer::Moved);
            }
            body.send(request(push)).await?;
            body
        }
        Wire::Git(_) => {
            let instead = "use an address with https:// or ssh://";
            return Err(Fault::Unsupported { what: "a push over the protocol git://", instead });
        }
    };
    let answer = report(&mut body, push.branch).await?;
    body.finish();
    Ok(answer)
}

async fn is_expected(body: &mut Body, wanted: &RefNames, push: PushRequest<'_>) -> Result<bool, Fault> {
    let (_, refs) = advertisement::read(body, wanted).await?;
    let refs = refs.ok_or(Fault::Protocol { why: "it answers a push in version 2 of the protocol" })?;
    Ok(refs.0.get(push.branch).map(|at| at.id) == push.old)
}

fn request(push: PushRequest<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(push.pack.len() + 256);
    let old = push.old.map_or_else(|| "0".repeat(40), |id| id.to_string());
    let line = format!("{old} {} {}\0 report-status {}", push.new, push.branch, AGENT_LINE.trim_end());
    packet::write(&mut out, &line);
    out.extend_from_slice(b"0000");
    out.extend_from_slice(push.pack);
    out
}

/// Reads the server's report.
async fn report(body: &mut Body, branch: &str) -> Result<PushAnswer, Fault> {
    let mut answer = None;
    while let Some(Packet::Data(data)) = body.packet().await? {
        let line = packet::line(&data);
        if let Some(text) = line.strip_prefix(b"unpack ") {
            if text != b"ok" {
                return Ok(PushAnswer::Refused(format!("the server cannot read the commit: {}", clean(text))));
            }
        } else if line.strip_prefix(b"ok ") == Some(branch.as_bytes()) {
            answer = Some(PushAnswer::Done);
        } else if let Some(text) = line.strip_prefix(b"ng ") {
            let text = text.strip_prefix(branch.as_bytes()).unwrap_or(text);
            answer = Some(PushAnswer::Refused(clean(text)));
        } else if let Some(text) = line.strip_prefix(b"ERR ") {
            return Err(Fault::Refused { text: clean(text) });
        }
    }
    answer.ok_or(Fault::Protocol { why: "its report does not name the branch" })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(lines: &[&str]) -> Result<PushAnswer, Fault> {
        let mut sent = Vec::new();
        for line in lines {
            packet::write(&mut sent, line);
        }
        sent.extend_from_slice(b"0000");
        report(&mut Body::given(&sent), "refs/heads/main").await
    }

    #[tokio::test]
    async fn a_report_names_the_branch() {
        assert_eq!(read(&["unpack ok\n", "ok refs/heads/main\n"]).await.unwrap(), PushAnswer::Done);
        let declined = read(&["unpack ok\n", "ng refs/heads/main pre-receive hook declined\n"]).await.unwrap();
        assert_eq!(declined, PushAnswer::Refused("pre-receive hook declined".to_owned()));
        let unread = read(&["unpack index-pack failed\n"]).await.unwrap();
        assert!(matches!(unread, PushAnswer::Refused(why) if why.contains("index-pack failed")));
        assert!(read(&["unpack ok\n", "ok refs/heads/other\n"]).await.is_err());
        assert!(read(&["ERR no\n"]).await.is_err());
    }
}
