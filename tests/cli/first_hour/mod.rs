//! Runs every command of the README and the book in order, and compares the output.

mod book;
mod rows;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use mainstay_testkit::{
    dev::{copy, git},
    git_server::GitServer,
    remote::{NAME, Remote},
    shell::{Said, Session, Shell},
    ssh_server::SshServer,
};
use rows::{ROWS, Row, Scene};

/// Deadline of a command and of its effect. The first command with Functions builds four of them.
const PATIENCE: Duration = Duration::from_mins(4);

/// Placeholders, and their values at run time.
type Names<'a> = &'a [(&'a str, String)];

fn named(script: &str, names: Names<'_>) -> String {
    names.iter().fold(script.to_owned(), |script, (name, value)| script.replace(name, value))
}

/// Runs a command and checks its output and effect.
async fn play(session: &mut Session, row: &Row, names: Names<'_>) -> Said {
    if !row.before.is_empty() {
        session.run(&named(row.before, names)).await;
    }
    let script = named(row.instead.unwrap_or(row.command), names);
    let said = until(session, &script, row.repeated, |said| {
        row.expected.iter().all(|expected| said.out.contains(expected) || said.err.contains(expected))
    });
    let said = said.await;
    if let Some((script, expected)) = row.effect {
        until(session, script, true, |said| said.out.trim() == expected).await;
    }
    said
}

/// Runs a command until it succeeds as expected; only once unless `repeated`.
async fn until(session: &mut Session, script: &str, repeated: bool, holds: impl Fn(&Said) -> bool) -> Said {
    let began = Instant::now();
    loop {
        let said = session.try_run(script, PATIENCE).await.unwrap_or_else(|| panic!("no end: {script}"));
        if said.code == 0 && holds(&said) {
            return said;
        }
        let Said { out, err, code } = said;
        assert!(repeated && began.elapsed() < PATIENCE / 4, "{script}\n{out}{err}exit code {code}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn of(scene: Scene) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.scene == scene)
}

#[test]
fn commands_of_the_readme_and_the_book_have_a_row_each_in_their_order() {
    let written = book::commands();
    for (written, row) in written.iter().zip(ROWS) {
        assert_eq!(written, row.command, "this command of the README or the book, or one before it, has no row");
    }
    assert_eq!(written.len(), ROWS.len(), "commands of the README and the book, and rows");
    for row in ROWS {
        if let Scene::Elsewhere(why) = row.scene {
            assert!(!why.is_empty(), "{}", row.command);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_quick_start_works_as_the_readme_says() {
    let room = tempfile::tempdir().unwrap();
    let config = "[user]\n\tname = Ada\n\temail = ada@example.com\n";
    fs::write(room.path().join(".gitconfig"), config).unwrap();
    let mut session = Session::start(room.path());
    for row in of(Scene::Demo) {
        play(&mut session, row, &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_run_as_the_book_says() {
    let room = tempfile::tempdir().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/functions");
    copy(&examples, &room.path().join("examples/functions"));
    git(room.path(), &["init", "-q", "-b", "main"]);
    git(room.path(), &["add", "."]);
    git(room.path(), &["commit", "-qm", "functions"]);
    let mut session = Session::start(room.path());
    for row in of(Scene::Functions) {
        play(&mut session, row, &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_follows_a_repository_and_is_freed_as_the_book_says() {
    let shell = Shell::embedded("mainstay-system").await;
    let mut remote = Remote::new();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: prices}\ndata: {tea: '3'}\n";
    remote.file("apps/map.yaml", map).commit("one");
    let ssh = SshServer::start(remote.root()).await;
    let http = GitServer::start(remote.root()).await;
    fs::write(shell.path("known_hosts"), ssh.known_hosts(&["ed25519"])).unwrap();
    fs::write(shell.path("follow.yaml"), book::manifest("docs/gitops/gitsync.md", "kind: GitSync")).unwrap();
    fs::write(shell.path("receiver.yaml"), book::manifest("docs/gitops/webhooks.md", "kind: Receiver")).unwrap();
    let names = [
        ("GIT_URL", ssh.url(NAME)),
        ("HTTP_URL", http.url(NAME)),
        ("PORT", ssh.port().to_string()),
        ("MANIFESTS", concat!(env!("CARGO_MANIFEST_DIR"), "/manifests").to_owned()),
    ];
    let mut session = shell.session().await;
    let mut agent = None;
    for row in of(Scene::Cluster) {
        let said = play(&mut session, row, &names).await;
        // The Deployment is simulated in the embedded cluster; the agent runs here.
        if said.out.contains("deployment.apps/mainstay created") {
            agent = Some(shell.agent("agent").await);
        } else if row.command == "mainstay identity" {
            ssh.authorize(&said.out);
        } else if row.command == "mainstay uninstall" {
            agent = None;
        }
    }
    drop(agent);
}
