//! What the containers of a build Job report: one JSON object in the termination message.
//!
//! The programs in the Job write it, the agent reads it. A termination message has room for 4096 bytes.

use serde::{Deserialize, Serialize};

/// Where a container writes its termination message, when [`TERMINATION_LOG_ENV`] does not say otherwise.
pub const TERMINATION_LOG: &str = "/dev/termination-log";
/// Environment variable that names another file for the termination message.
pub const TERMINATION_LOG_ENV: &str = "MAINSTAY_TERMINATION_LOG";
/// Longest message in a [`BuildFailure`], in bytes, so that the whole fits the API's 4096.
pub const LONGEST_MESSAGE: usize = 2048;

/// Number of the way in which images are put together: raised when the same inputs give another image, so that every
/// image is built again.
pub const IMAGE_FORMAT: u32 = 1;

/// What a successful fetch reports, before any code of strangers runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchReport {
    /// Digest of what the dependencies are installed from, in hexadecimal digits; empty when there are none.
    pub dependencies: String,
    /// Whether they are taken from the previous image instead of being installed.
    #[serde(default)]
    pub reused: bool,
}

/// What a successful push reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildReport {
    /// Digest of the image's manifest, `sha256:…`.
    pub digest: String,
    /// Whether the registry had the whole image already.
    #[serde(default)]
    pub reused: bool,
    /// Digest of what the dependencies were installed from, in hexadecimal digits; empty when there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dependencies: String,
    /// How long the build took from the beginning of its first container, in seconds.
    #[serde(default)]
    pub seconds: f64,
}

/// What a failed container reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildFailure {
    /// What kind of failure it is.
    pub reason: FailureReason,
    /// What happened and what to do, without any secret.
    pub message: String,
    /// Whether the same inputs may well succeed later.
    #[serde(default)]
    pub retry: bool,
}

/// What kind of failure a build ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureReason {
    /// The branch moved and the recorded commit is no longer to be had: the reference has to be resolved again.
    BranchMoved,
    /// Git refused the credentials.
    GitAuthorization,
    /// Git could not be reached or read.
    Git,
    /// The repository does not hold what the Function says.
    SourceInvalid,
    /// The dependency file cannot be used.
    DependencyInvalid,
    /// The package manager failed.
    InstallFailed,
    /// The registry refused the credentials.
    RegistryAuthorization,
    /// The registry could not be reached, or does not keep what was pushed.
    Registry,
    /// The base image cannot be read.
    BaseImage,
    /// Source or dependencies are larger than an image may be.
    TooLarge,
    /// The previous image, whose dependencies were to be used again, is gone.
    PreviousGone,
    /// An invariant of ours broke.
    Internal,
}

/// A termination message, as far as it is ours.
#[derive(Clone, Debug, PartialEq)]
pub enum Termination {
    /// The push succeeded.
    Built(BuildReport),
    /// A container failed and says why.
    Failed(BuildFailure),
    /// Something else was written there: the end of a log, or nothing.
    Other(String),
}

/// Reads a termination message; whatever is not ours is [`Termination::Other`].
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
        let report =
            BuildReport { digest: "sha256:ab".into(), reused: true, dependencies: String::new(), seconds: 0.5 };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(parse_termination(&text), Termination::Built(report));
        let failure = BuildFailure { reason: FailureReason::BranchMoved, message: "moved".into(), retry: true };
        let text = serde_json::to_string(&failure).unwrap();
        assert!(text.contains(r#""reason":"BranchMoved""#));
        assert_eq!(parse_termination(&text), Termination::Failed(failure));
        assert_eq!(parse_termination("npm ERR! 404"), Termination::Other("npm ERR! 404".into()));
    }
}
