//! Remotes as they are and as they should not be: what a lookup and a fetch make of them.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use mainstay::{
    failure::{Class, chain},
    source::{
        BaseDir, Credentials, EntryKind, Error, Reader, ReaderKind, Reference, Remote, RemoteUrl, Secret, Settings,
        Snapshot, Source, watch_local,
    },
};
use tempfile::TempDir;

use crate::support::{
    git_server::{Fault, GitServer, On},
    remote::{NAME, Remote as Origin},
};

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

    /// The attempt fails, within the deadlines; its class and text.
    async fn failure(&self, reference: &str) -> (Class, String) {
        let error = self.sync(reference).await.expect_err("it fails");
        (error.class(), chain(&error))
    }
}

fn settings(mirrors: &Path) -> Settings {
    let mut settings = Settings::new(mirrors);
    settings.deadlines.silence = Duration::from_secs(20);
    settings
}

fn anonymous(url: &str) -> Remote {
    Remote { url: RemoteUrl::parse(url).unwrap(), credentials: Credentials::Anonymous }
}

fn basic(url: &str, username: &str, password: &str) -> Remote {
    let credentials = Credentials::Basic { username: username.into(), password: Secret::new(password.into()) };
    Remote { url: RemoteUrl::parse(url).unwrap(), credentials }
}

async fn sync(source: &Source, remote: &Remote, reference: &str) -> Result<Snapshot, Error> {
    let found = source.lookup(remote, &Reference::parse(reference)?, NOW).await?;
    source.fetch(remote, &found).await
}

/// Paths and contents under a directory.
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

/// Somebody reads the remote, and then nobody does.
fn forget(source: &Source, remote: &Remote) {
    let reader = Reader { kind: ReaderKind::GitSync, namespace: "shop".into(), name: "web".into() };
    source.reads(&reader, Some(remote));
    source.reads(&reader, None);
}

fn small() -> Origin {
    let mut origin = Origin::new();
    origin.file("a.yaml", "a: 1\n").file("apps/b.yaml", "b: 1\n").commit("first");
    origin
}

#[tokio::test]
async fn follows_a_branch_from_commit_to_commit() {
    let mut bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    assert_eq!(files(&first, "/").await, expected(&[("a.yaml", "a: 1\n"), ("apps/b.yaml", "b: 1\n")]));
    assert_eq!(&*first.subject, "first");

    let second = bench.origin.file("apps/b.yaml", "b: 2\n").remove("a.yaml").commit("second");
    let snapshot = bench.sync("main").await.unwrap();
    assert_eq!(snapshot.commit.to_string(), second);
    assert_eq!(files(&snapshot, "apps").await, expected(&[("apps/b.yaml", "b: 2\n")]));
    assert_eq!(files(&first, "/").await.len(), 2, "a snapshot is immutable");
}

#[tokio::test]
async fn an_unchanged_remote_costs_one_small_request() {
    let bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    bench.server.take_counts();
    let again = bench.sync("main").await.unwrap();
    assert_eq!(again.commit, first.commit);
    let counts = bench.server.take_counts();
    assert_eq!((counts.requests, counts.packs), (1, 0));
    assert!(counts.bytes_in + counts.bytes_out < 500, "{counts:?}");
}

#[tokio::test]
async fn a_changed_file_among_many_is_all_that_is_sent() {
    let mut origin = Origin::new();
    for number in 0..500 {
        origin.file(&format!("d{}/{number}.yaml", number % 10), format!("n: {number} {}\n", "x".repeat(200)));
    }
    origin.commit("many");
    let mut bench = Bench::new(origin).await;
    bench.sync("main").await.unwrap();
    let whole = bench.server.take_counts().bytes_out;
    bench.origin.file("d3/3.yaml", "n: changed\n").commit("one");
    let snapshot = bench.sync("main").await.unwrap();
    let changed = bench.server.take_counts().bytes_out;
    assert!(changed < 3000 && whole > 5 * changed, "{whole} then {changed}");
    assert_eq!(files(&snapshot, "d3").await["d3/3.yaml"], "n: changed\n");
    assert_eq!(files(&snapshot, "/").await.len(), 500);
}

#[tokio::test]
async fn references_are_tried_as_full_name_commit_branch_and_tag() {
    let mut origin = small();
    let first = origin.tag("light").annotated_tag("heavy").branch("v1").commit("on v1");
    let old = origin.branch("main").tag("v1").commit("old");
    let new = origin.commit("new");
    let bench = Bench::new(origin).await;
    for version in ["2", "0"] {
        let commit = async |reference: &str| match bench.sync(reference).await {
            Ok(snapshot) => snapshot.commit.to_string(),
            Err(error) => panic!("version {version}, {reference}: {}", chain(&error)),
        };
        assert_eq!(commit("main").await, new);
        assert_eq!(commit("HEAD").await, new);
        assert_eq!(commit("v1").await, first, "a branch before a tag");
        assert_eq!(commit("refs/tags/v1").await, commit("light").await);
        assert_eq!(commit("heavy").await, commit("light").await, "annotated tags are followed");
        assert_eq!(commit(&old).await, old);
        assert_eq!(commit(&old.to_uppercase()).await, old);
        forget(&bench.source, &bench.remote());
        bench.server.speak_version_zero();
    }
}

#[tokio::test]
async fn a_commit_that_is_on_no_branch_tip_is_found_where_the_server_has_only_version_0() {
    let mut origin = small();
    let old = origin.file("a.yaml", "old\n").commit("old");
    origin.file("a.yaml", "new\n").commit("new");
    let mut bench = Bench::new(origin).await;
    bench.server.speak_version_zero();
    let snapshot = bench.sync(&old).await.unwrap();
    assert_eq!(files(&snapshot, "/").await["a.yaml"], "old\n");
    let (class, text) = bench.failure(&"a".repeat(40)).await;
    assert_eq!(class, Class::Invalid, "{text}");
    assert!(text.contains("no such commit"), "{text}");

    forget(&bench.source, &bench.remote());
    bench.origin.configure("uploadpack.allowAnySHA1InWant", "true");
    bench.server.take_counts();
    assert!(bench.sync(&old).await.is_ok());
    assert_eq!(bench.server.take_counts().packs, 1, "the server gives any commit by its id");
}

#[tokio::test]
async fn version_0_is_incremental_too() {
    let mut bench = Bench::new(small()).await;
    bench.server.speak_version_zero();
    bench.sync("main").await.unwrap();
    let second = bench.origin.file("a.yaml", "a: 2\n").commit("second");
    assert_eq!(bench.sync("main").await.unwrap().commit.to_string(), second);
}

#[tokio::test]
async fn follows_a_force_push_to_an_unrelated_commit_and_back() {
    let mut bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    bench.origin.clear().file("c.yaml", "c\n").orphan("rewritten");
    let rewritten = bench.sync("main").await.unwrap();
    assert_eq!(files(&rewritten, "/").await, expected(&[("c.yaml", "c\n")]));
    bench.origin.force(&first.commit.to_string());
    bench.server.take_counts();
    assert_eq!(bench.sync("main").await.unwrap().commit, first.commit);
    assert_eq!(bench.server.take_counts().packs, 0, "it was in the mirror");
}

#[tokio::test]
async fn tree_ids_change_with_their_directory_only() {
    let mut bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    bench.origin.file("a.yaml", "a: 2\n").commit("outside");
    let second = bench.sync("main").await.unwrap();
    let id = async |snapshot: &Snapshot, path: &str| {
        let base_dir = BaseDir::parse(path).unwrap();
        snapshot.tree(&base_dir).await.unwrap()
    };
    assert_eq!(id(&first, "apps").await, id(&second, "/apps/").await);
    assert_ne!(id(&first, "/").await, id(&second, "/").await);
    assert_eq!(id(&second, "nothing").await, None);
    assert_eq!(id(&second, "a.yaml").await, None, "a file is no directory");
    let error = second.entries(&BaseDir::parse("nothing").unwrap()).unwrap_err();
    assert_eq!((error.class(), chain(&error).contains("no such directory")), (Class::Invalid, true));
}

#[tokio::test]
async fn links_and_submodules_are_entries_and_never_followed() {
    let mut origin = small();
    origin.symlink("link.yaml", "/etc/passwd").submodule("sub").commit("more");
    let bench = Bench::new(origin).await;
    let snapshot = bench.sync("main").await.unwrap();
    let kinds: Vec<_> = snapshot.entries(&BaseDir::root()).unwrap();
    let kind = |path: &str| kinds.iter().find(|entry| entry.path == path).unwrap();
    assert_eq!(kind("link.yaml").kind, EntryKind::Symlink);
    assert_eq!(snapshot.read(kind("link.yaml")).unwrap(), b"/etc/passwd");
    assert_eq!(kind("sub").kind, EntryKind::Submodule);
    assert_eq!((kind("a.yaml").kind, kind("a.yaml").size), (EntryKind::File, 5));
}

#[tokio::test]
async fn a_corrected_password_works_at_once() {
    let bench = Bench::new(small()).await;
    bench.server.require("robot", "s3cret-token");
    let url = bench.server.url(NAME);
    let denied = async |remote: &Remote| {
        let error = sync(&bench.source, remote, "main").await.unwrap_err();
        assert_eq!(error.class(), Class::Denied);
        chain(&error)
    };
    assert!(denied(&anonymous(&url)).await.contains("it wants credentials"));
    let text = denied(&basic(&url, "robot", "wr0ng-token")).await;
    assert!(text.contains("401") && text.contains("correct them") && !text.contains("wr0ng"), "{text}");
    assert!(sync(&bench.source, &basic(&url, "robot", "s3cret-token"), "main").await.is_ok());
    let embedded = url.replace("http://", "http://robot:s3cret-token@");
    assert!(sync(&bench.source, &anonymous(&embedded), "main").await.is_ok());

    bench.server.require("robot", "changed-token");
    assert!(denied(&basic(&url, "robot", "s3cret-token")).await.contains("401"));
    bench.server.let_everyone_in();
    assert!(sync(&bench.source, &basic(&url, "robot", "s3cret-token"), "main").await.is_ok());
}

#[tokio::test]
async fn credentials_stand_in_no_file_of_a_mirror() {
    let bench = Bench::new(small()).await;
    bench.server.require("robot", "s3cret-token");
    let url = bench.server.url(NAME).replace("http://", "http://robot:s3cret-token@");
    sync(&bench.source, &anonymous(&url), "main").await.unwrap();
    let mut open = vec![bench.mirrors.path().to_owned()];
    let mut seen = 0;
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            assert!(!path.to_str().unwrap().contains("s3cret"));
            if path.is_dir() {
                open.push(path);
            } else {
                seen += 1;
                let bytes = std::fs::read(&path).unwrap();
                for secret in ["s3cret-token", "robot", "cm9ib3Q6czNjcmV0LXRva2Vu"] {
                    assert!(!String::from_utf8_lossy(&bytes).contains(secret), "{}", path.display());
                }
            }
        }
    }
    assert!(seen > 3);
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_host() {
    let bench = Bench::new(small()).await;
    let other = GitServer::start(bench.origin.root()).await;
    bench.server.fail(On::Advertisement, Fault::Redirect(other.base()));
    let remote = basic(&bench.server.url(NAME), "robot", "s3cret-token");
    let snapshot = sync(&bench.source, &remote, "main").await.unwrap();
    assert_eq!(files(&snapshot, "apps").await.len(), 1, "an open host serves without them");
    let counts = other.take_counts();
    assert!(counts.requests >= 2 && counts.with_credentials == 0, "{counts:?}");

    other.require("robot", "s3cret-token");
    let error = sync(&bench.source, &remote, "main").await.unwrap_err();
    let (class, text) = (error.class(), chain(&error));
    assert_eq!((class, other.take_counts().with_credentials), (Class::Denied, 0));
    assert!(text.contains(&other.base()["http://".len()..]) && text.contains("are not sent"), "{text}");
}

#[tokio::test]
async fn credentials_follow_a_redirect_on_their_own_host() {
    let bench = Bench::new(small()).await;
    bench.server.require("robot", "s3cret-token");
    let moved = bench.server.url(NAME);
    let alias = bench.origin.root().join("moved");
    std::os::unix::fs::symlink(bench.origin.root(), &alias).unwrap();
    let remote = basic(&moved, "robot", "s3cret-token");
    bench.server.fail(On::Advertisement, Fault::Redirect(format!("{}/moved", bench.server.base())));
    assert_eq!(files(&sync(&bench.source, &remote, "main").await.unwrap(), "/").await.len(), 2);
    bench.server.take_counts();
    assert!(sync(&bench.source, &remote, "main").await.is_ok());
    assert_eq!(bench.server.take_counts().requests, 1, "where it moved to is remembered");

    forget(&bench.source, &remote);
    bench.server.fail(On::Advertisement, Fault::Redirect(bench.server.base()));
    bench.server.take_counts();
    let error = sync(&bench.source, &remote, "main").await.unwrap_err();
    assert!(chain(&error).contains("more than five redirects"), "{}", chain(&error));
    assert_eq!(bench.server.take_counts().with_credentials, 6);
}

#[tokio::test]
async fn every_bad_answer_is_a_named_failure() {
    let bench = Bench::new(small()).await;
    let cases = [
        (On::Everything, Fault::Status(401), Class::Denied, "401"),
        (On::Everything, Fault::Status(403), Class::Denied, "403"),
        (On::Everything, Fault::Status(404), Class::Invalid, "no repository there (404)"),
        (On::Everything, Fault::Status(500), Class::Unavailable, "the server answered 500"),
        (On::Everything, Fault::Status(503), Class::Unavailable, "the server answered 503"),
        (On::Everything, Fault::Html, Class::Denied, "web page"),
        (On::Everything, Fault::Answer(b"zzzz".to_vec()), Class::Unavailable, "no length"),
        (On::Everything, Fault::Answer(b"0000".to_vec()), Class::Unavailable, "empty"),
        (On::Everything, Fault::Answer(Vec::new()), Class::Unavailable, "too early"),
        (On::Everything, Fault::Answer(b"fff0garbage".to_vec()), Class::Unavailable, "middle of a packet"),
        (On::Advertisement, Fault::Truncate(20), Class::Unavailable, "does not speak Git"),
        (On::References, Fault::Answer(b"0009what!0000".to_vec()), Class::Unavailable, "not a reference"),
        (On::References, Fault::Truncate(30), Class::Unavailable, "middle of a packet"),
        (On::Packs, Fault::Status(500), Class::Unavailable, "the server answered 500"),
        (On::Packs, Fault::Truncate(80), Class::Unavailable, "does not speak Git"),
        (On::Packs, Fault::Answer(b"0012ERR no \x1b[1mway0000".to_vec()), Class::Unavailable, "refused: no  [1mway"),
        (On::Packs, Fault::Answer(b"000dpackfile\n0009\x01junk0000".to_vec()), Class::Unavailable, "damaged pack"),
        (On::Packs, Fault::Answer(b"000dpackfile\n0000".to_vec()), Class::Unavailable, "lacks the commit"),
        (On::Packs, Fault::Html, Class::Denied, "web page"),
        (On::Packs, Fault::Redirect("http://127.0.0.1:1".into()), Class::Invalid, "only the first request"),
    ];
    for (on, fault, class, words) in cases {
        bench.server.heal();
        bench.server.fail(on, fault.clone());
        let (got, text) = bench.failure("main").await;
        assert!(got == class && text.contains(words), "{on:?} {fault:?}: {got:?} {text}");
        assert!(text.contains("main") || text.contains("commit"), "names the attempt: {text}");
    }
    bench.server.heal();
    assert_eq!(files(&bench.sync("main").await.unwrap(), "/").await.len(), 2, "and recovers");
}

#[tokio::test]
async fn a_server_that_lies_about_its_references_is_found_out() {
    let mut origin = small();
    origin.tag_file("file", "a.yaml");
    let bench = Bench::new(origin).await;
    let (class, text) = bench.failure("file").await;
    assert!(class == Class::Invalid && text.contains("not a commit"), "{text}");

    let line = |id: &str| format!("003d{id} refs/heads/main\n0000").into_bytes();
    bench.server.fail(On::References, Fault::Answer(line(&"1".repeat(40))));
    let (class, text) = bench.failure("main").await;
    assert!(class == Class::Unavailable && text.contains("refused"), "{text}");

    let mut elsewhere = Origin::new();
    let pack = elsewhere.file("x", "x").pack();
    let band = [format!("000dpackfile\n{:04x}\x01", pack.len() + 5).as_bytes(), &pack, b"0000"].concat();
    bench.server.fail(On::Packs, Fault::Answer(band));
    let (class, text) = bench.failure("main").await;
    assert!(class == Class::Unavailable && text.contains("lacks the commit"), "{text}");
    bench.server.heal();
    assert!(bench.sync("main").await.is_ok());
}

#[tokio::test]
async fn a_scrambled_answer_is_an_error_or_makes_no_difference() {
    let bench = Bench::with(small(), |settings| settings.deadlines.silence = Duration::from_secs(1)).await;
    let truth = files(&bench.sync("main").await.unwrap(), "/").await;
    let mut errors = 0;
    for seed in 0..10 {
        for on in [On::Advertisement, On::References, On::Packs] {
            forget(&bench.source, &bench.remote());
            bench.server.heal();
            bench.server.fail(on, Fault::Scramble(seed));
            match bench.sync("main").await {
                Ok(snapshot) => assert_eq!(files(&snapshot, "/").await, truth, "{on:?} {seed}"),
                Err(error) => {
                    errors += 1;
                    assert_ne!(error.class(), Class::Bug, "{on:?} {seed}: {}", chain(&error));
                }
            }
        }
    }
    assert!(errors > 10, "{errors}");
}

#[tokio::test]
async fn a_server_that_repeats_credentials_is_not_quoted() {
    let bench = Bench::new(small()).await;
    let remote = basic(&bench.server.url(NAME), "robot", "s3cret-token");
    for on in [On::Advertisement, On::References, On::Packs] {
        for echo in ["s3cret-token", "cm9ib3Q6czNjcmV0LXRva2Vu"] {
            bench.server.heal();
            let words = format!("ERR who is {echo}?");
            bench.server.fail(on, Fault::Answer(format!("{:04x}{words}", words.len() + 4).into_bytes()));
            let text = chain(&sync(&bench.source, &remote, "main").await.unwrap_err());
            assert!(text.contains("refused") && !text.contains(echo), "{text}");
            bench.server.fail(on, Fault::Status(500));
            let text = chain(&sync(&bench.source, &remote, "main").await.unwrap_err());
            assert!(text.contains("500") && !text.contains(echo), "{text}");
        }
    }
}

#[tokio::test]
async fn a_server_that_stalls_or_drips_meets_the_deadline() {
    let bench = Bench::with(small(), |settings| {
        settings.deadlines.silence = Duration::from_millis(700);
        settings.deadlines.lookup = Duration::from_millis(800);
        settings.deadlines.fetch = Duration::from_millis(1500);
    })
    .await;
    let drip = Fault::Drip(Duration::from_millis(50));
    for (on, fault, most) in [
        (On::Everything, Fault::Stall, 800),
        (On::Everything, drip.clone(), 900),
        (On::Packs, Fault::Stall, 1500),
        (On::Packs, drip, 2500),
    ] {
        bench.server.heal();
        bench.server.fail(on, fault.clone());
        let began = Instant::now();
        let (class, text) = bench.failure("main").await;
        assert!(class == Class::Unavailable && text.contains("no end after"), "{fault:?}: {text}");
        let took = began.elapsed();
        assert!(took < Duration::from_millis(most + 4000), "{on:?} {fault:?} took {took:?}");
    }
}

#[tokio::test]
async fn a_stuck_remote_does_not_delay_another() {
    let stuck = Bench::with(small(), |settings| {
        settings.slots = 1;
        settings.deadlines.lookup = Duration::from_secs(4);
    })
    .await;
    let good = Bench::new(small()).await;
    stuck.server.fail(On::Everything, Fault::Stall);
    let remote = stuck.remote();
    let waiting = (0..20).map(|_| {
        let (source, remote) = (stuck.source.clone(), remote.clone());
        tokio::spawn(async move { source.lookup(&remote, &Reference::head(), NOW).await })
    });
    let waiting: Vec<_> = waiting.collect();
    let began = Instant::now();
    sync(&stuck.source, &good.remote(), "main").await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().unwrap_err().class(), Class::Unavailable);
    }
    assert!(stuck.server.take_counts().requests <= 2, "waiters share an attempt");
}

#[tokio::test]
async fn one_question_serves_all_who_ask_at_the_same_time() {
    let mut origin = small();
    origin.branch("dev").commit("dev");
    let bench = Bench::new(origin).await;
    bench.sync("main").await.unwrap();
    bench.sync("dev").await.unwrap();
    bench.server.take_counts();
    let remote = bench.remote();
    let ask =
        async |reference: &str| bench.source.lookup(&remote, &Reference::parse(reference).unwrap(), NOW).await.unwrap();
    let (main, dev, _) = tokio::join!(ask("main"), ask("dev"), ask("main"));
    assert_ne!(main.commit, dev.commit);
    assert!(bench.server.take_counts().requests <= 2);
    let aged = Duration::from_secs(60);
    bench.source.lookup(&bench.remote(), &Reference::parse("dev").unwrap(), aged).await.unwrap();
    assert_eq!(bench.server.take_counts().requests, 0, "a fresh answer is used again");
}

#[tokio::test]
async fn what_is_missing_is_said_with_what_there_is() {
    let mut bench = Bench::new(small()).await;
    bench.origin.branch("dev");
    assert!(bench.sync("dev").await.is_ok());
    bench.origin.drop_branch("dev");
    let (class, text) = bench.failure("dev").await;
    assert_eq!(class, Class::Invalid);
    assert!(text.contains("look up dev") && text.contains("default branch is main"), "{text}");
    let empty = Bench::new(Origin::new()).await;
    for _ in 0..2 {
        let (class, text) = empty.failure("main").await;
        assert!(class == Class::Invalid && text.contains("empty"), "{text}");
        empty.server.speak_version_zero();
    }
    let gone = anonymous(&bench.server.url("nothing.git"));
    assert_eq!(sync(&bench.source, &gone, "main").await.unwrap_err().class(), Class::Invalid);
    for closed in ["http://127.0.0.1:1/x.git", "https://127.0.0.1:1/x.git"] {
        let error = sync(&bench.source, &anonymous(closed), "main").await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable);
        assert!(chain(&error).contains("no connection"), "{}", chain(&error));
    }
    let plain = bench.server.url(NAME).replace("http://", "https://");
    let error = sync(&bench.source, &anonymous(&plain), "main").await.unwrap_err();
    assert_eq!(error.class(), Class::Unavailable, "TLS that is none: {}", chain(&error));
    assert_eq!(bench.source.default_branch(&bench.remote()).await.unwrap().to_string(), "main");
}

#[tokio::test]
async fn limits_hold() {
    let mut origin = small();
    origin.file("large.bin", vec![b'x'; 3 << 20]).commit("large");
    for number in 0..200 {
        origin.file(&format!("many/{number}"), "");
    }
    let commit = origin.commit("many");
    let bench = Bench::with(origin, |settings| {
        settings.limits.file_bytes = 1 << 20;
        settings.limits.entries = 100;
    })
    .await;
    let snapshot = bench.sync("main").await.unwrap();
    let error = snapshot.entries(&BaseDir::root()).unwrap_err();
    assert!(chain(&error).contains("number of files") && error.class() == Class::Invalid);
    drop(error);
    let at = |adjust: fn(&mut Settings)| {
        let root = bench.origin.root().to_owned();
        let commit = commit.clone();
        async move {
            let server = GitServer::start(&root).await;
            let mirrors = tempfile::tempdir().unwrap();
            let mut settings = settings(mirrors.path());
            adjust(&mut settings);
            let error = sync(&Source::new(settings), &anonymous(&server.url(NAME)), &commit).await.unwrap_err();
            assert_eq!(error.class(), Class::Invalid);
            chain(&error)
        }
    };
    assert!(at(|settings| settings.limits.pack_bytes = 2000).await.contains("pack in bytes"));
    assert!(at(|settings| settings.limits.object_bytes = 1 << 20).await.contains("object of the pack"));
    assert!(at(|settings| settings.limits.unpacked_bytes = 2 << 20).await.contains("unpacked pack"));
    assert!(at(|settings| settings.limits.pack_objects = 3).await.contains("number of objects"));
    assert!(at(|settings| settings.limits.mirror_bytes = 3000).await.contains("mirror in bytes"));
}

#[tokio::test]
async fn a_file_larger_than_the_limit_is_not_read() {
    let mut origin = Origin::new();
    origin.file("large.yaml", vec![b'x'; 2000]).commit("large");
    let bench = Bench::with(origin, |settings| settings.limits.file_bytes = 1000).await;
    let snapshot = bench.sync("main").await.unwrap();
    let entries = snapshot.entries(&BaseDir::root()).unwrap();
    assert_eq!(entries[0].size, 2000);
    let error = snapshot.read(&entries[0]).unwrap_err();
    assert_eq!(
        chain(&error),
        format!("read large.yaml of commit {}: the file in bytes is larger than the limit of 1000", snapshot.commit)
    );
}

#[tokio::test]
async fn a_mirror_that_grew_is_cloned_anew_and_old_readers_go_on() {
    let mut bench = Bench::with(small(), |settings| settings.limits.mirror_packs = 3).await;
    let first = bench.sync("main").await.unwrap();
    for number in 0..8 {
        bench.origin.file("a.yaml", format!("a: {number}\n")).commit("next");
        let snapshot = bench.sync("main").await.unwrap();
        assert_eq!(files(&snapshot, "/").await["a.yaml"], format!("a: {number}\n"));
        assert!(packs(bench.mirrors.path()).len() <= 6, "one generation that is read and one that grows");
    }
    assert_eq!(files(&first, "/").await["a.yaml"], "a: 1\n");
}

#[tokio::test]
async fn a_restart_finds_its_mirror() {
    let bench = Bench::new(small()).await;
    let found = bench.source.lookup(&bench.remote(), &Reference::head(), NOW).await.unwrap();
    bench.source.fetch(&bench.remote(), &found).await.unwrap();
    bench.server.take_counts();
    let source = Source::new(settings(bench.mirrors.path()));
    let snapshot = source.fetch(&bench.remote(), &found).await.unwrap();
    assert_eq!(files(&snapshot, "/").await.len(), 2);
    assert_eq!(bench.server.take_counts().requests, 0);
}

#[tokio::test]
async fn a_damaged_mirror_is_made_anew() {
    type Damage = fn(&Path);
    let overwrite: Damage = |pack| {
        let length = std::fs::metadata(pack).unwrap().len();
        let mut permissions = std::fs::metadata(pack).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
        std::fs::set_permissions(pack, permissions).unwrap();
        std::fs::write(pack, vec![0xa5; usize::try_from(length).unwrap()]).unwrap();
    };
    let remove: Damage = |pack| std::fs::remove_file(pack).unwrap();
    let remove_index: Damage = |pack| std::fs::remove_file(pack.with_extension("idx")).unwrap();
    for damage in [overwrite, remove, remove_index] {
        let mut bench = Bench::new(small()).await;
        bench.sync("main").await.unwrap();
        for pack in packs(bench.mirrors.path()) {
            damage(&pack);
        }
        let snapshot = bench.sync("main").await.unwrap();
        assert_eq!(files(&snapshot, "/").await.len(), 2, "the commit that it held");

        for pack in packs(bench.mirrors.path()) {
            damage(&pack);
        }
        bench.origin.file("a.yaml", "a: 2\n").commit("second");
        let half = bench.sync("main").await.unwrap();
        if let Err(error) = half.entries(&BaseDir::root()) {
            assert_eq!(error.class(), Class::Unavailable, "what was sent is good, what it builds on is not");
        }
        let snapshot = bench.sync("main").await.unwrap();
        assert_eq!(files(&snapshot, "/").await["a.yaml"], "a: 2\n", "a commit that builds on it");
    }
}

#[tokio::test]
async fn a_mirror_whose_files_turn_out_damaged_is_made_anew_by_the_next_fetch() {
    let bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    let entries = first.entries(&BaseDir::root()).unwrap();
    let second = bench.sync("main").await.unwrap();
    for pack in packs(bench.mirrors.path()) {
        std::fs::remove_file(pack).unwrap();
    }
    let third = bench.sync("main").await.unwrap();
    assert_eq!(third.read(&entries[0]).unwrap(), b"a: 1\n");
    drop((first, second));
}

fn packs(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(packs(&path));
        } else if path.extension().is_some_and(|extension| extension == "pack") {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn local_repositories_are_read_where_that_is_allowed_and_watched() {
    let mut origin = small();
    let mirrors = tempfile::tempdir().unwrap();
    let remote = anonymous(origin.path().to_str().unwrap());
    let error = sync(&Source::new(settings(mirrors.path())), &remote, "main").await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid);
    let file = anonymous(&format!("file://{}", origin.path().display()));
    assert!(sync(&Source::new(settings(mirrors.path())), &file, "main").await.is_err());

    let mut allowing = settings(mirrors.path());
    allowing.allow_local = true;
    let source = Source::new(allowing);
    let first = sync(&source, &remote, "main").await.unwrap();
    assert_eq!(files(&first, "apps").await, expected(&[("apps/b.yaml", "b: 1\n")]));
    assert_eq!(sync(&source, &file, "HEAD").await.unwrap().commit, first.commit);
    assert_eq!(sync(&source, &remote, &first.commit.to_string()).await.unwrap().commit, first.commit);
    assert_eq!(sync(&source, &remote, &"a".repeat(40)).await.unwrap_err().class(), Class::Invalid);
    let error = sync(&source, &anonymous(mirrors.path().to_str().unwrap()), "main").await.unwrap_err();
    assert_eq!((error.class(), chain(&error).contains("no Git repository")), (Class::Invalid, true));

    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    let watch = watch_local(&origin.path(), move || told.send(()).unwrap_or_default()).unwrap();
    let second = origin.file("a.yaml", "a: 2\n").annotated_tag("v1").commit("second");
    tokio::time::timeout(Duration::from_secs(5), tells.recv()).await.unwrap().unwrap();
    assert_eq!(sync(&source, &remote, "main").await.unwrap().commit.to_string(), second);
    assert_eq!(sync(&source, &remote, "v1").await.unwrap().commit, first.commit);
    drop(watch);
    let ended = tokio::time::timeout(Duration::from_secs(5), async { while tells.recv().await.is_some() {} }).await;
    assert!(ended.is_ok(), "the watch ends when it is dropped");
}

#[tokio::test]
async fn commits_of_the_git_program_in_a_work_tree_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str], at: &Path| {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=x", "-c", "user.email=x@example.org"]).args(arguments).current_dir(at);
        let done = command.env("HOME", directory.path()).env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let tree = directory.path().join("tree");
    let linked = directory.path().join("linked");
    std::fs::create_dir(&tree).unwrap();
    git(&["init", "-q", "-b", "trunk"], &tree);
    git(&["commit", "-q", "--allow-empty", "-m", "first"], &tree);
    git(&["worktree", "add", "-q", "-b", "side", "../linked"], &tree);

    let mut allowing = settings(&directory.path().join("mirrors"));
    allowing.allow_local = true;
    let source = Source::new(allowing);
    for (path, branch) in [(&tree, "trunk"), (&linked, "side")] {
        let remote = anonymous(path.to_str().unwrap());
        let before = sync(&source, &remote, "HEAD").await.unwrap();
        assert_eq!(source.default_branch(&remote).await.unwrap().to_string(), branch);
        let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
        let _watch = watch_local(path, move || told.send(()).unwrap_or_default()).unwrap();
        std::fs::write(path.join("a.yaml"), "a: 1").unwrap();
        git(&["add", "a.yaml"], path);
        git(&["commit", "-q", "-m", "second"], path);
        let after = loop {
            tokio::time::timeout(Duration::from_secs(5), tells.recv()).await.unwrap().unwrap();
            let now = sync(&source, &remote, branch).await.unwrap();
            if now.commit != before.commit {
                break now;
            }
        };
        assert_eq!(files(&after, "/").await, expected(&[("a.yaml", "a: 1")]));
        git(&["pack-refs", "--all"], path);
        assert_eq!(sync(&source, &remote, branch).await.unwrap().commit, after.commit);
    }
}

#[tokio::test]
async fn what_nobody_reads_any_more_is_removed_from_the_disk() {
    let bench = Bench::new(small()).await;
    let reader = |kind| Reader { kind, namespace: "shop".into(), name: "web".into() };
    let (sync, function) = (reader(ReaderKind::GitSync), reader(ReaderKind::Function));
    bench.source.reads(&sync, Some(&bench.remote()));
    bench.source.reads(&function, Some(&bench.remote()));
    drop(bench.sync("main").await.unwrap());
    assert_eq!(packs(bench.mirrors.path()).len(), 1);
    bench.source.reads(&function, None);
    assert_eq!(packs(bench.mirrors.path()).len(), 1, "the other one reads it");
    bench.source.reads(&sync, None);
    assert_eq!(packs(bench.mirrors.path()).len(), 0);
    assert!(bench.sync("main").await.is_ok(), "and can be used again");
}
