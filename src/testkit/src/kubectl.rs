//! The command `kubectl`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use devcluster::{Cluster as EmbeddedCluster, Serving};

use super::{external::KUBECONFIG, server::TestServer};

/// `kubectl` against a cluster, in one namespace, as an independent client.
pub struct Kubectl {
    _serving: Option<Serving>,
    home: tempfile::TempDir,
    kubeconfig: PathBuf,
    namespace: &'static str,
    /// The user, unless kubectl runs as the administrator.
    user: Option<&'static str>,
}

impl Kubectl {
    pub async fn of(server: &EmbeddedCluster, namespace: &'static str) -> Self {
        let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let home = tempfile::tempdir().unwrap();
        let kubeconfig = home.path().join("config");
        fs::write(&kubeconfig, server.kubeconfig(serving.address(), None)).unwrap();
        Self { _serving: Some(serving), home, kubeconfig, namespace, user: None }
    }

    /// Returns kubectl for the cluster of a world, as the administrator.
    pub async fn of_world(server: &TestServer, namespace: &'static str) -> Self {
        match server {
            TestServer::Embedded(server) => Self::of(server, namespace).await,
            TestServer::External(_) => {
                let kubeconfig = std::env::var_os(KUBECONFIG).unwrap().into();
                Self { _serving: None, home: tempfile::tempdir().unwrap(), kubeconfig, namespace, user: None }
            }
        }
    }

    /// Returns kubectl for the cluster of a world, as a user with all permissions who is not the agent.
    pub async fn of_user(server: &TestServer, namespace: &'static str, user: &'static str) -> Self {
        Self { user: Some(user), ..Self::of_world(server, namespace).await }
    }

    /// Creates a file with this content, and returns its path.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// Runs kubectl, which must succeed.
    pub async fn run(&self, arguments: &[&str]) -> String {
        self.edit(arguments, "true").await
    }

    /// Runs kubectl, which must fail. Returns its standard error.
    pub async fn refused(&self, arguments: &[&str]) -> String {
        let (succeeded, _, error) = self.output(arguments, "true").await;
        assert!(!succeeded, "kubectl {arguments:?}");
        error
    }

    /// Runs kubectl, which must find differences.
    pub async fn differences(&self, arguments: &[&str]) -> String {
        let (succeeded, text, error) = self.output(arguments, "true").await;
        assert!(!succeeded && !text.is_empty(), "kubectl {arguments:?}: {error}");
        text
    }

    /// Runs kubectl with an editor. The command must succeed.
    pub async fn edit(&self, arguments: &[&str], editor: &str) -> String {
        let (succeeded, text, error) = self.output(arguments, editor).await;
        assert!(succeeded, "kubectl {arguments:?}: {error}");
        text
    }

    /// Runs kubectl with an editor. The command must fail. Returns its standard error.
    pub async fn edit_refused(&self, arguments: &[&str], editor: &str) -> String {
        let (succeeded, _, error) = self.output(arguments, editor).await;
        assert!(!succeeded, "kubectl {arguments:?}");
        error
    }

    /// Returns exit code and output of a shell command that can use kubectl and `mainstay`.
    pub async fn shell(&self, line: &str, directory: &Path) -> (i32, String) {
        let program = crate::program::executable().parent().unwrap();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(program.to_owned()).chain(std::env::split_paths(&path))).unwrap();
        let mut command = crate::isolated("sh");
        command
            .args(["-c", line])
            .current_dir(directory)
            .env("PATH", path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (output.status.code().unwrap(), text)
    }

    async fn output(&self, arguments: &[&str], editor: &str) -> (bool, String, String) {
        let mut command = crate::isolated("kubectl");
        if let Some(user) = self.user {
            command.args(["--as", user, "--as-group", "system:masters"]);
        }
        command
            .args(["--namespace", self.namespace])
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .env("TMPDIR", self.home.path())
            .env("KUBE_EDITOR", editor);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        let output = output.expect("kubectl is needed: https://kubernetes.io/docs/tasks/tools/");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }
}
