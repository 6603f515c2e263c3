//! Turns an error of the HTTP client into a [`Fault`]. Failures of the TLS handshake are distinguished from network
//! failures.
//!
//! Invariant: no message contains an address or a text of the server, except for shortened names in its certificate.

use rustls::{AlertDescription, CertificateError, Error as TlsError};

use super::names::ConfinedAddress;
use super::words::clean;
use crate::error::Fault;
use mainstay_object::failure::network_error;

/// Returns the error of a failed request.
pub(super) fn network(error: &reqwest::Error) -> Fault {
    let causes = || std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    if let Some(error) = causes().filter_map(tls_error).last() {
        return tls(error);
    }
    if let Some(ConfinedAddress(why)) = causes().find_map(|cause| cause.downcast_ref()) {
        return Fault::Confined { why };
    }
    // The library's proxy errors have no public types.
    causes()
        .find_map(|cause| proxy(&cause.to_string()))
        .unwrap_or_else(|| Fault::Network { what: network_error(error) })
}

/// Returns the error of a proxy, by the library's error message.
fn proxy(words: &str) -> Option<Fault> {
    let failed = |why: &str| Some(Fault::Proxy { why: why.to_owned() });
    match (words.strip_prefix("tunnel error: "), words.strip_prefix("SOCKS error: ")) {
        (Some("proxy authorization required"), _)
        | (_, Some("credentials not accepted" | "server does not support user/pass authentication")) => {
            Some(Fault::ProxyDenied)
        }
        (Some("failed to create underlying connection"), _) | (_, Some("failed to create underlying connection")) => {
            None
        }
        (Some("unsuccessful"), _) => {
            failed("it cannot connect to the host, or does not accept this user name and password for it")
        }
        (Some(other), _) | (_, Some(other)) => failed(other),
        (None, None) => None,
    }
}

/// Returns the TLS error inside nested I/O errors.
fn tls_error<'e>(mut cause: &'e (dyn std::error::Error + 'static)) -> Option<&'e TlsError> {
    while let Some(wrapped) = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref()) {
        cause = wrapped;
    }
    cause.downcast_ref()
}

/// Returns the error of a TLS connection without HTTP; `None` if TLS is not the cause.
pub(super) fn handshake(error: &std::io::Error) -> Option<Fault> {
    tls_error(error).map(tls)
}

fn tls(error: &TlsError) -> Fault {
    let certificate = |why: &str| Fault::Certificate { why: why.to_owned() };
    match error {
        TlsError::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => certificate(
                "no CA that is trusted has signed the server's certificate; put the certificate of the CA that did into the \
                 Secret under ca.crt",
            ),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                certificate("the server's certificate has expired; its operator has to renew it")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                certificate("the server's certificate is not valid yet; compare the clocks of both sides")
            }
            CertificateError::Revoked => certificate("the server's certificate is revoked"),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Fault::Certificate { why: for_another_name(problem) }
            }
            other => Fault::Certificate { why: format!("the server's certificate is not accepted ({})", text(other)) },
        },
        TlsError::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied,
        ) => Fault::Certificate {
            why: format!(
                "the server requires a valid client certificate ({}); correct tls.crt and tls.key in the Secret",
                text(error)
            ),
        },
        TlsError::InvalidMessage(_) => Fault::Tls { why: "the server does not speak TLS at this port".to_owned() },
        other => Fault::Tls { why: format!("the handshake failed ({})", text(other)) },
    }
}

fn for_another_name(problem: &CertificateError) -> String {
    let names = match problem {
        CertificateError::NotValidForNameContext { presented, .. } => {
            let shown: Vec<_> = presented.iter().take(4).map(String::as_str).collect();
            format!(" ({})", clean(shown.join(", ").as_bytes()))
        }
        _ => String::new(),
    };
    format!("the server's certificate is for a different name{names}; give the address with a name that it has")
}

fn text(error: &dyn std::fmt::Display) -> String {
    clean(error.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_object::failure::Class;

    #[test]
    fn names_what_the_handshake_failed_at() {
        let check = |error: TlsError, class: Class, expected: &str| {
            let fault = tls(&error);
            assert_eq!((fault.class(), fault.to_string().contains(expected)), (class, true), "{fault}");
        };
        check(CertificateError::UnknownIssuer.into(), Class::Denied, "into the Secret under ca.crt");
        check(CertificateError::Expired.into(), Class::Denied, "has expired");
        check(CertificateError::NotValidForName.into(), Class::Denied, "is for a different name; give");
        let required = TlsError::AlertReceived(AlertDescription::CertificateRequired);
        check(required, Class::Denied, "requires a valid client certificate");
        check(TlsError::HandshakeNotComplete, Class::Unavailable, "the handshake failed (");
    }
}
