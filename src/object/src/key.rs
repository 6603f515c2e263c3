//! The identity of an object.
//!
//! Invariant: a key has no version, so an object of `apps/v1` and one of `apps/v1beta1` with the same name are the same
//! object.

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The identity of an object. It has the size of a pointer, because many tables store it while the object is managed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<Identity>);

/// The parts of a [`Key`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// API group; empty for the core group.
    pub group: Arc<str>,
    /// Kind, such as `Deployment`.
    pub kind: Arc<str>,
    /// Namespace; `None` for cluster-scoped objects and for manifests without a namespace.
    pub namespace: Option<Arc<str>>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// Builds a key from its parts. An empty namespace is `None`.
    pub fn new(
        group: impl Into<Arc<str>>,
        kind: impl Into<Arc<str>>,
        namespace: Option<&str>,
        name: impl Into<Arc<str>>,
    ) -> Self {
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).map(Into::into);
        Identity { group: group.into(), kind: kind.into(), namespace, name: name.into() }.into()
    }

    /// Returns the key with this namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: Option<Arc<str>>) -> Self {
        if self.namespace == namespace {
            return self.clone();
        }
        Identity { namespace, ..Identity::clone(self) }.into()
    }

    /// Returns whether the key has this group and kind.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        &*self.kind == kind && &*self.group == group
    }
}

impl From<Identity> for Key {
    fn from(identity: Identity) -> Self {
        Self(Arc::new(identity))
    }
}

impl Deref for Key {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.0
    }
}

/// `Deployment.apps shop/web`, `ConfigMap shop/web`, `Namespace shop`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        f.write_str(" ")?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// Splits an `apiVersion` into group and version: `("apps", "v1")`, or `("", "v1")` for the core group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.rsplit_once('/').unwrap_or(("", api_version))
}

/// Interned strings that many objects share (groups, kinds, namespaces).
#[derive(Debug, Default)]
pub struct Names(HashSet<Arc<str>>);

impl Names {
    /// Returns the shared copy of a string.
    pub fn intern(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.0.get(word) {
            return Arc::clone(known);
        }
        let word: Arc<str> = word.into();
        self.0.insert(Arc::clone(&word));
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_a_person_would_name_it() {
        let shown = |group, kind, namespace| Key::new(group, kind, namespace, "web").to_string();
        assert_eq!(shown("apps", "Deployment", Some("shop")), "Deployment.apps shop/web");
        assert_eq!(shown("", "ConfigMap", Some("shop")), "ConfigMap shop/web");
        assert_eq!(shown("", "Namespace", None), "Namespace web");
        assert_eq!(shown("", "ConfigMap", Some("")), "ConfigMap web");
    }

    #[test]
    fn core_group_is_empty() {
        assert_eq!(split_api_version("v1"), ("", "v1"));
        assert_eq!(split_api_version("apps/v1"), ("apps", "v1"));
    }

    #[test]
    fn shares_words() {
        let mut names = Names::default();
        assert!(Arc::ptr_eq(&names.intern("apps"), &names.intern("apps")));
    }
}
