//! Verifies documents with an OpenPGP signature in clear text, such as the provenance files of Helm.
//!
//! Invariant: the text that is returned is the text that a trusted key has signed, and nothing beside it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use pgp::composed::CleartextSignedMessage;
use pgp::packet::SignatureType;

use super::fault::SignatureFault;
use super::openpgp;
use super::signers::Signers;

/// Maximum length of a document, in bytes.
pub const DOCUMENT_BYTES: u64 = 256 << 10;

/// The OpenPGP keys that may sign documents.
#[derive(Debug)]
pub struct DocumentSigners {
    /// Name of the Secret, for messages.
    secret: String,
    signers: Signers,
}

impl DocumentSigners {
    /// Reads the keys in the values of a Secret.
    ///
    /// # Errors
    /// A value cannot be read, or no value holds an OpenPGP key.
    pub fn read(secret: &str, data: &BTreeMap<String, ByteString>) -> Result<Self, SignatureFault> {
        let values = data.iter().map(|(name, value)| (name.as_str(), value.0.as_slice()));
        let signers = Signers::read(secret, values)?;
        if signers.openpgp.is_empty() {
            return Err(SignatureFault::NoKeys { secret: secret.to_owned() });
        }
        Ok(Self { secret: secret.to_owned(), signers })
    }

    /// Returns the signed text of a document, with line feeds at the ends of lines.
    ///
    /// # Errors
    /// No key of the Secret has signed the document, or it is not valid at `now`.
    pub fn signed_text(&self, document: &[u8], now: Timestamp) -> Result<String, SignatureFault> {
        let unreadable = |why| SignatureFault::Unreadable { why };
        if document.len() as u64 > DOCUMENT_BYTES {
            return Err(unreadable("the document has more than 256 KiB"));
        }
        let text = std::str::from_utf8(document).map_err(|_| unreadable("it is not UTF-8"))?;
        let (message, _) =
            CleartextSignedMessage::from_string(text).map_err(|_| unreadable("it has no OpenPGP signature"))?;
        let [signature] = message.signatures() else { return Err(unreadable("it has more than one signature")) };
        let signed = message.signed_text();
        let keys = &self.signers.openpgp;
        openpgp::judge_signature(signature, SignatureType::Text, signed.as_bytes(), keys, now)
            .map_err(|fault| fault.of_secret(&self.secret))?;
        Ok(signed.replace("\r\n", "\n"))
    }
}
