//! Reads a chapter, runs it in its own namespace, and compares the output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::cluster::{self, Pods};
use crate::greeter;
use crate::normalise::Normaliser;
use crate::process::isolated;

/// Minor version of the recorded `kubectl`.
const KUBECTL: u32 = 32;
/// Deadline of a command in seconds.
const PATIENCE: &str = "90";

/// An entry of a transcript.
enum Entry {
    /// Text for the reader.
    Text(String),
    /// A command whose output is compared.
    Step(String),
    /// A command that must succeed.
    Wait(String),
}

/// Runs a chapter and compares its output with the transcript.
pub(crate) fn check(name: &str, pods: Pods) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kubectl/{name}.tour"));
    let expected = fs::read_to_string(&file).expect("the chapter can be read");
    let shell = Shell::new(name, pods);
    let (mut found, mut failed, mut waits) = (String::new(), false, false);
    for entry in entries(&expected) {
        let wait = matches!(entry, Entry::Wait(_));
        if !(found.is_empty() || wait && waits) {
            found.push('\n');
        }
        waits = wait;
        match entry {
            Entry::Text(line) => found.push_str(&format!("{line}\n")),
            Entry::Step(command) => {
                found.push_str(&written('$', &command));
                found.push_str(&shell.shown(&shell.run(&command)));
            }
            Entry::Wait(command) => {
                found.push_str(&written('%', &command));
                let output = shell.run(&command);
                if !output.status.success() {
                    failed = true;
                    found.push_str(&shell.shown(&output));
                }
            }
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, found).expect("the chapter can be written");
        assert!(!failed, "{name}: something was awaited in vain");
        return;
    }
    assert!(found == expected, "{}", difference(name, &found));
}

/// Parses a transcript without its outputs.
fn entries(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut output = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            entries.push(Entry::Step(command.to_owned()));
            output = true;
        } else if let Some(command) = line.strip_prefix("% ") {
            entries.push(Entry::Wait(command.to_owned()));
            output = false;
        } else if let (Some(more), Some(Entry::Step(command) | Entry::Wait(command))) =
            (line.strip_prefix("> ").or((line == ">").then_some("")), entries.last_mut())
        {
            command.push('\n');
            command.push_str(more);
        } else if line.starts_with("# ") {
            entries.push(Entry::Text(line.to_owned()));
            output = false;
        } else if !output && !line.is_empty() {
            entries.push(Entry::Text(line.to_owned()));
        }
    }
    entries
}

/// Escapes a line of output that looks like a line of the transcript.
fn quoted(line: &str) -> String {
    let marked = ["$ ", "% ", "> ", "# ", "\\"].iter().any(|mark| line.starts_with(mark)) || line == ">";
    format!("{}{line}\n", if marked { "\\" } else { "" })
}

fn written(mark: char, command: &str) -> String {
    let mut lines = command.lines();
    let mut text = format!("{mark} {}\n", lines.next().unwrap_or_default());
    for line in lines {
        text.push_str(format!("> {line}").trim_end());
        text.push('\n');
    }
    text
}

/// The environment of a chapter's commands.
struct Shell {
    directory: tempfile::TempDir,
    namespace: String,
    normaliser: Normaliser,
    /// Port of a local server for `port-forward`.
    greeter: u16,
    /// Name of the cluster's first node.
    node: String,
}

impl Shell {
    fn new(chapter: &str, pods: Pods) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let id = uuid::Uuid::new_v4().simple().to_string();
        let namespace = format!("tour-{}-{}", chapter.replace('_', "-"), &id[..8]);
        fs::write(directory.path().join("kubeconfig"), cluster::kubeconfig(pods))
            .expect("the kubeconfig can be written");
        fs::copy(data("functions.sh"), directory.path().join("functions.sh")).expect("the functions can be copied");
        fs::create_dir(directory.path().join("work")).expect("a directory can be made");
        let mut shell = Self {
            directory,
            namespace,
            normaliser: Normaliser::default(),
            greeter: greeter::start(),
            node: String::new(),
        };
        let version = shell.must("kubectl version --client -o json");
        let minor = format!("\"minor\": \"{KUBECTL}");
        assert!(version.contains(&minor), "the transcripts are of kubectl 1.{KUBECTL}; `.ci/test` installs it");
        shell.must("kubectl create namespace $NS && kubectl config set-context --current --namespace=$NS");
        let server = shell.must("kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}'");
        let nodes = shell.must("kubectl get nodes -o 'jsonpath={.items[*].metadata.name}'");
        nodes.split_whitespace().next().unwrap_or_default().clone_into(&mut shell.node);
        shell.normaliser = Normaliser::new(&shell.namespace, server.trim(), nodes.split_whitespace(), shell.greeter);
        shell
    }

    fn run(&self, command: &str) -> Output {
        let path = |name: &str| self.directory.path().join(name);
        let mut bash = isolated("timeout");
        bash.args([PATIENCE, "bash", "-c", command]).current_dir(path("work")).env("NS", &self.namespace);
        bash.env("PORT", self.greeter.to_string()).env("NODE", &self.node);
        bash.env("KUBECONFIG", path("kubeconfig")).env("HOME", path("home")).env("BASH_ENV", path("functions.sh"));
        bash.stdin(std::process::Stdio::null()).output().expect("bash is needed, and timeout of coreutils")
    }

    fn must(&self, command: &str) -> String {
        let output = self.run(command);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {error} (kubectl: https://kubernetes.io/docs/tasks/tools/)");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the normalised output of a command, and its exit code if it is not 0.
    fn shown(&self, output: &Output) -> String {
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let mut text: String = self.normaliser.apply(&text).lines().map(quoted).collect();
        if !output.status.success() {
            text.push_str(&format!("(exit {})\n", output.status.code().unwrap_or(-1)));
        }
        text
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Leftovers are harmless: every chapter has its own namespace.
        let _ = self.run("kubectl delete namespace $NS --wait=false");
    }
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl").join(name)
}

/// Returns a diff of the transcript.
fn difference(name: &str, found: &str) -> String {
    let place = std::env::temp_dir().join(format!("{name}.tour"));
    // Only for debugging, so an error is ignored.
    let _ = fs::write(&place, found);
    let expected = data(&format!("{name}.tour"));
    let diff = isolated("diff").arg("-u").arg(expected).arg(&place).output();
    let diff = diff.map_or_else(|error| error.to_string(), |o| String::from_utf8_lossy(&o.stdout).into_owned());
    format!("{name}: the cluster answers otherwise:\n{diff}")
}
