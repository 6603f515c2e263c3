//! Writes: server-side apply, create, replace, merge patch and JSON patch.
//!
//! Invariant: every write names its field manager and asks for strict field validation, so that a misspelt field is
//! refused instead of dropped.
//! Deliberately absent: what to write, and how to react to a refusal.

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
    /// It is stored.
    #[default]
    Kept,
    /// A dry run: defaulting, admission and validation run, nothing is stored.
    DryRun,
}

/// How to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apply<'a> {
    /// Field manager, at most 128 bytes.
    pub manager: &'a str,
    /// Take over fields that other managers own, instead of a 409.
    pub force: bool,
    /// Whether the apply is a dry run.
    pub dry_run: bool,
}

impl<'a> Apply<'a> {
    /// A forced apply that is stored.
    pub fn forced(manager: &'a str) -> Self {
        Self { manager, force: true, dry_run: false }
    }

    /// An unforced apply that is stored.
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

/// The part of an object that a patch changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The object. Its status stays as it is if the kind has a status subresource.
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
    /// Server-side apply. Returns the object as it is now; if nothing changed, its resourceVersion is the old one.
    /// `body` needs `apiVersion` and `kind`, and must not have `metadata.managedFields`.
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

    /// Creates an object. Returns the object as stored; for a dry run as it would be stored.
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

    /// Creates an object. This field manager owns all of its fields. Returns the object as stored.
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

    /// Replaces an object. With `metadata.resourceVersion` in `body` only if it is still the one there.
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

    /// JSON merge patch of an object or its status. If `patch` has a `metadata.resourceVersion` that is not the current
    /// one, the server answers 409.
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

    /// JSON patch (RFC 6902) of an object or its status. Returns the object as stored; for a dry run as it would be stored.
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
    /// Servers store the list as given, which allows handing over field ownership.
    pub async fn rewrite_managed_fields(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        resource_version: &str,
        entries: &Value,
    ) -> Result<Value, Error> {
        // Not a `test` operation: a failed test answers 422, a stale resourceVersion in the patched object answers 409.
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

/// Query parameters of all writes except applies.
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
