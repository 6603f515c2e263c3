//! Repositories of a confined namespace with addresses inside of the cluster. Each is refused before a connection is
//! made.
//!
//! 127.0.0.1 is allowed. 127.0.0.2 counts as inside of the cluster; connections to it are counted.

use std::net::SocketAddr;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use mainstay_git::Connection;
use mainstay_object::egress::{Egress, EgressPolicy};

use super::proxies::through_address;
use super::ssh::SshBench;
use super::*;
use mainstay_testkit::large_files::LargeFile;

const REFUSED: &str = "which repositories of this namespace are not read from; the operator of the agent allows networks with \
                       --allow-network";

/// A listener inside of the cluster that closes every connection.
struct Inside {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Inside {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        Self { address, connections }
    }

    /// Returns the listener's host in URLs: the address in every form, and a name that resolves to the address.
    fn hosts(&self) -> Vec<String> {
        let port = self.address.port();
        ["127.0.0.2", "2130706434", "0x7f.2", "[::ffff:127.0.0.2]", "inside.example"]
            .map(|host| format!("{host}:{port}"))
            .to_vec()
    }

    /// Returns only the plain address and the name, for fields without URL syntax.
    fn plain_hosts(&self) -> [String; 2] {
        let port = self.address.port();
        ["127.0.0.2", "inside.example"].map(|host| format!("{host}:{port}"))
    }

    fn take(&self) -> usize {
        self.connections.swap(0, Ordering::SeqCst)
    }
}

fn confine(settings: &mut Settings) {
    settings.egress = EgressPolicy {
        unconfined: Some(vec!["mainstay-system".to_owned()]),
        allowed: vec!["127.0.0.1".parse().unwrap()],
        ..EgressPolicy::default()
    };
    let names = [("inside.example", [127, 0, 0, 2]), ("outside.example", [127, 0, 0, 1])];
    settings.hosts = names.map(|(name, address)| (name.to_owned(), (address, 0).into())).into();
}

fn within(remote: &Remote, egress: Egress) -> Remote {
    Remote { connection: remote.connection.clone().within(egress), ..remote.clone() }
}

/// Checks that the address is inside, and that a confined namespace gets neither a connection nor information about it.
async fn check(what: &str, inside: &Inside, source: &Source, remote: &Remote) {
    let attempt = async |egress| {
        let remote = within(remote, egress);
        match sync(source, &remote, "main").await {
            Ok(snapshot) if remote.lfs => source.fetch_large_files(&remote, snapshot, entries).await.err(),
            Ok(_) => None,
            Err(error) => Some(error),
        }
        .map(|error| chain(&error))
    };
    let said = attempt(Egress::Confined).await.unwrap_or_else(|| panic!("{what} is not refused"));
    assert!(said.contains(REFUSED), "{what}: {said}");
    assert_eq!(inside.take(), 0, "{what}");
    let said = attempt(Egress::Unrestricted).await;
    assert!(inside.take() > 0, "{what} leads nowhere: {said:?}");
}

fn entries(snapshot: &Snapshot) -> Result<Vec<mainstay_git::Entry>, Error> {
    let base_dir = BaseDir::parse("/").unwrap();
    let listing = snapshot.listing(&base_dir, &SkippedTrees::new(mainstay_manifest::reads))?;
    let mut read = |entry: &mainstay_git::Entry| snapshot.read(entry);
    let limits = mainstay_manifest::Limits::new(|| Duration::ZERO);
    mainstay_manifest::not_ignored(listing, base_dir.path(), &mut read, &limits)
}

#[tokio::test]
async fn a_confined_namespace_reads_allowed_addresses_like_any_other() {
    let bench = Bench::with(small(), confine).await;
    for url in [bench.server.url(NAME), bench.server.url(NAME).replace("127.0.0.1", "outside.example")] {
        let remote = within(&anonymous(&url), Egress::Confined);
        assert_eq!(files(&sync(&bench.source, &remote, "main").await.unwrap(), "/").await.len(), 2);
    }
    assert_eq!(bench.source.egress("mainstay-system"), Egress::Unrestricted);
    assert_eq!(bench.source.egress("shop"), Egress::Confined);
}

#[tokio::test]
async fn no_address_and_no_name_of_a_git_server_leads_a_confined_namespace_inside() {
    let (bench, inside) = (Bench::with(small(), confine).await, Inside::start().await);
    for host in inside.hosts() {
        check(&host, &inside, &bench.source, &anonymous(&format!("http://{host}/a.git"))).await;
    }
    for host in inside.plain_hosts() {
        check(&host, &inside, &bench.source, &anonymous(&format!("https://{host}/a.git"))).await;
        check(&host, &inside, &bench.source, &anonymous(&format!("git://{host}/a.git"))).await;
    }
    let ssh = SshBench::with(confine).await;
    let key = ssh.key("key", "ed25519", &[]);
    for host in inside.plain_hosts() {
        let known = ssh.server.known_hosts(&["ed25519"]);
        let known = format!("* {}", known.split_once(' ').unwrap().1);
        let remote =
            SshBench::try_remote(&format!("ssh://git@{host}/a.git"), &[("key", &key), ("known_hosts", &known)]);
        check(&host, &inside, &ssh.source, &remote.unwrap()).await;
    }
}

#[tokio::test]
async fn no_redirect_leads_a_confined_namespace_inside() {
    let (bench, inside) = (Bench::with(small(), confine).await, Inside::start().await);
    for host in inside.hosts() {
        bench.server.fail(On::Advertisement, Fault::Redirect(format!("http://{host}")));
        check(&host, &inside, &bench.source, &bench.remote()).await;
    }
}

#[tokio::test]
async fn no_proxy_of_a_confined_namespace_is_inside_and_none_is_asked_for_what_is() {
    let (bench, inside) = (Bench::with(small(), confine).await, Inside::start().await);
    let ssh = SshBench::with(confine).await;
    let key = ssh.key("key", "ed25519", &[]);
    for host in inside.plain_hosts() {
        for scheme in ["http", "https", "socks5"] {
            let address = format!("{scheme}://{host}");
            let remote = through_address(&address, bench.remote(), &[]).unwrap();
            check(&address, &inside, &bench.source, &remote).await;
        }
        let remote = through_address(&format!("socks5://{host}"), ssh.remote(&[("key", &*key)]), &[]).unwrap();
        check(&host, &inside, &ssh.source, &remote).await;
    }
    let proxy = format!("http://{}", bench.server.base().trim_start_matches("http://").trim_end_matches('/'));
    let remote = through_address(&proxy, anonymous(&format!("http://{}/a.git", inside.address)), &[]).unwrap();
    bench.server.take_counts();
    let error = sync(&bench.source, &within(&remote, Egress::Confined), "main").await.unwrap_err();
    assert!(chain(&error).contains(REFUSED), "{}", chain(&error));
    assert_eq!(bench.server.take_counts().requests, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lfs_server_and_no_submodule_leads_a_confined_namespace_inside() {
    let inside = Inside::start().await;
    let large = LargeFile::of("a: 1\n");
    for host in inside.plain_hosts() {
        let mut origin = Origin::new();
        origin
            .file("a.yaml", &large.pointer)
            .file(".lfsconfig", format!("[lfs]\n\turl = http://{host}/lfs\n"))
            .commit("one");
        let bench = Bench::with(origin, confine).await;
        check(&host, &inside, &bench.source, &Remote { lfs: true, ..bench.remote() }).await;

        let mut origin = Origin::new();
        origin.file("a.yaml", &large.pointer).commit("one");
        let bench = Bench::with(origin, confine).await;
        bench.server.keep(&large.oid, b"a: 1\n");
        bench.server.keep_at(&format!("http://{host}"));
        check(&host, &inside, &bench.source, &Remote { lfs: true, ..bench.remote() }).await;
    }
    for host in inside.plain_hosts() {
        let forge = submodules::Forge::new().await;
        forge.commit("lib", &[("a.yaml", "a: 1\n")], &[]);
        forge.commit("app", &[], &[("lib", &forge.server.url("lib.git"))]);
        let modules = format!("[submodule \"lib\"]\n\tpath = lib\n\turl = http://{host}/lib.git\n");
        forge.commit("app", &[(".gitmodules", &modules)], &[]);
        check(&host, &inside, &forge.source_with(confine), &forge.remote("app")).await;
    }
}

/// A mirror that an unconfined namespace fetched from inside must not serve a confined namespace.
#[tokio::test]
async fn a_mirror_of_an_unconfined_namespace_serves_no_confined_one() {
    let bench = Bench::with(small(), |settings| {
        confine(settings);
        settings.egress.allowed.clear();
    })
    .await;
    sync(&bench.source, &bench.remote(), "main").await.unwrap();
    let confined = within(&bench.remote(), Egress::Confined);
    bench.server.take_counts();
    for reference in ["main", &bench.origin.head()] {
        let error = sync(&bench.source, &confined, reference).await.unwrap_err();
        assert!(chain(&error).contains(REFUSED), "{}", chain(&error));
    }
    assert_eq!(bench.server.take_counts().requests, 0);
    assert_eq!(confined.connection, Connection::default().within(Egress::Confined));
}
