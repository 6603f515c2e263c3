//! The embedded cluster on a socket, and the kubeconfig that leads to it.

use std::{net::SocketAddr, path::Path};

use devcluster::{Options, Server, Serving};

use super::{Error, kubeconfig};

/// Serves a new, empty cluster until the result is dropped.
pub(super) async fn start(listen: SocketAddr, token: Option<&str>, kubeconfig: &Path) -> Result<Serving, Error> {
    let server = Server::new(Options::default());
    // The controllers end with the process.
    drop(server.spawn_actors());
    let serving = server.serve(listen, token.map(str::to_owned)).await;
    let serving = serving.map_err(|cause| Error::Serve { listen, cause })?;
    kubeconfig::write(kubeconfig, &server.kubeconfig(serving.address(), token)).map_err(Error::Kubeconfig)?;
    Ok(serving)
}
