//! ServiceAccounts as identities, and the interface through which they are read.

use std::collections::BTreeMap;
use std::fmt;

use futures::future::BoxFuture;
use zeroize::Zeroizing;

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its annotations, which name the role or the application at the provider.
    pub annotations: BTreeMap<String, String>,
}

/// Reads ServiceAccounts, and requests tokens for them.
pub trait ServiceAccounts: fmt::Debug + Send + Sync {
    /// Returns a ServiceAccount; `None` if it does not exist.
    ///
    /// # Errors
    /// Why the ServiceAccount is unknown.
    fn find<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Account>, String>>;

    /// Requests a token of a ServiceAccount for an audience. It is valid for a few minutes.
    ///
    /// # Errors
    /// Why there is no token.
    fn token<'a>(&'a self, account: &'a Account, audience: &'a str)
    -> BoxFuture<'a, Result<Zeroizing<String>, String>>;
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceAccount {}/{}", self.namespace, self.name)
    }
}

impl Account {
    /// Returns an annotation; `None` if it is missing or empty.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the parts that distinguish the identities that an account has had.
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        let annotations = self.annotations.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        std::iter::once(self.uid.as_str()).chain(annotations)
    }
}

#[cfg(test)]
impl Account {
    /// Returns a ServiceAccount with annotations.
    pub(super) fn with(annotations: &[(&str, &str)]) -> Self {
        let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let [namespace, name, uid] = ["shop", "puller", "u-1"].map(str::to_owned);
        Self { namespace, name, uid, annotations }
    }
}
