//! `mainstay build fetch` and its script, with real repositories, npm and pip.

use std::{fs, path::Path};

use mainstay_api::build::{FailureReason, FetchReport};

use mainstay_testkit::{
    build::{Job, Origin, wheel},
    git_server::{Fault, GitServer, On},
    large_files::LargeFile,
    npm_registry,
    remote::{NAME, Remote},
};

fn function(remote: &mut Remote) {
    remote.file("handler.js", "module.exports = { main: () => 'hello' };\n").file("package.json", "{}");
}

#[tokio::test]
async fn takes_the_directory_of_the_recorded_commit() {
    let mut origin = Origin::new(|remote| {
        remote
            .file("fn/handler.js", "1")
            .file("fn/package.json", "{}")
            .file("fn/lib/tool", "x")
            .symlink("fn/l", "lib/tool");
        remote.file("other/big", "no").file("fn/.npmrc", "//registry.example.org/:_authToken=hunter2\n");
    })
    .await;
    let resolved = origin.resolved("/fn/");
    let job = Job::new();
    let report = job.fetch("nodejs22", &resolved).await;
    assert_eq!(report, FetchReport { dependencies: String::new(), reused: false });
    assert_eq!(job.names("workspace/src"), ["handler.js", "l", "lib", "lib/tool", "package.json"]);
    assert_eq!(job.read("workspace/src/l"), "x");
    assert!(job.names("workspace/deps").is_empty() && !job.exists("workspace/git"));
    assert_eq!(job.read("workspace/dependencies"), "");

    // The branch advances elsewhere. The directory is unchanged, so the reference is not resolved again.
    origin.remote.file("other/big", "yes").commit("second");
    job.fetch("nodejs22", &resolved).await;
    // The directory changes. The recorded commit is used, whether or not the server serves commits by ID.
    origin.remote.file("fn/handler.js", "2").commit("third");
    job.fetch("nodejs22", &resolved).await;
    assert_eq!(job.read("workspace/src/handler.js"), "1");
    origin.server.speak_version_zero();
    job.fetch("nodejs22", &resolved).await;
    assert_eq!(job.read("workspace/src/handler.js"), "1");
}

#[tokio::test]
async fn reports_a_moved_branch_when_the_commit_is_gone() {
    let mut origin = Origin::new(function).await;
    let resolved = origin.resolved("/");
    origin.remote.file("handler.js", "other").orphan("forced");
    origin.server.speak_version_zero();
    let failure = Job::new().failure("fetch", "nodejs22", &resolved).await;
    assert_eq!((failure.reason, failure.retry), (FailureReason::BranchMoved, true));

    // The same files in another history are accepted.
    function(&mut origin.remote);
    origin.remote.orphan("forced again");
    Job::new().fetch("nodejs22", &resolved).await;

    let mut stale = origin.resolved("/");
    stale[5] = "2".repeat(40);
    assert_eq!(Job::new().failure("fetch", "nodejs22", &stale).await.reason, FailureReason::BranchMoved);
}

#[tokio::test]
async fn fetches_an_annotated_tag_from_a_server_that_serves_no_commit_by_id() {
    let mut origin = Origin::new(function).await;
    origin.server.speak_version_zero();
    let resolved = |origin: &Origin| {
        let mut arguments = origin.resolved("/");
        let at = arguments.iter().position(|argument| argument == "main").unwrap();
        "v1".clone_into(&mut arguments[at]);
        arguments
    };
    // The tagged commit is on no branch; only the tag points to it.
    origin.remote.branch("release").file("handler.js", "released").commit("released");
    let released = resolved(&origin);
    origin.remote.annotated_tag("v1").branch("main").drop_branch("release");
    let job = Job::new();
    job.fetch("nodejs22", &released).await;
    assert_eq!(job.read("workspace/src/handler.js"), "released");
    let tag = mainstay_testkit::isolated("git")
        .arg("-C")
        .arg(origin.remote.path())
        .args(["cat-file", "-t", "v1"])
        .output()
        .unwrap();
    assert_eq!(tag.stdout, b"tag\n", "it is an object of its own");

    // The tag moves to a commit with other files, so the recorded files are gone.
    origin.remote.file("handler.js", "later").commit("later");
    origin.remote.annotated_tag("v1");
    let failure = Job::new().failure("fetch", "nodejs22", &released).await;
    assert_eq!((failure.reason, failure.retry), (FailureReason::BranchMoved, true), "{}", failure.message);
    let moved = resolved(&origin);
    job.fetch("nodejs22", &moved).await;
    assert_eq!(job.read("workspace/src/handler.js"), "later");
    // The recorded commit is still in the history of a branch.
    origin.remote.file("handler.js", "latest").commit("latest");
    origin.remote.annotated_tag("v1");
    job.fetch("nodejs22", &moved).await;
    assert_eq!(job.read("workspace/src/handler.js"), "later");
}

#[tokio::test]
async fn uses_the_credentials_and_prints_none() {
    let origin = Origin::new(function).await;
    origin.server.require("user", "hunter2");
    let job = Job::new();
    let failure = job.failure("fetch", "nodejs22", &origin.resolved("/")).await;
    assert_eq!((failure.reason, failure.retry), (FailureReason::GitAuthorization, true));

    let mut arguments = origin.resolved("/");
    let credentials = job.path("git-credentials").to_str().unwrap().to_owned();
    arguments.extend(["--auth".into(), "basic".into(), "--credentials".into(), credentials]);
    job.put("git-credentials/username", "user");
    let failure = job.failure("fetch", "nodejs22", &arguments).await;
    assert_eq!(failure.reason, FailureReason::GitAuthorization);
    assert!(failure.message.contains("missing field password"), "{}", failure.message);

    job.put("git-credentials/password", "hunter1");
    let failure = job.failure("fetch", "nodejs22", &arguments).await;
    assert_eq!(failure.reason, FailureReason::GitAuthorization);
    assert!(!failure.message.contains("hunter"), "{}", failure.message);

    job.put("git-credentials/password", "hunter2\n");
    let (_, output) = job.run("fetch", "nodejs22", &arguments).await;
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!printed.contains("hunter"), "{printed}");
    let everything = job.listing("workspace").into_values().chain(job.listing("tmp").into_values()).collect::<String>();
    assert!(!everything.contains(&hex::encode("hunter2")));
}

#[tokio::test]
async fn retries_a_failing_server() {
    let origin = Origin::new(function).await;
    let resolved = origin.resolved("/");
    for fault in [Fault::Status(503), Fault::Truncate(10), Fault::Scramble(7)] {
        origin.server.fail(On::Packs, fault);
        let failure = Job::new().failure("fetch", "nodejs22", &resolved).await;
        assert_eq!((failure.reason, failure.retry), (FailureReason::Git, true), "{}", failure.message);
    }
    origin.server.heal();
    origin.server.fail(On::Everything, Fault::Status(404));
    let failure = Job::new().failure("fetch", "nodejs22", &resolved).await;
    assert_eq!((failure.reason, failure.retry), (FailureReason::Git, false), "{}", failure.message);
}

#[tokio::test]
async fn reports_an_invalid_directory() {
    let origin = Origin::new(|remote| {
        remote.file("apps/web/handler.js", "").file("apps/notes.txt", "").symlink("apps/l", "web").submodule("apps/s");
    })
    .await;
    let invalid = async |base_dir: &str, words: &str| {
        let failure = origin.refused(base_dir).await;
        assert_eq!((failure.reason, failure.retry), (FailureReason::SourceInvalid, false));
        assert!(failure.message.contains(words), "{}", failure.message);
    };
    invalid("/gone", "baseDir /gone is not a directory at commit ").await;
    invalid("/gone", "there is no /gone; / holds the directory apps").await;
    invalid("apps/gone/deeper", "there is no /apps/gone; /apps holds the directory web").await;
    invalid("apps/notes.txt", "/apps/notes.txt is a file").await;
    invalid("apps/notes.txt/x", "/apps/notes.txt is a file").await;
    invalid("apps/l", "/apps/l is a symbolic link, which is not followed").await;
    invalid("apps/s", "/apps/s is a submodule").await;
    invalid("../x", "`..` is not allowed").await;
    invalid("apps", "`s` is a submodule that is not fetched").await;
    invalid("apps/web", "there is no `package.json`, which a Function with the runtime nodejs22 needs").await;
    invalid("apps/web", "the source directory holds handler.js").await;
}

#[tokio::test]
async fn takes_submodules_on_request() {
    let mut lib = Remote::new();
    let commit = lib.file("lib.js", "1").commit("lib");
    let server = GitServer::start(lib.root()).await;
    let origin = Origin::new(|remote| {
        function(remote);
        let modules = format!("[submodule \"lib\"]\npath = lib\nurl = {}\n", server.url(NAME));
        remote.file(".gitmodules", modules).submodule_at("lib", &commit);
    })
    .await;
    let failure = origin.refused("/").await;
    assert!(failure.message.contains("`lib` is a submodule that is not fetched"), "{}", failure.message);
    let mut arguments = origin.resolved("/");
    arguments.push("--submodules".into());
    let job = Job::new();
    job.fetch("nodejs22", &arguments).await;
    assert_eq!(job.read("workspace/src/lib/lib.js"), "1");
}

#[tokio::test]
async fn takes_files_in_git_lfs_on_request() {
    let (handler, model) = ("module.exports = { main: () => 'large' };\n", vec![7; 3 << 20]);
    let files = [LargeFile::of(handler), LargeFile::of(&model), LargeFile::of("nobody needs it")];
    let origin = Origin::new(|remote| {
        function(remote);
        remote.file("handler.js", &files[0].pointer).file("fn/handler.js", "1").file("fn/package.json", "{}");
        remote.file("fn/model.bin", &files[1].pointer).file("other/never.bin", &files[2].pointer);
    })
    .await;
    let failure = origin.refused("/").await;
    let hint = "`handler.js` is kept in Git LFS, which is not fetched; set `lfs: true` in the GitRepository";
    assert!(failure.message.contains(hint), "{}", failure.message);
    assert_eq!(origin.server.take_large_requests(), (0, 0));

    origin.server.require("user", "hunter2");
    origin.server.keep(&files[1].oid, &model);
    let job = Job::new();
    let resolved = |origin: &Origin, base_dir| {
        let mut arguments = origin.resolved(base_dir);
        let credentials = job.path("git-credentials").to_str().unwrap().to_owned();
        arguments.extend(["--lfs", "--auth", "basic", "--credentials", &credentials].map(str::to_owned));
        arguments
    };
    job.put("git-credentials/username", "user").put("git-credentials/password", "hunter2");
    job.fetch("nodejs22", &resolved(&origin, "/fn")).await;
    assert!(std::fs::read(job.path("workspace/src/model.bin")).unwrap() == model);
    assert_eq!(origin.server.take_large_requests(), (1, 1), "what is in other directories is not fetched");
    assert!(!job.exists("workspace/git"));

    origin.server.keep(&files[2].oid, b"nobody needs it");
    let failure = job.failure("fetch", "nodejs22", &resolved(&origin, "/")).await;
    let expected = "fetch handler.js, which is kept in Git LFS: the server does not have the file; push it again";
    assert!(failure.message.contains(expected), "{}", failure.message);
    assert_eq!((failure.reason, failure.retry), (FailureReason::Git, true));
    origin.server.keep(&files[0].oid, handler.as_bytes());
    job.fetch("nodejs22", &resolved(&origin, "/")).await;
    assert_eq!(job.read("workspace/src/handler.js"), handler);
}

#[tokio::test]
async fn refuses_sources_that_must_not_be_written() {
    let check = async |fill: &dyn Fn(&mut Remote), reason: FailureReason, words: &str| {
        let origin = Origin::new(|remote| {
            function(remote);
            fill(remote);
        })
        .await;
        let failure = origin.refused("/").await;
        assert_eq!(failure.reason, reason, "{}", failure.message);
        assert!(failure.message.contains(words), "{}", failure.message);
    };
    let source = FailureReason::SourceInvalid;
    check(&|remote| _ = remote.symlink("l", "/etc/passwd"), source, "points outside the Function's directory").await;
    check(&|remote| _ = remote.symlink("a/l", "../../x"), source, "points outside the Function's directory").await;
    check(&|remote| _ = remote.symlink("l", "l"), source, "points to itself").await;
    check(&|remote| _ = remote.remove("handler.js").symlink("handler.js", "gone"), source, "no `handler.js`").await;
    check(&|remote| _ = remote.remove("handler.js").file("handler.js/x", ""), source, "is a directory").await;
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
    check(&|remote| _ = remote.file("handler.js", pointer), source, "Git LFS").await;
    check(&|remote| _ = remote.file("big", vec![0; 65 << 20]), FailureReason::TooLarge, "limit").await;
    let dependencies = FailureReason::DependencyInvalid;
    check(&|remote| _ = remote.file("package.json", "{\n,"), dependencies, "line 2 column 1").await;
}

#[tokio::test]
async fn refuses_names_that_no_repository_may_hold() {
    for name in ["..", ".git", ".GIT", "."] {
        let mut origin = Origin::new(function).await;
        origin.remote.forged(name);
        let failure = origin.refused("/").await;
        assert_eq!(failure.reason, FailureReason::SourceInvalid);
        assert!(failure.message.contains("is reserved by Git"), "{}", failure.message);
    }
    let mut origin = Origin::new(function).await;
    origin.remote.forged("handler.js");
    assert!(origin.refused("/").await.message.contains("twice"));
}

#[tokio::test]
async fn an_inline_source_without_dependencies_gets_an_empty_file() {
    let job = Job::new();
    job.put("sources/source", "exports.main = () => 1\n");
    let report = job.fetch("nodejs22", &job.inline_arguments(None)).await;
    assert_eq!(report.dependencies, "");
    assert_eq!(job.read("workspace/src/package.json"), "{}");
    job.inline("python312", "def main(event, context):\n    return 1\n", " \n", None).await;
    assert_eq!(job.names("workspace/src"), ["handler.py", "requirements.txt"]);
    assert_eq!(job.read("workspace/src/requirements.txt"), "");
    assert_eq!(job.install_well().await, "no dependencies\n");
    assert!(job.names("workspace/deps").is_empty());

    job.put("sources/dependencies", "{,}");
    let failure = job.failure("fetch", "nodejs22", &job.inline_arguments(None)).await;
    assert_eq!(failure.reason, FailureReason::DependencyInvalid);
    assert!(failure.message.contains("line 1 column 2"), "{}", failure.message);
    fs::remove_file(job.path("sources/source")).unwrap();
    let failure = job.failure("fetch", "nodejs22", &job.inline_arguments(None)).await;
    assert_eq!(failure.message, "the Function has no source");
}

/// Adds a package whose install script saves everything that it can see.
fn curious(remote: &mut Remote) {
    function(remote);
    remote.file("package.json", r#"{"dependencies":{"curious":"file:./pkgs/curious","plain":"file:./pkgs/plain"}}"#);
    remote.file("pkgs/plain/package.json", r#"{"name":"plain","version":"1.0.0","main":"index.js"}"#);
    remote.file("pkgs/plain/index.js", "exports.word = 'plain'\n");
    let package = r#"{"name":"curious","version":"1.0.0","bin":"look.js","scripts":{"preinstall":"sh look.sh"}}"#;
    remote.file("pkgs/curious/package.json", package).file("pkgs/curious/look.js", "");
    remote.file(
        "pkgs/curious/look.sh",
        "all=$(env; find \"$HOME\" ../../../../.. -type f -exec cat {} +); echo \"$all\" >seen\n",
    );
}

#[tokio::test]
async fn npm_installs_packages_of_the_source_the_same_each_time() {
    let origin = Origin::new(curious).await;
    origin.server.require("user", "hunter2");
    let (one, two) = (Job::new(), Job::new());
    for job in [&one, &two] {
        let mut arguments = origin.resolved("/");
        let credentials = job.path("git-credentials").to_str().unwrap().to_owned();
        arguments.extend(["--auth".into(), "basic".into(), "--credentials".into(), credentials]);
        job.put("git-credentials/username", "user").put("git-credentials/password", "hunter2");
        job.put("package-registry/.npmrc", "//registry.example.org/:_authToken=sesame\n");
        let report = job.fetch("nodejs22", &arguments).await;
        assert_eq!(report.dependencies.len(), 64);
        // Later containers see neither the credentials nor the message.
        fs::remove_dir_all(job.path("git-credentials")).unwrap();
        fs::remove_file(job.path("message")).unwrap();
        job.install_well().await;
        assert!(!job.exists("workspace/deps/.work"));
        let seen = fs::read(job.path("workspace/deps/node_modules/curious/seen")).unwrap();
        let seen = String::from_utf8_lossy(&seen);
        assert!(seen.contains("npm_lifecycle_event=preinstall") && seen.contains("curious"), "{seen}");
        assert!(!seen.contains("hunter2"));
        fs::remove_file(job.path("workspace/deps/node_modules/curious/seen")).unwrap();
    }
    assert_eq!(one.names("workspace/deps")[..2], ["node_modules", "node_modules/.bin"]);
    assert!(one.names("workspace/deps").contains(&"node_modules/plain/index.js".to_owned()));
    let links = one.listing("workspace/deps").into_iter().filter(|(_, what)| what.starts_with("->"));
    assert_eq!(
        links.collect::<Vec<_>>(),
        [("node_modules/.bin/curious".to_owned(), "-> ../curious/look.js".to_owned())]
    );
    assert_eq!(one.listing("workspace/deps"), two.listing("workspace/deps"));
    assert_eq!(one.read("workspace/dependencies"), two.read("workspace/dependencies"));

    let node = mainstay_testkit::isolated("node")
        .args(["-p", "require('plain').word"])
        .env("NODE_PATH", one.path("workspace/deps/node_modules"))
        .output()
        .expect("`node` is installed (apt-get install nodejs npm)");
    assert_eq!(String::from_utf8(node.stdout).unwrap(), "plain\n");
}

#[tokio::test]
async fn dependencies_are_not_installed_again_when_only_the_source_changed() {
    let mut origin = Origin::new(curious).await;
    let job = Job::new();
    let first = job.fetch("nodejs22", &origin.resolved("/")).await.dependencies;
    let known = |origin: &Origin| {
        let mut arguments = origin.resolved("/");
        arguments.extend(["--known-dependencies".to_owned(), first.clone()]);
        arguments
    };
    origin.remote.file("handler.js", "changed").commit("the source");
    let report = job.fetch("nodejs22", &known(&origin)).await;
    assert_eq!(report, FetchReport { dependencies: first.clone(), reused: true });
    assert_eq!(job.read("workspace/deps.reused"), first);
    assert_eq!(job.install_well().await, "the dependencies of the previous image are used again\n");
    assert!(job.names("workspace/deps").is_empty());

    origin.remote.file("pkgs/plain/index.js", "changed").commit("a package of the source");
    let report = job.fetch("nodejs22", &known(&origin)).await;
    assert!(!report.reused && report.dependencies != first);
    assert!(!job.exists("workspace/deps.reused"));
    for (option, value) in [("--base", "registry.example.org/node@sha256:00"), ("--platform", "linux/arm64")] {
        let mut arguments = known(&origin);
        arguments.extend([option.to_owned(), value.to_owned()]);
        let other = job.fetch("nodejs22", &arguments).await;
        assert!(!other.reused && other.dependencies != report.dependencies);
    }
}

#[tokio::test]
async fn keeps_to_the_lock_file() {
    let lock = r#"{"name":"f","lockfileVersion":3,"requires":true,"packages":{
        "":{"name":"f","dependencies":{"a":"file:./a"}},
        "node_modules/a":{"resolved":"a","link":true},"a":{"version":"1.0.0"}}}"#;
    let mut origin = Origin::new(|remote| {
        function(remote);
        remote.file("package.json", r#"{"name":"f","dependencies":{"a":"file:./a"}}"#).file("package-lock.json", lock);
        remote.file("a/package.json", r#"{"name":"a","version":"1.0.0"}"#);
    })
    .await;
    let job = Job::new();
    job.fetch("nodejs22", &origin.resolved("/")).await;
    job.install_well().await;
    assert_eq!(job.names("workspace/deps"), ["node_modules", "node_modules/a", "node_modules/a/package.json"]);

    // npm refuses dependencies that the lock file lacks, with its own message.
    origin.remote.file("package.json", r#"{"name":"f","dependencies":{"a":"file:./a","b":"file:./b"}}"#);
    origin.remote.file("b/package.json", r#"{"name":"b","version":"1.0.0"}"#).commit("no lock");
    job.put("package-registry/.npmrc", "//registry.example.org/:_authToken=sesame\n");
    job.fetch("nodejs22", &origin.resolved("/")).await;
    let output = job.install().await;
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("npm ci") && text.contains("lock file"), "{text}");
    let left = job.listing("workspace").into_values().collect::<String>();
    assert!(!left.contains(&hex::encode("sesame")), "credentials are gone after a failure, too");
}

#[tokio::test]
async fn the_configuration_of_the_package_registry_wins() {
    let server = npm_registry::serve("sesame").await;
    let job = Job::new();
    let origin = Origin::new(|remote| {
        function(remote);
        remote.file(".npmrc", "registry=http://127.0.0.1:9/\nfetch-retries=0\n");
        remote.file("package.json", r#"{"dependencies":{"@our/thing":"^1.0.0"}}"#);
    })
    .await;
    let resolved = origin.resolved("/");
    job.fetch("nodejs22", &resolved).await;
    assert!(!job.exists("workspace/src/.npmrc"));
    assert!(!job.install().await.status.success(), "there is no such registry");

    let authority = server.trim_start_matches("http:");
    job.put("package-registry/.npmrc", format!("registry={server}/\n{authority}/:_authToken=sesame\n"));
    job.fetch("nodejs22", &resolved).await;
    job.install_well().await;
    assert!(job.names("workspace/deps").contains(&"node_modules/@our/thing/package.json".to_owned()));
    let left = job.listing("workspace").into_values().collect::<String>();
    assert!(!left.contains(&hex::encode("sesame")));
}

#[tokio::test]
async fn pip_installs_local_wheels_the_same_each_time_without_a_network() {
    let origin = Origin::new(|remote| {
        remote.file("handler.py", "").file("requirements.txt", "./wheels/one-1.0-py3-none-any.whl\n-r more.txt\n");
        remote.file("more.txt", "wheels/two-1.0-py3-none-any.whl\n");
        remote.file("wheels/one-1.0-py3-none-any.whl", wheel("one", "Requires-Dist: two\n"));
        remote.file("wheels/two-1.0-py3-none-any.whl", wheel("two", ""));
    })
    .await;
    let (one, two) = (Job::new(), Job::new());
    for job in [&one, &two] {
        // The mounted configuration points pip to an address where no server listens.
        job.put("package-registry/pip.conf", "[global]\nindex-url = http://127.0.0.1:9/simple\nretries = 0\n");
        job.fetch("python312", &origin.resolved("/")).await;
        job.install_well().await;
        assert!(!job.exists("workspace/deps/.work"));
    }
    let names = one.names("workspace/deps");
    for name in ["lib/python/one/__init__.py", "lib/python/two/__init__.py", "lib/python/one-1.0.dist-info/RECORD"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("direct_url")), "{names:?}");
    // Compiled in the build, because pods cannot write. The result does not depend on this directory or on the time.
    let compiled = names.iter().find(|name| name.starts_with("lib/python/one/__pycache__/__init__.cpython-"));
    let bytes = fs::read(one.path("workspace/deps").join(compiled.unwrap())).unwrap();
    assert_eq!(bytes[4..8], [1, 0, 0, 0], "by the hash of its source, which nobody checks");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("/kubeless/lib/python/one/__init__.py") && !text.contains("workspace"), "{text}");
    assert!(!one.read("workspace/deps/lib/python/one-1.0.dist-info/RECORD").contains("direct_url"));
    assert_eq!(one.listing("workspace/deps"), two.listing("workspace/deps"));

    let python = mainstay_testkit::isolated("python3")
        .args(["-c", "import one, importlib.metadata as m; print(one.word, m.version('two'))"])
        .env("PYTHONPATH", one.path("workspace/deps/lib/python"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(python.stdout).unwrap(), "one 1.0\n");
}

#[tokio::test]
async fn the_two_files_may_be_links() {
    let origin = Origin::new(|remote| {
        remote.symlink("handler.py", "app/main.py").symlink("requirements.txt", "app/needs.txt");
        remote.file("app/main.py", "").file("app/needs.txt", "./one-1.0-py3-none-any.whl\n");
        remote.file("one-1.0-py3-none-any.whl", wheel("one", ""));
    })
    .await;
    let job = Job::new();
    job.fetch("python312", &origin.resolved("/")).await;
    job.install_well().await;
    assert!(job.exists("workspace/deps/lib/python/one/__init__.py"));
    assert_eq!(fs::read_link(job.path("workspace/src/handler.py")).unwrap(), Path::new("app/main.py"));
}

#[tokio::test]
async fn a_failure_of_pip_shows_its_output() {
    let job = Job::new();
    job.put("package-registry/pip.conf", "[global]\nindex-url = http://127.0.0.1:9/simple\nretries = 0\n");
    job.inline("python312", "", "surely-no-such-package==1\n", None).await;
    let output = job.install().await;
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("surely-no-such-package"));
}

/// Whether a public registry is reachable from here, without using the script under test.
fn answers(host: &str) -> bool {
    use std::net::ToSocketAddrs as _;
    let addresses = (host, 443).to_socket_addrs();
    addresses.is_ok_and(|mut all| {
        all.any(|address| std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(5)).is_ok())
    })
}

/// Installs a package from a public registry. If it is unreachable, the failure has to say so.
async fn installs_from(host: &str, runtime: &str, dependencies: &str, file: &str, words: &str) {
    let job = Job::new();
    job.put("package-registry/.npmrc", "fetch-retries=0\n").put("package-registry/pip.conf", "[global]\nretries = 0\n");
    job.inline(runtime, "", dependencies, None).await;
    let output = job.install().await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if answers(host) {
        assert!(output.status.success(), "{text}");
        assert!(job.exists(file));
    } else {
        assert!(!output.status.success() && text.contains(words), "{host} does not answer, but:\n{text}");
    }
}

#[tokio::test]
async fn installs_from_the_public_registry_of_npm() {
    let file = "workspace/deps/node_modules/is-number/package.json";
    let package = r#"{"dependencies":{"is-number":"7.0.0"}}"#;
    installs_from("registry.npmjs.org", "nodejs22", package, file, "npm error").await;
}

#[tokio::test]
async fn installs_from_the_public_index_of_python() {
    let file = "workspace/deps/lib/python/iniconfig/__init__.py";
    installs_from("pypi.org", "python312", "iniconfig==2.0.0\n", file, "No matching distribution").await;
}

#[tokio::test]
async fn a_path_may_contain_quotes_and_spaces() {
    let origin = Origin::new(|remote| {
        function(remote);
        remote.file("package.json", r#"{"dependencies":{"a":"file:./it's $(touch owned) \"a\""}}"#);
        remote.file("it's $(touch owned) \"a\"/package.json", r#"{"name":"a","version":"1.0.0"}"#);
    })
    .await;
    let job = Job::new();
    job.fetch("nodejs22", &origin.resolved("/")).await;
    job.install_well().await;
    assert_eq!(job.names("workspace/deps"), ["node_modules", "node_modules/a", "node_modules/a/package.json"]);
    let everywhere = Path::new(env!("CARGO_MANIFEST_DIR")).join("owned");
    assert!(!everywhere.exists() && !job.names(".").iter().any(|name| name.ends_with("owned")));
}
