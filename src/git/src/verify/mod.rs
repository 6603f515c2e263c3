//! Verifies that a trusted key has signed a commit, and signs commits.
//!
//! The Secret in a GitRepository's `spec.verify` becomes a [`Verification`]: the OpenPGP or SSH keys, and whether they
//! must have signed the commit, the annotated tag that points to it, or both. The bytes of the fetched object itself
//! are verified. A fetch for a remote with a verification returns only verified commits. [`DocumentSigners`] verifies
//! signed documents by the same rules. [`CommitSigner`] signs a new commit with a private key.
//!
//! Invariant: an object has only one signature, and a valid signature was made for exactly the bytes of the object with
//! a strong hash.
//! Invariant: the key that made a valid signature is in the Secret, may sign, and is neither expired nor revoked.
//! Invariant: time and memory grow at most with the bytes that are read. A signature has at most 64 KiB.
//!
//! Not here: per-branch signers, and the order of commits. A signature proves who signed, not when. So an older signed
//! commit stays valid.

mod allowed_signers;
mod armor;
mod certificate;
mod document;
mod fault;
mod openpgp;
mod signed_object;
mod signers;
mod signing;
mod signing_fault;
mod signing_key;
mod ssh;
mod validity;
mod verification;

pub use document::{DOCUMENT_BYTES, DocumentSigners};
pub use fault::SignatureFault;
pub use signing::CommitSigner;
pub use signing_fault::SigningFault;
pub(crate) use validity::earlier;
pub use verification::Verification;
