//! The cluster under test: the embedded one, or that of `MAINSTAY_TEST_KUBECONFIG`.

use std::path::PathBuf;
use std::sync::OnceLock;

/// How pods of the embedded cluster run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pods {
    /// Simulated.
    Simulated,
    /// As processes of this machine, if their image is `example.com/host:1`.
    Running,
}

/// Returns a kubeconfig of the cluster under test.
pub(crate) fn kubeconfig(pods: Pods) -> String {
    static SIMULATED: OnceLock<String> = OnceLock::new();
    static RUNNING: OnceLock<String> = OnceLock::new();
    if let Some(path) = std::env::var_os("MAINSTAY_TEST_KUBECONFIG") {
        return std::fs::read_to_string(PathBuf::from(path)).expect("the kubeconfig can be read");
    }
    let text = if pods == Pods::Simulated { &SIMULATED } else { &RUNNING };
    text.get_or_init(|| embedded(pods)).clone()
}

/// Starts an embedded cluster on its own thread, for the whole test run.
fn embedded(pods: Pods) -> String {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        runtime.block_on(async {
            let directory = tempfile::tempdir().expect("a directory can be made");
            let node = devcluster::NodeOptions::new(directory.path());
            let node = (pods == Pods::Running).then(|| node.host_image("example.com/host:1", []));
            let options = devcluster::Options { rbac: true, node, ..devcluster::Options::default() };
            let server = devcluster::Cluster::new(options);
            server.start_controllers();
            let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let serving = server.serve(loopback, None).await.expect("the embedded server listens");
            send.send(server.kubeconfig(serving.address(), None)).expect("the chapters wait for the kubeconfig");
            std::future::pending::<()>().await;
        });
    });
    receive.recv().expect("the embedded server starts")
}
