//! Publishes one message at a server of NATS.
//!
//! Invariant: a login is sent only over the connection that the greeting of the server and the settings of the Provider
//! require. The server confirms it before the message is sent.
//!
//! Not here: the commands and the replies, which `mainstay_notification` makes and reads.

use std::time::Duration;

use super::deliver::failed;
use mainstay_git::{Fault, LineConnection, Outbound};
use mainstay_notification::{Outcome, Publication, Reply, Security};

/// Publishes a message. The whole conversation takes at most this time.
pub(super) async fn publish(outbound: &Outbound, publication: &Publication, within: Duration) -> Outcome {
    let conversation = outbound.run(converse(outbound, publication));
    match tokio::time::timeout(within, conversation).await {
        Ok(Ok(())) => Outcome::Delivered,
        Ok(Err(outcome)) => outcome,
        Err(_) => failed(&Fault::Timeout { after: within, what: "publishing a message" }),
    }
}

async fn converse(outbound: &Outbound, publication: &Publication) -> Result<(), Outcome> {
    let broken = |fault: Fault| failed(&fault);
    let mut connection = outbound.connect(publication.host(), publication.port()).await.map_err(broken)?;
    let greeting = connection.line().await.map_err(broken)?;
    let wanted = if outbound.has_certificates() { Security::Tls } else { Security::Plain };
    let security = publication.greeted(&greeting, wanted)?;
    if security == Security::Tls {
        connection = outbound.encrypt(connection).await.map_err(broken)?;
    }
    for command in publication.commands(security) {
        connection.send(command.expose()).await.map_err(broken)?;
        while let Some(answer) = next(&mut connection).await.map_err(broken)? {
            if let Reply::Failed(outcome) = answer {
                return Err(outcome);
            }
        }
    }
    Ok(())
}

/// Returns the next reply; `None` if the server has read all commands.
async fn next(connection: &mut LineConnection) -> Result<Option<Reply>, Fault> {
    let reply = Reply::parse(&connection.line().await?);
    if reply == Reply::Ping {
        connection.send(b"PONG\r\n").await?;
    }
    Ok((reply != Reply::Pong).then_some(reply))
}
