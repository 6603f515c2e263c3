//! `GitRepository` (`serverless.kyma-project.io/v1alpha1`): the address and authentication of a repository.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schemas::{ConditionSchema, TimeSchema};

/// Address of a Git repository, and the credentials for it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "serverless.kyma-project.io",
    version = "v1alpha1",
    kind = "GitRepository",
    plural = "gitrepositories",
    namespaced,
    status = "GitRepositoryStatus",
    derive = "PartialEq",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Auth", type_ = "string", json_path = ".spec.auth.type"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.shortRevision"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Pinned", type_ = "string", json_path = ".status.pinnedHostKeys[0].fingerprint", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositorySpec {
    /// Address of the repository: `https://…`, `http://…`, `ssh://user@host:port/path` or
    /// `user@host:path`; or `git://…`, which neither encrypts nor authenticates.
    pub url: String,
    /// How to authenticate; without it the repository is read anonymously.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<RepositoryAuth>,
    /// Who issues the credentials. `generic`, the default: the Secret in `auth`. `github`: the GitHub App in this Secret.
    /// `azure` for Azure DevOps and `aws` for CodeCommit: the identity of `serviceAccountName`, without `auth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub provider: Option<String>,
    /// ServiceAccount in the same namespace whose identity at `aws` or `azure` reads the repository. Without it, the
    /// identity of the agent is used; only namespaces that the operator lists may do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
    /// The proxy through which the repository is reached; it carries HTTP and SSH. Without it the agent's `HTTPS_PROXY`,
    /// `HTTP_PROXY` and `NO_PROXY` apply to HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<ProxySecretRef>,
    /// Required signatures of commits; without it commits need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// Trusted keys of its SSH server. `Known`, the default: those in `known_hosts` of the Secret, or else in the
    /// ConfigMap `mainstay-known-hosts` of the agent, or else those that large hosts publish; any other is refused.
    /// `PinAtFirstUse`: the same, and the first key of an otherwise unknown host is pinned in `status.pinnedHostKeys`.
    /// No other key is accepted from then on. An attacker in the host's place at that moment is trusted, too: compare
    /// the fingerprint with the one that the host's operator publishes. A pin is dropped when the host or its port
    /// changes, when this is `Known` again, and when the host is known otherwise.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host_keys: HostKeyPolicy,
    /// Whether submodules are fetched as well, and theirs, as `.gitmodules` names them. The credentials are sent to
    /// submodules on the same server only. By default a submodule under `baseDir` is a problem.
    #[serde(default, skip_serializing_if = "is_default")]
    pub submodules: bool,
    /// Whether files in Git LFS are fetched, as far as they are read: over HTTP(S), from the server of the repository or the
    /// `lfs.url` of `.lfsconfig`. The credentials are sent to the repository's own server only. By default such a file is a
    /// problem.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lfs: bool,
}

/// Trusted keys of an SSH server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostKeyPolicy {
    /// Those in `known_hosts` of the Secret, or else in the ConfigMap `mainstay-known-hosts` of the agent, or else those
    /// that large hosts publish.
    #[default]
    Known,
    /// The same, and the first key of an otherwise unknown host, which is then in `status.pinnedHostKeys`. An attacker
    /// in its place at that moment is trusted, too.
    PinAtFirstUse,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The observed state of a repository. It is written when it changes in meaning, and not at each lookup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryStatus {
    /// `metadata.generation` that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// HEAD at the last successful lookup: its branch and commit, such as `main@sha1:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The same with the first 12 digits of the commit, for the column REVISION.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_revision: Option<String>,
    /// Fingerprint and type of the host key that was accepted last; absent unless the repository is on an SSH server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// Time of the lookup behind this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub last_lookup: Option<Time>,
    /// Host keys that were pinned at first use, through any proxy. After one is removed, the next key that the host
    /// presents is pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned_host_keys: Vec<PinnedHostKey>,
    /// Conditions: Ready, Resolved, Authenticated, and HostKeyPinned while a key is pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

/// A host key that was pinned at first use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedHostKey {
    /// The host as in `known_hosts`: `host`, or `[host]:port` unless the port is 22.
    pub host: String,
    /// The public key as in `known_hosts`: its type and its base64 text.
    pub key: String,
    /// The key's fingerprint and type, as `ssh-keygen -l` prints them.
    pub fingerprint: String,
    /// Time at which it was pinned.
    #[schemars(with = "TimeSchema")]
    pub pinned_at: Time,
}

/// Required signatures of commits. Other commits are neither applied nor built; applied objects stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verify {
    /// The signed object; by default the commit.
    #[serde(default)]
    pub mode: VerifyMode,
    /// The Secret with the public keys for signature verification.
    pub secret_ref: VerifySecretRef,
}

/// The object that must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VerifyMode {
    /// The commit.
    #[default]
    #[serde(rename = "HEAD")]
    Head,
    /// The annotated tag that is followed.
    Tag,
    /// The annotated tag that is followed, and the commit.
    #[serde(rename = "TagAndHEAD")]
    TagAndHead,
}

/// The Secret with the public keys for signature verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifySecretRef {
    /// Secret in the same namespace. Each of its values, whatever its name, holds OpenPGP public keys, SSH public keys, or
    /// an `allowed_signers` file.
    pub name: String,
}

/// The Secret with a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxySecretRef {
    /// Secret in the same namespace: key `address` (`http://host:port`, `https://host:port` or `socks5://host:port`), and
    /// `username` and `password` if the proxy asks for them.
    pub name: String,
}

/// How to authenticate to a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryAuth {
    /// `basic` for a password, token or client certificate over HTTP(S); `key` for an SSH key.
    #[serde(rename = "type")]
    pub kind: AuthType,
    /// Secret in the same namespace. For `basic`: `username` and `password`, or `bearerToken`, or `githubAppID`,
    /// `githubAppInstallationID` (or the name of its owner, `githubAppInstallationOwner`) and `githubAppPrivateKey`; a private CA under `ca.crt`;
    /// a client certificate under `tls.crt` and `tls.key`. For `key`: the private key under `key`, `ssh-privatekey` or
    /// `identity`, the passphrase of an encrypted key under `password`, and the host keys of the server under
    /// `known_hosts`.
    pub secret_name: String,
}

/// The two ways to authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthType {
    /// User name with a password or token.
    Basic,
    /// SSH key.
    Key,
}
