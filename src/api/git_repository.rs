//! `GitRepository` (`serverless.kyma-project.io/v1alpha1`): where a repository is and how to authenticate to it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Address of a Git repository, and the credentials for it.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "serverless.kyma-project.io",
    version = "v1alpha1",
    kind = "GitRepository",
    plural = "gitrepositories",
    namespaced,
    derive = "PartialEq",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Auth", type_ = "string", json_path = ".spec.auth.type")
)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositorySpec {
    /// Address of the repository: `https://…`, `http://…`, `ssh://user@host:port/path` or
    /// `user@host:path`; or `git://…`, which neither encrypts nor authenticates.
    pub url: String,
    /// How to authenticate; without it the repository is read anonymously.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<RepositoryAuth>,
    /// The proxy through which the repository is reached; it carries HTTP and SSH. Without it the agent's `HTTPS_PROXY`,
    /// `HTTP_PROXY` and `NO_PROXY` apply to HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<ProxySecretRef>,
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
    /// `githubAppInstallationID` and `githubAppPrivateKey`; a private CA under `ca.crt`;
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
