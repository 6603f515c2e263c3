//! The purposes that a Secret is named for, and which of them exclude each other.
//!
//! Invariant: a Secret with a purpose is never used in a way that can show its values to others: in code, in variables, or at an
//! address that somebody else chooses.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mainstay_api::names::{CONFIG, CREDENTIALS, GENERATE, PROPAGATED_FROM, REGISTRY_LOGIN};

/// Prefix of the names of bootstrap tokens.
const BOOTSTRAP_TOKENS: &str = "bootstrap-token-";
/// Annotation of each Secret with a token of a ServiceAccount.
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// The purpose of a Secret. If two exclude other uses, the later one in this list has the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Environment variables or files of a Function's code.
    Code,
    /// Public keys that verify commits of a GitRepository.
    SignatureKeys,
    /// The repository that a Function brings along.
    FunctionRepository,
    /// The credentials of a GitRepository.
    Repository,
    /// The variables of a GitSync.
    Values,
    /// The proxy of a GitRepository.
    Proxy,
    /// The token of a Receiver.
    Receiver,
    /// Pulls the image of the builder.
    BuilderImage,
    /// The package registries of builds.
    PackageRegistry,
    /// The image registry.
    ImageRegistry,
    /// The keys that decrypt files of a GitSync.
    Decryption,
    /// The kubeconfig of a GitSync.
    KubeConfig,
    /// By its label: an SSH key that the agent made.
    GeneratedKey,
    /// By its label: a Secret that the agent copies to all namespaces.
    AllNamespaces,
    /// By its annotation: the token of a ServiceAccount.
    ServiceAccount,
    /// By its name: a token with which nodes join the cluster.
    BootstrapToken,
}

/// All purposes of one Secret.
pub type Purposes = BTreeSet<Purpose>;

impl Purpose {
    /// The end of a sentence such as "holds the credentials for".
    pub const fn text(self) -> &'static str {
        match self {
            Self::Code => "the code of a Function",
            Self::SignatureKeys => "the signatures of a Git repository",
            Self::FunctionRepository => "the Git repository of a Function",
            Self::Repository => "a Git repository",
            Self::Values => "the variables of a GitSync",
            Self::Proxy => "a proxy of a Git repository",
            Self::Receiver => "a Receiver",
            Self::BuilderImage => "the image of the builder",
            Self::PackageRegistry => "the package registries",
            Self::ImageRegistry => "the image registry",
            Self::Decryption => "the decryption of files",
            Self::KubeConfig => "another cluster",
            Self::GeneratedKey => "a Git repository, which the agent made",
            Self::AllNamespaces => "all namespaces",
            Self::ServiceAccount => "a ServiceAccount",
            Self::BootstrapToken => "nodes that join the cluster",
        }
    }

    /// Whether a Secret that has the purpose `other` may not be used for this one.
    const fn is_excluded_by(self, other: Self) -> bool {
        use Purpose as P;
        match self {
            // It claims no Secret, so it comes after every purpose.
            P::Code => true,
            // They are neither shown nor sent.
            P::SignatureKeys => false,
            // Sent to the address in an object. Keys of the agent are used there without being sent.
            P::FunctionRepository | P::Repository => {
                !matches!(other, P::SignatureKeys | P::FunctionRepository | P::Repository | P::GeneratedKey)
            }
            // Written into objects.
            P::Values => !matches!(other, P::SignatureKeys | P::FunctionRepository | P::Values),
            // The operator names these; they are copied to all namespaces.
            P::BuilderImage | P::PackageRegistry | P::ImageRegistry => {
                !matches!(other, P::BuilderImage | P::PackageRegistry | P::ImageRegistry | P::AllNamespaces)
                    && other.outranks(self)
            }
            // Sent to where the Secret itself says, or nowhere.
            P::Proxy
            | P::Receiver
            | P::Decryption
            | P::KubeConfig
            | P::GeneratedKey
            | P::AllNamespaces
            | P::ServiceAccount
            | P::BootstrapToken => other.outranks(self),
        }
    }

    const fn outranks(self, other: Self) -> bool {
        self as u8 > other as u8
    }
}

/// The purpose for which a Secret is kept back from a use, if there is one; of several, the first in rank.
pub fn excluding(purposes: &Purposes, used_for: Purpose) -> Option<Purpose> {
    purposes.iter().rev().copied().find(|purpose| used_for.is_excluded_by(*purpose))
}

/// The purpose of a Secret by its own name.
pub fn by_name(name: &str) -> Option<Purpose> {
    name.starts_with(BOOTSTRAP_TOKENS).then_some(Purpose::BootstrapToken)
}

/// The purpose that a Secret states in its metadata.
pub fn by_metadata(secret: &ObjectMeta) -> Option<Purpose> {
    let get = |map: &Option<BTreeMap<String, String>>, name: &str| map.as_ref()?.get(name).cloned();
    stated(|name| get(&secret.labels, name), |name| get(&secret.annotations, name))
}

/// The same of a Secret as the API server returned it.
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
    label(GENERATE).map(|value| if value == REGISTRY_LOGIN { Purpose::ImageRegistry } else { Purpose::GeneratedKey })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use Purpose as P;

    const ALL: [P; 16] = [
        P::Code,
        P::SignatureKeys,
        P::FunctionRepository,
        P::Repository,
        P::Values,
        P::Proxy,
        P::Receiver,
        P::BuilderImage,
        P::PackageRegistry,
        P::ImageRegistry,
        P::Decryption,
        P::KubeConfig,
        P::GeneratedKey,
        P::AllNamespaces,
        P::ServiceAccount,
        P::BootstrapToken,
    ];

    /// The uses that can show values to somebody else than the agent.
    const SHOWING: [P; 4] = [P::Code, P::FunctionRepository, P::Repository, P::Values];

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
        assert_eq!(of(json!({"annotations": {(SERVICE_ACCOUNT): "admin"}})), Some(P::ServiceAccount));
        assert_eq!(of(json!({})), None);
        assert_eq!((by_name("bootstrap-token-abc"), by_name("token")), (Some(P::BootstrapToken), None));
    }
}
