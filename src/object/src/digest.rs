//! A digest of content.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// The first half of a SHA-256. Half is enough to exclude accidental collisions, and saves space in inventories.
/// Displayed and parsed as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 16]);

/// A text that is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest must have 32 hexadecimal digits")]
pub struct ParseDigestError;

impl Digest {
    /// Returns the digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let full = Sha256::digest(bytes);
        let mut half = [0; 16];
        half.copy_from_slice(&full[..16]);
        Self(half)
    }

    /// Builds a digest from its bytes, as an inventory stores them.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 16];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseDigestError)?;
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_shown_and_parsed_as_hexadecimal() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string(), "e3b0c44298fc1c149afbf4c8996fb924");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!("e3".parse::<Digest>(), Err(ParseDigestError));
        assert_eq!(Digest::from_bytes(*digest.as_bytes()), digest);
    }
}
