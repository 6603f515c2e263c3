//! Admission: policies and webhooks change and validate writes before they are stored.
//!
//! A verb computes a write up to a webhook call. If its `Answers` contain the result of the call, the verb continues;
//! otherwise it stops with the [`WebhookCall`]. [`drive`] then makes the call without holding any lock and runs the
//! verb again on the live object, now with the result. After a concurrent write the review differs and is sent again.
//! Verbs therefore never wait.
//!
//! [`hooks`] reads configurations and selects the webhooks for a write. [`conditions`] evaluates their match
//! conditions. [`consult`] applies the results of calls. [`review`] writes and parses AdmissionReviews, and [`call`]
//! sends them. [`policies`] and [`crate::pod_security`] decide without calls.
//!
//! Invariant: a request sends the same review to the same webhook at most once.
//! Invariant: a write is not stored while a call is open.
//!
//! Not here: conversion webhooks, and policies that change writes.

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

/// The identity of an admission review within one request.
pub(crate) type Digest = [u8; 32];

/// A webhook call that a write waits for.
#[derive(Clone, Debug)]
pub struct WebhookCall {
    /// Identity of the call.
    pub(crate) digest: Digest,
    /// The `clientConfig` of the webhook.
    pub(crate) client: Value,
    /// Whether the response may change the object.
    pub(crate) mutating: bool,
    /// Timeout in seconds.
    pub(crate) timeout: u64,
    /// The AdmissionReview, without its uid.
    pub(crate) review: Value,
}

/// The response of a webhook.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    /// Whether the write is allowed.
    pub(crate) allowed: bool,
    /// The Status of a denial.
    pub(crate) status: Value,
    /// A JSON patch.
    pub(crate) patch: Option<Value>,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
}

impl Response {
    /// Reads the response of a webhook in this process.
    fn of(response: &Value) -> Self {
        Self {
            allowed: response["allowed"] == true,
            status: response["status"].clone(),
            patch: response.get("patch").cloned(),
            warnings: Vec::new(),
        }
    }
}

/// The result of a webhook call. An error is a message in the words of a real server.
pub(crate) type Answer = Result<Response, String>;

/// The results of the webhook calls of one request so far.
pub(crate) type Answers = Arc<HashMap<Digest, Answer>>;

/// Why a verb stopped before its write.
#[derive(Debug)]
pub enum Stop {
    /// The write is refused.
    Refused(Status),
    /// The webhook calls that have to be made first.
    Ask(Vec<WebhookCall>),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl Stop {
    /// Returns the error of a write to which no webhook applies.
    pub(crate) fn refusal(self) -> Status {
        match self {
            Self::Refused(status) => status,
            Self::Ask(_) => Status::internal("a write of the server itself asked a webhook"),
        }
    }
}
