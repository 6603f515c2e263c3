//! Object ids, with one type per kind of object, so that kinds cannot be confused.
//!
//! Invariant: an id has 20 bytes, and its text form has 40 lower-case hexadecimal digits. SHA-256 repositories are not
//! supported.

use std::fmt;
use std::str::FromStr;

use super::error::Fault;

/// The id of any object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(pub(super) [u8; 20]);

impl Id {
    /// Parses 40 hexadecimal digits, in either case.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 20];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Builds an id from its 20 bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns the id in libgit2's form.
    pub(super) fn oid(self) -> Result<git2::Oid, Fault> {
        git2::Oid::from_bytes(&self.0).map_err(Fault::git)
    }
}

impl From<git2::Oid> for Id {
    fn from(oid: git2::Oid) -> Self {
        let mut bytes = [0; 20];
        for (to, from) in bytes.iter_mut().zip(oid.as_bytes()) {
            *to = *from;
        }
        Self(bytes)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(super) Id);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = super::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let id = Id::parse(text.as_bytes()).ok_or(Fault::Malformed {
                    why: concat!("the id of a ", $what, " must have 40 hexadecimal digits"),
                });
                id.map(Self).map_err(|cause| super::Error::parse(concat!($what, " id"), cause))
            }
        }
    };
}

id!(
    /// The id of a commit.
    Commit, "commit"
);
id!(
    /// The id of a directory's content: equal ids mean equal files in the whole subtree.
    TreeId, "tree"
);
id!(
    /// The id of a file's content.
    BlobId, "blob"
);

impl BlobId {
    /// The id of content that is not in a repository.
    pub const NONE: Self = Self(Id([0; 20]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_forty_digits_in_either_case_and_writes_lower() {
        let text = "0123456789ABCDEF0123456789abcdef01234567";
        assert_eq!(text.parse::<Commit>().unwrap().to_string(), text.to_lowercase());
        for bad in ["", "0123", &text[1..], "g123456789abcdef0123456789abcdef01234567"] {
            assert!(bad.parse::<Commit>().is_err(), "{bad}");
        }
    }
}
