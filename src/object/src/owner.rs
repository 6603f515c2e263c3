//! The resource for which an object is managed.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::Key;

/// Namespace and name of a resource, written as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName(Arc<str>);

/// The resource for which objects are managed, or which messages concern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Owner {
    /// A GitSync, which manages the objects of its commit.
    #[serde(rename = "sync")]
    GitSync(NamespacedName),
    /// A Function, which manages its children.
    #[serde(rename = "function")]
    Function(NamespacedName),
    /// A Receiver, which manages no objects.
    #[serde(rename = "receiver")]
    Receiver(NamespacedName),
    /// A GitRepository, which manages no objects.
    #[serde(rename = "repository")]
    GitRepository(NamespacedName),
    /// An APIRule, whose routes are in no store.
    #[serde(rename = "apirule")]
    ApiRule(NamespacedName),
    /// An OCIRepository. It manages no objects.
    #[serde(rename = "ociRepository")]
    OciRepository(NamespacedName),
    /// A HelmChart. It manages no objects.
    #[serde(rename = "helmChart")]
    HelmChart(NamespacedName),
    /// An ImageRepository. It manages no objects.
    #[serde(rename = "imageRepository")]
    ImageRepository(NamespacedName),
    /// An ImagePolicy. It manages no objects.
    #[serde(rename = "imagePolicy")]
    ImagePolicy(NamespacedName),
    /// An ImageUpdateAutomation. It manages no objects.
    #[serde(rename = "imageUpdateAutomation")]
    ImageUpdateAutomation(NamespacedName),
}

impl NamespacedName {
    /// Builds a name from its parts. Neither contains a `/`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// Returns `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or(("", &self.0))
    }
}

impl Owner {
    /// Returns a GitSync.
    pub fn git_sync(namespace: &str, name: &str) -> Self {
        Self::GitSync(NamespacedName::new(namespace, name))
    }

    /// Returns a Function.
    pub fn function(namespace: &str, name: &str) -> Self {
        Self::Function(NamespacedName::new(namespace, name))
    }

    /// Returns a Receiver.
    pub fn receiver(namespace: &str, name: &str) -> Self {
        Self::Receiver(NamespacedName::new(namespace, name))
    }

    /// Returns a GitRepository.
    pub fn git_repository(namespace: &str, name: &str) -> Self {
        Self::GitRepository(NamespacedName::new(namespace, name))
    }

    /// Returns an APIRule.
    pub fn api_rule(namespace: &str, name: &str) -> Self {
        Self::ApiRule(NamespacedName::new(namespace, name))
    }

    /// Returns an OCIRepository.
    pub fn oci_repository(namespace: &str, name: &str) -> Self {
        Self::OciRepository(NamespacedName::new(namespace, name))
    }

    /// Returns a HelmChart.
    pub fn helm_chart(namespace: &str, name: &str) -> Self {
        Self::HelmChart(NamespacedName::new(namespace, name))
    }

    /// Returns an ImageRepository.
    pub fn image_repository(namespace: &str, name: &str) -> Self {
        Self::ImageRepository(NamespacedName::new(namespace, name))
    }

    /// Returns an ImagePolicy.
    pub fn image_policy(namespace: &str, name: &str) -> Self {
        Self::ImagePolicy(NamespacedName::new(namespace, name))
    }

    /// Returns an ImageUpdateAutomation.
    pub fn image_update_automation(namespace: &str, name: &str) -> Self {
        Self::ImageUpdateAutomation(NamespacedName::new(namespace, name))
    }

    /// Returns the namespace and name of the resource.
    pub fn resource(&self) -> &NamespacedName {
        match self {
            Self::GitSync(name)
            | Self::Function(name)
            | Self::Receiver(name)
            | Self::GitRepository(name)
            | Self::ApiRule(name)
            | Self::OciRepository(name)
            | Self::HelmChart(name)
            | Self::ImageRepository(name)
            | Self::ImagePolicy(name)
            | Self::ImageUpdateAutomation(name) => name,
        }
    }

    /// Returns the key of the resource itself.
    pub fn key(&self) -> Key {
        let (group, kind) = match self {
            Self::GitSync(_) => ("mainstay.dev", "GitSync"),
            Self::Function(_) => ("serverless.kyma-project.io", "Function"),
            Self::Receiver(_) => ("mainstay.dev", "Receiver"),
            Self::GitRepository(_) => ("serverless.kyma-project.io", "GitRepository"),
            Self::ApiRule(_) => ("gateway.kyma-project.io", "APIRule"),
            Self::OciRepository(_) => ("mainstay.dev", "OCIRepository"),
            Self::HelmChart(_) => ("mainstay.dev", "HelmChart"),
            Self::ImageRepository(_) => ("mainstay.dev", "ImageRepository"),
            Self::ImagePolicy(_) => ("mainstay.dev", "ImagePolicy"),
            Self::ImageUpdateAutomation(_) => ("mainstay.dev", "ImageUpdateAutomation"),
        };
        Key::new(group, kind, Some(self.resource().namespace()), self.resource().name())
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for NamespacedName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for Owner {
    /// Formats a GitSync as `namespace/name`, and other resources with their kind, as in `function namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GitSync(name) => write!(f, "{name}"),
            Self::Function(name) => write!(f, "function {name}"),
            Self::Receiver(name) => write!(f, "receiver {name}"),
            Self::GitRepository(name) => write!(f, "repository {name}"),
            Self::ApiRule(name) => write!(f, "apirule {name}"),
            Self::OciRepository(name) => write!(f, "ocirepository {name}"),
            Self::HelmChart(name) => write!(f, "helmchart {name}"),
            Self::ImageRepository(name) => write!(f, "imagerepository {name}"),
            Self::ImagePolicy(name) => write!(f, "imagepolicy {name}"),
            Self::ImageUpdateAutomation(name) => write!(f, "imageupdateautomation {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_sync_and_a_function_of_one_name_are_two_owners() {
        let (sync, function) = (Owner::git_sync("shop", "web"), Owner::function("shop", "web"));
        assert_ne!(sync, function);
        assert_eq!((sync.to_string(), function.to_string()), ("shop/web".into(), "function shop/web".into()));
        assert_eq!((function.resource().namespace(), function.resource().name()), ("shop", "web"));
    }
}
