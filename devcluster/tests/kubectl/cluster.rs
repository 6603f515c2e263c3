//! The cluster under test: the embedded one, or that of `MAINSTAY_TEST_KUBECONFIG`.

use std::path::PathBuf;
use std::sync::OnceLock;

/// A kubeconfig of the cluster under test.
pub(crate) fn kubeconfig() -> String {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| match std::env::var_os("MAINSTAY_TEST_KUBECONFIG") {
        Some(path) => std::fs::read_to_string(PathBuf::from(path)).expect("the kubeconfig can be read"),
        None => embedded(),
    });
    text.clone()
}

/// Starts the embedded cluster on a thread of its own, for the rest of the run.
fn embedded() -> String {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        runtime.block_on(async {
            let server = devcluster::Server::new(devcluster::Options { rbac: true, ..devcluster::Options::default() });
            server.spawn_actors();
            let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let serving = server.serve(loopback, None).await.expect("the embedded server listens");
            send.send(server.kubeconfig(serving.address(), None)).expect("the chapters wait for the kubeconfig");
            std::future::pending::<()>().await;
        });
    });
    receive.recv().expect("the embedded server starts")
}
