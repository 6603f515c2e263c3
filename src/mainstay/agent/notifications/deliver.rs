//! Sends one notice to the service of a Provider.
//!
//! Invariant: the egress policy, the proxy and the certificates of the Provider apply to every connection. Each request
//! takes at most the timeout of the Provider, as does the whole conversation with a server of NATS. A login at a cloud has
//! a deadline of its own.

use super::logins::Logins;
use super::nats;
use mainstay_git::{Answer, Fault, Outbound};
use mainstay_notification::{Comment, Delivery, Login, LookUp, Notice, Outcome, Request, Target};
use mainstay_object::egress::METADATA_REFUSED;

/// Maximum number of bytes of a response that are read.
const ANSWER_BYTES: usize = 4 << 10;
const CONFINED: &str = "the host is not found, or has an address of the cluster, of the machine or of a private network, which \
                        Providers of this namespace may not reach; the operator of the agent allows networks with \
                        --allow-network";

/// Sends one notice.
pub(super) async fn deliver(target: &Target, outbound: &Outbound, logins: &Logins, notice: &Notice) -> Outcome {
    match target.delivery(notice) {
        Ok(Delivery::Http(request)) => send(target, outbound, request).await,
        Ok(Delivery::Authorized(login, request)) => {
            match send_authorized(target, outbound, (logins, &login), request).await {
                Ok(outcome) | Err(outcome) => outcome,
            }
        }
        Ok(Delivery::Unless(look_up, request)) => send_unless(target, outbound, &look_up, request).await,
        Ok(Delivery::Comment(comment)) => keep_comment(target, outbound, *comment).await,
        Ok(Delivery::Nats(publication)) => {
            let published = nats::publish(outbound, &publication, target.timeout).await;
            published.unwrap_or_else(|fault| failed(&fault))
        }
        Err(why) => Outcome::Refused(why),
    }
}

async fn send(target: &Target, outbound: &Outbound, request: Request) -> Outcome {
    match answer(target, outbound, request, ANSWER_BYTES).await {
        Ok(answer) => outcome(target, &answer),
        Err(outcome) => outcome,
    }
}

/// Sends a request with a login. An error is the outcome of an attempt without a response.
async fn send_authorized(
    target: &Target,
    outbound: &Outbound,
    (logins, login): (&Logins, &Login),
    request: Request,
) -> Result<Outcome, Outcome> {
    let authorization = logins.authorization(login, outbound).await.map_err(|fault| failed(&fault))?;
    let found = answer(target, outbound, request.authorized(&authorization), ANSWER_BYTES).await?;
    let Some(why) = login.refused(found.status) else { return Ok(outcome(target, &found)) };
    logins.doubt(login);
    Ok(Outcome::Retry { why, after: found.retry_after })
}

/// Sends a request unless the service already has the status.
async fn send_unless(target: &Target, outbound: &Outbound, look_up: &LookUp, request: Request) -> Outcome {
    let found = match answer(target, outbound, look_up.request().clone(), ANSWER_BYTES).await {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let has_status = match found.status {
        200 => look_up.finds(&found.body),
        201..=299 | 404 => Ok(false),
        _ => return outcome(target, &found),
    };
    match has_status {
        Ok(true) => Outcome::Delivered,
        Ok(false) => send(target, outbound, request).await,
        Err(why) => Outcome::Retry { why, after: None },
    }
}

/// Edits or creates a comment. The conversation bounds the number of its requests.
async fn keep_comment(target: &Target, outbound: &Outbound, mut comment: Comment) -> Outcome {
    loop {
        let answer = match answer(target, outbound, comment.request(), comment.answer_bytes()).await {
            Ok(answer) => answer,
            Err(outcome) => return outcome,
        };
        if let Some(outcome) = comment.answered(answer.status, answer.retry_after, &answer.body) {
            return outcome;
        }
    }
}

fn outcome(target: &Target, answer: &Answer) -> Outcome {
    Outcome::of(target.kind, answer.status, answer.retry_after, &answer.body)
}

async fn answer(target: &Target, outbound: &Outbound, request: Request, bytes: usize) -> Result<Answer, Outcome> {
    let request = request.into_http();
    let request = request.ok_or_else(|| Outcome::Refused("the address or a header cannot be sent".to_owned()))?;
    outbound.send(request, target.timeout, bytes).await.map_err(|fault| failed(&fault))
}

/// Returns the outcome of a connection that failed.
fn failed(fault: &Fault) -> Outcome {
    let why = match fault {
        Fault::Confined { why } if *why != METADATA_REFUSED => CONFINED.to_owned(),
        fault => fault.to_string(),
    };
    Outcome::Retry { why, after: None }
}
