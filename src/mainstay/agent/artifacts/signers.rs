//! The trusted signers of artifacts.

use std::sync::Arc;

use super::cosign::Keys;
use super::wanted::Tool;
use mainstay_cluster::secrets::SecretData;
use mainstay_function::registry::Digest;
use mainstay_git::{DocumentSigners, SignatureFault};

/// The keys that may have signed an artifact.
#[derive(Clone)]
pub(super) struct Signers {
    pub(super) keys: TrustedKeys,
    /// Name of the Secret.
    pub(super) secret: String,
    /// Digest of the tool and of the Secret. It differs after each change of the Secret.
    pub(super) digest: Digest,
}

/// The keys of a tool.
#[derive(Clone)]
pub(super) enum TrustedKeys {
    Cosign(Arc<Keys>),
    Helm(Arc<DocumentSigners>),
}

impl Signers {
    /// Reads the keys of a Secret.
    ///
    /// # Errors
    /// Fails with the value that cannot be read.
    pub(super) fn read(tool: Tool, secret: &str, data: &SecretData) -> Result<Self, String> {
        let mut bytes = format!("{tool:?} {secret}").into_bytes();
        for part in data.iter().flat_map(|(name, value)| [name.as_bytes(), &value.0]) {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        let keys = match tool {
            Tool::Cosign => TrustedKeys::Cosign(Arc::new(Keys::read(secret, data)?)),
            Tool::Helm => TrustedKeys::Helm(Arc::new(DocumentSigners::read(secret, data).map_err(unusable)?)),
        };
        Ok(Self { keys, secret: secret.to_owned(), digest: Digest::of(&bytes) })
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
