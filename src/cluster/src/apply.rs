//! Writes: server-side apply, create, replace, merge patch and JSON patch.
//!
//! Invariant: every write contains its field manager and requests strict field validation, so that a misspelt field is
//! rejected, not dropped.
//!
//! Not here: the content of writes, and the handling of refusals.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use mainstay_api::names::AGENT_MANAGER;

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Error};
use super::kind::Kind;
use super::request::Call;
use super::selection::and;

/// Whether a write is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// The write is stored.
    #[default]
    Kept,
    /// A dry run: defaulting, admission and validation run, but the write is not stored.
    DryRun,
}

/// How to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apply<'a> {
    /// Field manager, at most 128 bytes.
    pub manager: &'a str,
    /// Whether to take over fields of other managers. Otherwise the server responds with 409.
    pub force: bool,
    /// Whether the apply is a dry run.
    pub dry_run: bool,
}

impl<'a> Apply<'a> {
    /// Returns a forced apply that is stored.
    pub fn forced(manager: &'a str) -> Self {
        Self { manager, force: true, dry_run: false }
    }

    /// Returns an unforced apply that is stored.
    pub fn unforced(manager: &'a str) -> Self {
        Self { manager, force: false, dry_run: false }
    }

    /// Turns this apply into a dry run.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// The part of an object that a patch changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The object. Its status stays unchanged if the kind has a status subresource.
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
    /// Applies an object (server-side apply) and returns it. If the object did not change, its resourceVersion is the
    /// old one. `body` needs `apiVersion` and `kind`, and must not have `metadata.managedFields`.
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

    /// Same as [`apply`](Self::apply), for an object that is already serialized as JSON.
    pub(crate) async fn apply_bytes(
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

    /// Creates an object. Returns it as stored, or as a dry run would store it.
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

    /// Creates an object with this field manager as the owner of all fields. Returns it as stored.
    pub async fn create_as(
        &self,
        manager: &str,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Create, Verb::Create, kind, namespace, name, None)?;
        call.path = kind.path(namespace, None, None);
        write_as(&mut call, manager, Persistence::Kept);
        self.write(call.with(Method::POST, JSON, body.to_string())).await
    }

    /// Replaces an object. If `body` has a `metadata.resourceVersion` that is outdated, the server responds with 409.
    pub async fn replace(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        body: &Value,
        persistence: Persistence,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Replace, Verb::Update, kind, namespace, name, None)?;
        own_write(&mut call, persistence);
        self.write(call.with(Method::PUT, JSON, body.to_string())).await
    }

    /// Applies a JSON merge patch to an object or a subresource. If `patch` has a `metadata.resourceVersion` that is
    /// outdated, the server responds with 409.
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

    /// Same as `patch_merge` for an object itself. The response is not parsed, so that it takes little memory. A successful
    /// response may have any size.
    pub async fn send_merge(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
    ) -> Result<(), Error> {
        let mut call = Call::object(Attempt::Patch, Verb::Patch, kind, namespace, name, None)?;
        own_write(&mut call, Persistence::Kept);
        match self.ask(&call.with(Method::PATCH, MERGE_PATCH, patch.to_string())).await {
            Err(error) if !error.is_of_size() => Err(error),
            _ => Ok(()),
        }
    }

    /// Applies a JSON merge patch to an object with this field manager as the owner of the changed fields. Returns it as
    /// stored, or as a dry run would store it.
    pub async fn patch_merge_as(
        &self,
        manager: &str,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        patch: &Value,
        persistence: Persistence,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Patch, Verb::Patch, kind, namespace, name, None)?;
        write_as(&mut call, manager, persistence);
        self.write(call.with(Method::PATCH, MERGE_PATCH, patch.to_string())).await
    }

    /// Applies a JSON patch (RFC 6902) to an object or a subresource. Returns it as stored, or as a dry run would
    /// store it.
    pub async fn patch_json(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        part: Part,
        operations: &Value,
        persistence: Persistence,
    ) -> Result<Value, Error> {
        let mut call = Call::object(Attempt::Patch, Verb::Patch, kind, namespace, name, part.subresource())?;
        own_write(&mut call, persistence);
        self.write(call.with(Method::PATCH, JSON_PATCH, operations.to_string())).await
    }

    /// Replaces `metadata.managedFields` if the object still has this resourceVersion, else fails with a conflict.
    /// Servers store the list as given, so this can hand over field ownership.
    pub async fn rewrite_managed_fields(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        resource_version: &str,
        entries: &Value,
    ) -> Result<Value, Error> {
        // A failed `test` operation causes a 422 response. A stale resourceVersion in the patched object causes a 409
        // response.
        let operations = json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": resource_version },
            { "op": "replace", "path": "/metadata/managedFields", "value": entries },
        ]);
        self.patch_json(kind, namespace, name, Part::Main, &operations, Persistence::Kept).await
    }

    async fn write(&self, call: Call) -> Result<Value, Error> {
        let answer = self.ask(&call).await?;
        serde_json::from_slice(&answer).map_err(|error| call.failed(error))
    }
}

/// Adds the query parameters of all writes except applies.
fn own_write(call: &mut Call, persistence: Persistence) {
    write_as(call, AGENT_MANAGER, persistence);
}

fn write_as(call: &mut Call, manager: &str, persistence: Persistence) {
    and(&mut call.path, "fieldManager", manager);
    and(&mut call.path, "fieldValidation", "Strict");
    if persistence == Persistence::DryRun {
        and(&mut call.path, "dryRun", "All");
    }
}
