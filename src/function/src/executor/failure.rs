//! Classifies a failure from the end of Kaniko's log: the reason, whether to retry, and a hint.
//!
//! Packages can write to the log too, so the log determines only messages and delays.

use mainstay_api::build::FailureReason;

/// The meaning of a failed executor's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// The kind of failure.
    pub reason: FailureReason,
    /// How to fix the failure, if the log does not say so.
    pub hint: &'static str,
    /// Whether the same inputs may succeed later.
    pub retry: bool,
}

/// A failure, recognised by lower-case words in the log: at least one word of each list.
struct Row(&'static [&'static str], &'static [&'static str], FailureReason, &'static str, bool);

/// Errors that end the log. A failed push to the cache is not the last line.
const PUSHING: &[&str] = &["error checking push permissions", "error pushing image"];
const ANY: &[&str] = &[""];
const REFUSED: &[&str] = &["unauthorized", "denied", "401 ", "403 ", "authentication required", "no basic auth"];
const FULL: &[&str] = &["no space left on device", "enospc", "insufficient storage", "err:28"];

/// The failures. The first match is used.
const ROWS: &[Row] = &[
    Row(
        &["should only be run inside of a container"],
        ANY,
        FailureReason::Internal,
        "add --force to APP_FUNCTION_BUILD_EXECUTOR_ARGS: on some nodes Kaniko does not see that it is in a container",
        false,
    ),
    Row(
        &["unknown flag:", "use \"executor [command] --help\""],
        ANY,
        FailureReason::Internal,
        "correct APP_FUNCTION_BUILD_EXECUTOR_ARGS, or name a newer image in APP_FUNCTION_BUILD_EXECUTOR_IMAGE",
        false,
    ),
    Row(
        PUSHING,
        REFUSED,
        FailureReason::RegistryAuthorization,
        "the registry refused the login; Kaniko uses the login in .dockerconfigjson of the registry Secret",
        false,
    ),
    Row(PUSHING, FULL, FailureReason::Registry, "the registry's volume is full; free space there", true),
    Row(
        PUSHING,
        &["x509:", "certificate"],
        FailureReason::Registry,
        "put the certificate of the registry's CA into ca.crt of the registry Secret",
        true,
    ),
    Row(
        PUSHING,
        &["status code 500", "status code 507", "500 internal server error"],
        FailureReason::Registry,
        "the registry failed: its volume may be full",
        true,
    ),
    Row(PUSHING, ANY, FailureReason::Registry, "", true),
    Row(
        &["failed to execute command"],
        FULL,
        FailureReason::TooLarge,
        "the node has not enough space, or the build not enough memory, for the dependencies",
        true,
    ),
    Row(&["failed to execute command"], ANY, FailureReason::InstallFailed, "", true),
    Row(
        &["error building image"],
        FULL,
        FailureReason::TooLarge,
        "the node has not enough space for the image's files",
        true,
    ),
    Row(
        &["error building image"],
        &[
            "manifest_unknown",
            "name_unknown",
            "manifest unknown",
            "unauthorized",
            "denied",
            "unable to download",
            "retrieving image",
        ],
        FailureReason::BaseImage,
        "",
        true,
    ),
];

/// Returns the meaning of a log; `None` if it is unknown.
pub(crate) fn of_log(log: &str) -> Option<Meaning> {
    let log = log.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| log.contains(word));
    let Row(_, _, reason, hint, retry) = ROWS.iter().find(|Row(first, second, ..)| has(first) && has(second))?;
    Some(Meaning { reason: *reason, hint, retry: *retry })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(log: &str, expected: Option<(FailureReason, &str, bool)>) {
        let meaning = of_log(log);
        let got = meaning.as_ref().map(|meaning| (meaning.reason, meaning.hint, meaning.retry));
        match (got, expected) {
            (Some((reason, hint, retry)), Some((wanted, words, passes))) => {
                assert_eq!((reason, retry), (wanted, passes), "{log}");
                assert!(hint.contains(words), "{hint}");
            }
            (got, expected) => assert_eq!(got, expected, "{log}"),
        }
    }

    #[test]
    fn a_failure_is_recognised_by_the_words_of_the_executor() {
        use FailureReason::{BaseImage, InstallFailed, Internal, Registry, RegistryAuthorization, TooLarge};
        let refused = "error checking push permissions -- make sure you entered the correct tag name, and that you are authenticated \
                       correctly, and try again: checking push permission for \"h.io/a:1\": POST https://h.io/v2/a/blobs/uploads/: \
                       UNAUTHORIZED: authentication required";
        check(refused, Some((RegistryAuthorization, ".dockerconfigjson", false)));
        let full = "error pushing image: failed to push to destination h.io/a:1: PATCH http://h.io/v2/a: UNKNOWN: unknown error; \
                    map[DriverName:filesystem Enclosed:map[Err:28 Op:write Path:/var/lib/registry/x]]";
        check(full, Some((Registry, "volume is full", true)));
        check(
            "error pushing image: tls: x509: certificate signed by unknown authority",
            Some((Registry, "ca.crt", true)),
        );
        let broken = "error pushing image: failed to push to destination h.io/a:1: HEAD http://h.io/v2/a/blobs/sha256:00: unexpected \
                      status code 500 Internal Server Error (HEAD responses have no body, use GET for details)";
        check(broken, Some((Registry, "may be full", true)));
        check("error pushing image: EOF", Some((Registry, "", true)));
        let installed = "npm error 404\nerror building image: error building stage: failed to execute command: waiting for process \
                         to exit: exit status 1";
        check(installed, Some((InstallFailed, "", true)));
        check(&installed.replace("404", "ENOSPC: no space left on device"), Some((TooLarge, "dependencies", true)));
        check("error building image: GET https://h.io/v2/b: MANIFEST_UNKNOWN: unknown", Some((BaseImage, "", true)));
        check(
            "kaniko should only be run inside of a container, run with the --force flag",
            Some((Internal, "--force", false)),
        );
        check("Error: unknown flag: --cach", Some((Internal, "EXECUTOR_ARGS", false)));
        let usage =
            "  -v, --verbosity string\n\nUse \"executor [command] --help\" for more information about a command.";
        check(usage, Some((Internal, "EXECUTOR_ARGS", false)));
        let cache = "level=warning msg=\"error uploading layer to cache: failed to push to destination h.io/a/cache: DENIED\"\n";
        check(&format!("{cache}{installed}"), Some((InstallFailed, "", true)));
        check("panic: runtime error", None);
        check("", None);
    }
}
