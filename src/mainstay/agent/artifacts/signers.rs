//! The trusted signers of artifacts.

use std::sync::Arc;

use super::cosign::{Flaw, Keys, Signature};
use super::keyless::{Keyless, Root};
use super::notation::Notation;
use super::signed::{Signed, Tool};
use mainstay_cluster::secrets::SecretData;
use mainstay_function::registry::Digest;
use mainstay_git::{DocumentSigners, SignatureFault};

/// The key of a Secret that holds a trusted root.
const ROOT: &str = "trusted_root.json";
const MISSING: &str = "spec.verify.secretRef: its Secret was not read";

/// Who may have signed an artifact.
#[derive(Clone)]
pub(super) struct Signers {
    pub(super) trusted: Trusted,
    /// Digest of the tool, of the identities and of the Secret. It differs after each change of one of them.
    pub(super) digest: Digest,
}

/// The signers whom a tool trusts.
#[derive(Clone)]
pub(super) enum Trusted {
    Cosign(Arc<CosignSigners>),
    Notation(Arc<Notation>),
    /// With the name of the Secret.
    Helm(Arc<DocumentSigners>, String),
}

/// Who may have signed with cosign.
pub(super) enum CosignSigners {
    Keys(Keys),
    Identities(Keyless),
}

impl Signers {
    /// Reads the keys, the trust policy or the trusted root of a Secret, given with its name. Without one, the root is that of the public
    /// instance of Sigstore.
    ///
    /// # Errors
    /// Fails with the field and the value that cannot be read.
    pub(super) fn read(signed: &Signed, secret: Option<(&str, &SecretData)>) -> Result<Self, String> {
        let digest = digest(signed, secret);
        let trusted = match signed {
            Signed::ByIdentity(identities) => {
                let root = root(secret).map_err(|why| format!("spec.verify.trustedRootSecretRef: {why}"))?;
                Trusted::Cosign(Arc::new(CosignSigners::Identities(Keyless::new(root, identities.clone()))))
            }
            Signed::ByKey(tool) => {
                let (name, data) = secret.ok_or(MISSING)?;
                let trusted = keys(*tool, name, data);
                trusted.map_err(|why| format!("spec.verify.secretRef: {why}"))?
            }
        };
        Ok(Self { trusted, digest })
    }
}

fn keys(tool: Tool, secret: &str, data: &SecretData) -> Result<Trusted, String> {
    match tool {
        Tool::Cosign => Ok(Trusted::Cosign(Arc::new(CosignSigners::Keys(Keys::read(secret, data)?)))),
        Tool::Notation => Ok(Trusted::Notation(Arc::new(Notation::read(secret, data)?))),
        Tool::Helm => {
            let keys = DocumentSigners::read(secret, data).map_err(unusable)?;
            Ok(Trusted::Helm(Arc::new(keys), secret.to_owned()))
        }
    }
}

fn root(secret: Option<(&str, &SecretData)>) -> Result<Arc<Root>, String> {
    let Some((name, data)) = secret else { return Root::public() };
    let json = data.get(ROOT).ok_or_else(|| {
        format!("the Secret {name} has no key {ROOT}; create the file with `cosign trusted-root create`")
    })?;
    let unusable = |why: &str| format!("value {ROOT} of the Secret {name} {why}");
    let json = std::str::from_utf8(&json.0).map_err(|_| unusable("is not UTF-8"))?;
    Root::read(json).map(Arc::new).map_err(|why| unusable(&why))
}

/// Returns the digest of all facts that determine the signers.
fn digest(signed: &Signed, secret: Option<(&str, &SecretData)>) -> Digest {
    let mut bytes = Vec::new();
    let mut add = |part: &[u8]| {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    };
    match signed {
        Signed::ByKey(tool) => add(format!("{tool:?}").as_bytes()),
        Signed::ByIdentity(identities) => {
            add(b"identities");
            for (issuer, subject) in identities.patterns() {
                add(issuer.as_bytes());
                add(subject.as_bytes());
            }
        }
    }
    if let Some((name, data)) = secret {
        add(b"Secret");
        add(name.as_bytes());
        for (name, value) in data {
            add(name.as_bytes());
            add(&value.0);
        }
    }
    Digest::of(&bytes)
}

impl CosignSigners {
    /// Returns the signer of the manifest with a digest: the end of a sentence.
    pub(super) fn judge(&self, signature: &Signature, digest: &Digest) -> Result<String, Flaw> {
        match self {
            Self::Keys(keys) => {
                let named = |key: &str| format!("the key {key} of the Secret {}", keys.secret());
                keys.judge(signature, digest).map(named).map_err(|flaw| match flaw {
                    Flaw::Other(key, what) => Flaw::Other(named(&key), what),
                    flaw => flaw,
                })
            }
            Self::Identities(keyless) => keyless.judge(signature, digest),
        }
    }

    /// Returns why an artifact is not taken none of whose `count` signatures counts. `flaw` is that of the best one.
    pub(super) fn refusal(&self, flaw: Option<Flaw>, count: usize) -> String {
        let (help, trusted) = match self {
            Self::Keys(keys) => {
                let secret = keys.secret();
                let help = format!("sign it with `cosign sign --key`, and put the public key into the Secret {secret}");
                (help, format!("the Secret {secret}"))
            }
            Self::Identities(_) => {
                let field = "spec.verify.matchOIDCIdentity";
                (format!("sign it with `cosign sign`, as an identity that {field} accepts"), field.to_owned())
            }
        };
        match flaw {
            None => format!("it is not signed; {help}"),
            Some(Flaw::Unreadable(why)) => format!("its signature is not usable: {why}; {help}"),
            Some(Flaw::UnknownKey) => format!("its {count} signatures are by keys that are not in {trusted}; {help}"),
            Some(Flaw::Unverified(why)) => {
                format!("its signature cannot be verified with the trusted root: {why}; {help}")
            }
            Some(Flaw::Stranger(signer)) => {
                format!("it is signed by {signer}, whom no entry of {trusted} accepts; {help}")
            }
            Some(Flaw::Other(signer, what)) => format!("its signature by {signer} is that of {what}; {help}"),
        }
    }
}

fn unusable(fault: SignatureFault) -> String {
    match fault {
        SignatureFault::NoKeys { secret } => {
            format!("the Secret {secret} has no OpenPGP key; put what `gpg --export --armor` writes into it")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::super::identities::Identities;
    use super::*;
    use mainstay_api::oci_repository::OidcIdentity;

    fn by_identity(subject: &str) -> Signed {
        let one = OidcIdentity { issuer: "^https://ci\\.example$".to_owned(), subject: subject.to_owned() };
        Signed::ByIdentity(Identities::read(&[one]).unwrap())
    }

    fn secret(key: &str, value: &str) -> SecretData {
        SecretData::from([(key.to_owned(), ByteString(value.as_bytes().to_vec()))])
    }

    #[test]
    fn the_digest_differs_after_each_change() {
        let (one, two) = (secret("a", "b"), secret("a", "c"));
        let all = [
            digest(&Signed::ByKey(Tool::Cosign), Some(("keys", &one))),
            digest(&Signed::ByKey(Tool::Helm), Some(("keys", &one))),
            digest(&Signed::ByKey(Tool::Notation), Some(("keys", &one))),
            digest(&Signed::ByKey(Tool::Cosign), Some(("keys", &two))),
            digest(&Signed::ByKey(Tool::Cosign), Some(("others", &one))),
            digest(&by_identity("a"), None),
            digest(&by_identity("b"), None),
            digest(&by_identity("a"), Some(("keys", &one))),
        ];
        for (at, digest) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(digest), "{at}");
        }
    }

    #[test]
    fn a_root_of_a_secret_takes_the_place_of_the_public_root() {
        assert!(Signers::read(&by_identity("a"), None).is_ok());
        let refused = |data: &SecretData| Signers::read(&by_identity("a"), Some(("root", data))).err().unwrap();
        let missing = refused(&secret("root.json", "{}"));
        assert!(missing.contains("trustedRootSecretRef: the Secret root has no key trusted_root.json"), "{missing}");
        let invalid = refused(&secret(ROOT, "{}"));
        assert!(invalid.contains("value trusted_root.json of the Secret root is not a trusted root"), "{invalid}");
    }
}
