//! Errors of the distribution specification.

use std::io;

/// An error: HTTP status, code of the specification, and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
    /// The cause for the server's log. It may contain local paths, so clients do not see it.
    pub(super) cause: Option<String>,
}

impl Refusal {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), cause: None }
    }

    pub(super) fn unknown_path() -> Self {
        Self::new(404, "NOT_FOUND", "there is nothing at this path")
    }

    pub(super) fn name_invalid() -> Self {
        Self::new(400, "NAME_INVALID", "invalid repository name")
    }

    pub(super) fn name_unknown() -> Self {
        Self::new(404, "NAME_UNKNOWN", "repository name not known to registry")
    }

    pub(super) fn digest_invalid() -> Self {
        Self::new(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
    }

    pub(super) fn blob_unknown() -> Self {
        Self::new(404, "BLOB_UNKNOWN", "blob unknown to registry")
    }

    pub(super) fn upload_unknown() -> Self {
        Self::new(404, "BLOB_UPLOAD_UNKNOWN", "blob upload unknown to registry")
    }

    pub(super) fn upload_invalid(message: impl Into<String>) -> Self {
        Self::new(400, "BLOB_UPLOAD_INVALID", message)
    }

    pub(super) fn manifest_unknown() -> Self {
        Self::new(404, "MANIFEST_UNKNOWN", "manifest unknown to registry")
    }

    pub(super) fn manifest_invalid(message: impl Into<String>) -> Self {
        Self::new(400, "MANIFEST_INVALID", message)
    }

    pub(super) fn range_invalid() -> Self {
        Self::new(416, "RANGE_INVALID", "invalid content range")
    }

    pub(super) fn too_large(limit: u64) -> Self {
        Self::new(413, "SIZE_INVALID", format!("the limit is {limit} bytes"))
    }

    pub(super) fn unsupported() -> Self {
        Self::new(405, "UNSUPPORTED", "the operation is unsupported")
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::new(507, "DENIED", "the disk is full"),
            kind => {
                let message = format!("the directory of the registry cannot be used: {kind}");
                Self { cause: Some(error.to_string()), ..Self::new(500, "UNKNOWN", message) }
            }
        }
    }
}
