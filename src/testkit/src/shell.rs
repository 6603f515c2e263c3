//! A shell for a cluster, as an administrator uses it: with `mainstay`, `kubectl` and the programs of this machine.

use crate::PATIENCE;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use devcluster::{Cluster as EmbeddedCluster, Options, Serving, Simulation};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

/// Time between two tries of a command.
const PAUSE: Duration = Duration::from_millis(200);

/// The output of a command.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub code: i32,
}

/// A shell with its own directory and the kubeconfig of a cluster.
pub struct Shell {
    room: tempfile::TempDir,
    /// The embedded cluster, if one is used.
    cluster: Option<(EmbeddedCluster, Serving)>,
    /// Namespace of the agent.
    home: &'static str,
    /// Further namespaces that the test creates.
    others: &'static [&'static str],
}

impl Shell {
    /// Returns a shell for the embedded cluster, or for the cluster of `MAINSTAY_TEST_KUBECONFIG`.
    pub async fn new(home: &'static str, others: &'static [&'static str]) -> Self {
        let Some(path) = std::env::var_os("MAINSTAY_TEST_KUBECONFIG") else {
            return Self::embedded(home).await;
        };
        let room = tempfile::tempdir().unwrap();
        fs::copy(path, room.path().join("kubeconfig")).unwrap();
        let shell = Self { room, cluster: None, home, others };
        let found = shell.command("mainstay crd | kubectl get --ignore-not-found -o name -f -").output().unwrap();
        if !found.status.success() || !found.stdout.is_empty() {
            // The objects in this cluster do not belong to the test, so `drop` must not delete them.
            std::mem::forget(shell);
            panic!("this cluster has Mainstay already, or does not answer: the tests want one without");
        }
        shell
    }

    /// Returns a shell for an embedded cluster.
    pub async fn embedded(home: &'static str) -> Self {
        let room = tempfile::tempdir().unwrap();
        let server = EmbeddedCluster::new(Options { rbac: true, ..Options::default() });
        server.start_controllers();
        let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        fs::write(room.path().join("kubeconfig"), server.kubeconfig(serving.address(), None)).unwrap();
        Self { room, cluster: Some((server, serving)), home, others: &[] }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    fn command(&self, script: &str) -> Command {
        let mut command = bash(self.room.path());
        command.args(["-c", &format!("set -o pipefail; {script}")]).env("KUBECONFIG", self.path("kubeconfig"));
        command
    }

    /// Starts a session in this shell's directory.
    pub async fn session(&self) -> Session {
        let mut session = Session::start(self.room.path());
        let kubeconfig = self.path("kubeconfig");
        session.run(&format!("export KUBECONFIG={}", kubeconfig.display())).await;
        session
    }

    /// Runs a shell command.
    pub async fn try_run(&self, script: &str) -> Said {
        let mut command = self.command(script);
        let output = tokio::task::spawn_blocking(move || command.stdin(Stdio::null()).output()).await.unwrap().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { out: text(output.stdout), err: text(output.stderr), code: output.status.code().unwrap() }
    }

    /// Runs a shell command, which must succeed.
    pub async fn run(&self, script: &str) -> Said {
        let said = self.try_run(script).await;
        if said.code != 0 {
            let syncs = self.try_run("kubectl get gitsyncs -A -o yaml").await.out;
            panic!("{script}\n{}{}\n{syncs}", said.out, said.err);
        }
        said
    }

    /// Repeats a command until it succeeds.
    pub async fn until(&self, script: &str) -> Said {
        match self.try_until(script).await {
            Ok(said) => said,
            Err(said) => panic!("{script}\n{}{}", said.out, said.err),
        }
    }

    /// Repeats a command until it succeeds. Fails with its last output.
    pub async fn try_until(&self, script: &str) -> Result<Said, Said> {
        let began = Instant::now();
        loop {
            let said = self.try_run(script).await;
            if said.code == 0 {
                return Ok(said);
            }
            if began.elapsed() >= PATIENCE {
                return Err(said);
            }
            // Each try starts programs, which would take the CPU from the awaited work.
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Makes builds of Functions succeed immediately, with a digest that depends on their inputs.
    pub async fn builds_succeed(&self) {
        let deployment = self.object(&format!("deployment mainstay -n {}", self.home)).await;
        let image = deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
        let (container, message) = ("push", r#"{"digest":"{digest}","reused":false,"seconds":0.1}"#);
        let Some((server, _)) = &self.cluster else {
            let entry = json!({"image": image, "container": container, "exitCode": 0, "terminationMessage": message});
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {container: entry.to_string()},
                "metadata": {"name": "shell", "namespace": "kube-system", "labels": {"devcluster.dev/outcomes": ""}},
            });
            fs::write(self.path("outcomes.json"), map.to_string()).unwrap();
            self.run("kubectl apply -f outcomes.json").await;
            return;
        };
        let ended = Simulation { exit_code: 0, termination_message: Some(message.to_owned()), after: Duration::ZERO };
        server.simulate_container(image, container, ended);
    }

    pub async fn object(&self, what: &str) -> Value {
        serde_json::from_str(&self.run(&format!("kubectl get {what} -o json")).await.out).unwrap()
    }

    /// Returns a kubeconfig with the token of a ServiceAccount instead of the administrator's credentials.
    async fn kubeconfig_of(&self, account: &str) -> PathBuf {
        let token = self.run(&format!("kubectl create token {account} -n {}", self.home)).await.out;
        let config = self.run("kubectl config view --raw --minify -o json").await.out;
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["users"][0]["user"] = json!({"token": token.trim()});
        let path = self.path(account);
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Starts an agent with a ServiceAccount's token and the arguments of the installed Deployment.
    pub async fn agent(&self, name: &str) -> Agent {
        let kubeconfig = self.kubeconfig_of("mainstay").await;
        let deployment = self.object(&format!("deployment mainstay -n {}", self.home)).await;
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let mut arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
        // These arguments are removed, because they apply only inside of a pod.
        let own = ["--listen", "--receive", "--admit", "--data"];
        arguments.retain(|argument| !own.iter().any(|flag| argument.starts_with(flag)));
        let mut command = crate::isolated(crate::program::executable());
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig).args(["-n", self.home, "--identity", name]);
        command
            .args(["--receive", "127.0.0.1:0", "--admit", "127.0.0.1:0", "--data"])
            .arg(self.path(name))
            .env_clear()
            .env("HOME", self.room.path());
        // Only literal values are passed on, because other values refer to the pod.
        let variables = container["env"].as_array().unwrap().iter();
        command.envs(variables.filter_map(|variable| Some((variable["name"].as_str()?, variable["value"].as_str()?))));
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        Agent(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
}

/// Restores a cluster that outlives the test.
impl Drop for Shell {
    fn drop(&mut self) {
        if self.cluster.is_some() {
            return;
        }
        let script = format!(
            "kubectl delete --ignore-not-found --wait namespace {} {}; \
             mainstay crd | kubectl delete --ignore-not-found --wait -f -; \
             kubectl delete --ignore-not-found clusterrole,clusterrolebinding,mutatingwebhookconfiguration,\
             validatingwebhookconfiguration -l app.kubernetes.io/name=mainstay",
            self.home,
            self.others.join(" ")
        );
        let status = self.command(&script).stdout(Stdio::null()).stdin(Stdio::null()).status();
        if !std::thread::panicking() {
            assert!(status.unwrap().success(), "the cluster could not be cleared");
        }
    }
}

/// Returns `bash` with its own environment, in which `mainstay` is the program under test.
fn bash(room: &Path) -> Command {
    let program = Path::new(crate::program::executable()).parent().unwrap();
    let mut path = OsString::from(program);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let mut command = crate::isolated("bash");
    command.env("PATH", path).env("HOME", room).current_dir(room);
    command
}

/// A running agent. The agent is killed when this value is dropped.
pub struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A session of a shell: exports and the working directory stay in effect for later commands. All child processes are
/// killed when the session is dropped.
pub struct Session {
    child: tokio::process::Child,
    codes: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    room: PathBuf,
}

impl Session {
    /// Starts a session in `room` without a kubeconfig.
    pub fn start(room: &Path) -> Self {
        let mut command = tokio::process::Command::from(bash(room));
        command.args(["--noprofile", "--norc"]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let codes = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, codes, room: room.to_owned() }
    }

    /// Runs a command; `None` if it takes longer than `patience`.
    pub async fn try_run(&mut self, script: &str, patience: Duration) -> Option<Said> {
        let (out, err) = (self.room.join(".out"), self.room.join(".err"));
        let line = format!(
            "set -o pipefail\n{{ {script}\n}} > '{}' 2> '{}' < /dev/null\necho $?\n",
            out.display(),
            err.display()
        );
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
        let code = tokio::time::timeout(patience, self.codes.next_line()).await.ok()?;
        let code = code.unwrap().unwrap_or_else(|| panic!("the shell ended: {script}")).parse().unwrap();
        let text = |path| fs::read_to_string(path).unwrap();
        Some(Said { out: text(out), err: text(err), code })
    }

    /// Runs a command, which must succeed.
    pub async fn run(&mut self, script: &str) -> Said {
        let said = self.try_run(script, PATIENCE).await;
        let said = said.unwrap_or_else(|| panic!("no end: {script}"));
        assert_eq!(said.code, 0, "{script}\n{}{}", said.out, said.err);
        said
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(id) = self.child.id() {
            // Kills the process group, including background processes.
            let _ = crate::isolated("kill").args(["-TERM", "--", &format!("-{id}")]).status();
        }
    }
}
