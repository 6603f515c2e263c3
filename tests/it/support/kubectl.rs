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

    /// Runs it; it must fail. What it complains about.
    pub(crate) async fn refused(&self, arguments: &[&str]) -> String {
        let (succeeded, _, error) = self.output(arguments, "true").await;
        assert!(!succeeded, "kubectl {arguments:?}");
        error
    }

    /// Runs it; it must find differences.
    pub(crate) async fn differences(&self, arguments: &[&str]) -> String {
        let (succeeded, text, error) = self.output(arguments, "true").await;
        assert!(!succeeded && !text.is_empty(), "kubectl {arguments:?}: {error}");
        text
    }

    /// Runs it with an editor.
    pub(crate) async fn edit(&self, arguments: &[&str], editor: &str) -> String {
        let (succeeded, text, error) = self.output(arguments, editor).await;
        assert!(succeeded, "kubectl {arguments:?}: {error}");
        text
    }

    async fn output(&self, arguments: &[&str], editor: &str) -> (bool, String, String) {
        let mut command = Command::new("kubectl");
        command
            .args(["--namespace", self.namespace])
            .args(arguments)
            .env("KUBECONFIG", self.home.path().join("config"))
            .env("HOME", self.home.path())
            .env("KUBE_EDITOR", editor);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        let output = output.expect("kubectl is needed: https://kubernetes.io/docs/tasks/tools/");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }
}
