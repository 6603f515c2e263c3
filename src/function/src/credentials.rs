//! Decides which Secrets a Function must not use, because they have another purpose: credentials of builds, Git
//! repositories, Receivers, ServiceAccounts and other clusters. The Function's code must not read these Secrets, and
//! they must not be sent to an address in the Function.
//!
//! A user who can create Functions can run code in the namespace, and could so read its Secrets. A user who can only
//! change a Function's source can read only Secrets that the Function exposes. Secrets with another purpose give access
//! beyond the namespace, such as pushing images.
//!
//! Not here: the registry of purposes (`cluster::secrets`), and reading Secrets (`named_secrets`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::Settings;
use super::violation::{Violation, shown};
use mainstay_api::git_repository::{AuthType, GitRepositorySpec, RepositoryAuth};
use mainstay_api::{Function, FunctionSpec};
use mainstay_cluster::secrets::{Purpose, Purposes, SecretReferences, by_name, excluding};
use mainstay_git::RemoteUrl;
use mainstay_object::syntax;

/// The purposes of the Secrets of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    purposes: BTreeMap<String, Purposes>,
    /// The servers that receive each Secret for GitRepositories; `None` for a repository without a server.
    servers: BTreeMap<String, BTreeSet<Option<String>>>,
}

impl Credentials {
    /// Returns the purposes from the settings and from the GitRepositories of the namespace.
    pub fn new<'r>(settings: &Settings, repositories: impl IntoIterator<Item = &'r GitRepositorySpec>) -> Self {
        let mut all = Self::default().and(settings.purposes());
        for repository in repositories {
            all = all.and(repository.secret_references());
            if let (Some(auth), Ok(url)) = (&repository.auth, RemoteUrl::parse(&repository.url)) {
                all.servers.entry(auth.secret_name.clone()).or_default().insert(url.server());
            }
        }
        all
    }

    /// Adds purposes.
    #[must_use]
    pub(super) fn and(mut self, others: impl IntoIterator<Item = (String, Purpose)>) -> Self {
        for (name, purpose) in others {
            self.purposes.entry(name).or_default().insert(purpose);
        }
        self
    }

    /// Adds the registered purposes of the namespace.
    #[must_use]
    pub fn and_registered(mut self, registered: BTreeMap<String, Purposes>) -> Self {
        for (name, purposes) in registered {
            self.purposes.entry(name).or_default().extend(purposes);
        }
        self
    }

    /// Adds the Secret that this Function references for its own repository.
    pub(super) fn and_own(&self, spec: &FunctionSpec) -> Cow<'_, Self> {
        match spec.own_secret() {
            Some(_) => Cow::Owned(self.clone().and(spec.secret_references())),
            None => Cow::Borrowed(self),
        }
    }

    /// Returns the purpose of a Secret that rules out this use.
    pub fn excluding(&self, secret: &str, used_for: Purpose) -> Option<Purpose> {
        let mut purposes = self.purposes.get(secret).cloned().unwrap_or_default();
        purposes.extend(by_name(secret));
        excluding(&purposes, used_for)
    }

    /// Returns the purpose of a Secret that rules out use by the code of Functions.
    pub(super) fn purpose(&self, secret: &str) -> Option<&'static str> {
        self.excluding(secret, Purpose::Code).map(Purpose::text)
    }

    /// Whether a GitRepository uses a Secret.
    fn is_of_repository(&self, secret: &str) -> bool {
        self.purposes.get(secret).is_some_and(|purposes| purposes.contains(&Purpose::Repository))
    }
}

impl Credentials {
    /// Returns the violation for a Secret that the code must not read.
    pub(super) fn refusal(&self, reader: &str, secret: &str, path: &str) -> Option<Violation> {
        let purpose = self.purpose(secret)?;
        let what = format!("{reader} reads Secret \"{}\", which holds the credentials for {purpose}", shown(secret));
        let why = "the code of a Function may not read them; give it a Secret of its own";
        Some(Violation::invalid(what, path).because(why))
    }

    /// Returns the violation for a Secret that a Function must not send to the address of its own repository. A
    /// GitRepository's Secret may be sent to that repository's server. A key that the agent generated may not be sent.
    pub fn refusal_at(&self, auth: &RepositoryAuth, url: &RemoteUrl, path: &str) -> Option<Violation> {
        let secret = &*auth.secret_name;
        let is_generated =
            || self.purposes.get(secret).is_some_and(|purposes| purposes.contains(&Purpose::GeneratedKey));
        let sent = || self.servers.get(secret).is_some_and(|servers| servers.contains(&url.server()));
        let purpose = self
            .excluding(secret, Purpose::FunctionRepository)
            .or_else(|| (is_generated() && auth.kind != AuthType::Key).then_some(Purpose::GeneratedKey))
            .or_else(|| (self.is_of_repository(secret) && !sent()).then_some(Purpose::Repository))?;
        let what = format!(
            "the repository is read with Secret \"{}\", which holds the credentials for {}",
            shown(secret),
            purpose.text()
        );
        let why = "a Function must not send them to an address of its choice; use a separate Secret for its repository";
        Some(Violation::invalid(what, path).because(why))
    }
}

impl Credentials {
    /// Returns the Function without its uses of withheld Secrets, such as Secrets of registries, other clusters and
    /// decryption. Returns `None` if the Function uses no withheld Secret. Secrets of Git repositories, Receivers and
    /// other Functions stay, because running pods use them already.
    pub(super) fn without_withheld(&self, function: &Function) -> Option<Function> {
        let is_withheld = |secret: &str| {
            let purpose = self.excluding(secret, Purpose::Code);
            purpose.is_some_and(|purpose| purpose >= Purpose::BuilderImage)
        };
        let mut rest = function.clone();
        let (env, mounts) = (&mut rest.spec.env, &mut rest.spec.secret_mounts);
        let count = |env: &Option<Vec<_>>, mounts: &Option<Vec<_>>| {
            (env.as_ref().map_or(0, Vec::len), mounts.as_ref().map_or(0, Vec::len))
        };
        let before = count(env, mounts);
        if let Some(env) = env {
            env.retain(|variable| {
                let source = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
                !source.is_some_and(|source| is_withheld(&source.name))
            });
        }
        if let Some(mounts) = mounts {
            mounts.retain(|mount| !is_withheld(&mount.secret_name));
        }
        (count(env, mounts) != before).then_some(rest)
    }

    /// Returns why the code must not read a Secret that a ServiceBindingUsage binds.
    pub(super) fn refusal_of_bound(&self, secret: &str) -> Option<String> {
        let purpose = self.purpose(secret)?;
        Some(format!(
            "Secret \"{}\" holds the credentials for {purpose}: the code of a Function may not read them; give the \
             ServiceBinding a Secret of its own",
            shown(secret)
        ))
    }
}

/// Returns the Secrets that a Function's code and its own repository use.
pub(super) fn named(spec: &FunctionSpec) -> impl Iterator<Item = &str> {
    let sources = spec.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
    let read = sources.filter_map(|from| from.secret_key_ref.as_ref()).map(|secret| secret.name.as_str());
    let mounted = spec.secret_mounts.iter().flatten().map(|mount| mount.secret_name.as_str());
    // A name that no Secret can have is refused without a lookup.
    let own = spec.own_secret().filter(|name| syntax::subdomain(name).is_none());
    read.chain(mounted).chain(own)
}
