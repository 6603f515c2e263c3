//! The purposes of Secrets, and the uses that they exclude.
//!
//! Invariant: a Secret with a purpose is never used where its values become visible to others: in code, in variables,
//! or at an address that another user chooses.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mainstay_api::names::{CONFIG, CREDENTIALS, GENERATE, NATS_LOGIN, PROPAGATED_FROM, REGISTRY_LOGIN};

/// Name prefix of bootstrap tokens.
const BOOTSTRAP_TOKENS: &str = "bootstrap-token-";
/// Annotation of each Secret with a ServiceAccount token.
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// The purpose of a Secret, in ascending rank. Some uses are excluded only by purposes of a higher rank. If several
/// purposes exclude a use, the one with the highest rank is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Environment variables or files of a Function's code.
    Code,
    /// Public keys that verify commits of a GitRepository.
    SignatureKeys,
    /// The credentials of the repository that a Function defines itself.
    FunctionRepository,
    /// The credentials of a GitRepository.
    Repository,
    /// The variables of a GitSync.
    Values,
    /// The private key that signs commits of an ImageUpdateAutomation.
    Signing,
    /// The credentials of a Git repository's proxy.
    Proxy,
    /// The token of a Receiver.
    Receiver,
    /// The credentials of a Provider.
    Provider,
    /// The login and certificates for the registry of an OCIRepository, a HelmChart or an ImageRepository.
    Artifact,
    /// The credentials that pull the image of the builder.
    BuilderImage,
    /// The credentials of the package registries of builds.
    PackageRegistry,
    /// The credentials of the image registry.
    ImageRegistry,
    /// The keys that decrypt files of a GitSync.
    Decryption,
    /// The kubeconfig of a GitSync.
    KubeConfig,
    /// An SSH key that the agent created; identified by its label.
    GeneratedKey,
    /// The login and the certificate of the installed NATS; identified by its label.
    Nats,
    /// A Secret that the agent copies to all namespaces; identified by its label.
    AllNamespaces,
    /// The token of a ServiceAccount; identified by its annotation.
    ServiceAccount,
    /// A token with which nodes join the cluster; identified by its name.
    BootstrapToken,
}

/// All purposes of a Secret.
pub type Purposes = BTreeSet<Purpose>;

impl Purpose {
    /// Returns the end of a sentence such as "holds the credentials for".
    pub const fn text(self) -> &'static str {
        match self {
            Self::Code => "the code of a Function",
            Self::SignatureKeys => "the signatures of a Git repository",
            Self::FunctionRepository => "the Git repository of a Function",
            Self::Repository => "a Git repository",
            Self::Values => "the variables or charts of a GitSync",
            Self::Signing => "signing commits",
            Self::Proxy => "a proxy of a Git repository",
            Self::Receiver => "a Receiver",
            Self::Provider => "a Provider",
            Self::Artifact => "an OCIRepository, a HelmChart or an ImageRepository",
            Self::BuilderImage => "the image of the builder",
            Self::PackageRegistry => "the package registries",
            Self::ImageRegistry => "the image registry",
            Self::Decryption => "the decryption of files",
            Self::KubeConfig => "another cluster",
            Self::GeneratedKey => "a Git repository (a key that the agent generated)",
            Self::Nats => "the NATS of events",
            Self::AllNamespaces => "all namespaces",
            Self::ServiceAccount => "a ServiceAccount",
            Self::BootstrapToken => "nodes that join the cluster",
        }
    }

    /// Whether a Secret with the purpose `other` may not be used for this one.
    const fn is_excluded_by(self, other: Self) -> bool {
        use Purpose as P;
        match self {
            // Code ranks last: every other purpose excludes it.
            P::Code => true,
            // Public keys may be used from any Secret, because the values are neither shown nor sent.
            P::SignatureKeys => false,
            // The values are sent to the address in an object. Generated keys sign there but are not sent.
            P::FunctionRepository | P::Repository => {
                !matches!(other, P::SignatureKeys | P::FunctionRepository | P::Repository | P::GeneratedKey)
            }
            // The values are written into objects.
            P::Values => !matches!(other, P::SignatureKeys | P::FunctionRepository | P::Values),
            // The operator configures these Secrets, and they are copied to all namespaces.
            P::BuilderImage | P::PackageRegistry | P::ImageRegistry => {
                !matches!(other, P::BuilderImage | P::PackageRegistry | P::ImageRegistry | P::AllNamespaces)
                    && other.outranks(self)
            }
            // The values are sent to an address that the author of the Provider chooses.
            P::Provider => !matches!(other, P::SignatureKeys | P::Provider),
            // The values are sent to an address that the author of the OCIRepository chooses.
            P::Artifact => !matches!(other, P::SignatureKeys | P::Artifact),
            // An automation must not stop other objects by their Secrets, or sign with a key that others have.
            P::Signing => !matches!(other, P::SignatureKeys | P::Signing),
            // The values are sent to an address in the Secret, or not at all.
            P::Proxy
            | P::Receiver
            | P::Decryption
            | P::KubeConfig
            | P::GeneratedKey
            | P::Nats
            | P::AllNamespaces
            | P::ServiceAccount
            | P::BootstrapToken => other.outranks(self),
        }
    }

    const fn outranks(self, other: Self) -> bool {
        self as u8 > other as u8
    }
}

/// Returns the purpose that excludes a use, if there is one. If there are several, returns the one with the highest
/// rank.
pub fn excluding(purposes: &Purposes, used_for: Purpose) -> Option<Purpose> {
    purposes.iter().rev().copied().find(|purpose| used_for.is_excluded_by(*purpose))
}

/// Returns the purpose of a Secret by its name.
pub fn by_name(name: &str) -> Option<Purpose> {
    name.starts_with(BOOTSTRAP_TOKENS).then_some(Purpose::BootstrapToken)
}

/// Returns the purpose of a Secret by its metadata.
pub fn by_metadata(secret: &ObjectMeta) -> Option<Purpose> {
    let get = |map: &Option<BTreeMap<String, String>>, name: &str| map.as_ref()?.get(name).cloned();
    stated(|name| get(&secret.labels, name), |name| get(&secret.annotations, name))
}

/// Same as `by_metadata`, for JSON.
pub(super) fn by_object(secret: &serde_json::Value) -> Option<Purpose> {
    let map = |path: &str| secret.pointer(path).and_then(serde_json::Value::as_object);
    let (labels, annotations) = (map("/metadata/labels"), map("/metadata/annotations"));
    let text = |map: Option<&serde_json::Map<String, serde_json::Value>>, name: &str| {
        map.and_then(|map| map.get(name)).map(|value| value.as_str().unwrap_or_default().to_owned())
    };
    stated(|name| text(labels, name), |name| text(annotations, name))
}

fn stated(label: impl Fn(&str) -> Option<String>, annotation: impl Fn(&str) -> Option<String>) -> Option<Purpose> {
    if label(CONFIG).is_some_and(|value| value == CREDENTIALS) || label(PROPAGATED_FROM).is_some() {
        return Some(Purpose::AllNamespaces);
    }
    if annotation(SERVICE_ACCOUNT).is_some() {
        return Some(Purpose::ServiceAccount);
    }
    label(GENERATE).map(|value| match &*value {
        REGISTRY_LOGIN => Purpose::ImageRegistry,
        NATS_LOGIN => Purpose::Nats,
        _ => Purpose::GeneratedKey,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use Purpose as P;

    const ALL: [P; 20] = [
        P::Code,
        P::SignatureKeys,
        P::FunctionRepository,
        P::Repository,
        P::Values,
        P::Signing,
        P::Proxy,
        P::Receiver,
        P::Provider,
        P::Artifact,
        P::BuilderImage,
        P::PackageRegistry,
        P::ImageRegistry,
        P::Decryption,
        P::KubeConfig,
        P::GeneratedKey,
        P::Nats,
        P::AllNamespaces,
        P::ServiceAccount,
        P::BootstrapToken,
    ];

    /// The uses in which other users may see values.
    const SHOWING: [P; 6] = [P::Code, P::FunctionRepository, P::Repository, P::Values, P::Provider, P::Artifact];

    #[test]
    fn a_use_that_shows_values_is_excluded_by_every_other_purpose_but_a_few() {
        let allowed = [
            (P::FunctionRepository, P::Repository),
            (P::Repository, P::FunctionRepository),
            (P::FunctionRepository, P::GeneratedKey),
            (P::Repository, P::GeneratedKey),
            (P::Values, P::FunctionRepository),
        ];
        for used_for in SHOWING {
            for other in ALL.into_iter().filter(|other| *other != used_for && *other != P::SignatureKeys) {
                let is_excluded = excluding(&Purposes::from([other]), used_for).is_some();
                assert_eq!(is_excluded, !allowed.contains(&(used_for, other)), "{used_for:?} of {other:?}");
            }
        }
    }

    #[test]
    fn two_purposes_share_a_secret_only_if_they_belong_together() {
        let together = [P::BuilderImage, P::PackageRegistry, P::ImageRegistry, P::AllNamespaces];
        let git = [P::SignatureKeys, P::FunctionRepository, P::Repository, P::GeneratedKey];
        for (one, other) in ALL.into_iter().flat_map(|one| ALL.map(|other| (one, other))) {
            let both = Purposes::from([one, other]);
            let have = [one, other].map(|purpose| excluding(&both, purpose).is_none());
            let belong = [&together[..], &git].iter().any(|group| group.contains(&one) && group.contains(&other));
            if one != other && !belong && one != P::SignatureKeys && other != P::SignatureKeys {
                assert_ne!(have, [true, true], "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn a_secret_with_another_purpose_does_not_sign() {
        for other in ALL {
            let is_excluded = excluding(&Purposes::from([other]), P::Signing).is_some();
            assert_eq!(is_excluded, !matches!(other, P::SignatureKeys | P::Signing), "{other:?}");
        }
        // These uses show the values to no other user, so they keep a Secret that an automation names.
        for used_for in [P::Proxy, P::Receiver, P::Decryption, P::KubeConfig] {
            assert_eq!(excluding(&Purposes::from([used_for, P::Signing]), used_for), None, "{used_for:?}");
        }
    }

    #[test]
    fn reads_the_purpose_that_a_secret_states() {
        let of = |metadata: serde_json::Value| {
            let found = by_object(&json!({ "metadata": metadata }));
            let typed: ObjectMeta = serde_json::from_value(metadata).unwrap();
            assert_eq!(found, by_metadata(&typed));
            found
        };
        assert_eq!(of(json!({"labels": {(CONFIG): CREDENTIALS}})), Some(P::AllNamespaces));
        assert_eq!(of(json!({"labels": {(PROPAGATED_FROM): "mainstay-system"}})), Some(P::AllNamespaces));
        assert_eq!(of(json!({"labels": {(CONFIG): "other"}})), None);
        assert_eq!(of(json!({"labels": {(GENERATE): "ssh-key"}})), Some(P::GeneratedKey));
        assert_eq!(of(json!({"labels": {(GENERATE): REGISTRY_LOGIN}})), Some(P::ImageRegistry));
        assert_eq!(of(json!({"labels": {(GENERATE): NATS_LOGIN}})), Some(P::Nats));
        assert_eq!(of(json!({"annotations": {(SERVICE_ACCOUNT): "admin"}})), Some(P::ServiceAccount));
        assert_eq!(of(json!({})), None);
        assert_eq!((by_name("bootstrap-token-abc"), by_name("token")), (Some(P::BootstrapToken), None));
    }
}
