//! The context of a patch: author, object and endpoint.

use crate::schema::Schema;

/// Author, object and endpoint of a write.
#[derive(Clone, Copy, Debug)]
pub struct ApplyContext<'a> {
    /// Schema of the object in `api_version`.
    pub schema: &'a Schema,
    /// API version in the path of the request, which the entry records.
    pub api_version: &'a str,
    /// Field manager.
    pub manager: &'a str,
    /// `status`, `scale`, or empty for the object.
    pub subresource: &'a str,
    /// Whether to take over conflicting fields instead of failing.
    pub force: bool,
    /// Time in RFC 3339, whole seconds, UTC.
    pub now: &'a str,
    /// Paths that this endpoint neither writes nor owns, such as `["status"]`.
    pub reset: &'a [&'a [&'a str]],
}
