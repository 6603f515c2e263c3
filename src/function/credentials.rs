//! The Secrets that no Function's code may read: those of its builds, of Git repositories, of Receivers, of ServiceAccounts, of
//! the agent, and those that are copied to all namespaces.
//!
//! Who may create a Function can already run code in its namespace; who may change the code of one, in a repository, cannot
//! read the Secrets there, unless the Function hands them over. These are worth more than the namespace: with them images are
//! pushed and repositories read.
//!
//! Deliberately absent: which GitRepositories and Receivers there are, and reading Secrets (`named_secrets`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Settings;
use super::violation::{Violation, shown};
use crate::api::FunctionSpec;
use crate::api::git_repository::GitRepositorySpec;
use crate::api::names::{CONFIG, CREDENTIALS, GENERATE, PROPAGATED_FROM};

/// How the names of bootstrap tokens begin; under other names they are none.
const BOOTSTRAP_TOKENS: &str = "bootstrap-token-";
/// Annotation of every token of a ServiceAccount that is kept in a Secret.
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Names of Secrets of one namespace, each with what it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials(BTreeMap<String, &'static str>);

impl Credentials {
    /// Those of builds, and of these GitRepositories of the Function's namespace.
    pub fn new<'r>(settings: &Settings, repositories: impl IntoIterator<Item = &'r GitRepositorySpec>) -> Self {
        let [external, default, packages] = settings.secrets();
        let mut all: BTreeMap<String, &'static str> = BTreeMap::new();
        for repository in repositories {
            let auth = repository.auth.iter().map(|auth| (&auth.secret_name, "a Git repository"));
            let proxy = repository.proxy_secret_ref.iter().map(|proxy| (&proxy.name, "a proxy of a Git repository"));
            all.extend(auth.chain(proxy).map(|(name, of)| (name.clone(), of)));
        }
        for (name, of) in
            [(external, "the image registry"), (default, "the image registry"), (packages, "the package registries")]
        {
            all.insert(name.to_owned(), of);
        }
        Self(all)
    }

    /// The same, and these.
    #[must_use]
    pub(super) fn and(&self, others: impl IntoIterator<Item = (String, &'static str)>) -> Self {
        Self(others.into_iter().chain(self.0.iter().map(|(name, of)| (name.clone(), *of))).collect())
    }

    /// The same, and those that the Receivers of the namespace name.
    #[must_use]
    pub(super) fn and_of_receivers(&self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.and(secrets.into_iter().map(|name| (name, "a Receiver")))
    }

    /// What a Secret is for, if it is one of them.
    pub fn purpose(&self, secret: &str) -> Option<&'static str> {
        let is_bootstrap_token = secret.starts_with(BOOTSTRAP_TOKENS);
        self.0.get(secret).copied().or(is_bootstrap_token.then_some("nodes that join the cluster"))
    }
}

impl Credentials {
    /// What is wrong with a Secret that the code is to read.
    pub(super) fn refusal(&self, reader: &str, secret: &str, path: &str) -> Option<Violation> {
        let purpose = self.purpose(secret)?;
        let what = format!("{reader} reads Secret \"{}\", which holds the credentials for {purpose}", shown(secret));
        let why = "the code of a Function may not read them; give it a Secret of its own";
        Some(Violation::invalid(what, path).because(why))
    }
}

impl Credentials {
    /// Why the code may not get a Secret that a ServiceBindingUsage hands to it.
    pub(super) fn refusal_of_bound(&self, secret: &str) -> Option<String> {
        let purpose = self.purpose(secret)?;
        Some(format!(
            "Secret \"{}\" holds the credentials for {purpose}: the code of a Function may not read them; give the \
             ServiceBinding a Secret of its own",
            shown(secret)
        ))
    }
}

/// What a Secret is for by its own account, whatever its name is.
pub(super) fn purpose_of(secret: &ObjectMeta) -> Option<&'static str> {
    let has =
        |all: &Option<BTreeMap<String, String>>, name: &str| all.as_ref().is_some_and(|all| all.contains_key(name));
    let is_for_all = secret.labels.as_ref().and_then(|all| all.get(CONFIG)).is_some_and(|value| value == CREDENTIALS);
    if is_for_all || has(&secret.labels, PROPAGATED_FROM) {
        Some("all namespaces")
    } else if has(&secret.annotations, SERVICE_ACCOUNT) {
        Some("a ServiceAccount")
    } else if has(&secret.labels, GENERATE) {
        Some("a Git repository, which the agent made")
    } else {
        None
    }
}

/// The Secrets that a Function's code is to read.
pub(super) fn named(spec: &FunctionSpec) -> impl Iterator<Item = &str> {
    let sources = spec.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let read = sources.filter_map(|from| from.secret_key_ref.as_ref()).map(|secret| secret.name.as_str());
    read.chain(spec.secret_mounts.iter().flatten().map(|mount| mount.secret_name.as_str()))
}
