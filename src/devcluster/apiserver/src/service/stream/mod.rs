//! `exec`, `attach` and `portforward` of pods: requests that become connections.
//!
//! [`upgrade`] negotiates the protocol. WebSockets ([`channels`]) carry the streams of a command as numbered channels.
//! SPDY/3.1 ([`session`]), directly or inside a WebSocket, carries any number of streams. [`exec`] and [`forward`] use
//! the streams independently of the protocol. [`simulated`] replaces the programs of simulated pods.
//!
//! Invariant: a connection ends with its listener. Work started for a connection ends with it.
//!
//! Not here: terminals. With `tty`, standard output and error share one stream.

mod channels;
mod connection;
mod exec;
mod forward;
mod session;
mod simulated;
mod upgrade;

use std::future::Future;

use http::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::{log, request::Asked};
use crate::body::Body;
use crate::server::Server;
use crate::status::Status;
use crate::verbs::{Target, text};

pub(crate) use self::connection::Connection;
use self::connection::Io;
use self::exec::{Command, Options};
use self::upgrade::{EXEC, FORWARD, Upgrade};

/// Answers a request for a connection subresource.
pub(super) fn answer(server: &Server, target: &Target, asked: &Asked) -> Result<Response<Body>, Status> {
    let stored = server.store().get(&target.kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
    let pod = stored.value();
    match target.subresource.as_str() {
        "portforward" => {
            let upgrade = Upgrade::of(&asked.parts.headers, FORWARD)?;
            let pod = running(&pod)?.clone();
            let (server, connection) = (server.clone(), asked.parts.extensions.get::<Connection>().cloned());
            let loopback = connection.is_some_and(|connection| connection.loopback);
            switch(asked, upgrade, move |io| forward::serve(server, pod, upgrade, io, loopback))
        }
        name => {
            let upgrade = Upgrade::of(&asked.parts.headers, EXEC)?;
            let container = log::container(running(&pod)?, asked.query.text("container"))?;
            let options = Options::parse(&asked.query);
            let words: Vec<String> = asked.query.every("command").map(str::to_owned).collect();
            if name == "exec" && words.is_empty() {
                return Err(Status::bad_request("you must specify at least one command for the container"));
            }
            started(&pod, &container)?;
            let command = if name == "exec" { Command::Run(words) } else { Command::Attach };
            let (server, pod) = (server.clone(), pod.clone());
            switch(asked, upgrade, move |io| exec::serve(server, pod, container, command, options, upgrade, io))
        }
    }
}

/// Answers with a protocol switch, and serves the protocol after the response is sent.
fn switch<F, S>(asked: &Asked, upgrade: Upgrade, serve: S) -> Result<Response<Body>, Status>
where
    F: Future<Output = ()> + Send,
    S: FnOnce(Io) -> F + Send + 'static,
{
    let extensions = &asked.parts.extensions;
    let switched = extensions.get::<OnUpgrade>().cloned().zip(extensions.get::<Connection>().cloned());
    let (switched, mut connection) = switched.ok_or_else(upgrade::required)?;
    tokio::spawn(async move {
        let upgraded = match switched.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!(%error, "a connection was not upgraded"),
        };
        tokio::select! {
            () = serve(TokioIo::new(upgraded)) => {}
            _ = connection.stopped.wait_for(|stop| *stop) => {}
        }
    });
    Ok(upgrade.answer(&asked.parts.headers))
}

/// Returns the pod; fails if it has no node.
fn running(pod: &Value) -> Result<&Value, Status> {
    if text(pod, "/spec/nodeName").is_empty() {
        let name = text(pod, "/metadata/name");
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    Ok(pod)
}

/// Fails if a container is not running.
fn started(pod: &Value, container: &str) -> Result<(), Status> {
    if log::is_running(pod, container) {
        return Ok(());
    }
    let why = format!("unable to upgrade connection: container not found (\"{container}\")");
    Err(Status::new(500, "InternalError", format!("Internal error occurred: {why}")))
}
