//! Tests a repository as the agent would: its Secrets, its host key, the followed references, and signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::ByteString;
use serde_json::Value;

use crate::cli::{Error, identity::data_of, ids, private_directory, syncs};
use mainstay_api::git_repository::{AuthType, GitRepositorySpec, RepositoryAuth, Verify};
use mainstay_api::{Function, GitRepository, GitSync, names};
use mainstay_cluster::secrets::{Known, Purpose};
use mainstay_cluster::{Cluster, Kind, Scope, Selection};
use mainstay_git::{Access, Fault, Reference, Remote, RemoteUrl, SharedHostKeys, Source, SshFault, Verification};
use mainstay_object::failure::chain;

const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";
const MAINSTAY: &str = "mainstay.dev/v1alpha1";

/// The result of a check: success, or the problem with its remedy.
pub(super) type Finding = Result<String, (String, Option<String>)>;

pub(super) fn wrong(what: impl Into<String>, hint: impl Into<String>) -> Finding {
    Err((what.into(), Some(hint.into())))
}

fn bad(error: &mainstay_git::Error) -> Finding {
    Err((chain(error), None))
}

/// The arguments that apply to all repositories.
pub(super) struct Asked {
    /// Namespace of the agent.
    pub(super) home: String,
    /// The reference to look up; `None` for the followed references.
    pub(super) reference: Option<Reference>,
    /// Whether the agent is part of `mainstay dev`, which can also follow local directories.
    pub(super) is_dev: bool,
}

/// Checks all GitRepositories of the agent's namespace.
pub(super) async fn all(cluster: &Cluster, asked: &Asked) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for repository in list::<GitRepository>(cluster, SERVERLESS, "GitRepository", &asked.home).await? {
        let repository = match repository {
            Ok(repository) => repository,
            Err(error) => {
                findings
                    .push(Err((format!("a GitRepository of {} cannot be read: {}", asked.home, chain(&error)), None)));
                continue;
            }
        };
        findings.extend(one(cluster, &asked.home, &repository, asked).await?);
    }
    Ok(findings)
}

/// Checks the GitRepository `NAME` of the agent's namespace, or `NAMESPACE/NAME`.
pub(super) async fn named(cluster: &Cluster, name: &str, asked: &Asked) -> Result<Vec<Finding>, Error> {
    let (namespace, name) = name.split_once('/').unwrap_or((&asked.home, name));
    let kind = cluster.kind(SERVERLESS, "GitRepository").await?;
    let kind = kind.ok_or_else(|| Error::UnknownKind("GitRepository".into()))?;
    let Some(repository) = cluster.get(&kind, Some(namespace), name).await? else {
        let what = format!("GitRepository {namespace}/{name} does not exist");
        return Ok(vec![wrong(what, "--repository NAMESPACE/NAME selects one in a different namespace")]);
    };
    one(cluster, namespace, &syncs::understand(repository)?, asked).await
}

/// Checks a repository by its URL. The cluster is needed only for the repository's Secrets.
pub(super) async fn at(
    cluster: Option<&Cluster>,
    url: &str,
    secret: Option<String>,
    verify: Option<Verify>,
    asked: &Asked,
) -> Result<Vec<Finding>, Error> {
    let is_ssh = RemoteUrl::parse(url).is_ok_and(|url| url.known_hosts_name().is_some());
    let kind = if is_ssh { AuthType::Key } else { AuthType::Basic };
    let auth = secret.map(|secret_name| RepositoryAuth { kind, secret_name });
    let spec = GitRepositorySpec { url: url.to_owned(), auth, verify, ..Default::default() };
    let references = [asked.reference.clone().unwrap_or_else(Reference::head)];
    Attempt { cluster, namespace: &asked.home, home: &asked.home, is_dev: asked.is_dev }
        .try_all(&GitRepository::new("", spec), &references)
        .await
}

async fn one(
    cluster: &Cluster,
    namespace: &str,
    repository: &GitRepository,
    asked: &Asked,
) -> Result<Vec<Finding>, Error> {
    let name = repository.metadata.name.clone().unwrap_or_default();
    let references = match &asked.reference {
        Some(reference) => vec![reference.clone()],
        None => followed(cluster, namespace, &name).await?,
    };
    let attempt = Attempt { cluster: Some(cluster), namespace, home: &asked.home, is_dev: asked.is_dev };
    let findings = attempt.try_all(repository, &references).await?;
    let named = |text: String| format!("GitRepository {namespace}/{name}: {text}");
    Ok(findings.into_iter().map(|finding| finding.map(named).map_err(|(text, hint)| (named(text), hint))).collect())
}

/// Returns the references that GitSyncs and Functions follow in a GitRepository, or else the default branch.
async fn followed(cluster: &Cluster, namespace: &str, name: &str) -> Result<Vec<Reference>, Error> {
    let syncs = list::<GitSync>(cluster, MAINSTAY, "GitSync", namespace).await?.into_iter().filter_map(Result::ok);
    let by_syncs =
        syncs.filter(|sync| sync.spec.git_repository == name).map(|sync| sync.spec.followed_reference().into_owned());
    let functions =
        list::<Function>(cluster, SERVERLESS, "Function", namespace).await?.into_iter().filter_map(Result::ok);
    let functions = functions.filter(|function| function.spec.kind.as_deref() == Some("git"));
    let by_functions =
        functions.filter(|function| function.spec.source.trim() == name).filter_map(|one| one.spec.reference);
    // An unreadable reference is skipped here, because the object that follows it reports it.
    let all: BTreeSet<_> = by_syncs.chain(by_functions).filter_map(|text| Reference::parse(text.trim()).ok()).collect();
    Ok(if all.is_empty() { vec![Reference::head()] } else { all.into_iter().collect() })
}

async fn list<T: serde::de::DeserializeOwned>(
    cluster: &Cluster,
    api_version: &str,
    kind: &str,
    namespace: &str,
) -> Result<Vec<Result<T, Error>>, Error> {
    let Some(kind) = cluster.kind(api_version, kind).await? else { return Ok(Vec::new()) };
    let values: Vec<Value> = cluster.list(&kind, Selection::default().within(namespace)).try_collect().await?;
    Ok(values.into_iter().map(syncs::understand).collect())
}

/// The parameters of a check.
struct Attempt<'a> {
    /// The cluster; `None` if the check needs no objects of a cluster.
    cluster: Option<&'a Cluster>,
    /// Namespace of the repository.
    namespace: &'a str,
    /// Namespace of the agent.
    home: &'a str,
    /// Whether the agent is part of `mainstay dev`.
    is_dev: bool,
}

impl Attempt<'_> {
    /// Looks up these references in a repository, and verifies their signatures if required.
    async fn try_all(&self, repository: &GitRepository, references: &[Reference]) -> Result<Vec<Finding>, Error> {
        let room =
            private_directory::create().map_err(|cause| Error::ReadFile { path: std::env::temp_dir(), cause })?;
        let source = self.source(room.path()).await?;
        let mut remote = match self.remote(repository).await? {
            Ok(remote) => remote,
            Err(finding) => return Ok(vec![finding]),
        };
        let mut findings = Vec::new();
        // Whether no host key is known, so that the key is accepted at first use without verification.
        let mut is_first_use = false;
        for reference in references {
            let mut found = source.lookup(&remote, reference, Duration::ZERO).await;
            if let Err(error) = &found
                && let Fault::Ssh(SshFault::HostKeyFirstUse { host, presented, key }) = error.fault()
            {
                findings.push(Ok(format!(
                    "the host {host} is unknown; the agent pins its key at first use: it presents {presented}, \
                     which is not verified; compare that with what its operator publishes, before the agent pins it"
                )));
                is_first_use = true;
                let assumed = mainstay_git::pin_for_now(repository, host, key);
                remote = match self.remote(&assumed).await? {
                    Ok(remote) => remote,
                    Err(finding) => return Ok(vec![finding]),
                };
                found = source.lookup(&remote, reference, Duration::ZERO).await;
            }
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    findings.push(bad(&error));
                    continue;
                }
            };
            let at = ids::short(&found.commit.to_string());
            let mut text = format!("{} answers: {} is at {at}", remote.url, found.short());
            if is_first_use {
                text.push_str(" (the host is not verified)");
            } else if let Some(pin) = source.pin_in_force(&remote) {
                text.push_str(&format!(" (host key pinned at first use: {pin})"));
            }
            if remote.url.is_unprotected() && repository.spec.verify.is_none() {
                text.push_str(" (git:// is neither encrypted nor authenticated)");
            }
            if let Some(verify) = &repository.spec.verify {
                if let Err(error) = source.verify(&remote, &found).await {
                    findings.push(Ok(text));
                    findings.push(bad(&error));
                    continue;
                }
                text.push_str(&format!(", signed by a key of Secret {}", verify.secret_ref.name));
            }
            // HEAD and a branch may result in the same finding.
            if !findings.iter().any(|finding| finding.as_ref().is_ok_and(|known| *known == text)) {
                findings.push(Ok(text));
            }
        }
        Ok(findings)
    }

    /// Returns a source with the host keys for all repositories.
    async fn source(&self, room: &Path) -> Result<Source, Error> {
        let settings = mainstay_git::Settings { allow_local: self.is_dev, ..mainstay_git::Settings::new(room) };
        let source = Source::new(settings);
        if let Some(cluster) = self.cluster {
            let maps = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
            let map = cluster.get(&maps, Some(self.home), names::KNOWN_HOSTS).await?.unwrap_or_default();
            if let Some(lines) = map["data"][names::KNOWN_HOSTS_KEY].as_str() {
                source.set_host_keys(SharedHostKeys::Lines(lines.into()));
            }
        }
        Ok(source)
    }

    /// Returns the remote as the agent would open it.
    async fn remote(&self, repository: &GitRepository) -> Result<Result<Remote, Finding>, Error> {
        let spec = &repository.spec;
        let url = match RemoteUrl::parse(&spec.url) {
            Ok(url) => url,
            Err(error) => return Ok(Err(bad(&error))),
        };
        if let Err(error) = mainstay_git::supported(&url, spec) {
            return Ok(Err(bad(&error)));
        }
        let auth =
            match self.secret(spec.auth.as_ref().map(|auth| auth.secret_name.as_str()), Purpose::Repository).await? {
                Ok(data) => data,
                Err(finding) => return Ok(Err(finding)),
            };
        let proxy =
            match self.secret(spec.proxy_secret_ref.as_ref().map(|proxy| proxy.name.as_str()), Purpose::Proxy).await? {
                Ok(data) => data,
                Err(finding) => return Ok(Err(finding)),
            };
        let keys = match self
            .secret(spec.verify.as_ref().map(|verify| verify.secret_ref.name.as_str()), Purpose::SignatureKeys)
            .await?
        {
            Ok(data) => data,
            Err(finding) => return Ok(Err(finding)),
        };
        let opened = mainstay_git::access(spec.auth.as_ref(), auth.as_ref());
        let opened = opened.and_then(|access| access.with_identity(spec, self.namespace, &url));
        let opened = opened.and_then(|access| match &proxy {
            Some(data) => access.through_proxy(data),
            None => Ok(access),
        });
        let verification = Verification::new(spec.verify.as_ref(), keys.as_ref());
        Ok(match (opened, verification) {
            (Ok(access), Ok(verification)) => {
                let Access { credentials, connection } = access.with_pins(repository, &url);
                Ok(Remote { url, credentials, connection, verification, submodules: false, lfs: false })
            }
            (Err(error), _) | (_, Err(error)) => Err(bad(&error)),
        })
    }

    /// Returns the data of a Secret in the repository's namespace, if the repository references one.
    async fn secret(
        &self,
        name: Option<&str>,
        used_for: Purpose,
    ) -> Result<Result<Option<BTreeMap<String, ByteString>>, Finding>, Error> {
        let (Some(name), Some(cluster)) = (name, self.cluster) else { return Ok(Ok(None)) };
        let secrets = Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced);
        let Some(secret) = cluster.get(&secrets, Some(self.namespace), name).await? else {
            let what = format!("Secret {}/{name} does not exist", self.namespace);
            let hint = if self.namespace == self.home {
                "create it, or select the namespace of the agent with -n NAMESPACE"
            } else {
                "create it: a GitRepository uses Secrets of its own namespace only"
            };
            return Ok(Err(wrong(what, hint)));
        };
        if let Some((_, problem)) = Known::of(&secret, used_for).problem() {
            let hint = "a Secret that has a different purpose is not sent to a Git host";
            return Ok(Err(wrong(format!("Secret {}/{name} {problem}", self.namespace), hint)));
        }
        Ok(Ok(Some(data_of(&secret)?)))
    }
}
