//! `mainstay identity`: prints the public half of a GitRepository's SSH key, and where to add it.
//!
//! Invariant: no part of the private half is printed. The public half is computed from the private half, so it belongs
//! to the key in use.
//!
//! Not here: creating keys. The agent does that, in a Secret without a key.

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _},
    time::Duration,
};

use futures::TryStreamExt as _;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    Error, Exit,
    connection::{HomeConnection, own_kind},
    deploy_key,
    lease::Lease,
    output::{self, OutputArgument},
    progress::Progress,
    syncs,
};
use mainstay_api::{GitRepository, Span, git_repository::AuthType, names};
use mainstay_cluster::{Cluster, Kind, Part, Scope, Selection};
use mainstay_git::{PublicHalf, RemoteUrl};

/// Interval at which the Secret is read until the agent has added a key.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// Arguments of `identity`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitRepository; by default the only one in the namespace that uses an SSH key
    name: Option<String>,
    /// Print the fingerprint instead of the key
    #[arg(long)]
    fingerprint: bool,
    /// Replace the key: delete it, and print the new one that the agent creates
    #[arg(long)]
    regenerate: bool,
    /// Skip the confirmation before the key is replaced
    #[arg(long, requires = "regenerate")]
    yes: bool,
    /// Timeout for the agent to create the key
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    wait: Span,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: HomeConnection,
}

/// A GitRepository with a key, and its Secret.
struct KeyedRepository {
    repository: String,
    url: String,
    secret: String,
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connect().await?;
    // Without the right to read Leases, the namespace is that of the flag.
    let lease = Lease::find(&cluster, &arguments.connection.namespace).await;
    let namespace = lease.map_or_else(|_| arguments.connection.namespace.clone(), |lease| lease.namespace);
    let search = Search { cluster, namespace, arguments: &arguments };
    let mut found = search.wait_for_key(None).await?;
    if arguments.regenerate {
        // The confirmation is not part of the wait, because the user may take time to confirm.
        let old = search.replace(&found).await?;
        found = search.wait_for_key(Some(&old)).await?;
    }
    let half = &found.half;
    let page = RemoteUrl::parse(&found.keyed.url).ok().and_then(|url| deploy_key::page(&url).url);
    let facts = json!({
        "gitRepository": { "namespace": search.namespace, "name": found.keyed.repository },
        "publicKey": half.line, "fingerprint": half.fingerprint, "page": page,
    });
    let shown = if arguments.fingerprint { &half.fingerprint } else { &half.line };
    arguments.output.print(&facts, || format!("{shown}\n"))?;
    if arguments.output.is_text() {
        output::note(&advice(&search.namespace, &found.keyed, half));
    }
    Ok(Exit::Fine)
}

/// The search for a key.
struct Search<'a> {
    cluster: Cluster,
    /// Namespace of the GitRepository.
    namespace: String,
    arguments: &'a Arguments,
}

/// A key in its Secret.
struct FoundKey {
    keyed: KeyedRepository,
    secret: Value,
    half: PublicHalf,
}

impl Search<'_> {
    /// Waits for a key other than `old`, at most for the time of `--wait`.
    async fn wait_for_key(&self, old: Option<&str>) -> Result<FoundKey, Error> {
        let wait = self.arguments.wait.0;
        // After a timeout, the error contains the last missing part.
        let mut missing = String::new();
        let progress = Progress::begin();
        progress.say("waiting for the agent to make the key");
        let found = tokio::time::timeout(wait, self.poll(old, &mut missing)).await;
        found.unwrap_or(Err(Error::NoKey { missing, seconds: wait.as_secs() }))
    }

    async fn poll(&self, old: Option<&str>, missing: &mut String) -> Result<FoundKey, Error> {
        let namespace = &self.namespace;
        loop {
            match find_repository(&self.cluster, namespace, self.arguments.name.as_deref()).await? {
                Err(what) => *missing = what,
                Ok(keyed) => match self.cluster.get(&secrets(), Some(namespace), &keyed.secret).await? {
                    None => *missing = format!("Secret {namespace}/{} does not exist", keyed.secret),
                    Some(secret) => {
                        let data = data_of(&secret)?;
                        if mainstay_git::holds_key(&data) {
                            let half = public_half(&data)?;
                            if old != Some(half.line.as_str()) {
                                return Ok(FoundKey { keyed, secret, half });
                            }
                        } else {
                            *missing = without_key(namespace, &keyed, &secret);
                        }
                    }
                },
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Removes the key from the Secret, so that the agent creates a new key. Returns the public half of the old key.
    async fn replace(&self, found: &FoundKey) -> Result<String, Error> {
        let FoundKey { keyed, secret, half } = found;
        let namespace = &self.namespace;
        if secret["metadata"]["labels"][names::GENERATE] != names::SSH_KEY {
            return Err(Error::NotOurKey { secret: format!("{namespace}/{}", keyed.secret) });
        }
        let prompt = format!("Replace the key of GitRepository {namespace}/{}?", keyed.repository);
        if !self.arguments.yes && !confirm(&prompt) {
            return Err(Error::NotConfirmed);
        }
        let patch = json!({
            "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
            "data": {"key": null, "ssh-privatekey": null, "identity": null, "password": null, mainstay_git::PUBLIC_FIELD: null},
        });
        self.cluster.patch_merge(&secrets(), Some(namespace), &keyed.secret, Part::Main, &patch).await?;
        Ok(half.line.clone())
    }
}

/// Returns the GitRepository, or a message about the missing part.
async fn find_repository(
    cluster: &Cluster,
    namespace: &str,
    name: Option<&str>,
) -> Result<Result<KeyedRepository, String>, Error> {
    let kind = own_kind::<GitRepository>(cluster).await?;
    let values: Vec<Value> = cluster.list(&kind, Selection::default().within(namespace)).try_collect().await?;
    let mut keyed = Vec::new();
    for value in values {
        let repository: GitRepository = syncs::understand(value)?;
        let own = repository.metadata.name.unwrap_or_default();
        if name.is_some_and(|name| name != own) {
            continue;
        }
        match repository.spec.auth {
            Some(auth) if auth.kind == AuthType::Key => {
                keyed.push(KeyedRepository { repository: own, url: repository.spec.url, secret: auth.secret_name });
            }
            _ if name.is_some() => return Err(Error::NotKeyed { repository: format!("{namespace}/{own}") }),
            _ => {}
        }
    }
    if keyed.len() > 1 {
        let all = keyed.iter().map(|keyed| keyed.repository.as_str()).collect::<Vec<_>>().join(", ");
        return Err(Error::SeveralRepositories { namespace: namespace.to_owned(), all });
    }
    Ok(keyed.pop().ok_or_else(|| match name {
        Some(name) => format!("GitRepository {namespace}/{name} does not exist"),
        None => format!("no GitRepository in the namespace {namespace} uses an SSH key"),
    }))
}

fn without_key(namespace: &str, keyed: &KeyedRepository, secret: &Value) -> String {
    let what = format!("Secret {namespace}/{} holds no key yet", keyed.secret);
    if secret["metadata"]["labels"][names::GENERATE] == names::SSH_KEY {
        return format!("{what}: the agent has not generated it");
    }
    format!("{what}, and the agent makes one only if the Secret has the label {}={}", names::GENERATE, names::SSH_KEY)
}

/// Asks for confirmation on the terminal. Returns `false` without a terminal.
pub(super) fn confirm(prompt: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    output::note(&format!("{prompt} [y/N] "));
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn advice(namespace: &str, keyed: &KeyedRepository, half: &PublicHalf) -> String {
    let mut text = format!("{} for GitRepository {namespace}/{}\n", half.shown, keyed.repository);
    if let Ok(url) = RemoteUrl::parse(&keyed.url) {
        let page = deploy_key::page(&url);
        if let Some(page) = page.url {
            text.push_str(&format!("add it at {page}\n"));
        }
        text.push_str(&format!("{}\n", page.advice));
    }
    text
}

fn public_half(data: &BTreeMap<String, ByteString>) -> Result<PublicHalf, Error> {
    mainstay_git::public_half(data).map_err(Error::Key)
}

fn secrets() -> Kind {
    Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced)
}

pub(super) fn data_of(secret: &Value) -> Result<BTreeMap<String, ByteString>, Error> {
    match &secret["data"] {
        Value::Null => Ok(BTreeMap::new()),
        // The error of the parser is replaced, because it may quote a value.
        data => serde_json::from_value(data.clone())
            .map_err(|_| Error::NotBase64 { what: format!("Secret {}", secret["metadata"]["name"]) }),
    }
}
