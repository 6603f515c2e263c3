//! Publishes one message at a server of NATS.
//!
//! Invariant: a login is sent only over the connection that the greeting of the server and the settings of the Provider
//! require. The server confirms it before the message is sent.
//!
//! Not here: the commands and the replies, which `mainstay_notification` makes and reads.

use std::time::Duration;

use mainstay_git::{Fault, LineConnection, Outbound};
use mainstay_notification::{Outcome, Publication, Reply, Security};

/// Publishes a message. The whole conversation takes at most this time.
pub(super) async fn publish(
    outbound: &Outbound,
    publication: &Publication,
    within: Duration,
) -> Result<Outcome, Fault> {
    let published = tokio::time::timeout(within, outbound.run(converse(outbound, publication))).await;
    published.unwrap_or(Err(Fault::Timeout { after: within, what: "publishing a message" }))
}

async fn converse(outbound: &Outbound, publication: &Publication) -> Result<Outcome, Fault> {
    let mut connection = outbound.connect(publication.host(), publication.port()).await?;
    let wanted = if outbound.has_certificates() { Security::Tls } else { Security::Plain };
    let security = match publication.greeted(&connection.line().await?, wanted) {
        Ok(security) => security,
        Err(outcome) => return Ok(outcome),
    };
    if security == Security::Tls {
        connection = outbound.encrypt(connection).await?;
    }
    for command in publication.commands(security) {
        connection.send(command.expose()).await?;
        while let Some(reply) = next(&mut connection).await? {
            if let Reply::Failed(outcome) = reply {
                return Ok(outcome);
            }
        }
    }
    Ok(Outcome::Delivered)
}

/// Returns the next reply; `None` if the server has read all commands.
async fn next(connection: &mut LineConnection) -> Result<Option<Reply>, Fault> {
    let reply = Reply::parse(&connection.line().await?);
    if reply == Reply::Ping {
        connection.send(b"PONG\r\n").await?;
    }
    Ok((reply != Reply::Pong).then_some(reply))
}
