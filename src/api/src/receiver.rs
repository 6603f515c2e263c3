//! `Receiver` (`mainstay.dev/v1alpha1`): accepts pushes reported by a Git host, and looks up the remote immediately.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::schemas::ConditionSchema;

/// Receives the webhooks of a Git host: the repository of a delivery is looked up immediately, whatever the interval.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "Receiver",
    plural = "receivers",
    namespaced,
    status = "ReceiverStatus",
    derive = "PartialEq",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Path", type_ = "string", json_path = ".status.webhookPath", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverSpec {
    /// Who sends, and so how a delivery is authenticated and read. `gitea` is Forgejo as well. `generic` sends nothing but
    /// a request to the path, which is the secret; `generic-hmac` signs the body in the header `X-Signature`. The registries
    /// `dockerhub`, `quay` and `acr` know the path alone, too, and so does a sender of `cdevents`. `harbor` sends the token in
    /// the header `Authorization`, and `nexus` signs the body. `gcr` is a push subscription of Google Pub/Sub, whose
    /// deliveries have an ID token of a service account. Deliveries of `generic-oidc` have a token of one of the
    /// `oidcProviders`.
    #[serde(rename = "type")]
    #[schemars(with = "ReceiverType")]
    pub kind: String,
    /// Secret in the same namespace with the key `token`, of at least 16 bytes: what the host signs deliveries with, or sends
    /// along. A changed token changes the path, too. For `gcr`, the keys `email` and `audience` are those of the push
    /// subscription. Every type needs it except `generic-oidc`, which must not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ReceiverSecretRef>,
    /// Issuers of the tokens that authenticate deliveries; for `generic-oidc` only, which needs at least one. The claim `iss`
    /// of a token selects the issuer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub oidc_providers: Vec<OidcProvider>,
    /// Events that count, named as the host names them, in any case; by default those that report a push.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub events: Vec<String>,
    /// GitRepositories, OCIRepositories and HelmCharts of the same namespace that may be looked up; by default all of them,
    /// and all ImageRepositories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub repositories: Option<Vec<String>>,
    /// The same as `repositories`, in the words of Flux. `GitRepository`, `OCIRepository`, `HelmChart` and `ImageRepository` select
    /// objects of this kind in the same namespace, by name or by labels. Other kinds of Flux do nothing: an object is reconciled when
    /// its source is looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub resources: Option<Vec<ReceiverResource>>,
    /// No effect. Flux has the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// An expression in CEL: only objects for which it is true are looked up. `req` is the body of the delivery, if that is JSON,
    /// and `res` is the object, with `kind` and `metadata`. An object for which it has no result is not looked up, and the
    /// delivery gets the status 500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub resource_filter: Option<String>,
    /// Refuse all deliveries, with the status 503.
    #[serde(default)]
    pub suspend: bool,
}

/// An object that a delivery concerns, in the words of Flux.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverResource {
    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its name, or `*` for all.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace, which must be that of the Receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// No effect: Flux has the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_version: Option<String>,
    /// Select only objects with all these labels at the time of the delivery. `name` must then be `*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub match_labels: BTreeMap<String, String>,
    /// Not supported: use `resourceFilter` of the Receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub filter: Option<String>,
}

/// The Secret of a Receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverSecretRef {
    /// Its name.
    pub name: String,
}

/// An issuer of OpenID Connect, and the conditions for its tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcProvider {
    /// URL of the issuer: `https://…`, as in the claim `iss` of its tokens. The agent reads its configuration and keys there,
    /// and keeps the keys for an hour at most.
    #[serde(rename = "issuerURL")]
    #[schemars(length(min = 1, max = 1024))]
    pub issuer_url: String,
    /// Audience (`aud`) of the tokens; by default `notification-controller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub audience: Option<String>,
    /// Named expressions in CEL, which later variables and the validations read as `vars.NAME`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub variables: Vec<OidcVariable>,
    /// Conditions for the claims of a token; all must be true. At least one is necessary, because a public issuer gives tokens
    /// to everyone.
    #[schemars(length(min = 1, max = 20))]
    pub validations: Vec<OidcValidation>,
}

/// A named expression about the claims of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcVariable {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// An expression in CEL over `claims`, and over `vars` with the variables before it.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,
}

/// A condition for the claims of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcValidation {
    /// An expression in CEL over `claims` and `vars` that is true or false.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,
    /// The response to a delivery for which the expression is false.
    #[schemars(length(min = 1, max = 256))]
    pub message: String,
}

/// Who sends to a Receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiverType {
    /// GitHub.
    Github,
    /// GitLab.
    Gitlab,
    /// Gitea and Forgejo.
    Gitea,
    /// Bitbucket Cloud and Data Center.
    Bitbucket,
    /// Azure DevOps.
    AzureDevops,
    /// Anybody who knows the path.
    Generic,
    /// Anybody who signs the body.
    GenericHmac,
    /// Docker Hub.
    Dockerhub,
    /// Quay.
    Quay,
    /// Azure Container Registry.
    Acr,
    /// Harbor.
    Harbor,
    /// Nexus Repository.
    Nexus,
    /// Google Artifact Registry, by a push subscription of Pub/Sub.
    Gcr,
    /// Anything that sends CDEvents.
    Cdevents,
    /// Anybody with a token of a named issuer of OpenID Connect.
    GenericOidc,
}

impl ReceiverType {
    /// All types.
    pub const ALL: [Self; 15] = [
        Self::Github,
        Self::Gitlab,
        Self::Gitea,
        Self::Bitbucket,
        Self::AzureDevops,
        Self::Generic,
        Self::GenericHmac,
        Self::Dockerhub,
        Self::Quay,
        Self::Acr,
        Self::Harbor,
        Self::Nexus,
        Self::Gcr,
        Self::Cdevents,
        Self::GenericOidc,
    ];

    /// Returns the value of `spec.type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Gitea => "gitea",
            Self::Bitbucket => "bitbucket",
            Self::AzureDevops => "azure-devops",
            Self::Generic => "generic",
            Self::GenericHmac => "generic-hmac",
            Self::Dockerhub => "dockerhub",
            Self::Quay => "quay",
            Self::Acr => "acr",
            Self::Harbor => "harbor",
            Self::Nexus => "nexus",
            Self::Gcr => "gcr",
            Self::Cdevents => "cdevents",
            Self::GenericOidc => "generic-oidc",
        }
    }

    /// Returns the type with this value of `spec.type`.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// The observed state of a Receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Path at which deliveries are received; absent while there is no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_path: Option<String>,
    /// The whole URL, if the agent knows under which address others reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Ready, and Stalled while only a change of the spec helps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_schema() {
        for kind in ReceiverType::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(ReceiverType::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(ReceiverType::parse("Github"), None);
    }
}
