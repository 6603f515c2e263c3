//! The certificates of the webhooks, and when they are replaced.
//!
//! Each comes with an authority of its own that signs nothing else: its key is dropped at once. A new one is first announced, so
//! that API servers trust it before anybody presents it, then served.
//!
//! Invariant: whatever certificate a replica serves, the current one or the one before, its authority is in the bundle.
//! Invariant: a private key is in the Secret only; it is in no text of an error and in no `Debug`.
//!
//! Deliberately absent: reading and writing the Secret (`registration`).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

use super::tls::certified;
use crate::object::Secret;

/// Clocks of API servers may be late by so much.
const SKEW: Duration = Duration::from_secs(3600);

/// How long certificates hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// From when a certificate is made until it ends.
    pub valid: Duration,
    /// How long before its end the next one is made.
    pub renew_before: Duration,
    /// From when the next one is announced until it is served.
    pub announced: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self { valid: 90 * day, renew_before: 30 * day, announced: Duration::from_secs(300) }
    }
}

/// A certificate with its key and the authority that signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// As PEM.
    pub(super) certificate: String,
    /// As PEM.
    pub(super) key: Secret<String>,
    /// As PEM.
    pub(super) authority: String,
    /// The names of the server.
    names: Vec<String>,
    made: Timestamp,
    expires: Timestamp,
}

/// What the Secret holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Certificates {
    /// The one that is served.
    pub(super) current: Option<Pair>,
    /// The one that is served next.
    next: Option<Pair>,
    /// The authority of the one before, and when that ends.
    previous: Option<Previous>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Previous {
    authority: String,
    expires: Timestamp,
}

/// About a certificate in the Secret, beside its files.
#[derive(Serialize, Deserialize)]
struct About {
    names: Vec<String>,
    made: Timestamp,
    expires: Timestamp,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is no certificate that could be served: make one and serve it.
    Begin,
    /// Make the next one and announce it.
    Announce,
    /// Serve the next one.
    Promote,
    /// Nothing until then.
    Wait(Timestamp),
}

/// Keys of the Secret: certificate, private key, authority, and about them.
const CURRENT: [&str; 4] = ["tls.crt", "tls.key", "ca.crt", "tls.json"];
const NEXT: [&str; 4] = ["next-tls.crt", "next-tls.key", "next-ca.crt", "next-tls.json"];
const PREVIOUS: &str = "previous.json";

impl Certificates {
    /// Reads the data of the Secret; what cannot be read is missing.
    pub(super) fn read(data: &BTreeMap<String, Vec<u8>>) -> Self {
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

    /// The data of the Secret.
    pub(super) fn write(&self) -> BTreeMap<&'static str, Secret<String>> {
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

    /// The authorities that API servers are to trust, as PEM.
    pub(super) fn bundle(&self, now: Timestamp) -> String {
        let pairs = [&self.current, &self.next].into_iter().flatten().map(|pair| &pair.authority);
        let previous = self.previous.iter().filter(|previous| previous.expires > now).map(|one| &one.authority);
        pairs.chain(previous).map(String::as_str).collect()
    }

    /// What is to be done now.
    pub(super) fn step(&self, names: &[String], lifetimes: Lifetimes, now: Timestamp) -> Step {
        let holds = |pair: &&Pair| pair.names == names && pair.expires > now;
        let Some(current) = self.current.as_ref().filter(holds) else { return Step::Begin };
        // One that a clock made which was ahead is made again, rather than waited for.
        let next = self.next.as_ref().filter(holds).filter(|next| next.made <= later(now, SKEW));
        let (due, step) = match next {
            Some(next) => (later(next.made, lifetimes.announced), Step::Promote),
            None => (earlier(current.expires, lifetimes.renew_before), Step::Announce),
        };
        if due <= now { step } else { Step::Wait(due) }
    }

    /// The certificates after a step, for which `made` is new where one is made.
    pub(super) fn after(mut self, step: Step, made: impl FnOnce() -> Option<Pair>) -> Option<Self> {
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

/// Makes a certificate for these names, and its authority.
///
/// # Errors
/// If a name cannot be in a certificate, or the system gives no random numbers.
pub(super) fn make(names: &[String], valid: Duration, now: Timestamp) -> Result<Pair, rcgen::Error> {
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
    // Two authorities of one name would be taken for each other.
    authority.distinguished_name = common_name(&format!("mainstay admission {}", now.as_nanosecond()));
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);
    let mut server = CertificateParams::new(names)?;
    (server.not_before, server.not_after) = (not_before, not_after);
    server.distinguished_name = common_name("mainstay admission");
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
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
