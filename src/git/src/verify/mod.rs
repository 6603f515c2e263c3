//! Whether somebody who is trusted has signed what is to be applied.
//!
//! The Secret of a GitRepository's `spec.verify` becomes a [`Verification`]: the keys, OpenPGP or SSH, and whether they must
//! have signed the commit, the annotated tag that leads to it, or both. The bytes of the very object that was fetched are
//! judged, and whoever fetches a commit of a remote with a verification gets it verified or not at all.
//!
//! Invariant: a signature counts if it is the only one of its object, was made for exactly these bytes with a hash that is not
//! broken, and by a key that is in the Secret, may sign, and has neither expired nor been revoked.
//! Invariant: nothing here grows faster than the bytes that it reads; a signature has at most 64 KiB.
//!
//! Deliberately not here: who may sign which repository's history, and in which order. A signature says who, not when: an older
//! commit that is signed stays signed.

mod allowed_signers;
mod armor;
mod certificate;
mod fault;
mod openpgp;
mod signed_object;
mod signers;
mod ssh;
mod validity;
mod verification;

pub use fault::SignatureFault;
pub(crate) use validity::earlier;
pub use verification::Verification;
