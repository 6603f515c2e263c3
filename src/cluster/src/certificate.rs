//! The certificates that the agent creates for its webhooks, for the registry and for NATS in the cluster, and their
//! rotation.
//!
//! Each certificate has its own authority, which signs no other certificate and whose key is dropped immediately. A new
//! certificate is first announced, so that clients trust it, and then served.
//!
//! Invariant: the bundle contains the authorities of the current, the next and the previous certificate.
//! Invariant: a private key is in a Secret only, never in an error or in `Debug`.
//!
//! Not here: reads and writes of the Secrets (`admission::registration`, `agent::registry_login`,
//! `agent::nats_login`).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};

use mainstay_object::Secret;

/// Tolerance for clocks of clients that are slow.
const SKEW: Duration = Duration::from_secs(3600);

/// Validity and rotation of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Time from creation to expiry.
    pub valid: Duration,
    /// Time before expiry at which the next certificate is created.
    pub renew_before: Duration,
    /// Time from the announcement of the next certificate until it is served.
    pub announced: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self { valid: 90 * day, renew_before: 30 * day, announced: Duration::from_secs(300) }
    }
}

/// The connections for which a certificate is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A server that clients connect to.
    Server,
    /// Servers that also connect to each other, and authenticate themselves with the same certificate.
    Peer,
}

/// A certificate with its key and the authority that signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate as PEM.
    pub certificate: String,
    /// The private key as PEM.
    pub key: Secret<String>,
    /// The certificate of the authority as PEM.
    pub authority: String,
    /// The DNS names of the server.
    names: Vec<String>,
    made: Timestamp,
    expires: Timestamp,
}

/// The content of the Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The served certificate.
    pub current: Option<Pair>,
    /// The announced certificate.
    next: Option<Pair>,
    /// The authority of the previous certificate, and its expiry.
    previous: Option<Previous>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Previous {
    authority: String,
    expires: Timestamp,
}

/// Names and times of a certificate, stored as JSON beside its files.
#[derive(Serialize, Deserialize)]
struct About {
    names: Vec<String>,
    made: Timestamp,
    expires: Timestamp,
}

/// The next step of the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No certificate can be served: create one and serve it.
    Begin,
    /// Create the next certificate and announce it.
    Announce,
    /// Serve the announced certificate.
    Promote,
    /// No step before this time.
    Wait(Timestamp),
}

/// Keys of the Secret: certificate, private key, authority, and the facts about them.
const CURRENT: [&str; 4] = ["tls.crt", "tls.key", "ca.crt", "tls.json"];
const NEXT: [&str; 4] = ["next-tls.crt", "next-tls.key", "next-ca.crt", "next-tls.json"];
const PREVIOUS: &str = "previous.json";
/// All keys of the Secret.
pub const KEYS: [&str; 9] =
    [CURRENT[0], CURRENT[1], CURRENT[2], CURRENT[3], NEXT[0], NEXT[1], NEXT[2], NEXT[3], PREVIOUS];

impl Certificates {
    /// Parses the data of the Secret. Values that cannot be parsed count as missing.
    pub fn read(data: &BTreeMap<String, Vec<u8>>) -> Self {
        let text = |key: &str| std::str::from_utf8(data.get(key)?).ok();
        let pair = |[certificate, key, authority, about]: [&str; 4]| {
            let about: About = serde_json::from_str(text(about)?).ok()?;
            let (certificate, authority) = (text(certificate)?.to_owned(), text(authority)?.to_owned());
            let key = Secret::new(text(key)?.to_owned());
            let About { names, made, expires } = about;
            let pair = Pair { certificate, key, authority, names, made, expires };
            certified(&pair.certificate, &pair.key).map(|_| pair)
        };
        let previous = text(PREVIOUS).and_then(|text| serde_json::from_str(text).ok());
        Self { current: pair(CURRENT), next: pair(NEXT), previous }
    }

    /// Returns the data of the Secret.
    pub fn write(&self) -> BTreeMap<&'static str, Secret<String>> {
        let mut data = BTreeMap::new();
        for (pair, keys) in [(&self.current, CURRENT), (&self.next, NEXT)] {
            let Some(Pair { certificate, key, authority, names, made, expires }) = pair else { continue };
            let about = About { names: names.clone(), made: *made, expires: *expires };
            let about = serde_json::to_string(&about).unwrap_or_default();
            let values = [certificate.clone(), key.expose().clone(), authority.clone(), about];
            data.extend(keys.into_iter().zip(values.map(Secret::new)));
        }
        if let Some(previous) = &self.previous {
            data.insert(PREVIOUS, Secret::new(serde_json::to_string(previous).unwrap_or_default()));
        }
        data
    }

    /// Returns the authorities that clients must trust, as PEM.
    pub fn bundle(&self, now: Timestamp) -> String {
        let pairs = [&self.current, &self.next].into_iter().flatten().map(|pair| &pair.authority);
        let previous = self.previous.iter().filter(|previous| previous.expires > now).map(|one| &one.authority);
        pairs.chain(previous).map(String::as_str).collect()
    }

    /// Returns the next step.
    pub fn step(&self, names: &[String], lifetimes: Lifetimes, now: Timestamp) -> Step {
        let holds = |pair: &&Pair| pair.names == names && pair.expires > now;
        let Some(current) = self.current.as_ref().filter(holds) else { return Step::Begin };
        // A certificate that was created in the future is recreated, because the clock was wrong at that time.
        let next = self.next.as_ref().filter(holds).filter(|next| next.made <= later(now, SKEW));
        let (due, step) = match next {
            Some(next) => (later(next.made, lifetimes.announced), Step::Promote),
            None => (earlier(current.expires, lifetimes.renew_before), Step::Announce),
        };
        if due <= now { step } else { Step::Wait(due) }
    }

    /// Returns the certificates after a step. `made` creates a certificate if the step needs one; `None` if that
    /// fails.
    pub fn after(mut self, step: Step, made: impl FnOnce() -> Option<Pair>) -> Option<Self> {
        match step {
            Step::Begin => {
                self.retire();
                self.current = Some(made()?);
                self.next = None;
            }
            Step::Announce => self.next = Some(made()?),
            Step::Promote => {
                self.retire();
                self.current = self.next.take();
            }
            Step::Wait(_) => {}
        }
        Some(self)
    }

    /// Performs all steps that are due. Returns the certificates, and the time of the next step. `whose` is part of the
    /// subjects.
    ///
    /// # Errors
    /// A certificate cannot be created.
    pub fn renewed(
        mut self,
        whose: &str,
        names: &[String],
        usage: Usage,
        lifetimes: Lifetimes,
        now: Timestamp,
    ) -> Result<(Self, Timestamp), String> {
        loop {
            let step = self.step(names, lifetimes, now);
            if let Step::Wait(due) = step {
                return Ok((self, due));
            }
            let made = match step {
                Step::Begin | Step::Announce => {
                    Some(make(whose, names, usage, lifetimes.valid, now).map_err(|error| error.to_string())?)
                }
                Step::Promote | Step::Wait(_) => None,
            };
            self = self.after(step, || made).ok_or("a certificate is missing")?;
        }
    }

    fn retire(&mut self) {
        let previous = self.current.take().map(|Pair { authority, expires, .. }| Previous { authority, expires });
        self.previous = previous.or_else(|| self.previous.take());
    }
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    time.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// Parses a certificate with its key, both as PEM; `None` if they cannot be parsed or do not match.
pub fn certified(certificate: &str, key: &Secret<String>) -> Option<CertifiedKey> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).ok()?;
    CertifiedKey::from_der(chain.ok()?, key, &ring::default_provider()).ok()
}

/// Creates a certificate for these DNS names of a server, and its authority. `whose` is part of both subjects.
///
/// # Errors
/// A name cannot be used in a certificate, or the system returns no random numbers.
pub fn make(
    whose: &str,
    names: &[String],
    usage: Usage,
    valid: Duration,
    now: Timestamp,
) -> Result<Pair, rcgen::Error> {
    let expires = later(now, valid);
    let time = |at: Timestamp| {
        let seconds = u64::try_from(at.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    let (not_before, not_after) = (time(earlier(now, SKEW)), time(expires));
    let common_name = |name: &str| {
        let mut distinguished = rcgen::DistinguishedName::new();
        distinguished.push(DnType::CommonName, name);
        distinguished
    };
    let mut authority = CertificateParams::new(Vec::new())?;
    (authority.not_before, authority.not_after) = (not_before, not_after);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // Clients could confuse two authorities of the same name.
    authority.distinguished_name = common_name(&format!("{whose} {}", now.as_nanosecond()));
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);
    let mut server = CertificateParams::new(names)?;
    (server.not_before, server.not_after) = (not_before, not_after);
    server.distinguished_name = common_name(whose);
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    if usage == Usage::Peer {
        server.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    server.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &issuer)?;
    Ok(Pair {
        certificate: certificate.pem(),
        key: Secret::new(key.serialize_pem()),
        authority: authority_certificate.pem(),
        names: names.to_owned(),
        made: now,
        expires,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificates(
        step: Step,
        before: Certificates,
        names: &[String],
        valid: Duration,
        now: Timestamp,
    ) -> Certificates {
        before.after(step, || make("tests", names, Usage::Server, valid, now).ok()).unwrap()
    }

    #[test]
    fn the_next_certificate_is_announced_before_it_is_served() {
        let (day, names) = (Duration::from_secs(24 * 3600), vec!["a.b.svc".to_owned(), "127.0.0.1".to_owned()]);
        let lifetimes = Lifetimes::default();
        let begin: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |days: f64| begin + day.mul_f64(days);
        let step = |certificates: &Certificates, days: f64| certificates.step(&names, lifetimes, at(days));
        let none = Certificates::default();
        assert_eq!(step(&none, 0.0), Step::Begin);
        let first = certificates(Step::Begin, none, &names, lifetimes.valid, begin);
        let first_authority = first.current.as_ref().unwrap().authority.clone();
        assert_eq!(step(&first, 0.0), Step::Wait(at(60.0)));
        assert_eq!(first.step(&names[..1], lifetimes, begin), Step::Begin, "other names need another one");
        assert_eq!(step(&first, 60.0), Step::Announce);
        let announced = certificates(Step::Announce, first.clone(), &names, lifetimes.valid, at(60.0));
        assert_eq!(announced.current, first.current, "still served");
        let bundle = announced.bundle(at(60.0));
        assert!(bundle.contains(&first_authority) && bundle.matches("BEGIN CERTIFICATE").count() == 2);
        assert_eq!(step(&announced, 60.0), Step::Wait(at(60.0) + lifetimes.announced));
        assert_eq!(step(&announced, 61.0), Step::Promote);
        let served = certificates(Step::Promote, announced, &names, lifetimes.valid, at(61.0));
        assert_ne!(served.current, first.current);
        assert_eq!(served.bundle(at(61.0)).len(), bundle.len(), "a replica may still serve the one before");
        assert!(!served.bundle(at(91.0)).contains(&first_authority), "until that has ended");
        // Stored data can be parsed again, and invalid data counts as missing.
        let data = served.write().into_iter().map(|(key, value)| (key.to_owned(), value.expose().clone().into_bytes()));
        let mut data: std::collections::BTreeMap<_, _> = data.collect();
        assert_eq!(Certificates::read(&data), served);
        for key in data.keys().cloned().collect::<Vec<_>>() {
            let mut broken = data.clone();
            broken.insert(key.clone(), b"\xff".to_vec());
            let read = Certificates::read(&broken);
            let expected = if key == "previous.json" || key == "ca.crt" && read.current.is_some() {
                step(&read, 61.0)
            } else {
                Step::Begin
            };
            assert_eq!(step(&read, 61.0), expected, "{key}");
        }
        data.insert("tls.key".into(), data["ca.crt"].clone());
        assert_eq!(step(&Certificates::read(&data), 61.0), Step::Begin);
        assert!(!format!("{served:?}").contains("PRIVATE"), "no key is shown");
        // The clock was a year ahead at the announcement.
        let ahead = certificates(Step::Announce, first, &names, lifetimes.valid, at(400.0));
        assert_eq!(step(&ahead, 61.0), Step::Announce);
    }
}
