//! Reports of a build Job's containers: one JSON object each, in the termination message.
//!
//! The programs in the Job write them, and the agent reads them. Kubernetes limits a termination message to 4096
//! bytes.

use serde::{Deserialize, Serialize};

/// The default file of a container's termination message.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// Environment variable that overrides the file of the termination message.
pub const TERMINATION_LOG_ENV: &str = "MAINSTAY_TERMINATION_LOG";
/// Maximum length of the message in a [`BuildFailure`], in bytes. The whole report then fits into 4096 bytes.
pub const MAX_MESSAGE: usize = 2048;

/// Version of the image format. It is incremented when the same inputs give a different image, so every image is
/// rebuilt.
pub const IMAGE_FORMAT: u32 = 1;

/// The report of a successful fetch, before any third-party code runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchReport {
    /// Digest of the inputs of the dependencies, in hexadecimal digits; empty without dependencies.
    pub dependencies: String,
    /// Whether the dependencies are reused from the previous image.
    #[serde(default)]
    pub reused: bool,
}

/// The report of a successful push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildReport {
    /// Digest of the image's manifest, `sha256:…`.
    pub digest: String,
    /// Whether the registry already had the image.
    #[serde(default)]
    pub reused: bool,
    /// Digest of the inputs of the dependencies, in hexadecimal digits; empty without dependencies.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dependencies: String,
    /// The base image with its digest, if the build named a tag.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// Duration of the build from the start of its first container, in seconds.
    #[serde(default)]
    pub seconds: f64,
}

/// The report of a failed container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildFailure {
    /// The kind of failure.
    pub reason: FailureReason,
    /// The problem and what to do, without secrets.
    pub message: String,
    /// Whether the same inputs may succeed later.
    #[serde(default)]
    pub retry: bool,
    /// Whether the registry accepts no image until it has free space or knows the login.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_registry: bool,
}

/// The kind of failure that ended a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureReason {
    /// The branch moved and the recorded commit is not available: the reference must be resolved again.
    BranchMoved,
    /// Git refused the credentials.
    GitAuthorization,
    /// Git could not be reached or read.
    Git,
    /// The source in the repository is invalid.
    SourceInvalid,
    /// The dependency file cannot be used.
    DependencyInvalid,
    /// The package manager failed.
    InstallFailed,
    /// The registry refused the credentials.
    RegistryAuthorization,
    /// The registry could not be reached, or did not store the image.
    Registry,
    /// The base image cannot be read.
    BaseImage,
    /// Source or dependencies are too large for an image.
    TooLarge,
    /// The previous image, whose dependencies were to be reused, is gone.
    PreviousGone,
    /// An invariant of Mainstay is broken.
    Internal,
}

/// A parsed termination message.
#[derive(Clone, Debug, PartialEq)]
pub enum Termination {
    /// The push succeeded.
    Built(BuildReport),
    /// A container failed.
    Failed(BuildFailure),
    /// Not a report: the end of a log, or nothing.
    Other(String),
}

/// Parses a termination message. Any text that is not a report is [`Termination::Other`].
pub fn parse_termination(message: &str) -> Termination {
    if let Ok(report) = serde_json::from_str::<BuildReport>(message) {
        return Termination::Built(report);
    }
    match serde_json::from_str::<BuildFailure>(message) {
        Ok(failure) => Termination::Failed(failure),
        Err(_) => Termination::Other(message.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_reports_failures_and_logs_apart() {
        let report = BuildReport {
            digest: "sha256:ab".into(),
            reused: true,
            dependencies: String::new(),
            base: String::new(),
            seconds: 0.5,
        };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(parse_termination(&text), Termination::Built(report));
        let failure = BuildFailure {
            reason: FailureReason::BranchMoved,
            message: "moved".into(),
            retry: true,
            waits_for_registry: false,
        };
        let text = serde_json::to_string(&failure).unwrap();
        assert!(text.contains(r#""reason":"BranchMoved""#));
        assert_eq!(parse_termination(&text), Termination::Failed(failure));
        assert_eq!(parse_termination("npm ERR! 404"), Termination::Other("npm ERR! 404".into()));
    }
}
