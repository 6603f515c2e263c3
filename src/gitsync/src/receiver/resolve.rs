//! Resolves a Receiver and its Secret into the parameters of its deliveries, or into the reason why it accepts none.
//!
//! Invariant: no message contains a part of the token.

use std::sync::Arc;

use super::filter::Filter;
use super::providers::{self, Provider};
use super::signature;
use super::sources::Sources;
use mainstay_api::conditions::Reason;
use mainstay_api::receiver::ReceiverSecretRef;
use mainstay_api::{Receiver, ReceiverType};
use mainstay_cluster::secrets::Known;
use mainstay_object::Secret;

/// Keys in the Secret. Those of a service account are for Google only.
const KEY: &str = "token";
const EMAIL: &str = "email";
const AUDIENCE: &str = "audience";
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
    /// The token in the Secret; empty for a type without a Secret.
    pub(super) token: Secret<Vec<u8>>,
    /// The issuers whose tokens authenticate deliveries; `None` for types without such a token.
    pub(super) tokens: Option<Arc<[Provider]>>,
    /// The accepted events, in lower case; if empty, those that report a push.
    pub(super) events: Vec<String>,
    /// The sources and ImageRepositories that may be looked up.
    pub(super) sources: Sources,
    /// The condition for each of them.
    pub(super) filter: Option<Filter>,
    /// The kinds in `spec.resources` that have no effect.
    pub(super) without_effect: Vec<&'static str>,
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

    /// Whether a delivery depends on labels or other metadata of objects.
    pub(super) fn needs_objects(&self) -> bool {
        self.filter.is_some() || self.sources.have_labels()
    }
}

/// Returns the invalid field of a Receiver, if the agent refuses it whatever its Secret contains.
pub fn problems(receiver: &Receiver) -> Vec<String> {
    let problem = resolve(receiver, &Known::Absent).err().filter(|problem| problem.is_stalled);
    problem.map(|problem| problem.message).into_iter().collect()
}

/// Resolves the spec and the Secret.
pub(super) fn resolve(receiver: &Receiver, secret: &Known) -> Result<Resolved, Problem> {
    let spec = &receiver.spec;
    let Some(kind) = ReceiverType::parse(&spec.kind) else {
        let known = ReceiverType::ALL.map(ReceiverType::as_str).join(", ");
        let message = format!("spec.type must be one of {known}");
        return Err(Problem { reason: Reason::SpecInvalid, message, is_stalled: true });
    };
    let refused = |message| Problem { reason: Reason::SpecInvalid, message, is_stalled: true };
    let sources = Sources::of_spec(receiver).map_err(refused)?;
    let filter = Filter::of_spec(spec.resource_filter.as_deref()).map_err(refused)?;
    let (token, tokens) = match (kind, &spec.secret_ref) {
        (ReceiverType::GenericOidc, Some(_)) => {
            let message = "spec.secretRef must not be set for the type generic-oidc: a token of an issuer authenticates \
                           deliveries; remove it";
            return Err(refused(message.to_owned()));
        }
        (ReceiverType::GenericOidc, None) => {
            (b"".as_slice(), Some(providers::of_spec(&spec.oidc_providers).map_err(refused)?))
        }
        _ if !spec.oidc_providers.is_empty() => {
            return Err(refused("spec.oidcProviders is only for the type generic-oidc: remove it".to_owned()));
        }
        (_, None) => return Err(refused("spec.secretRef must name a Secret with the key token".to_owned())),
        (ReceiverType::Gcr, Some(ReceiverSecretRef { name })) => (token(name, secret)?, Some(of_google(name, secret)?)),
        (_, Some(ReceiverSecretRef { name })) => (token(name, secret)?, None),
    };
    let metadata = &receiver.metadata;
    Ok(Resolved {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        kind,
        token: Secret::new(token.to_vec()),
        tokens: tokens.map(Arc::from),
        events: spec.events.iter().map(|event| event.trim().to_lowercase()).collect(),
        sources,
        without_effect: Sources::without_effect(receiver),
        filter,
        is_suspended: spec.suspend,
    })
}

/// Returns the value of a key of the Secret, without the line break at its end that `kubectl create secret --from-file`
/// keeps, and that no host sends.
fn value<'s>(key: &str, named: &str, secret: &'s Known) -> Result<&'s [u8], Problem> {
    let missing = |message| Problem { reason: Reason::TokenNotFound, message, is_stalled: false };
    if let Some((_, problem)) = secret.problem() {
        return Err(missing(format!("Secret {named} {problem}")));
    }
    let value = secret.data().and_then(|data| data.get(key));
    let value = value.ok_or_else(|| missing(format!("Secret {named} has no key {key}")))?;
    let end = value.0.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Ok(&value.0[..end])
}

fn invalid(message: String) -> Problem {
    Problem { reason: Reason::TokenInvalid, message, is_stalled: false }
}

/// Returns the token in the Secret.
fn token<'s>(named: &str, secret: &'s Known) -> Result<&'s [u8], Problem> {
    let token = value(KEY, named, secret)?;
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
    Ok(token)
}

/// Returns the issuers of the tokens of a push subscription of Google.
fn of_google(named: &str, secret: &Known) -> Result<Vec<Provider>, Problem> {
    let text = |key: &str| {
        let text = std::str::from_utf8(value(key, named, secret)?).map(str::trim).unwrap_or_default();
        if text.is_empty() {
            return Err(invalid(format!("the key {key} of Secret {named} must be that of the push subscription")));
        }
        Ok(text)
    };
    Ok(providers::of_google(text(EMAIL)?, text(AUDIENCE)?))
}

#[cfg(test)]
mod tests {
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
        for kind in ReceiverType::ALL.into_iter().filter(|kind| *kind != ReceiverType::GenericOidc) {
            check(kind.as_str(), &secret("token", "0123456789abcde"), short);
        }
        check("generic", &secret("token", "0123456789abcdef"), r#"Generic "0123456789abcdef""#);
        let unknown = "SpecInvalid: spec.type must be one of github, gitlab, gitea, bitbucket, azure-devops, generic, \
                       generic-hmac, dockerhub, quay, acr, harbor, nexus, gcr, cdevents, generic-oidc";
        check("svn", &secret("token", "x"), unknown);
    }

    /// Resolves a Receiver after a change of its spec. Returns the message if it is not served.
    fn resolved(kind: &str, change: &serde_json::Value, data: &[(&str, &str)]) -> Result<Resolved, String> {
        let mut whole = serde_json::to_value(receiver(kind)).unwrap();
        json_patch::merge(&mut whole["spec"], change);
        let data = data.iter().map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec()))).collect();
        let secret = Known::Data(Arc::new(Contents { kind: "Opaque".to_owned(), data, purpose: None }));
        resolve(&serde_json::from_value(whole).unwrap(), &secret).map_err(|problem| problem.message)
    }

    #[test]
    fn a_push_subscription_of_google_needs_an_address_and_an_audience() {
        let token = ("token", "0123456789abcdef");
        let message = |data: &[(&str, &str)]| resolved("gcr", &json!({}), data).unwrap_err();
        assert_eq!(message(&[token]), "Secret hook has no key email");
        assert_eq!(message(&[token, ("email", "a@b")]), "Secret hook has no key audience");
        let empty = message(&[token, ("email", "a@b"), ("audience", " \n")]);
        assert_eq!(empty, "the key audience of Secret hook must be that of the push subscription");
        let found = resolved("gcr", &json!({}), &[token, ("email", "a@b\n"), ("audience", "us")]).unwrap();
        let shown = |provider: &Provider| format!("{} {} {:?}", provider.issuer, provider.audience, provider.keys);
        let names: Vec<String> = found.tokens.unwrap().iter().map(shown).collect();
        assert_eq!(names, ["https://accounts.google.com us Google", "accounts.google.com us Google"]);
    }

    #[test]
    fn a_receiver_has_issuers_or_a_secret() {
        let rule = json!([{"expression": "claims.sub == 'a'", "message": "sub"}]);
        let provider = |change: serde_json::Value| {
            let mut provider = json!({"issuerURL": "https://ci.example.com/", "validations": rule});
            json_patch::merge(&mut provider, &change);
            json!({"secretRef": null, "oidcProviders": [provider]})
        };
        let found = resolved("generic-oidc", &provider(json!({})), &[]).unwrap();
        assert_eq!(found.path(), signature::path(&Secret::new(Vec::new()), "shop", "web"));
        let found = found.tokens.unwrap();
        assert_eq!((&*found[0].issuer, &*found[0].audience), ("https://ci.example.com/", "notification-controller"));
        let is_configuration = format!("{:?}", found[0].keys).contains("/.well-known/openid-configuration");
        assert!(is_configuration && found[0].keys.host() == "ci.example.com", "{:?}", found[0].keys);
        let own = json!({"secretRef": {"name": "hook"}});
        let (mut both, mut twice) = (provider(json!({})), provider(json!({})));
        json_patch::merge(&mut both, &own);
        twice["oidcProviders"] = json!([twice["oidcProviders"][0], twice["oidcProviders"][0]]);
        for (kind, spec, expected) in [
            ("generic-oidc", both.clone(), "spec.secretRef must not be set"),
            ("github", both, "spec.oidcProviders is only for the type generic-oidc"),
            ("github", json!({"secretRef": null}), "spec.secretRef must name a Secret with the key token"),
            ("generic-oidc", json!({"secretRef": null}), "spec.oidcProviders must have 1 to 10 issuers"),
            ("generic-oidc", twice, "spec.oidcProviders[1].issuerURL is that of an earlier provider"),
            (
                "generic-oidc",
                provider(json!({"validations": []})),
                "spec.oidcProviders[0].validations must have at least one expression",
            ),
            (
                "generic-oidc",
                provider(json!({"validations": [{"expression": "claim.sub == 'a'", "message": "m"}]})),
                "spec.oidcProviders[0].validations[0].expression: line 1, column 1: there is no variable `claim`; there is \
                 `claims` and `vars`; correct the expression",
            ),
            (
                "generic-oidc",
                provider(json!({"variables": [{"name": "a.b", "expression": "1"}]})),
                "spec.oidcProviders[0].variables[0].name must consist of letters, digits and `_`",
            ),
            (
                "generic-oidc",
                provider(json!({"variables": vec![json!({"name": "a", "expression": "true//".repeat(600)}); 5]})),
                "spec.oidcProviders has more than 16384 bytes of expressions",
            ),
        ] {
            let message = resolved(kind, &spec, &[("token", "0123456789abcdef")]).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
        }
        for hostile in [
            "http://ci.example.com",
            "ci.example.com",
            "file:///etc/passwd",
            "https://",
            "https://user@ci.example.com",
            "https://:secret@ci.example.com",
            "https://ci.example.com?a=b",
            "https://ci.example.com#a",
        ] {
            let message = resolved("generic-oidc", &provider(json!({"issuerURL": hostile})), &[]).unwrap_err();
            assert!(message.starts_with("spec.oidcProviders[0].issuerURL must have the form"), "{hostile}: {message}");
        }
    }

    #[test]
    fn a_filter_is_parsed_and_a_wrong_one_is_refused_with_its_position() {
        let token = [("token", "0123456789abcdef")];
        let found = resolved("github", &json!({"resourceFilter": "res.metadata.name == req.name"}), &token).unwrap();
        assert!(found.filter.is_some() && found.needs_objects());
        assert!(
            !resolved("github", &json!({"resources": [{"kind": "HelmChart", "name": "a"}]}), &token)
                .unwrap()
                .needs_objects()
        );
        let message = resolved("github", &json!({"resourceFilter": "req.tag ="}), &token).unwrap_err();
        assert!(message.starts_with("spec.resourceFilter: line 1, column 9: "), "{message}");
    }

    #[test]
    fn shows_no_token() {
        let resolved = resolve(&receiver("github"), &secret("token", "hunter2-hunter2-hunter2")).unwrap();
        assert!(!format!("{resolved:?}").contains("hunter2-hunter2-hunter2"));
        assert_eq!(resolved.events, ["push"]);
        assert!(!resolved.path().contains("hunter2-hunter2-hunter2"));
    }
}
