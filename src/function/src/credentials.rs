//! The Secrets that no Function's code may read: those of its builds, of Git repositories, of Receivers, of ServiceAccounts, of
//! the agent, and those that are copied to all namespaces. Nor are they sent to an address that a Function names: where they
//! are sent to is for others to say.
//!
//! Who may create a Function can already run code in its namespace; who may change the code of one, in a repository, cannot
//! read the Secrets there, unless the Function hands them over. These are worth more than the namespace: with them images are
//! pushed and repositories read.
//!
//! Deliberately absent: which GitRepositories and Receivers there are, and reading Secrets (`named_secrets`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Settings;
use super::violation::{Violation, shown};
use mainstay_api::FunctionSpec;
use mainstay_api::git_repository::{AuthType, GitRepositorySpec, RepositoryAuth};
use mainstay_api::names::{CONFIG, CREDENTIALS, GENERATE, PROPAGATED_FROM};
use mainstay_git::RemoteUrl;
use mainstay_object::syntax;

/// How the names of bootstrap tokens begin; under other names they are none.
const BOOTSTRAP_TOKENS: &str = "bootstrap-token-";
/// Annotation of every token of a ServiceAccount that is kept in a Secret.
const SERVICE_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// What a key pair is for that the agent has made.
pub(super) const MADE: &str = "a Git repository, which the agent made";

/// Names of Secrets of one namespace, each with what it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    purposes: BTreeMap<String, &'static str>,
    /// The servers to which GitRepositories send each of theirs; `None` where it is sent to none.
    servers: BTreeMap<String, BTreeSet<Option<String>>>,
    /// Those that Functions name for repositories of their own.
    of_functions: BTreeSet<String>,
}

impl Credentials {
    /// Those of builds, and of these GitRepositories of the Function's namespace.
    pub fn new<'r>(settings: &Settings, repositories: impl IntoIterator<Item = &'r GitRepositorySpec>) -> Self {
        let [external, default, packages] = settings.secrets();
        let (mut purposes, mut servers) = (BTreeMap::new(), BTreeMap::<String, BTreeSet<_>>::new());
        for repository in repositories {
            let auth = repository.auth.iter().map(|auth| (&auth.secret_name, "a Git repository"));
            let proxy = repository.proxy_secret_ref.iter().map(|proxy| (&proxy.name, "a proxy of a Git repository"));
            purposes.extend(auth.chain(proxy).map(|(name, of)| (name.clone(), of)));
            if let (Some(auth), Ok(url)) = (&repository.auth, RemoteUrl::parse(&repository.url)) {
                servers.entry(auth.secret_name.clone()).or_default().insert(url.server());
            }
        }
        for (name, of) in
            [(external, "the image registry"), (default, "the image registry"), (packages, "the package registries")]
        {
            purposes.insert(name.to_owned(), of);
        }
        if let Some(secret) = &settings.image_pull_secret {
            purposes.entry(secret.clone()).or_insert("the image of the builder");
        }
        Self { purposes, servers, of_functions: BTreeSet::new() }
    }

    /// The same, and these.
    #[must_use]
    pub(super) fn and(&self, others: impl IntoIterator<Item = (String, &'static str)>) -> Self {
        let known = self.purposes.iter().map(|(name, of)| (name.clone(), *of));
        Self { purposes: others.into_iter().chain(known).collect(), ..self.clone() }
    }

    /// The same, and those that the Receivers of the namespace name.
    #[must_use]
    pub(super) fn and_of_receivers(&self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.and(secrets.into_iter().map(|name| (name, "a Receiver")))
    }

    /// The same, and those that Functions of the namespace name for repositories of their own.
    #[must_use]
    pub(super) fn and_of_functions(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.of_functions.extend(secrets);
        self
    }

    /// The same, and the one that this Function names for a repository of its own.
    pub(super) fn and_own(&self, spec: &FunctionSpec) -> Cow<'_, Self> {
        match spec.own_secret() {
            Some(secret) => Cow::Owned(self.clone().and_of_functions([secret.to_owned()])),
            None => Cow::Borrowed(self),
        }
    }

    /// What a Secret is for, if it is one of them.
    pub fn purpose(&self, secret: &str) -> Option<&'static str> {
        let of_function = || self.of_functions.contains(secret).then_some("the Git repository of a Function");
        self.purpose_of_others(secret).or_else(of_function)
    }

    /// What a Secret is for that not only Functions name.
    fn purpose_of_others(&self, secret: &str) -> Option<&'static str> {
        let is_bootstrap_token = secret.starts_with(BOOTSTRAP_TOKENS);
        self.purposes.get(secret).copied().or(is_bootstrap_token.then_some("nodes that join the cluster"))
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

    /// What is wrong with a Secret that a Function names for a repository of its own, at this address. A Secret of a
    /// GitRepository may be sent where that sends it; a key that the agent made is sent nowhere.
    pub(super) fn refusal_at(&self, auth: &RepositoryAuth, url: &RemoteUrl, path: &str) -> Option<Violation> {
        let secret = &*auth.secret_name;
        let is_key = |purpose: &str| purpose == MADE && auth.kind == AuthType::Key;
        let purpose = self.purpose_of_others(secret).filter(|purpose| !is_key(purpose))?;
        if self.servers.get(secret).is_some_and(|servers| servers.contains(&url.server())) {
            return None;
        }
        let what = format!(
            "the repository is read with Secret \"{}\", which holds the credentials for {purpose}",
            shown(secret)
        );
        let why =
            "a Function may not have them sent to an address that it names; give its repository a Secret of its own";
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
        Some(MADE)
    } else {
        None
    }
}

/// The Secrets that a Function's code is to read, and the one that its own repository is read with.
pub(super) fn named(spec: &FunctionSpec) -> impl Iterator<Item = &str> {
    let sources = spec.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let read = sources.filter_map(|from| from.secret_key_ref.as_ref()).map(|secret| secret.name.as_str());
    let mounted = spec.secret_mounts.iter().flatten().map(|mount| mount.secret_name.as_str());
    // One that cannot exist is refused without a look.
    let own = spec.own_secret().filter(|name| syntax::subdomain(name).is_none());
    read.chain(mounted).chain(own)
}
