//! Admission: policies and other programs (webhooks) change and judge writes before they are stored.
//!
//! A verb computes a write and comes to the place where a webhook has its say. It has the answer among those that were
//! given to it, or it stops with the [`WebhookCall`]. Nothing is held meanwhile: [`drive`] asks, outside of every lock, and
//! lets the verb compute the write again from the live object, this time with the answer. When somebody else wrote in
//! between, the question is another one and is asked again. So the verbs stay free of waiting.
//!
//! [`hooks`] reads configurations and says which of them a write concerns, [`conditions`] evaluates what they say about
//! that as expressions, [`consult`] applies the answers, [`review`] writes and reads AdmissionReviews, [`call`] sends them.
//! [`policies`] and [`crate::pod_security`] judge on the spot.
//!
//! Invariant: a request asks the same webhook the same question once.
//! Invariant: nothing is stored as long as a question is open.
//!
//! Deliberately absent: webhooks that convert versions, and policies that change writes.

mod authorizer;
#[expect(clippy::disallowed_methods, reason = "it opens connections, with a deadline")]
mod call;
mod conditions;
pub(crate) mod consult;
#[expect(clippy::disallowed_methods, reason = "requests have chance and deadlines")]
pub(crate) mod drive;
pub(crate) mod hooks;
mod kept;
pub(crate) mod policies;
mod review;
mod trust;

pub(crate) use kept::Kept;

use crate::status::Status;
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};

/// Identity of an admission review within one request.
pub(crate) type Digest = [u8; 32];

/// A call that has to be made before a write can go on.
#[derive(Clone, Debug)]
pub struct WebhookCall {
    /// Its identity.
    pub(crate) digest: Digest,
    /// Whom to ask.
    pub(crate) client: Value,
    /// Whether the answer may change the object.
    pub(crate) mutating: bool,
    /// Seconds until it is given up.
    pub(crate) timeout: u64,
    /// The AdmissionReview, without its uid.
    pub(crate) review: Value,
}

/// The answer of a webhook.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    /// Whether the write may go on.
    pub(crate) allowed: bool,
    /// The Status of a refusal.
    pub(crate) status: Value,
    /// A JSON patch.
    pub(crate) patch: Option<Value>,
    /// Texts for the client.
    pub(crate) warnings: Vec<String>,
}

impl Response {
    /// What a webhook of this process says.
    fn of(response: &Value) -> Self {
        Self {
            allowed: response["allowed"] == true,
            status: response["status"].clone(),
            patch: response.get("patch").cloned(),
            warnings: Vec::new(),
        }
    }
}

/// The result of a webhook call; a failure is a message in the words of a real server.
pub(crate) type Answer = Result<Response, String>;

/// The answers of one request so far.
pub(crate) type Answers = Arc<HashMap<Digest, Answer>>;

/// Why a verb has not done its write.
#[derive(Debug)]
pub enum Stop {
    /// It is refused.
    Refused(Status),
    /// These have to be asked first.
    Ask(Vec<WebhookCall>),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl Stop {
    /// The refusal of a write that no webhook can concern.
    pub(crate) fn refusal(self) -> Status {
        match self {
            Self::Refused(status) => status,
            Self::Ask(_) => Status::internal("a write of the server itself asked a webhook"),
        }
    }
}
