//! Submodules: repositories of `git submodule`, and malicious addresses.

use super::*;

/// Runs git, and returns its standard output.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = mainstay_testkit::isolated("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("git is needed: apt-get install git");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Repositories beside each other on one server.
pub(super) struct Forge {
    root: TempDir,
    work: TempDir,
    pub(super) server: GitServer,
    mirrors: TempDir,
}

impl Forge {
    pub(super) async fn new() -> Self {
        let temporary = || tempfile::tempdir().unwrap();
        let root = temporary();
        let server = GitServer::start(root.path()).await;
        Self { root, work: temporary(), server, mirrors: temporary() }
    }

    /// Commits files and submodules (path and address) to a repository with git itself. Returns the commit ID.
    pub(super) fn commit(&self, name: &str, files: &[(&str, &str)], submodules: &[(&str, &str)]) -> String {
        let bare = self.root.path().join(format!("{name}.git"));
        let tree = self.work.path().join(name);
        if !bare.exists() {
            git(self.root.path(), &["init", "--quiet", "--bare", bare.to_str().unwrap()]);
            git(self.work.path(), &["init", "--quiet", name]);
            git(&tree, &["remote", "add", "origin", &self.server.url(&format!("{name}.git"))]);
        }
        for (path, content) in files {
            std::fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
            std::fs::write(tree.join(path), content).unwrap();
        }
        for (path, address) in submodules {
            git(&tree, &["submodule", "add", "--quiet", address, path]);
        }
        git(&tree, &["add", "--all"]);
        git(&tree, &["commit", "--quiet", "--allow-empty", "-m", "next"]);
        git(&tree, &["push", "--quiet", bare.to_str().unwrap(), "HEAD:main"]);
        git(&tree, &["rev-parse", "HEAD"]).trim().to_owned()
    }

    pub(super) fn remote(&self, name: &str) -> Remote {
        Remote { submodules: true, ..anonymous(&self.server.url(&format!("{name}.git"))) }
    }

    async fn get(&self, source: &Source, name: &str) -> Result<Snapshot, Error> {
        sync(source, &self.remote(name), "main").await
    }

    fn source(&self) -> Source {
        self.source_with(|_| {})
    }

    pub(super) fn source_with(&self, adjust: impl FnOnce(&mut Settings)) -> Source {
        let mut settings = settings(self.mirrors.path());
        adjust(&mut settings);
        Source::new(settings)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_with_submodules_is_what_git_makes_of_it() {
    let forge = Forge::new().await;
    forge.commit("inner", &[("deep.yaml", "inner: 1\n")], &[]);
    forge.commit("lib", &[("lib.yaml", "lib: 1\n"), ("charts/c.yaml", "c: 1\n")], &[("vendor/inner", "../inner.git")]);
    forge.commit("app", &[("app.yaml", "app: 1\n")], &[("libs/lib", "../lib.git")]);
    let source = forge.source();
    let snapshot = forge.get(&source, "app").await.unwrap();

    let clone = forge.work.path().join("clone");
    let url = forge.server.url("app.git");
    git(forge.work.path(), &["clone", "--quiet", "--recurse-submodules", &url, clone.to_str().unwrap()]);
    let listed = git(&clone, &["ls-files", "--recurse-submodules"]);
    let found = files(&snapshot, "/").await;
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), listed.lines().collect::<Vec<_>>());
    for (path, content) in &found {
        assert_eq!(*content, std::fs::read_to_string(clone.join(path)).unwrap(), "{path}");
    }

    assert_eq!(files(&snapshot, "/libs/lib/charts").await, expected(&[("libs/lib/charts/c.yaml", "c: 1\n")]));
    assert_eq!(
        files(&snapshot, "/libs/lib/vendor/inner").await,
        expected(&[("libs/lib/vendor/inner/deep.yaml", "inner: 1\n")])
    );
    forge.server.take_counts();
    drop(forge.get(&source, "app").await.unwrap());
    assert_eq!(forge.server.take_counts().packs, 0, "what is there is not asked for");

    let tree = async |base_dir: &str, snapshot: &Snapshot| {
        snapshot.tree(&BaseDir::parse(base_dir).unwrap()).await.unwrap().unwrap()
    };
    forge.commit("lib", &[("lib.yaml", "lib: 2\n")], &[]);
    git(&forge.work.path().join("app/libs/lib"), &["pull", "--quiet", "origin", "main"]);
    forge.commit("app", &[], &[]);
    forge.server.take_counts();
    let next = forge.get(&source, "app").await.unwrap();
    assert_eq!(forge.server.take_counts().packs, 2, "the repository and the submodule that moved");
    assert_eq!(files(&next, "/libs").await["libs/lib/lib.yaml"], "lib: 2\n");
    for (base_dir, changes) in [("/", true), ("/libs", true), ("/libs/lib", true), ("/libs/lib/charts", false)] {
        assert_eq!(tree(base_dir, &snapshot).await != tree(base_dir, &next).await, changes, "{base_dir}");
    }

    let below = |base_dir: &str| snapshot.submodules_below(&BaseDir::parse(base_dir).unwrap());
    assert!(below("/").is_some() && below("/") == below("/libs") && below("/") != below("/libs/lib"));
    assert!(below("/libs/lib").is_some() && below("/libs/lib/charts").is_none() && below("/lib").is_none());

    let plain = sync(&source, &Remote { submodules: false, ..forge.remote("app") }, "main").await.unwrap();
    assert_eq!(plain.submodules_below(&BaseDir::root()), None, "with the same tree");
    assert!(files_of_kinds(&plain).contains(&("libs/lib".to_owned(), mainstay_git::EntryKind::Submodule)));
}

fn files_of_kinds(snapshot: &Snapshot) -> Vec<(String, mainstay_git::EntryKind)> {
    snapshot.entries(&BaseDir::root()).unwrap().into_iter().map(|entry| (entry.path, entry.kind)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_to_submodules_on_the_same_server_only() {
    let (here, there) = (Forge::new().await, Forge::new().await);
    there.commit("foreign", &[("f.yaml", "f: 1\n")], &[]);
    here.commit("lib", &[("lib.yaml", "lib: 1\n")], &[]);
    let foreign = there.server.url("foreign.git");
    here.commit("app", &[("app.yaml", "a: 1\n")], &[("lib", "../lib.git"), ("foreign", &foreign)]);
    here.server.require("me", "correct horse battery");
    let url = RemoteUrl::parse(&here.server.url("app.git")).unwrap();
    let password = Secret::new("correct horse battery".to_owned());
    let credentials = Credentials::Basic { username: "me".into(), password };
    let remote = Remote { submodules: true, ..Remote::new(url, credentials) };
    let source = here.source();
    there.server.take_counts();
    assert_eq!(files(&sync(&source, &remote, "main").await.unwrap(), "/lib").await.len(), 1);
    let counts = there.server.take_counts();
    assert!(counts.requests > 0 && counts.with_credentials == 0, "{counts:?}");

    there.server.require("other", "password");
    let error = sync(&Source::new(settings(there.mirrors.path())), &remote, "main").await.unwrap_err();
    let text = chain(&error);
    assert_eq!(error.class(), Class::Denied, "{text}");
    assert!(text.starts_with("fetch the submodule foreign: fetch commit "), "{text}");
    assert!(text.contains("the server answered 401: it asks for credentials") && !text.contains("horse"), "{text}");
    assert_eq!(there.server.take_counts().with_credentials, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_submodules_are_named_failures() {
    let gitmodules = |address: &str| format!("[submodule \"x\"]\n\tpath = x\n\turl = {address}\n");
    let cases = [
        ("--upload-pack=evil", Class::Invalid, "the path and the URL of a submodule must not begin with `-`"),
        ("../../../../etc", Class::Invalid, "points outside the host of its repository"),
        ("/etc", Class::Invalid, "the URL of a submodule must be that of a Git server, not a local path"),
        ("file:///etc", Class::Invalid, "the URL of a submodule must be that of a Git server, not a local path"),
        ("ext::sh -c id", Class::Invalid, "the URL must have the form"),
        (
            "http://169.254.169.254/latest",
            Class::Invalid,
            "connections to link-local and metadata addresses are refused",
        ),
        (
            "http://me:secret@127.0.0.1/x",
            Class::Invalid,
            "the URL of a submodule must not contain a user name or password",
        ),
        ("../missing.git", Class::Invalid, "the server has no repository there (404)"),
        ("./", Class::Invalid, "points outside the host"),
        ("../repo.git", Class::Invalid, "the repository has no such commit on any branch that can be fetched"),
    ];
    for (address, class, expected) in cases {
        let mut origin = Origin::new();
        origin.file("a.yaml", "a: 1\n").file(".gitmodules", gitmodules(address)).submodule("x").commit("first");
        let bench = Bench::new(origin).await;
        let error = sync(&bench.source, &Remote { submodules: true, ..bench.remote() }, "main").await.unwrap_err();
        let text = chain(&error);
        assert!(text.contains(expected) && !text.contains("secret"), "{address}: {text}");
        assert_eq!(error.class(), class, "{address}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn submodules_in_submodules_end_at_a_depth_and_a_number() {
    let forge = Forge::new().await;
    forge.commit("r0", &[("f.yaml", "f: 1\n")], &[]);
    for number in 1..=5 {
        let below = format!("../r{}.git", number - 1);
        forge.commit(&format!("r{number}"), &[("f.yaml", "f: 1\n")], &[("s", &below)]);
    }
    let source = forge.source();
    assert_eq!(files(&forge.get(&source, "r4").await.unwrap(), "/").await.len(), 5 + 4, "each has a .gitmodules");
    let text = chain(&forge.get(&source, "r5").await.unwrap_err());
    assert!(text.contains("the depth of submodules in submodules is larger than the limit of 4"), "{text}");

    let mut origin = Origin::new();
    let mut modules = String::new();
    for number in 0..65 {
        modules
            .push_str(&format!("[submodule \"{number}\"]\npath = m{number}\nurl = {}\n", forge.server.url("r0.git")));
        let head = git(&forge.work.path().join("r0"), &["rev-parse", "HEAD"]);
        origin.submodule_at(&format!("m{number}"), head.trim());
    }
    origin.file(".gitmodules", modules).commit("many");
    let bench = Bench::new(origin).await;
    let text = chain(&sync(&bench.source, &Remote { submodules: true, ..bench.remote() }, "main").await.unwrap_err());
    assert_eq!(text, "read the submodules: the number of submodules is larger than the limit of 64");
    assert_eq!(bench.source.traffic().fetches, 1, "of the repository, and of no submodule");
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_of_submodules_go_with_the_consumers_of_their_repository() {
    let forge = Forge::new().await;
    forge.commit("inner", &[("deep.yaml", "inner: 1\n")], &[]);
    forge.commit("lib", &[("lib.yaml", "lib: 1\n")], &[("inner", "../inner.git")]);
    forge.commit("app", &[("app.yaml", "app: 1\n")], &[("lib", "../lib.git")]);
    let consumer = |name| Consumer::new(ConsumerKind::GitSync, "shop", name);
    let start = |used: &[(&'static str, &str)]| {
        let source = forge.source();
        for (name, repository) in used {
            source.set_remote(&consumer(name), Some(&forge.remote(repository)));
        }
        source.all_registered(ConsumerKind::GitSync);
        source.all_registered(ConsumerKind::Function);
        source
    };
    let mirrors = || {
        let entries = std::fs::read_dir(forge.mirrors.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "git")).count()
    };
    let source = start(&[("app", "app"), ("lib", "lib")]);
    assert_eq!(files(&forge.get(&source, "app").await.unwrap(), "/").await.len(), 5);
    assert_eq!(mirrors(), 3);
    source.set_remote(&consumer("lib"), None);
    assert_eq!(mirrors(), 3, "it is a submodule");
    drop(source);

    let source = start(&[("app", "app")]);
    assert_eq!(source.sweep().await, 0, "the submodules are used as soon as the repository is");
    forge.server.take_counts();
    assert_eq!(files(&forge.get(&source, "app").await.unwrap(), "/").await.len(), 5);
    assert_eq!(forge.server.take_counts().packs, 0, "nothing is fetched after a restart");
    source.set_remote(&consumer("app"), None);
    assert_eq!(mirrors(), 0);

    let source = start(&[("app", "app")]);
    forge.get(&source, "app").await.unwrap();
    drop(source);
    assert_eq!(start(&[]).sweep().await, 3, "nobody uses the repository any more");
}
