//! The signed attributes of a signature, which both formats of envelopes have.
//!
//! Invariant: an attribute that must be understood is one of those below.

use super::algorithm::Algorithm;

pub(super) const EXPIRY: &str = "io.cncf.notary.expiry";
pub(super) const SCHEME: &str = "io.cncf.notary.signingScheme";
pub(super) const SIGNING_TIME: &str = "io.cncf.notary.signingTime";
pub(super) const AUTHENTIC_TIME: &str = "io.cncf.notary.authenticSigningTime";
/// An attribute of signatures that only a plugin of notation verifies.
pub(super) const PLUGIN: &str = "io.cncf.notary.verificationPlugin";

/// An envelope whose signature was not verified yet.
pub(super) struct Envelope {
    /// The bytes that the signature covers.
    pub(super) signed: Vec<u8>,
    pub(super) signature: Vec<u8>,
    /// The certificates in DER: that of the signer first.
    pub(super) certificates: Vec<Vec<u8>>,
    pub(super) attributes: Attributes,
    pub(super) payload: Vec<u8>,
}

/// The party that vouches for the time of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// The signer, who is not believed.
    X509,
    /// An authority that signs for others.
    SigningAuthority,
}

/// The attributes. Times are in seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) algorithm: Algorithm,
    pub(super) content_type: String,
    pub(super) scheme: Scheme,
    pub(super) signing_time: i64,
    pub(super) expiry: Option<i64>,
}

/// The attributes as an envelope has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    pub(super) algorithm: Option<Algorithm>,
    pub(super) content_type: Option<String>,
    pub(super) scheme: Option<String>,
    /// Names of the attributes that must be understood.
    pub(super) critical: Vec<String>,
    pub(super) signing_time: Option<i64>,
    pub(super) authentic_time: Option<i64>,
    pub(super) expiry: Option<i64>,
    pub(super) has_plugin: bool,
}

impl Written {
    /// Checks that the attributes fit each other. An error is the end of a sentence about the signature.
    pub(super) fn check(self) -> Result<Attributes, String> {
        let algorithm =
            self.algorithm.ok_or("has an algorithm that is not PS256, PS384, PS512, ES256, ES384 or ES512")?;
        let content_type = self.content_type.ok_or("has no content type")?;
        if self.has_plugin {
            return Err("needs a plugin of notation, which is not supported".to_owned());
        }
        let scheme = match self.scheme.as_deref() {
            Some("notary.x509") => Scheme::X509,
            Some("notary.x509.signingAuthority") => Scheme::SigningAuthority,
            _ => return Err("has a signing scheme that is not supported".to_owned()),
        };
        let (time, other) = match scheme {
            Scheme::X509 => (self.signing_time, self.authentic_time),
            Scheme::SigningAuthority => (self.authentic_time, self.signing_time),
        };
        if other.is_some() {
            return Err("has a signing time that does not fit its signing scheme".to_owned());
        }
        let signing_time = time.ok_or("has no signing time")?;
        if self.expiry.is_some_and(|expiry| expiry <= signing_time) {
            return Err("expires before it was made".to_owned());
        }
        for (name, is_required, is_present) in [
            (SCHEME, true, true),
            (EXPIRY, self.expiry.is_some(), self.expiry.is_some()),
            (AUTHENTIC_TIME, scheme == Scheme::SigningAuthority, scheme == Scheme::SigningAuthority),
        ] {
            let is_critical = self.critical.iter().any(|critical| critical == name);
            if is_required && !is_critical {
                return Err(format!("does not mark {name} as critical"));
            }
            if is_critical && !is_present {
                return Err(format!("marks {name} as critical, but does not have it"));
            }
        }
        let is_known = |name: &String| [SCHEME, EXPIRY, AUTHENTIC_TIME].contains(&&**name);
        if !self.critical.iter().all(is_known) {
            return Err("has a critical attribute that is not supported".to_owned());
        }
        Ok(Attributes { algorithm, content_type, scheme, signing_time, expiry: self.expiry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Written {
        Written {
            algorithm: Some(Algorithm::Es256),
            content_type: Some("text/plain".to_owned()),
            scheme: Some("notary.x509".to_owned()),
            critical: vec![SCHEME.to_owned()],
            signing_time: Some(1000),
            ..Written::default()
        }
    }

    #[test]
    fn accepts_both_signing_schemes() {
        let found = written().check().unwrap();
        assert_eq!((found.scheme, found.signing_time, found.expiry), (Scheme::X509, 1000, None));
        let critical = [SCHEME, AUTHENTIC_TIME, EXPIRY].map(str::to_owned).to_vec();
        let scheme = Some("notary.x509.signingAuthority".to_owned());
        let authentic_time = Some(1000);
        let other = Written { scheme, critical, signing_time: None, authentic_time, expiry: Some(1001), ..written() };
        let found = other.check().unwrap();
        assert_eq!((found.scheme, found.signing_time, found.expiry), (Scheme::SigningAuthority, 1000, Some(1001)));
    }

    #[test]
    fn refuses_attributes_that_do_not_fit() {
        let critical = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (changed, why) in [
            (Written { algorithm: None, ..written() }, "has an algorithm that is not PS256"),
            (Written { content_type: None, ..written() }, "has no content type"),
            (Written { has_plugin: true, ..written() }, "needs a plugin of notation"),
            (Written { scheme: None, ..written() }, "has a signing scheme that is not supported"),
            (Written { scheme: Some("notary.x509.other".to_owned()), ..written() }, "has a signing scheme"),
            (Written { signing_time: None, ..written() }, "has no signing time"),
            (Written { authentic_time: Some(1), ..written() }, "has a signing time that does not fit"),
            (Written { expiry: Some(1000), ..written() }, "expires before it was made"),
            (Written { expiry: Some(1001), ..written() }, "does not mark io.cncf.notary.expiry as critical"),
            (Written { critical: Vec::new(), ..written() }, "does not mark io.cncf.notary.signingScheme as critical"),
            (
                Written { critical: critical(&[SCHEME, EXPIRY]), ..written() },
                "marks io.cncf.notary.expiry as critical, but does not have it",
            ),
            (
                Written { critical: critical(&[SCHEME, "org.example"]), ..written() },
                "has a critical attribute that is not supported",
            ),
            (
                Written { scheme: Some("notary.x509.signingAuthority".to_owned()), ..written() },
                "has a signing time that does not fit",
            ),
            (
                Written {
                    scheme: Some("notary.x509.signingAuthority".to_owned()),
                    signing_time: None,
                    authentic_time: Some(1),
                    ..written()
                },
                "does not mark io.cncf.notary.authenticSigningTime as critical",
            ),
        ] {
            let found = changed.check().unwrap_err();
            assert!(found.starts_with(why), "{why}: {found}");
        }
    }
}
