//! Errors of a registry.

use std::time::Duration;

use serde_json::Value;

use mainstay_object::failure::Class;

/// A failed attempt. The error source is the cause.
#[derive(Debug, thiserror::Error)]
#[error("{attempt} {registry}")]
pub struct Error {
    /// The attempt, as the part of the message before the name of the registry.
    pub attempt: &'static str,
    /// Host and port of the registry.
    pub registry: String,
    /// The cause.
    #[source]
    pub fault: Fault,
}

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The connection failed or broke.
    #[error("{what}")]
    Network {
        /// The innermost cause.
        what: String,
        /// Whether the server is unreachable or closed the connection, so that a retry may help.
        is_outage: bool,
    },
    /// The egress policy forbids a connection to the host.
    #[error("{why}")]
    Forbidden {
        /// The rule that forbids the connection.
        why: String,
    },
    /// The host's certificate is not trusted.
    #[error("its certificate is refused: {why}")]
    Untrusted {
        /// The TLS library's reason.
        why: String,
    },
    /// A deadline passed.
    #[error("timed out after {} s: {what}", after.as_secs())]
    Timeout {
        /// The deadline.
        after: Duration,
        /// The operation that timed out.
        what: &'static str,
    },
    /// 401 or 403.
    #[error("{by} answered {status} {}", refusal(*status, *anonymous))]
    Denied {
        /// Who denied access: the registry or its token server.
        by: &'static str,
        /// HTTP status.
        status: u16,
        /// Whether no login was sent.
        anonymous: bool,
    },
    /// A different error status.
    #[error("it answered {status}{}{}", code.as_ref().map(|code| format!(" {code}")).unwrap_or_default(), meaning(*status, code.as_deref()))]
    Status {
        /// HTTP status.
        status: u16,
        /// Error code of the distribution specification.
        code: Option<String>,
        /// The registry's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The registry has no space left.
    #[error("its volume is full (it answered {status})")]
    Full {
        /// HTTP status.
        status: u16,
    },
    /// A redirect that is not followed.
    #[error("it redirects to {to}, which is not followed: {why}")]
    Redirect {
        /// The host in the redirect.
        to: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// The bytes do not match their digest.
    #[error("{what} does not have the requested digest")]
    Digest {
        /// The blob or manifest that was read or stored.
        what: &'static str,
    },
    /// The registry cannot read its records of the image's blobs.
    #[error("it cannot read its records of the image's layers (it answered {status} DIGEST_INVALID)")]
    Parts {
        /// HTTP status.
        status: u16,
    },
    /// A response is too large.
    #[error("{what} is longer than {limit} bytes")]
    TooLarge {
        /// The blob or manifest that was read.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A response violates the protocol.
    #[error("it does not speak the distribution protocol: {why}")]
    Protocol {
        /// The violation.
        why: &'static str,
    },
    /// `ca.crt` is invalid.
    #[error("ca.crt of the registry Secret holds no certificates in PEM")]
    Authorities,
    /// The content to push could not be read.
    #[error("could not read the image to push")]
    Content(#[source] std::io::Error),
    /// The content to push comes from a different registry, which failed.
    #[error("the other registry failed")]
    Other(#[source] Box<Error>),
}

fn refusal(status: u16, anonymous: bool) -> &'static str {
    match (status, anonymous) {
        (_, true) => "to a request without credentials",
        // Registries respond with 403 to accounts without permission and to accounts over their quota.
        (403, false) => "to these credentials (they lack the permission, or a quota is used up)",
        (_, false) => "to these credentials",
    }
}

fn meaning(status: u16, code: Option<&str>) -> &'static str {
    match status {
        _ if code.is_some_and(is_lost_upload) => " (it has lost the upload: it was restarted, or its volume is full)",
        404 => " (there is no such repository or image, or this account does not see it)",
        413 => " (it or a proxy before it takes no uploads of this size)",
        429 => " (too many requests)",
        _ => "",
    }
}

impl Fault {
    /// Returns the class of the failure.
    pub fn class(&self) -> Class {
        match self {
            Self::Denied { .. } | Self::Forbidden { .. } => Class::Denied,
            Self::Network { .. }
            | Self::Untrusted { .. }
            | Self::Timeout { .. }
            | Self::Digest { .. }
            | Self::Full { .. }
            | Self::Parts { .. }
            | Self::Content(_) => Class::Unavailable,
            Self::Status { status, code, .. } => match status {
                429 | 500.. => Class::Unavailable,
                _ if code.as_deref().is_some_and(|code| forgotten(code) || is_lost_upload(code)) => Class::Unavailable,
                _ => Class::Invalid,
            },
            Self::Redirect { .. } | Self::TooLarge { .. } | Self::Protocol { .. } | Self::Authorities => Class::Invalid,
            Self::Other(error) => error.fault.class(),
        }
    }

    /// Whether the same request may succeed soon. A full volume stays full, because each attempt leaves more data on
    /// the volume. A blob that the registry lost has to be pushed again.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(self, Self::Full { .. } | Self::Content(_)) && !self.has_forgotten()
    }

    /// Whether pushes fail until the registry changes: the registry is full, or refuses the login.
    pub(crate) fn lasts_at_registry(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Denied { .. })
    }

    /// Whether the registry or a proxy in front of it is temporarily unavailable or limits the rate.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Network { is_outage, .. } => *is_outage,
            Self::Status { status, .. } => matches!(status, 429 | 502..=504),
            Self::Other(error) => error.fault.is_outage(),
            _ => false,
        }
    }

    /// Returns the delay that the registry asks for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Other(error) => error.fault.retry_after(),
            _ => None,
        }
    }

    /// Whether the registry says that the bytes do not match the digest.
    pub(crate) fn is_about_content(&self) -> bool {
        match self {
            Self::Status { code: Some(code), .. } => matches!(code.as_str(), "DIGEST_INVALID" | "SIZE_INVALID"),
            Self::Content(_) => true,
            _ => false,
        }
    }

    /// Whether the registry lost the upload or the state of the upload.
    pub(super) fn is_about_upload(&self) -> bool {
        matches!(self, Self::Status { code: Some(code), .. } if is_lost_upload(code))
    }

    /// Whether the registry lacks a blob of the manifest, or cannot read its record of that blob.
    pub(crate) fn lacks_parts(&self) -> bool {
        matches!(self, Self::Parts { .. }) || self.has_forgotten()
    }

    fn has_forgotten(&self) -> bool {
        matches!(self, Self::Status { code: Some(code), .. } if forgotten(code))
    }
}

fn forgotten(code: &str) -> bool {
    matches!(code, "MANIFEST_BLOB_UNKNOWN" | "BLOB_UNKNOWN")
}

/// Whether an upload has to restart. `distribution` returns these codes after a restart, and when it accepted a chunk
/// but could not store its last bytes.
fn is_lost_upload(code: &str) -> bool {
    matches!(code, "BLOB_UPLOAD_INVALID" | "BLOB_UPLOAD_UNKNOWN")
}

/// Linux error numbers and messages for a write without space: the volume is full, a quota is used up, or a file is too
/// large.
const NO_ROOM: [(u64, &str); 3] =
    [(28, "no space left on device"), (122, "disk quota exceeded"), (27, "file too large")];

/// Whether an error reports a full volume. `distribution` returns 500 with the system's error as a message or number.
/// `distribution` uses these words for no other error.
pub(super) fn is_about_room(status: u16, body: &Value) -> bool {
    fn says_so(detail: &Value, depth: u8) -> bool {
        match detail {
            Value::String(text) => NO_ROOM.iter().any(|(_, words)| text.contains(words)),
            Value::Object(fields) => fields.iter().any(|(name, value)| {
                let number = if name == "Err" { value.as_u64() } else { None };
                NO_ROOM.iter().any(|(error, _)| number == Some(*error)) || (depth > 0 && says_so(value, depth - 1))
            }),
            _ => false,
        }
    }
    let errors = || body["errors"].as_array().into_iter().flatten();
    status == 507 || (status >= 500 && errors().any(|error| says_so(error, 4)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn recognises_a_full_volume() {
        let check = |status, detail: Value, expected| {
            let body = json!({"errors": [{"code": "UNKNOWN", "message": "unknown error", "detail": detail}]});
            assert_eq!(is_about_room(status, &body), expected, "{status} {body}");
        };
        // Responses of distribution 2.8 and 3 to PATCH, and to POST or PUT.
        check(500, json!("write /var/lib/registry/docker/registry/v2/…/data: no space left on device"), true);
        let written =
            |error| json!({"DriverName": "filesystem", "Enclosed": {"Op": "write", "Path": "/v", "Err": error}});
        check(500, written(28), true);
        check(500, written(122), true);
        check(500, written(13), false);
        check(400, written(28), false);
        check(500, json!("filesystem: mkdir /v: permission denied"), false);
        check(503, Value::Null, false);
        assert!(is_about_room(507, &Value::Null) && !is_about_room(500, &json!({"errors": "no space left on device"})));
        assert!(!is_about_room(500, &json!([{"Err": 28}])));
    }
}
