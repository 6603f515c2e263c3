//! Follows each tutorial of `docs/tutorials` in a new cluster, and compares the output.

mod expected;
mod needs;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use mainstay_testkit::{
    libraries,
    markdown::{blocks, commands},
    shell::{Said, Session},
};
use needs::Need;

/// Deadline of a command and of its expected output.
const PATIENCE: Duration = Duration::from_secs(90);

/// Read-only commands, which are repeated until the output is as expected.
const LOOKS: &[&str] = &[
    "kubectl get ",
    "kubectl logs ",
    "kubectl wait ",
    "mainstay status",
    "mainstay diff",
    "mainstay events",
    "mainstay trace",
    "curl ",
];

/// First words of the output of a refused command.
const REFUSALS: &[&str] = &["Error from server", "error: "];

/// The cluster that a tutorial uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cluster {
    /// The README starts and stops the cluster.
    OfReadme,
    /// The tutorial starts and stops the cluster.
    Own,
    /// The page [`FLUX`] starts the cluster, and the tutorial stops it.
    WithFlux,
}

/// The page that starts a cluster with the objects of Flux.
const FLUX: &str = "a-cluster-with-flux.md";

/// Options that make a request change something.
const CHANGES: &[&str] = &[" -d ", " --data", " -X ", " --json ", " -F "];

/// A command, and its output if the tutorial states it.
#[derive(Debug)]
struct Step {
    command: String,
    expected: Option<String>,
}

/// Returns the commands of the `sh` blocks. A `text` block after an `sh` block is the output of its last command.
fn steps(markdown: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut spoken = true;
    for block in blocks(markdown) {
        match block.language.as_str() {
            "sh" => {
                steps.extend(commands(&block.text).into_iter().map(|command| Step { command, expected: None }));
                spoken = false;
            }
            "text" => {
                assert!(!spoken, "no command prints this:\n{}", block.text);
                steps.last_mut().unwrap().expected = Some(block.text);
                spoken = true;
            }
            // The block is only for the reader.
            _ => spoken = true,
        }
    }
    steps
}

impl Step {
    /// Returns whether the output is as the tutorial states, and the command succeeded unless a refusal is stated.
    fn is_as_written(&self, printed: &str, code: i32) -> bool {
        let Some(expected) = &self.expected else { return code == 0 };
        let refused = REFUSALS.iter().any(|refusal| expected.starts_with(refusal));
        // The reader sees the refusal, and the shell continues.
        let is_forgiven = self.command.ends_with("|| true");
        expected::is(expected, printed) && (is_forgiven || (code == 0) != refused)
    }
}

fn looks(command: &str) -> bool {
    LOOKS.iter().any(|looks| command.starts_with(looks)) && !CHANGES.iter().any(|changes| command.contains(changes))
}

/// Runs a command. A read-only command is repeated until it succeeds as expected.
async fn take(session: &mut Session, step: &Step, log: &Path) {
    let Step { command, expected } = step;
    let began = Instant::now();
    loop {
        let said = session.try_run(command, PATIENCE).await;
        let logged = || fs::read_to_string(log).unwrap_or_default();
        let Said { out, err, code } = said.unwrap_or_else(|| panic!("{}\nno end: {command}", logged()));
        let printed = format!("{out}{err}");
        if step.is_as_written(&printed, code) {
            return;
        }
        if !looks(command) || began.elapsed() > PATIENCE {
            let expected = expected.as_deref().unwrap_or("that it succeeds\n");
            panic!("{}\n$ {command}\n{printed}exit code {code}, but the tutorial says:\n{expected}", logged());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tutorials")
}

fn read(name: &str) -> String {
    fs::read_to_string(directory().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Follows a tutorial, after the steps that start its cluster and before those that stop it.
async fn follow(test: &str, cluster: Cluster, need: Need) {
    let room = tempfile::tempdir().unwrap();
    let person = "[user]\n\tname = Ada\n\temail = ada@example.com\n[credential]\n\thelper = store\n";
    fs::write(room.path().join(".gitconfig"), person).unwrap();
    let provided = need.provide(room.path()).await;
    let mut session = Session::start(room.path());
    session.run(&format!("export {}='{}'", mainstay_function::runtimes::libraries::VARIABLE, libraries::place())).await;
    for (name, value) in &provided.variables {
        session.run(&format!("export {name}='{value}'")).await;
    }
    let tutorial = read(&file(test));
    let readme = read("README.md");
    let (begin, end) = readme.split_once("## When you are done").expect("the README says how a tutorial ends");
    let steps = match cluster {
        Cluster::OfReadme => vec![steps(begin), steps(&tutorial), steps(end)],
        Cluster::Own => vec![steps(&tutorial)],
        Cluster::WithFlux => vec![steps(&read(FLUX)), steps(&tutorial)],
    };
    assert!(steps.iter().all(|steps| !steps.is_empty()));
    for step in steps.iter().flatten() {
        take(&mut session, step, &room.path().join("dev.log")).await;
    }
}

fn file(test: &str) -> String {
    test.replace('_', "-") + ".md"
}

/// Defines a test with the name of each tutorial.
macro_rules! tutorials {
    ($($cluster:ident { $($name:ident: $need:ident,)* })*) => {
        $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            follow(stringify!($name), Cluster::$cluster, Need::$need).await;
        })*)*

        #[test]
        fn every_tutorial_is_followed() {
            let mut known = vec!["README.md".to_owned(), FLUX.to_owned()];
            known.extend([$($(stringify!($name)),*),*].map(file));
            known.sort();
            let mut found: Vec<_> = fs::read_dir(directory())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            found.sort();
            assert_eq!(found, known);
        }
    };
}

tutorials! {
    WithFlux {
        move_from_flux: Nothing,
    }
    Own {
        your_first_repository: Nothing,
        move_from_argo_cd: Nothing,
        protect_production: Nothing,
        preview_a_pull_request: Nothing,
        a_private_monorepo_with_tenants: RepositoryWithKey,
        recover_a_lost_cluster: RepositoryWithKey,
    }
    OfReadme {
        create_an_inline_function: Nothing,
        create_a_git_function: PublicRepository,
        private_repository_with_an_ssh_key: RepositoryWithKey,
        private_repository_with_a_password: RepositoryWithPassword,
        expose_a_function: Nothing,
        bind_a_service_instance: Nothing,
        functions_from_the_command_line: Nothing,
        debug_a_function: Debugger,
        keep_functions_in_git: Nothing,
        keep_triggers_in_git: Nothing,
        trigger_a_function_with_an_event: Nothing,
        subscribe_a_function_to_events: Nothing,
        set_an_external_registry: Registry,
        switch_to_an_external_registry: Registry,
        set_environment_variables: Nothing,
        mount_secrets: Nothing,
        scale_a_function: Nothing,
        run_a_function_on_knative: Nothing,
        follow_traces: Nothing,
        install_private_packages: Packages,
        override_the_runtime_image: Nothing,
        troubleshoot_functions: Nothing,
    }
}

#[test]
fn a_block_of_text_is_what_the_last_command_before_it_prints() {
    let found = steps("```sh\na\nb\n```\nthis:\n```text\nc\n```\n```yaml\nd: 1\n```\n```sh\ne\n```\n");
    let found: Vec<_> = found.iter().map(|step| (step.command.as_str(), step.expected.as_deref())).collect();
    assert_eq!(found, [("a", None), ("b", Some("c\n")), ("e", None)]);
}

#[test]
fn a_command_that_is_refused_has_to_fail() {
    let step = |expected: &str| Step { command: String::new(), expected: Some(expected.to_owned()) };
    for (expected, printed, code, is) in [
        ("a", "a\n", 0, true),
        ("a", "a\n", 1, false),
        ("Error from server (Forbidden): ...", "Error from server (Forbidden): b\n", 1, true),
        ("Error from server (Forbidden): ...", "Error from server (Forbidden): b\n", 0, false),
        ("error: a", "error: b\n", 1, false),
    ] {
        assert_eq!(step(expected).is_as_written(printed, code), is, "{expected} {printed} {code}");
    }
}

#[test]
fn only_what_looks_is_run_again() {
    for command in ["kubectl get pods", "curl -sS http://a/", "kubectl logs -l a=b | tail -1"] {
        assert!(looks(command), "{command}");
    }
    for command in ["kubectl apply -f a", "curl -sS -X POST http://a/", "curl -sS -d b http://a/", "git push"] {
        assert!(!looks(command), "{command}");
    }
}
