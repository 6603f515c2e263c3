//! `kubectl`.

use std::{fs, process::Command};

use devcluster::{Cluster as EmbeddedCluster, Serving};

/// `kubectl` against an embedded cluster, in one namespace of it: a client that nobody here wrote.
pub(crate) struct Kubectl {
    _serving: Serving,
    home: tempfile::TempDir,
    namespace: &'static str,
}

impl Kubectl {
    pub(crate) async fn of(server: &EmbeddedCluster, namespace: &'static str) -> Self {
        let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("config"), server.kubeconfig(serving.address(), None)).unwrap();
        Self { _serving: serving, home, namespace }
    }

    /// Runs it; it must succeed.
    pub(crate) async fn run(&self, arguments: &[&str]) -> String {
        self.edit(arguments, "true").await
    }

    /// Runs it with an editor.
    pub(crate) async fn edit(&self, arguments: &[&str], editor: &str) -> String {
        let mut command = Command::new("kubectl");
        command
            .args(["--namespace", self.namespace])
            .args(arguments)
            .env("KUBECONFIG", self.home.path().join("config"))
            .env("HOME", self.home.path())
            .env("KUBE_EDITOR", editor);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        let output = output.expect("kubectl is needed: https://kubernetes.io/docs/tasks/tools/");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
