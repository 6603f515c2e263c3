//! The trust policy of the Notary Project: which signature a repository needs.
//!
//! Invariant: a message names a field of the document, and no value of it: the document is in a Secret.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

use super::subject::Subject;
use mainstay_function::registry::ImageRef;

/// Maximum length of the document, in bytes.
const LONGEST: usize = 256 << 10;
/// Maximum number of statements, and of values of a list in one of them.
const MOST: usize = 64;
const ANY: &str = "*";

/// A trust policy.
pub(super) struct TrustPolicy(Vec<Statement>);

struct Statement {
    /// Repositories with their host; `*` stands for all others.
    scopes: Vec<String>,
    demand: Demand,
}

/// The signature that a repository needs.
#[derive(Clone)]
pub(in crate::agent::artifacts) enum Demand {
    /// No signature: the level is `skip`.
    Nothing,
    Signature(Arc<Rules>),
}

/// The rules for a signature.
pub(in crate::agent::artifacts) struct Rules {
    pub(super) actions: Actions,
    /// Whether a store of the type `ca` is named.
    pub(super) trusts_authorities: bool,
    /// Whether a store of the type `signingAuthority` is named.
    pub(super) trusts_signing_authorities: bool,
    pub(super) identities: Identities,
}

/// The signers that are accepted.
pub(super) enum Identities {
    Any,
    Subjects(Vec<Subject>),
}

/// The consequence of a failed check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Enforce,
    Log,
    Skip,
}

/// The consequences of the checks that may be weakened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Actions {
    pub(super) authenticity: Action,
    pub(super) timestamp: Action,
    pub(super) expiry: Action,
    pub(super) revocation: Action,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    version: String,
    trust_policies: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    name: String,
    registry_scopes: Vec<String>,
    signature_verification: Verification,
    #[serde(default)]
    trust_stores: Vec<String>,
    #[serde(default)]
    trusted_identities: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Verification {
    level: String,
    #[serde(default, rename = "override")]
    overridden: BTreeMap<String, String>,
    #[serde(default)]
    verify_timestamp: String,
}

impl TrustPolicy {
    /// Reads a document. An error is the end of a sentence about it.
    pub(super) fn read(json: &[u8]) -> Result<Self, String> {
        if json.len() > LONGEST {
            return Err(format!("is longer than {} KiB", LONGEST >> 10));
        }
        let document: Document = serde_json::from_slice(json)
            .map_err(|error| format!("is not a trust policy: see line {}, column {}", error.line(), error.column()))?;
        if document.version != "1.0" {
            return Err("has a field version that is not 1.0".to_owned());
        }
        if document.trust_policies.is_empty() || document.trust_policies.len() > MOST {
            return Err(format!("has a field trustPolicies that has not 1 to {MOST} entries"));
        }
        let (mut names, mut scopes) = (BTreeSet::new(), BTreeSet::new());
        for (at, written) in document.trust_policies.iter().enumerate() {
            let wrong = |field: &str, why: &str| Err(format!("has a wrong field trustPolicies[{at}].{field}: {why}"));
            if written.name.is_empty() || !names.insert(&written.name) {
                return wrong("name", "it must not be empty, and be unique");
            }
            for scope in &written.registry_scopes {
                if scope.contains(ANY) && (scope != ANY || written.registry_scopes.len() > 1) {
                    return wrong("registryScopes", "* is permitted only alone; write HOST/PATH otherwise");
                }
                if scope != ANY && !is_repository(scope) {
                    return wrong("registryScopes", "write HOST/PATH without a scheme, a tag or a slash at the end");
                }
                if !scopes.insert(scope) {
                    return wrong("registryScopes", "it has a value that is used more than once");
                }
            }
            if written.registry_scopes.is_empty() {
                return wrong("registryScopes", "it is empty");
            }
        }
        let read = |(at, written): (usize, Written)| {
            let demand = demand(&written)
                .map_err(|(field, why)| format!("has a wrong field trustPolicies[{at}].{field}: {why}"))?;
            Ok(Statement { scopes: written.registry_scopes, demand })
        };
        document.trust_policies.into_iter().enumerate().map(read).collect::<Result<_, String>>().map(Self)
    }

    /// Returns what a repository, given with its host, needs; `None` if no statement applies.
    pub(super) fn demand(&self, repository: &str) -> Option<&Demand> {
        let find = |wanted: &str| self.0.iter().find(|statement| statement.scopes.iter().any(|scope| scope == wanted));
        // The name that Flux has for repositories of Docker Hub.
        let other = repository.strip_prefix("docker.io/").map(|rest| ["index.docker.io/", rest].concat());
        let exact = find(repository).or_else(|| other.as_deref().and_then(&find));
        exact.or_else(|| find(ANY)).map(|statement| &statement.demand)
    }
}

/// Whether a scope is a repository with its host. Others would never match, and `*` would apply in their place.
fn is_repository(scope: &str) -> bool {
    let image = scope.parse::<ImageRef>();
    image.is_ok_and(|image| scope.split_once('/') == Some((&*image.registry, &*image.repository)))
}

/// A wrong field with the reason.
type Wrong = (&'static str, String);

fn demand(written: &Written) -> Result<Demand, Wrong> {
    let Written { trust_stores: stores, trusted_identities: identities, signature_verification, .. } = written;
    let Some(actions) = actions(signature_verification)? else { return Ok(Demand::Nothing) };
    let is_wrong = |store: &String| {
        let (kind, name) = store.split_once(':').unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        !matches!(kind, "ca" | "signingAuthority" | "tsa") || name.is_empty() || !name.chars().all(is_plain)
    };
    if stores.is_empty() || stores.len() > MOST || stores.iter().any(is_wrong) {
        return Err(("trustStores", format!("it must have 1 to {MOST} values like ca:NAME or signingAuthority:NAME")));
    }
    let names = |kind: &str| stores.iter().any(|store| store.split_once(':').is_some_and(|(named, _)| named == kind));
    let is_always = signature_verification.verify_timestamp != "afterCertExpiry";
    if names("tsa") && is_always && actions.timestamp == Action::Enforce {
        let remedy = "remove the store, or set signatureVerification.verifyTimestamp to afterCertExpiry";
        return Err(("trustStores", format!("timestamps of a store tsa:NAME are not verified; {remedy}")));
    }
    Ok(Demand::Signature(Arc::new(Rules {
        actions,
        trusts_authorities: names("ca"),
        trusts_signing_authorities: names("signingAuthority"),
        identities: accepted(identities)?,
    })))
}

fn accepted(identities: &[String]) -> Result<Identities, Wrong> {
    const FIELD: &str = "trustedIdentities";
    if identities == [ANY] {
        return Ok(Identities::Any);
    }
    if identities.is_empty() || identities.len() > MOST {
        return Err((FIELD, format!("it must have 1 to {MOST} values, or only *")));
    }
    let read = |(at, identity): (usize, &String)| {
        let subject = identity.strip_prefix("x509.subject:").ok_or("is not like x509.subject: C=US, ST=WA, O=NAME");
        let subject = subject.map_err(str::to_owned).and_then(|subject| Subject::parse(subject.trim()));
        subject.map_err(|why| (FIELD, format!("value {} {why}", at + 1)))
    };
    identities.iter().enumerate().map(read).collect::<Result<_, _>>().map(Identities::Subjects)
}

/// Returns the consequences of failed checks; `None` if nothing is checked.
fn actions(verification: &Verification) -> Result<Option<Actions>, Wrong> {
    let all = |authenticity, others| Actions { authenticity, timestamp: others, expiry: others, revocation: others };
    if !matches!(&*verification.verify_timestamp, "" | "always" | "afterCertExpiry") {
        let why = "it must be always or afterCertExpiry".to_owned();
        return Err(("signatureVerification.verifyTimestamp", why));
    }
    let mut actions = match &*verification.level {
        "strict" => all(Action::Enforce, Action::Enforce),
        "permissive" => all(Action::Enforce, Action::Log),
        "audit" => all(Action::Log, Action::Log),
        "skip" if verification.overridden.is_empty() => return Ok(None),
        "skip" => return Err(("signatureVerification.override", "the level skip permits none".to_owned())),
        _ => {
            let why = "it must be strict, permissive, audit or skip".to_owned();
            return Err(("signatureVerification.level", why));
        }
    };
    for (check, action) in &verification.overridden {
        let wrong = |why: &str| Err(("signatureVerification.override", why.to_owned()));
        let place = match &**check {
            "authenticity" => &mut actions.authenticity,
            "authenticTimestamp" => &mut actions.timestamp,
            "expiry" => &mut actions.expiry,
            "revocation" => &mut actions.revocation,
            _ => return wrong("its keys must be authenticity, authenticTimestamp, expiry or revocation"),
        };
        *place = match &**action {
            "enforce" => Action::Enforce,
            "log" => Action::Log,
            "skip" if check == "revocation" => Action::Skip,
            _ => return wrong("its values must be enforce or log; that of revocation may be skip"),
        };
    }
    Ok(Some(actions))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn statement() -> Value {
        json!({
            "name": "shop", "registryScopes": ["registry.example.org/shop/web"],
            "signatureVerification": {"level": "strict"}, "trustStores": ["ca:shop"], "trustedIdentities": ["*"],
        })
    }

    fn read(statements: &[Value]) -> Result<TrustPolicy, String> {
        TrustPolicy::read(json!({"version": "1.0", "trustPolicies": statements}).to_string().as_bytes())
    }

    /// Returns the rules of a statement after a change.
    fn rules(change: Value) -> Result<Option<Arc<Rules>>, String> {
        let mut changed = statement();
        json_patch::merge(&mut changed, &change);
        let policy = read(&[changed])?;
        Ok(match policy.demand("registry.example.org/shop/web").unwrap() {
            Demand::Signature(rules) => Some(Arc::clone(rules)),
            Demand::Nothing => None,
        })
    }

    #[test]
    fn the_statement_with_the_repository_wins_over_that_with_a_star() {
        let mut other = statement();
        json_patch::merge(
            &mut other,
            &json!({"name": "other", "registryScopes": ["*"], "signatureVerification": {"level": "skip"}}),
        );
        let policy = read(&[other, statement()]).unwrap();
        assert!(matches!(policy.demand("registry.example.org/shop/web"), Some(Demand::Signature(_))));
        assert!(matches!(policy.demand("registry.example.org/shop"), Some(Demand::Nothing)));
        let policy = read(&[statement()]).unwrap();
        assert!(policy.demand("registry.example.org/shop").is_none());
        let mut hub = statement();
        hub["registryScopes"] = json!(["index.docker.io/library/web"]);
        assert!(read(&[hub]).unwrap().demand("docker.io/library/web").is_some());
    }

    #[test]
    fn a_scope_is_a_repository_with_its_host() {
        for scope in ["localhost/web", "127.0.0.1:5000/shop/web", "[::1]:5000/web", "index.docker.io/library/web"] {
            let policy = rules(json!({"registryScopes": [scope, "registry.example.org/shop/web"]}));
            assert!(policy.is_ok(), "{scope}");
        }
        let digest = format!("a.example/b@sha256:{}", "0".repeat(64));
        for scope in [
            "",
            "a.example",
            "a.example/",
            "a.example/b/",
            "a.example/b:1.0.0",
            digest.as_str(),
            "https://a.example/b",
            "oci://a.example/b",
            "shop/web",
            "docker.io/web",
            " a.example/b",
            "a.example/B",
        ] {
            let found = rules(json!({"registryScopes": [scope]})).err().unwrap();
            let why = "trustPolicies[0].registryScopes: write HOST/PATH without a scheme, a tag or a slash at the end";
            assert!(found.contains(why), "{scope}: {found}");
        }
    }

    #[test]
    fn the_level_determines_the_consequences_and_an_override_changes_them() {
        use Action::{Enforce, Log, Skip};
        let of = |verification: Value| {
            rules(json!({"signatureVerification": verification})).unwrap().map(|rules| {
                let Actions { authenticity, timestamp, expiry, revocation } = rules.actions;
                [authenticity, timestamp, expiry, revocation]
            })
        };
        assert_eq!(of(json!({"level": "strict"})), Some([Enforce; 4]));
        assert_eq!(of(json!({"level": "permissive"})), Some([Enforce, Log, Log, Log]));
        assert_eq!(of(json!({"level": "audit"})), Some([Log; 4]));
        assert_eq!(of(json!({"level": "skip"})), None);
        let changed = json!({"revocation": "skip", "expiry": "log"});
        assert_eq!(of(json!({"level": "strict", "override": changed})), Some([Enforce, Enforce, Log, Skip]));
        let changed = json!({"authenticTimestamp": "enforce"});
        assert_eq!(of(json!({"level": "audit", "override": changed})), Some([Log, Enforce, Log, Log]));
    }

    #[test]
    fn reads_stores_and_identities() {
        let found = rules(json!({"trustStores": ["signingAuthority:a", "tsa:b"],
            "signatureVerification": {"level": "strict", "verifyTimestamp": "afterCertExpiry"},
            "trustedIdentities": ["x509.subject: C=US, ST=WA, O=a", "x509.subject:C=US,ST=WA,O=b"]}));
        let found = found.unwrap().unwrap();
        assert!(found.trusts_signing_authorities && !found.trusts_authorities);
        assert!(matches!(&found.identities, Identities::Subjects(subjects) if subjects.len() == 2));
    }

    #[test]
    fn names_each_wrong_field() {
        for (change, why) in [
            (json!({"name": ""}), "[0].name: it must not be empty"),
            (json!({"registryScopes": []}), "[0].registryScopes: it is empty"),
            (json!({"registryScopes": ["*", "a.example/b"]}), "[0].registryScopes: * is permitted only alone"),
            (json!({"registryScopes": ["a.example/*"]}), "[0].registryScopes: * is permitted only alone"),
            (json!({"registryScopes": ["a.example/b", "a.example/b"]}), "a value that is used more than once"),
            (json!({"signatureVerification": {"level": "lax"}}), "signatureVerification.level: it must be strict"),
            (json!({"signatureVerification": {"level": "skip", "override": {"expiry": "log"}}}), "skip permits none"),
            (json!({"signatureVerification": {"override": {"integrity": "log"}}}), "its keys must be authenticity"),
            (json!({"signatureVerification": {"override": {"expiry": "skip"}}}), "its values must be enforce or log"),
            (json!({"signatureVerification": {"verifyTimestamp": "never"}}), "verifyTimestamp: it must be always"),
            (json!({"trustStores": []}), "[0].trustStores: it must have 1 to 64 values"),
            (json!({"trustStores": ["shop"]}), "[0].trustStores: it must have 1 to 64 values"),
            (json!({"trustStores": ["ca:../shop/"]}), "[0].trustStores: it must have 1 to 64 values"),
            (json!({"trustStores": ["ca:shop", "tsa:a"]}), "timestamps of a store tsa:NAME are not verified"),
            (json!({"trustedIdentities": []}), "[0].trustedIdentities: it must have 1 to 64 values, or only *"),
            (json!({"trustedIdentities": ["*", "x509.subject:C=US,ST=WA,O=a"]}), "value 1 is not like x509.subject"),
            (json!({"trustedIdentities": ["x509.subject:C=US"]}), "value 1 has no ST"),
            (json!({"extra": 1}), "is not a trust policy: see line 1"),
            (json!({"trustStores": "canary"}), "is not a trust policy: see line 1"),
        ] {
            let found = rules(change.clone()).err().unwrap();
            assert!(found.contains(why) && !found.contains("canary"), "{change}: {found}");
        }
        let twice = read(&[statement(), statement()]).err().unwrap();
        assert!(twice.contains("trustPolicies[1].name"), "{twice}");
        assert!(read(&[]).err().unwrap().contains("has not 1 to 64 entries"));
        let other = TrustPolicy::read(br#"{"version": "2.0", "trustPolicies": []}"#);
        assert!(other.err().unwrap().contains("version that is not 1.0"));
        assert!(TrustPolicy::read(&vec![b' '; LONGEST + 1]).err().unwrap().contains("longer than 256 KiB"));
        let lenient = json!({"trustStores": ["ca:a", "tsa:a"], "signatureVerification": {"level": "permissive"}});
        assert!(rules(lenient).is_ok());
    }

    proptest! {
        #[test]
        fn reads_any_document_without_panic(bytes: Vec<u8>, text in "[\\[{\"a-z0:,}\\]]{0,60}") {
            prop_assert!(TrustPolicy::read(&bytes).is_err() && TrustPolicy::read(text.as_bytes()).is_err());
        }
    }
}
