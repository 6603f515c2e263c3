//! Lookups and fetches of valid and invalid remotes.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use mainstay_git::{
    BaseDir, Consumer, ConsumerKind, Credentials, DefaultProxy, Error, Reference, Remote, RemoteUrl, Secret, Settings,
    SkippedTrees, Snapshot, Source,
};
use mainstay_object::failure::{Class, chain};
use tempfile::TempDir;

use mainstay_testkit::{
    git_server::{Fault, GitServer, On},
    remote::{NAME, Remote as Origin},
};

mod abbreviated;
mod budget;
mod charts;
mod credentials;
mod daemon;
mod damage;
mod disk_full;
mod egress;
mod following;
mod found_commits;
mod github_app;
mod hostile;
mod hosts;
mod kustomizations;
mod large_files;
mod local;
mod mirrors;
mod proxies;
mod rendering;
mod ssh;
mod ssh_certificates;
mod ssh_hostile;
mod ssh_kept;
mod ssh_keys;
mod submodules;
mod tls;
mod trees;

const NOW: Duration = Duration::ZERO;

/// A remote, a server for it, and a source.
struct Bench {
    origin: Origin,
    server: GitServer,
    source: Source,
    mirrors: TempDir,
}

impl Bench {
    async fn new(origin: Origin) -> Self {
        Self::with(origin, |_| {}).await
    }

    async fn with(origin: Origin, adjust: impl FnOnce(&mut Settings)) -> Self {
        let server = GitServer::start(origin.root()).await;
        let mirrors = tempfile::tempdir().unwrap();
        let mut settings = settings(mirrors.path());
        adjust(&mut settings);
        Self { origin, server, source: Source::new(settings), mirrors }
    }

    fn remote(&self) -> Remote {
        anonymous(&self.server.url(NAME))
    }

    async fn sync(&self, reference: &str) -> Result<Snapshot, Error> {
        sync(&self.source, &self.remote(), reference).await
    }

    /// Fails within the deadlines, and returns class and text.
    async fn failure(&self, reference: &str) -> (Class, String) {
        let error = self.sync(reference).await.expect_err("it fails");
        (error.class(), chain(&error))
    }
}

fn settings(mirrors: &Path) -> Settings {
    let mut settings = Settings::new(mirrors);
    settings.deadlines.silence = Duration::from_secs(20);
    settings.proxy = DefaultProxy::None;
    settings
}

fn anonymous(url: &str) -> Remote {
    Remote::new(RemoteUrl::parse(url).unwrap(), Credentials::Anonymous)
}

fn basic(url: &str, username: &str, password: &str) -> Remote {
    let credentials = Credentials::Basic { username: username.into(), password: Secret::new(password.into()) };
    Remote::new(RemoteUrl::parse(url).unwrap(), credentials)
}

async fn sync(source: &Source, remote: &Remote, reference: &str) -> Result<Snapshot, Error> {
    let found = source.lookup(remote, &Reference::parse(reference)?, NOW).await?;
    source.fetch(remote, &found).await
}

/// Returns paths and contents below a directory.
async fn files(snapshot: &Snapshot, base_dir: &str) -> BTreeMap<String, String> {
    let base_dir = BaseDir::parse(base_dir).unwrap();
    let read = snapshot.blocking(move |snapshot| {
        let entries = snapshot.entries(&base_dir)?;
        let read = |entry| Ok((snapshot.read(entry)?, entry));
        entries.iter().map(read).collect::<Result<Vec<_>, Error>>().map(|read| {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            read.into_iter().map(|(bytes, entry)| (entry.path.clone(), text(bytes))).collect()
        })
    });
    read.await.unwrap().unwrap()
}

fn expected(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect()
}

/// Adds a consumer of the remote and removes it again.
fn forget(source: &Source, remote: &Remote) {
    let consumer = Consumer { kind: ConsumerKind::GitSync, namespace: "shop".into(), name: "web".into() };
    source.set_remote(&consumer, Some(remote));
    source.set_remote(&consumer, None);
}

fn small() -> Origin {
    let mut origin = Origin::new();
    origin.file("a.yaml", "a: 1\n").file("apps/b.yaml", "b: 1\n").commit("first");
    origin
}
