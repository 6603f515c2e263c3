//! Resolves a Receiver and its Secret into the parameters of its deliveries, or into the reason why it accepts none.
//!
//! Invariant: no message contains a part of the token.

use super::signature;
use mainstay_api::conditions::Reason;
use mainstay_api::{Receiver, ReceiverType};
use mainstay_cluster::secrets::Known;
use mainstay_object::Secret;

/// Key in the Secret.
const KEY: &str = "token";
/// Minimum length of a token in bytes. The status shows the path, so its readers can guess short tokens offline.
const MIN_TOKEN: usize = 16;

/// A Receiver that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The namespace of the Receiver.
    pub(super) namespace: String,
    /// The name of the Receiver.
    pub(super) name: String,
    /// The type of the host.
    pub(super) kind: ReceiverType,
    /// The token.
    pub(super) token: Secret<Vec<u8>>,
    /// The accepted events, in lower case; if empty, those that report a push.
    pub(super) events: Vec<String>,
    /// The GitRepositories that may be looked up; `None` means all.
    pub(super) repositories: Option<Vec<String>>,
    /// Whether deliveries are refused.
    pub(super) is_suspended: bool,
}

/// The reason why a Receiver is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The condition's reason.
    pub(super) reason: Reason,
    /// The condition's message.
    pub(super) message: String,
    /// Whether only a change of the spec helps.
    pub(super) is_stalled: bool,
}

impl Resolved {
    /// Returns the path of the Receiver.
    pub(super) fn path(&self) -> String {
        signature::path(&self.token, &self.namespace, &self.name)
    }
}

/// Resolves the spec and the Secret.
pub(super) fn resolve(receiver: &Receiver, secret: &Known) -> Result<Resolved, Problem> {
    let spec = &receiver.spec;
    let Some(kind) = ReceiverType::parse(&spec.kind) else {
        let known = ReceiverType::ALL.map(ReceiverType::as_str).join(", ");
        let message = format!("spec.type must be one of {known}");
        return Err(Problem { reason: Reason::SpecInvalid, message, is_stalled: true });
    };
    let named = &spec.secret_ref.name;
    let missing = |message| Problem { reason: Reason::TokenNotFound, message, is_stalled: false };
    if let Some((_, problem)) = secret.problem() {
        return Err(missing(format!("Secret {named} {problem}")));
    }
    let token = secret.data().and_then(|data| data.get(KEY));
    let token = token.ok_or_else(|| missing(format!("Secret {named} has no key {KEY}")))?;
    // `kubectl create secret --from-file` keeps a trailing line break, which no host sends.
    let end = token.0.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let token = &token.0[..end];
    let invalid = |message| Problem { reason: Reason::TokenInvalid, message, is_stalled: false };
    if token.is_empty() {
        return Err(invalid(format!(
            "the key {KEY} of Secret {named} is empty, so every client could send deliveries"
        )));
    }
    if token.len() < MIN_TOKEN {
        let message = format!(
            "the key {KEY} of Secret {named} has less than {MIN_TOKEN} bytes: an attacker who sees the path of the \
             Receiver could guess it"
        );
        return Err(invalid(message));
    }
    let metadata = &receiver.metadata;
    Ok(Resolved {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        kind,
        token: Secret::new(token.to_vec()),
        events: spec.events.iter().map(|event| event.trim().to_lowercase()).collect(),
        repositories: spec.repositories.clone(),
        is_suspended: spec.suspend,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use mainstay_cluster::secrets::Contents;

    fn receiver(kind: &str) -> Receiver {
        let spec = json!({"type": kind, "secretRef": {"name": "hook"}, "events": [" Push "]});
        let metadata = json!({"name": "web", "namespace": "shop"});
        serde_json::from_value(json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "Receiver", "metadata": metadata, "spec": spec,
        }))
        .unwrap()
    }

    fn secret(key: &str, token: &str) -> Known {
        let data = [(key.to_owned(), ByteString(token.as_bytes().to_vec()))].into();
        Known::Data(Arc::new(Contents { kind: "Opaque".to_owned(), data, purpose: None }))
    }

    #[track_caller]
    fn check(kind: &str, secret: &Known, expected: &str) {
        let got = match resolve(&receiver(kind), secret) {
            Ok(resolved) => {
                format!("{:?} {:?}", resolved.kind, resolved.token.expose().as_slice().escape_ascii().to_string())
            }
            Err(problem) => format!("{}: {}", problem.reason.as_str(), problem.message),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn says_why_it_is_not_served() {
        check("github", &secret("token", "0123456789abcdef"), r#"Github "0123456789abcdef""#);
        check("github", &secret("token", " 123456789abcde \r\n\n"), r#"Github " 123456789abcde ""#);
        check(
            "github",
            &secret("token", "\n"),
            "TokenInvalid: the key token of Secret hook is empty, so every client could send deliveries",
        );
        check("github", &secret("Token", "x"), "TokenNotFound: Secret hook has no key token");
        check("github", &Known::Absent, "TokenNotFound: Secret hook does not exist in this namespace");
        let short = "TokenInvalid: the key token of Secret hook has less than 16 bytes: an attacker who sees the path \
                     of the \
                     Receiver could guess it";
        for kind in ReceiverType::ALL {
            check(kind.as_str(), &secret("token", "0123456789abcde"), short);
        }
        check("generic", &secret("token", "0123456789abcdef"), r#"Generic "0123456789abcdef""#);
        let unknown = "SpecInvalid: spec.type must be one of github, gitlab, gitea, bitbucket, azure-devops, generic, \
                       generic-hmac";
        check("svn", &secret("token", "x"), unknown);
    }

    #[test]
    fn shows_no_token() {
        let resolved = resolve(&receiver("github"), &secret("token", "hunter2-hunter2-hunter2")).unwrap();
        assert!(!format!("{resolved:?}").contains("hunter2-hunter2-hunter2"));
        assert_eq!(resolved.events, ["push"]);
        assert!(!resolved.path().contains("hunter2-hunter2-hunter2"));
    }
}
