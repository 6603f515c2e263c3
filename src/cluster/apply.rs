//! Writing: server-side apply, create, replace, and the two patches we need.
//!
//! Invariant: every write names its field manager and asks for strict field validation, so that a misspelt field is
//! refused and not dropped.
//! Deliberately absent: what to write, and what to do about a refusal.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::api::names::AGENT_MANAGER;

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Error};
use super::kind::Kind;
use super::request::Call;
use super::selection::and;

/// Whether a write is kept, or only tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// It is kept.
    #[default]
    Kept,
    /// A dry run: defaulting, admission and validation take place, nothing is stored.
    DryRun,
}

/// How to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apply<'a> {
    /// Field manager, at most 128 bytes.
    pub manager: &'a str,
    /// Take over fields that others own, instead of answering 409.
    pub force: bool,
    /// Only try it.
    pub dry_run: bool,
}

impl<'a> Apply<'a> {
    /// Forced, and kept.
    pub fn forced(manager: &'a str) -> Self {
        Self { manager, force: true, dry_run: false }
    }

    /// Unforced, and kept.
    pub fn unforced(manager: &'a str) -> Self {
        Self { manager, force: false, dry_run: false }
    }

    /// The same as a dry run.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// Which part of an object a patch is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The object; its status is left alone where the kind has a status subresource.
    #[default]
    Main,
    /// The status subresource.
    Status,
    /// The scale subresource.
    Scale,
}

impl Part {
    fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Main => None,
            Self::Status => Some("status"),
            Self::Scale => Some("scale"),
        }
    }
}

const APPLY_PATCH: &str = "application/apply-patch+yaml";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const JSON: &str = "application/json";

impl Cluster {
    /// Server-side apply. The answer is the object as it is now; with the resourceVersion it had before if nothing
    /// changed. `body` needs `apiVersion` and `kind`, and must not have `metadata.managedFields`.
    pub async fn apply(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        body: &Value,
        how: Apply<'_>,
    ) -> Result<Value, Error> {
        self.apply_bytes(kind, namespace, name, body.to_string().into_bytes(), how).await
    }

    /// [`apply`](Self::apply) of an object that is JSON already.
    pub async fn apply_bytes(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        body: impl Into<Bytes>,
        how: Apply<'_>,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Apply, Verb::Apply, kind, namespace, name, None)?;
        and(&mut call.path, "fieldManager", how.manager);
        if how.force {
            and(&mut call.path, "force", "true");
        }
        and(&mut call.path, "fieldValidation", "Strict");
        if how.dry_run {
            and(&mut call.path, "dryRun", "All");
        }
        self.write(call.with(Method::PATCH, APPLY_PATCH, body)).await
    }

    /// Creates an object. The answer is the object as it was stored, or would have been.
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        body: &Value,
        persistence: Persistence,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Create, Verb::Create, kind, namespace, name, None)?;
        call.path = kind.path(namespace, None, None);
        own_write(&mut call, persistence);
        self.write(call.with(Method::POST, JSON, body.to_string())).await
    }

    /// Replaces an object. With `metadata.resourceVersion` in `body` only if it is still the one there.
    pub async fn replace(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Replace, Verb::Update, kind, namespace, name, None)?;
        own_write(&mut call, Persistence::Kept);
        self.write(call.with(Method::PUT, JSON, body.to_string())).await
    }

    /// JSON merge patch of an object or its status. With `metadata.resourceVersion` in `patch` only if it is still the
    /// one there.
    pub async fn patch_merge(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        part: Part,
        patch: &Value,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Patch, Verb::Patch, kind, namespace, name, part.subresource())?;
        own_write(&mut call, Persistence::Kept);
        self.write(call.with(Method::PATCH, MERGE_PATCH, patch.to_string())).await
    }

    /// JSON patch (RFC 6902) of an object or its status.
    pub async fn patch_json(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        part: Part,
        operations: &Value,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Patch, Verb::Patch, kind, namespace, name, part.subresource())?;
        own_write(&mut call, Persistence::Kept);
        self.write(call.with(Method::PATCH, JSON_PATCH, operations.to_string())).await
    }

    /// Replaces `metadata.managedFields` if the object still has this resourceVersion, else answers a conflict. Servers
    /// store the list as it is given; that is how ownership is handed over.
    pub async fn rewrite_managed_fields(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        resource_version: &str,
        entries: &Value,
    ) -> Result<Value, Error> {
        // Not a `test` operation: a failed one answers 422, a wrong version in the patched object the 409 that it is.
        let operations = json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": resource_version },
            { "op": "replace", "path": "/metadata/managedFields", "value": entries },
        ]);
        self.patch_json(kind, namespace, name, Part::Main, &operations).await
    }

    async fn write(&self, call: Call) -> Result<Value, Error> {
        let answer = self.ask(&call).await?;
        serde_json::from_slice(&answer).map_err(|error| call.failed(error))
    }
}

/// Parameters of the writes that are not applies.
fn own_write(call: &mut Call, persistence: Persistence) {
    and(&mut call.path, "fieldManager", AGENT_MANAGER);
    and(&mut call.path, "fieldValidation", "Strict");
    if persistence == Persistence::DryRun {
        and(&mut call.path, "dryRun", "All");
    }
}
