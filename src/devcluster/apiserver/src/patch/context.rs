//! The context of a write that every patch needs: author, object and endpoint.

use crate::schema::Schema;

/// Author, object and endpoint of a write.
#[derive(Clone, Copy, Debug)]
pub struct ApplyContext<'a> {
    /// Schema of the object in `api_version`.
    pub schema: &'a Schema,
    /// Version of the request's path, which the entry records.
    pub api_version: &'a str,
    /// Field manager.
    pub manager: &'a str,
    /// `status`, `scale`, or empty for the object itself.
    pub subresource: &'a str,
    /// Take conflicting fields over instead of refusing.
    pub force: bool,
    /// RFC 3339, whole seconds, UTC.
    pub now: &'a str,
    /// Paths that this endpoint never writes nor owns, such as `["status"]`.
    pub reset: &'a [&'a [&'a str]],
}
