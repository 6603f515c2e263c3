//! The keys of a Secret, and which objects they must have signed.
//!
//! Not here: fetching the verified objects (`trust`).

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use sha2::{Digest as _, Sha256};

use super::fault::SignatureFault;
use super::signed_object::{self, Signed};
use super::signers::Signers;
use super::{armor, openpgp, ssh};
use crate::error::{Error, Fault};
use mainstay_api::git_repository::{Verify, VerifyMode};

/// The required signatures of a remote's commits.
pub struct Verification {
    mode: VerifyMode,
    /// Name of the Secret, for messages.
    secret: String,
    signers: Signers,
    digest: [u8; 32],
}

impl Verification {
    /// Reads the keys in the Secret that `spec` references; `None` without `spec`.
    pub fn new(spec: Option<&Verify>, data: Option<&BTreeMap<String, ByteString>>) -> Result<Option<Arc<Self>>, Error> {
        let Some(Verify { mode, secret_ref }) = spec else { return Ok(None) };
        let unusable = |fault: SignatureFault| Error::Signers { cause: Arc::new(fault.into()) };
        let mut digest = Sha256::new_with_prefix(format!("{mode:?}"));
        for (name, value) in data.into_iter().flatten() {
            for part in [name.as_bytes(), &value.0] {
                digest.update((part.len() as u64).to_be_bytes());
                digest.update(part);
            }
        }
        let values = data.into_iter().flatten().map(|(name, value)| (name.as_str(), value.0.as_slice()));
        let signers = Signers::read(&secret_ref.name, values).map_err(unusable)?;
        let secret = secret_ref.name.clone();
        Ok(Some(Arc::new(Self { mode: *mode, secret, signers, digest: digest.finalize().into() })))
    }

    /// Returns whether the commit itself must be signed.
    pub(crate) fn asks_for_commit(&self) -> bool {
        matches!(self.mode, VerifyMode::Head | VerifyMode::TagAndHead)
    }

    /// Returns whether the tag that points to the commit must be signed.
    pub(crate) fn asks_for_tag(&self) -> bool {
        matches!(self.mode, VerifyMode::Tag | VerifyMode::TagAndHead)
    }

    /// Returns the mode in the notation of the spec.
    pub(crate) fn mode(&self) -> &'static str {
        match self.mode {
            VerifyMode::Head => "HEAD",
            VerifyMode::Tag => "Tag",
            VerifyMode::TagAndHead => "TagAndHEAD",
        }
    }

    /// Returns a digest of mode and keys.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Verifies the signature of a commit in its stored form. Returns the time until which the result is valid.
    pub(crate) fn judge_commit(&self, raw: &[u8], now: Timestamp) -> Result<Option<Timestamp>, Fault> {
        self.judge(signed_object::commit(raw)?, now)
    }

    /// Verifies the signature of a tag object, which must point to this commit and have the reference's name. Returns
    /// the time until which the result is valid.
    pub(crate) fn judge_tag(
        &self,
        raw: &[u8],
        name: &str,
        commit: &str,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Fault> {
        let is_about = signed_object::tag_is_about(raw).ok_or(SignatureFault::UnreadableTag)?;
        if is_about.name != name.as_bytes() {
            // Otherwise, a server could present an older signed tag under a different name.
            return Err(SignatureFault::OtherTag { name: signed_object::shown(is_about.name) }.into());
        }
        if is_about.commit != commit {
            return Err(SignatureFault::TagOfTag.into());
        }
        self.judge(signed_object::tag(raw)?, now)
    }

    fn judge(&self, signed: Option<Signed>, now: Timestamp) -> Result<Option<Timestamp>, Fault> {
        let signed = signed.ok_or_else(|| SignatureFault::Unsigned { secret: self.secret.clone() })?;
        let judged = match armor::kind(&signed.signature)? {
            armor::Kind::Ssh(text) => ssh::judge(text, &signed, &self.signers.ssh, now),
            armor::Kind::OpenPgp(text) => openpgp::judge(text, &signed.payload, &self.signers.openpgp, now),
        };
        Ok(judged.map_err(|fault| fault.of_secret(&self.secret))?)
    }
}

/// Formats no key.
impl fmt::Debug for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verification({} by Secret {})", self.mode(), self.secret)
    }
}

impl PartialEq for Verification {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.secret == other.secret
    }
}

impl Eq for Verification {}

impl Hash for Verification {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}
