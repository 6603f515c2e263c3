//! `mainstay identity`: the public half of the SSH key that a GitRepository is opened with, and where to add it.
//!
//! Invariant: nothing of the private half is printed. The public half is computed from it, so that it is the one in use.
//!
//! Deliberately absent: making keys. The agent does that, in a Secret that holds none.

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
    deploy_key, output, syncs,
};
use crate::{
    api::{GitRepository, Span, git_repository::AuthType, names},
    cluster::{Cluster, Kind, Part, Scope, Selection},
    source::{self, PublicHalf, RemoteUrl},
};

/// Between two looks at a Secret that the agent has not filled yet.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Arguments of `identity`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitRepository; by default the one of the namespace that is opened with an SSH key
    name: Option<String>,
    /// Print the fingerprint instead of the key
    #[arg(long)]
    fingerprint: bool,
    /// Have the agent make another key, and print that: the old one opens nothing from then on
    #[arg(long)]
    regenerate: bool,
    /// Do not ask before the key is replaced
    #[arg(long, requires = "regenerate")]
    yes: bool,
    /// How long to wait for the agent to make the key
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    wait: Span,
    #[command(flatten)]
    connection: HomeConnection,
}

/// A GitRepository that is opened with a key, and its Secret.
struct Keyed {
    repository: String,
    url: String,
    secret: String,
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connect().await?;
    let search = Search { cluster, arguments: &arguments };
    let mut found = search.within(None).await?;
    if arguments.regenerate {
        // Whoever is asked may take their time.
        let old = search.replace(&found).await?;
        found = search.within(Some(&old)).await?;
    }
    let half = &found.half;
    output::print(&format!("{}\n", if arguments.fingerprint { &half.fingerprint } else { &half.line }))?;
    output::note(&advice(&arguments.connection.namespace, &found.keyed, half));
    Ok(Exit::Fine)
}

/// The search for a key.
struct Search<'a> {
    cluster: Cluster,
    arguments: &'a Arguments,
}

/// A key.
struct Found {
    keyed: Keyed,
    secret: Value,
    half: PublicHalf,
}

impl Search<'_> {
    /// Waits until there is a key other than `old`, for as long as was asked for.
    async fn within(&self, old: Option<&str>) -> Result<Found, Error> {
        let wait = self.arguments.wait.0;
        // What it waits for last is what it says when the time is up.
        let mut missing = String::new();
        let found = tokio::time::timeout(wait, self.look(old, &mut missing)).await;
        found.unwrap_or(Err(Error::NoKey { missing, seconds: wait.as_secs() }))
    }

    async fn look(&self, old: Option<&str>, missing: &mut String) -> Result<Found, Error> {
        let namespace = &self.arguments.connection.namespace;
        loop {
            match find(&self.cluster, namespace, self.arguments.name.as_deref()).await? {
                Err(what) => *missing = what,
                Ok(keyed) => match self.cluster.get(&secrets(), Some(namespace), &keyed.secret).await? {
                    None => *missing = format!("Secret {namespace}/{} does not exist", keyed.secret),
                    Some(secret) => {
                        let data = data_of(&secret)?;
                        if source::holds_key(&data) {
                            let half = public_half(&data)?;
                            if old != Some(half.line.as_str()) {
                                return Ok(Found { keyed, secret, half });
                            }
                        } else {
                            *missing = without_key(namespace, &keyed, &secret);
                        }
                    }
                },
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Takes the key out of the Secret, so that the agent makes another one; the public half of the old key.
    async fn replace(&self, found: &Found) -> Result<String, Error> {
        let Found { keyed, secret, half } = found;
        let namespace = &self.arguments.connection.namespace;
        if secret["metadata"]["labels"][names::GENERATE] != names::SSH_KEY {
            return Err(Error::NotOurKey { secret: format!("{namespace}/{}", keyed.secret) });
        }
        let question = format!("Replace the key of GitRepository {namespace}/{}?", keyed.repository);
        if !self.arguments.yes && !agreed(&question) {
            return Err(Error::NotConfirmed);
        }
        let patch = json!({
            "metadata": {"resourceVersion": secret["metadata"]["resourceVersion"]},
            "data": {"key": null, "ssh-privatekey": null, "identity": null, "password": null, source::PUBLIC_FIELD: null},
        });
        self.cluster.patch_merge(&secrets(), Some(namespace), &keyed.secret, Part::Main, &patch).await?;
        Ok(half.line.clone())
    }
}

/// The GitRepository, or what is missing of it.
async fn find(cluster: &Cluster, namespace: &str, name: Option<&str>) -> Result<Result<Keyed, String>, Error> {
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
                keyed.push(Keyed { repository: own, url: repository.spec.url, secret: auth.secret_name });
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
        None => format!("no GitRepository in the namespace {namespace} is opened with an SSH key"),
    }))
}

fn without_key(namespace: &str, keyed: &Keyed, secret: &Value) -> String {
    let what = format!("Secret {namespace}/{} holds no key yet", keyed.secret);
    if secret["metadata"]["labels"][names::GENERATE] == names::SSH_KEY {
        return format!("{what}, and no agent has made one");
    }
    format!("{what}, and has no label {}={}, by which the agent would make one", names::GENERATE, names::SSH_KEY)
}

/// Asks on the terminal; without one, nobody agrees.
pub(super) fn agreed(question: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    output::note(&format!("{question} [y/N] "));
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn advice(namespace: &str, keyed: &Keyed, half: &PublicHalf) -> String {
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
    source::public_half(data).map_err(Error::Key)
}

fn secrets() -> Kind {
    Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced)
}

pub(super) fn data_of(secret: &Value) -> Result<BTreeMap<String, ByteString>, Error> {
    match &secret["data"] {
        Value::Null => Ok(BTreeMap::new()),
        // The error names a position, never a value.
        data => serde_json::from_value(data.clone())
            .map_err(|_| Error::NotBase64 { what: format!("Secret {}", secret["metadata"]["name"]) }),
    }
}
