//! Errors specific to SSH, with their remedies.
//!
//! Invariant: no message contains a private key or a passphrase. Fingerprints of public keys and host keys are shown
//! for comparison.

use mainstay_object::failure::Class;

/// The cause of a failed attempt over SSH.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SshFault {
    /// An SSH address is used without a key.
    #[error(
        "an SSH URL needs a private key: name a Secret with the key in the repository's `auth`, with the type `key`"
    )]
    NoKey,
    /// An SSH address is used with a user name and password.
    #[error(
        "an SSH URL needs a private key, not a user name and password: set the type of the repository's `auth` to \
         `key`, or use its https:// URL"
    )]
    NotKey,
    /// An address other than an SSH address is used with a key.
    #[error(
        "a private key can be used only with an SSH URL: write the URL as ssh://user@host/path or user@host:path, or \
         set the type of the repository's `auth` to `basic`"
    )]
    NotSsh,
    /// The Secret contains no private key.
    #[error("missing field key: the Secret needs the private SSH key there (or under ssh-privatekey or identity)")]
    MissingPrivateKey,
    /// The private key cannot be read.
    #[error("the private key under {field} of the Secret cannot be read: {why}")]
    Unreadable {
        /// Key of the Secret.
        field: &'static str,
        /// The cause, and what to do.
        why: &'static str,
    },
    /// The Secret's `known_hosts` is too long.
    #[error("known_hosts of the Secret is longer than 256 KiB; put only the lines of the repository's host there")]
    KnownHostsTooLong,
    /// The private key is encrypted, and there is no passphrase.
    #[error("the private key is encrypted: put its passphrase into the Secret under password")]
    MissingPassphrase,
    /// The passphrase is wrong.
    #[error("the passphrase under password of the Secret does not open the private key")]
    WrongPassphrase,
    /// The server rejects the key.
    #[error(
        "the server does not accept the key {key} for the user {user}: add its public half to the repository as a \
         deploy \
         key, or correct the key in the Secret"
    )]
    Refused {
        /// The user.
        user: String,
        /// Kind and fingerprint of the public key.
        key: String,
    },
    /// The server accepts the key, but requires further authentication.
    #[error(
        "the server accepts the key {key}, but requires a second factor ({methods}): allow the key alone for this \
         repository"
    )]
    NotEnough {
        /// Kind and fingerprint of the public key.
        key: String,
        /// The remaining authentication methods, in the server's notation.
        methods: String,
    },
    /// The server does not support key authentication.
    #[error(
        "the server asks for {wanted}, and Mainstay logs in with a key: let the server accept keys \
         (PubkeyAuthentication), or \
         give the repository's https:// address, to which a password may be sent"
    )]
    TakesNoKey {
        /// The methods that the server supports.
        wanted: String,
    },
    /// The server supports RSA keys only with SHA-1.
    #[error("the server accepts RSA keys only with SHA-1 signatures, which are not supported: use an ed25519 key")]
    OnlySha1,
    /// The host key is unknown.
    #[error(
        "the host key of {host} is not known: it presented {presented}. Compare that with what its operator publishes, \
         then add it to the Secret under known_hosts ({scan} prints the lines)"
    )]
    HostKeyUnknown {
        /// Host, with its port unless that is 22.
        host: String,
        /// Kind and fingerprint of the key.
        presented: String,
        /// A command that prints lines for `known_hosts`.
        scan: String,
    },
    /// The host key is not one of the known ones.
    #[error(
        "the host key of {host} has changed: it presented {presented}, known is {known} ({whence}). The connection \
         may be intercepted, so nothing was sent; if its operator changed the key, put the new one into {place}"
    )]
    HostKeyChanged {
        /// Host, with its port unless that is 22.
        host: String,
        /// Kind and fingerprint of the key.
        presented: String,
        /// Types and fingerprints of the known keys.
        known: String,
        /// Origin of the known keys.
        whence: &'static str,
        /// The location for a new key.
        place: &'static str,
    },
    /// The host key is unknown and must be pinned, but this process does not pin.
    #[error("the host key of {host} is not known and is to be pinned at first use: it presented {presented}")]
    HostKeyFirstUse {
        /// Host, with its port unless that is 22.
        host: String,
        /// Kind and fingerprint of the key.
        presented: String,
        /// Type and base64 string of the key.
        key: String,
    },
    /// The host key was just pinned.
    #[error(
        "the host key of {host} was pinned at first use: it presented {presented}; the next attempt relies on that"
    )]
    HostKeyPinned {
        /// Host, with its port unless that is 22.
        host: String,
        /// Kind and fingerprint of the key.
        presented: String,
    },
    /// Pinning the host key failed.
    #[error(
        "the host key of {host} is to be pinned at first use (it presented {presented}), but the status of the \
         GitRepository was not written: {why}"
    )]
    HostKeyNotPinned {
        /// Host, with its port unless that is 22.
        host: String,
        /// Kind and fingerprint of the key.
        presented: String,
        /// The reason.
        why: String,
    },
    /// The host key differs from the pinned one.
    #[error(
        "the host key of {host} has changed: it presented {presented}, known is {known} (pinned at first use, at \
         {since}). \
         The connection may be intercepted, so nothing was sent; if its operator changed the key, put the new one \
         into the Secret \
         under known_hosts, or have the next key pinned: {forget}"
    )]
    PinnedHostKeyChanged {
        /// Host, with its port unless that is 22.
        host: String,
        /// Kind and fingerprint of the key.
        presented: String,
        /// Type and fingerprint of the pinned key.
        known: String,
        /// When the key was pinned.
        since: String,
        /// The command that removes the pin.
        forget: String,
    },
    /// The host's certificate is invalid.
    #[error("the certificate of {host} is not accepted: {why} (its key is {presented})")]
    HostCertificate {
        /// Host, with its port unless that is 22.
        host: String,
        /// Kind and fingerprint of the key.
        presented: String,
        /// The reason.
        why: &'static str,
    },
    /// The host key is revoked.
    #[error("the host key of {host} is revoked: it presented {presented}, which known_hosts marks as @revoked")]
    HostKeyRevoked {
        /// Host, with its port unless that is 22.
        host: String,
        /// Kind and fingerprint of the key.
        presented: String,
    },
    /// The repository does not exist, or the key has no read access.
    #[error("the server has no repository there ({text}); check the address, and that the key may read it")]
    NoRepository {
        /// The server's message, shortened and cleaned.
        text: String,
    },
    /// Client and server have no common algorithm.
    #[error("the server offers no {what} that is still safe to use; it must be updated")]
    NothingInCommon {
        /// The kind of algorithm.
        what: &'static str,
    },
    /// The server refuses to run the command.
    #[error("the server does not run git-upload-pack for this key{}", said(text))]
    NoCommand {
        /// The server's message, shortened and cleaned; may be empty.
        text: String,
    },
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl SshFault {
    /// Returns the class of the failure.
    pub(super) fn class(&self) -> Class {
        match self {
            Self::NoKey
            | Self::NotKey
            | Self::NotSsh
            | Self::MissingPrivateKey
            | Self::Unreadable { .. }
            | Self::KnownHostsTooLong
            | Self::MissingPassphrase
            | Self::WrongPassphrase
            | Self::NoRepository { .. } => Class::Invalid,
            Self::Refused { .. }
            | Self::NotEnough { .. }
            | Self::TakesNoKey { .. }
            | Self::OnlySha1
            | Self::HostKeyUnknown { .. }
            | Self::HostKeyChanged { .. }
            | Self::PinnedHostKeyChanged { .. }
            | Self::HostKeyRevoked { .. }
            | Self::HostCertificate { .. }
            | Self::NoCommand { .. } => Class::Denied,
            Self::HostKeyFirstUse { .. } | Self::HostKeyPinned { .. } => Class::NotReady,
            Self::NothingInCommon { .. } | Self::HostKeyNotPinned { .. } => Class::Unavailable,
        }
    }
}
