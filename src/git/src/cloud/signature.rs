//! Signatures of AWS, version 4, for the few requests that are sent.
//!
//! Invariant: neither the secret key nor a key derived from it is shown, and both are erased.
//! Not here: clocks, and query parameters, which no request has.

use ring::hmac;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Temporary keys of AWS.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: Zeroizing<String>,
    /// The session token; `None` only for keys of users.
    pub(super) session: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(…)")
    }
}

/// A request before it is signed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsigned<'a> {
    pub(super) method: &'a str,
    /// The path, of plain characters.
    pub(super) path: &'a str,
    /// The headers to sign, in lower case and sorted.
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body in hexadecimal digits; empty for a Git password.
    pub(super) payload: &'a str,
    /// The time as `20150830T123600Z`; a Git password has no `Z`.
    pub(super) time: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

impl Unsigned<'_> {
    /// Returns the value of `Authorization`.
    pub(super) fn authorization(&self, keys: &Keys) -> String {
        let (scope, names, signature) = (self.scope(), self.names(), self.signature(keys));
        format!("{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", keys.id)
    }

    /// Returns the signature in hexadecimal digits.
    pub(super) fn signature(&self, keys: &Keys) -> String {
        let mut lines = String::new();
        for (name, value) in self.headers {
            lines += &format!("{name}:{}\n", value.trim());
        }
        let Self { method, path, payload, time, .. } = self;
        let canonical = format!("{method}\n{path}\n\n{lines}\n{}\n{payload}", self.names());
        let text = format!("{ALGORITHM}\n{time}\n{}\n{}", self.scope(), hex::encode(Sha256::digest(canonical)));
        let first = Zeroizing::new(format!("AWS4{}", keys.secret.as_str()).into_bytes());
        let key = [self.day(), self.region, self.service, "aws4_request"]
            .into_iter()
            .fold(first, |key, part| Zeroizing::new(mac(&key, part).as_ref().to_vec()));
        hex::encode(mac(&key, &text))
    }

    fn names(&self) -> String {
        self.headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";")
    }

    fn scope(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.day(), self.region, self.service)
    }

    fn day(&self) -> &str {
        self.time.split('T').next().unwrap_or_default()
    }
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of nothing.
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn keys() -> Keys {
        let secret = Zeroizing::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned());
        Keys { id: "AKIDEXAMPLE".to_owned(), secret, session: None }
    }

    /// The cases `get-vanilla` and `post-vanilla` of the test suite that AWS publishes.
    #[test]
    fn signs_as_the_published_suite_expects() {
        let headers = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
        for (method, expected) in [
            ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ] {
            let request = Unsigned {
                method,
                path: "/",
                headers: &headers,
                payload: EMPTY,
                time: "20150830T123600Z",
                region: "us-east-1",
                service: "service",
            };
            let authorization = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders=host;x-amz-date, Signature={expected}"
            );
            assert_eq!(request.authorization(&keys()), authorization);
        }
        assert!(!format!("{:?}", keys()).contains("AKID"));
    }
}
