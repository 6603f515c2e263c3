//! Judges signatures of the Notary Project (`notation sign`) by a trust policy and certificates of a Secret, without a network.
//!
//! `trust_policy` says which signature a repository needs. `jws` and `cose` read an envelope, `chain` checks its certificates.
//!
//! Invariant: a valid signature names the media type, the digest and the size of the manifest, and its chain of certificates
//! contains one of the Secret. Only the level `audit` tolerates another chain, and then the artifact does not count as signed.
//!
//! Not here: timestamps of RFC 3161, plugins, and requests that find out whether a certificate was revoked. A policy that
//! enforces the last refuses certificates that can be revoked.

mod algorithm;
mod attributes;
mod certificate;
mod chain;
mod cose;
mod flaw;
mod jws;
mod subject;
mod trust_policy;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use attributes::{Attributes, Envelope, Scheme};
use certificate::Certificate;
use flaw::Step;
use subject::Subject;
use trust_policy::{Action, Identities, TrustPolicy};

use super::foreign_text::quoted;
use mainstay_cluster::secrets::SecretData;
use mainstay_function::registry::Digest;

pub(super) use flaw::Flaw;
pub(super) use trust_policy::{Demand, Rules};

/// The key of a Secret that holds the trust policy.
const POLICY: &str = "trustpolicy.json";
/// Endings of the names of values that hold certificates.
const ENDINGS: [&str; 2] = [".crt", ".pem"];
/// Maximum number of certificates of a Secret.
const MOST: usize = 64;
/// The type of the signed document.
const PAYLOAD: &str = "application/vnd.cncf.notary.payload.v1+json";

/// A trust policy with its certificates.
pub(super) struct Notation {
    /// Name of the Secret, for messages.
    secret: String,
    policy: TrustPolicy,
    /// The trusted certificates in DER. They are in each store that the policy names, as in Flux.
    trusted: Vec<Vec<u8>>,
}

/// The format of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Jws,
    Cose,
}

/// The manifest that a signature must name.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
}

/// A signature that the trust policy accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is by a trusted signer: the end of a sentence.
    Trusted(String),
    /// It is by a signer who is not trusted, which the policy only logs. Contains the reason.
    Tolerated(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    target_artifact: Descriptor,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

impl Format {
    /// Returns the format with a media type.
    pub(super) fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "application/jose+json" => Some(Self::Jws),
            "application/cose" => Some(Self::Cose),
            _ => None,
        }
    }
}

impl Notation {
    /// Reads the trust policy and the certificates of a Secret.
    ///
    /// # Errors
    /// Fails with the value that is missing or cannot be read.
    pub(super) fn read(secret: &str, data: &SecretData) -> Result<Self, String> {
        let missing = || format!("the Secret {secret} has no key {POLICY}; put the trust policy of notation into it");
        let policy = TrustPolicy::read(&data.get(POLICY).ok_or_else(missing)?.0)
            .map_err(|why| format!("value {POLICY} of the Secret {secret} {why}"))?;
        let mut trusted = Vec::new();
        for (name, value) in data {
            if !ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                continue;
            }
            let read = certificate(&value.0).map_err(|why| format!("value {name} of the Secret {secret} {why}"))?;
            trusted.push(read);
            if trusted.len() > MOST {
                return Err(format!("the Secret {secret} holds more than {MOST} certificates"));
            }
        }
        if trusted.is_empty() {
            let endings = ENDINGS.join(" or ");
            return Err(format!("the Secret {secret} has no value with certificates whose name ends in {endings}"));
        }
        Ok(Self { secret: secret.to_owned(), policy, trusted })
    }

    /// Returns the name of the Secret.
    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// Returns what a repository, given with its host, needs; `None` if no statement of the policy applies.
    pub(super) fn demand(&self, repository: &str) -> Option<&Demand> {
        self.policy.demand(repository)
    }

    /// Judges an envelope. The caller has limited its length.
    pub(super) fn judge(
        &self,
        rules: &Rules,
        (format, envelope): (Format, &[u8]),
        target: &Target,
        now: Timestamp,
    ) -> Result<Verdict, Flaw> {
        let read = match format {
            Format::Jws => jws::read(envelope),
            Format::Cose => cose::read(envelope),
        };
        let envelope = read.map_err(Flaw::unreadable)?;
        let chain = chain::read(&envelope.certificates).map_err(Flaw::unreadable)?;
        let signed = integrity(&envelope, &chain).map_err(|why| Flaw::new(Step::Integrity, why))?;
        let (actions, now) = (rules.actions, now.as_second());
        let (mut untrusted, mut tolerated) = (Vec::new(), Vec::new());
        let authentic = self.authenticity(rules, envelope.attributes.scheme, &chain);
        weigh(actions.authenticity, Step::Authenticity, authentic, &mut untrusted)?;
        weigh(actions.expiry, Step::Time, expiry(&envelope.attributes, now), &mut tolerated)?;
        weigh(actions.timestamp, Step::Time, validity(&envelope.attributes, &chain, now), &mut tolerated)?;
        weigh(actions.revocation, Step::Revocation, revocation(&chain), &mut tolerated)?;
        if signed.media_type != target.media_type
            || signed.digest != target.digest.as_str()
            || signed.size != target.size
        {
            return Err(Flaw::new(Step::Target, "is that of a different artifact"));
        }
        if let Some(why) = untrusted.pop() {
            return Ok(Verdict::Tolerated(why));
        }
        let mut signer = subject_of(chain.first());
        for why in tolerated {
            signer.push_str(&format!("; the trust policy tolerates that the signature {why}"));
        }
        Ok(Verdict::Trusted(signer))
    }

    /// Finds a trusted certificate in a chain, and the signer among the accepted ones.
    fn authenticity(&self, rules: &Rules, scheme: Scheme, chain: &[Certificate]) -> Result<(), String> {
        let (has_store, kind) = match scheme {
            Scheme::X509 => (rules.trusts_authorities, "ca"),
            Scheme::SigningAuthority => (rules.trusts_signing_authorities, "signingAuthority"),
        };
        if !has_store {
            return Err(format!("needs a store of the type {kind}, and the trust policy names none"));
        }
        let signer = subject_of(chain.first());
        if !chain.iter().any(|one| self.trusted.iter().any(|trusted| trusted == one.der())) {
            let secret = &self.secret;
            return Err(format!("is by {signer}, and none of its certificates is in the Secret {secret}"));
        }
        let Identities::Subjects(accepted) = &rules.identities else { return Ok(()) };
        let subject = chain.first().map_or_else(|| Err("is missing".to_owned()), |signer| Subject::of(&signer.subject));
        let subject = subject.map_err(|why| format!("is by {signer}, whose subject {why}"))?;
        if accepted.iter().any(|accepted| accepted.accepts(&subject)) {
            return Ok(());
        }
        Err(format!("is by {signer}, whom trustedIdentities of the trust policy does not accept"))
    }
}

/// Returns the certificate of a value, in PEM or DER. An error is the end of a sentence about the value.
///
/// Invariant: a value with several certificates is refused. Flux trusts only the first one of them.
fn certificate(value: &[u8]) -> Result<Vec<u8>, String> {
    const BEGIN: &[u8] = b"-----BEGIN";
    let mut found = value.to_vec();
    if value.windows(BEGIN.len()).any(|part| part == BEGIN) {
        let mut sections = CertificateDer::pem_slice_iter(value);
        let first = sections.next().ok_or("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")?;
        found = first.map_err(|_| "is not valid PEM")?.to_vec();
        if sections.next().is_some() {
            let remedy = "store each certificate under a name of its own, and only those of authorities that you trust";
            return Err(format!("holds more than one certificate; {remedy}"));
        }
    }
    Certificate::read(&found).map_err(|why| format!("holds a certificate that {why}"))?;
    Ok(found)
}

/// Returns the manifest that an envelope names, if its signature and its certificates are valid.
fn integrity(envelope: &Envelope, chain: &[Certificate]) -> Result<Descriptor, String> {
    let signer = chain.first().ok_or("has no certificate")?;
    if signer.key.algorithm() != Some(envelope.attributes.algorithm) {
        return Err("has an algorithm that is not that of its key".to_owned());
    }
    if !signer.key.has_signed(&envelope.signed, &envelope.signature) {
        return Err("was not made by the key of its certificate".to_owned());
    }
    chain::check(chain)?;
    if envelope.attributes.content_type != PAYLOAD {
        return Err("is that of a document that is not the signature of an artifact".to_owned());
    }
    let payload: Payload = serde_json::from_slice(&envelope.payload)
        .map_err(|_| "is that of a document that is not the signature of an artifact")?;
    Ok(payload.target_artifact)
}

/// Passes a failed check on, or adds its reason to those that are tolerated.
fn weigh(action: Action, step: Step, outcome: Result<(), String>, tolerated: &mut Vec<String>) -> Result<(), Flaw> {
    match (action, outcome) {
        (Action::Enforce, Err(why)) => return Err(Flaw::new(step, why)),
        (Action::Log, Err(why)) => tolerated.push(why),
        (Action::Skip, Err(_)) | (_, Ok(())) => {}
    }
    Ok(())
}

fn expiry(attributes: &Attributes, now: i64) -> Result<(), String> {
    match attributes.expiry {
        Some(expiry) if expiry <= now => Err(format!("expired at {}", shown(expiry))),
        _ => Ok(()),
    }
}

/// Checks that the certificates are valid now, or were so at the time for which an authority vouches.
fn validity(attributes: &Attributes, chain: &[Certificate], now: i64) -> Result<(), String> {
    let (second, when) = match attributes.scheme {
        Scheme::X509 => (now, "now"),
        Scheme::SigningAuthority => (attributes.signing_time, "at the time of the signature"),
    };
    let Some(at) = chain.iter().position(|one| !one.is_valid_at(second)) else { return Ok(()) };
    let (from, to) = (chain[at].not_before, chain[at].not_after);
    Err(format!("has a certificate (number {}) that is not valid {when}: it is valid from {from} to {to}", at + 1))
}

/// Refuses certificates that may have been revoked. The last one is that of a root, which is not revoked by others.
fn revocation(chain: &[Certificate]) -> Result<(), String> {
    let issued = &chain[..chain.len().saturating_sub(1)];
    let Some(at) = issued.iter().position(|one| one.is_revocable) else { return Ok(()) };
    let text = "names a list of revoked certificates or a responder of OCSP, and neither is asked";
    let remedy = "set signatureVerification.override.revocation of the trust policy to log or skip";
    Err(format!("has a certificate (number {}) that {text}; {remedy}", at + 1))
}

fn shown(second: i64) -> String {
    Timestamp::from_second(second).map_or_else(|_| format!("second {second}"), |time| time.to_string())
}

/// Returns the subject of a certificate for messages.
fn subject_of(certificate: Option<&Certificate>) -> String {
    let text = certificate.map(|one| one.subject.to_string()).unwrap_or_default();
    format!("the certificate {}", quoted(&text))
}

#[cfg(test)]
mod tests;
