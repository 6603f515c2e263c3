//! `portforward`: connections to the ports of a pod.
//!
//! A client opens two streams for each connection: one for data, one for errors. A pod that a node runs has its own
//! address. Connections to a declared port of a simulated pod go to the same port on this machine's loopback address,
//! where a developer runs the program. Clients on other machines cannot use that port.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::channels;
use super::connection::Io;
use super::session::{self, Stream};
use super::upgrade::Upgrade;
use crate::server::Server;
use crate::verbs::text;

/// Maximum number of queued streams.
const QUEUE: usize = 16;
/// Maximum number of streams that wait for the other stream of their pair.
const MOST_WAITING: usize = 128;
/// Maximum time to connect to a port.
const CONNECTING: Duration = Duration::from_secs(10);

/// Serves the ports of a pod over a connection. `loopback`: whether only this machine can connect.
pub(super) async fn serve(server: Server, pod: Value, upgrade: Upgrade, io: Io, loopback: bool) {
    let (send, streams) = mpsc::channel(QUEUE);
    let ports = pair(streams, Arc::new(Pod { address: address(&server, &pod), object: pod, loopback }));
    let ended = async {
        match upgrade {
            Upgrade::Spdy(_) => session::run(io, send).await,
            Upgrade::Tunnel(_) | Upgrade::Channels(_) => {
                let (inner, work) = channels::tunnel(io);
                // At the end of a session, its last bytes still have to be forwarded.
                let (ended, ()) = tokio::join!(session::run(inner, send), work);
                ended
            }
        }
    };
    tokio::select! {
        ended = ended => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        },
        () = ports => {}
    }
}

/// The target pod.
struct Pod {
    object: Value,
    /// Address of the pod; `None` if it is simulated.
    address: Option<IpAddr>,
    loopback: bool,
}

fn address(server: &Server, pod: &Value) -> Option<IpAddr> {
    server.kubelet(pod)?;
    text(pod, "/status/podIP").parse().ok()
}

/// Pairs the two streams of each connection and serves them, until no more streams arrive.
async fn pair(mut streams: mpsc::Receiver<Stream>, pod: Arc<Pod>) {
    let mut waiting: HashMap<String, Stream> = HashMap::new();
    let mut connections = JoinSet::new();
    while let Some(stream) = streams.recv().await {
        while connections.try_join_next().is_some() {}
        let kind = stream.header("streamtype").to_owned();
        // Old clients send no request id. Stream numbers identify the pair; the error stream comes first.
        let own = if kind == "data" { stream.number.saturating_sub(2) } else { stream.number };
        let request = match stream.header("requestid") {
            "" => own.to_string(),
            given => given.to_owned(),
        };
        let known = matches!(kind.as_str(), "data" | "error");
        match waiting.remove(&request) {
            Some(other) if known && other.header("streamtype") != kind => {
                let (data, error) = if kind == "data" { (stream, other) } else { (other, stream) };
                connections.spawn(connect(data, error, pod.clone()));
            }
            None if known && waiting.len() < MOST_WAITING => {
                waiting.insert(request, stream);
            }
            _ => stream.output.reset().await,
        }
    }
    // The end of the session closes the connection.
    std::future::pending::<()>().await;
}

async fn connect(data: Stream, error: Stream, pod: Arc<Pod>) {
    let port = data.header("port").to_owned();
    match pod.forward(&port, data).await {
        Ok(()) => error.output.finish().await,
        Err((why, data)) => {
            let (name, uid) = (text(&pod.object, "/metadata/name"), text(&pod.object, "/metadata/uid"));
            let message = format!("error forwarding port {port} to pod {name}, uid {uid}: {why}");
            // The client may already be gone.
            let _ = error.output.write(message.as_bytes()).await;
            error.output.finish().await;
            data.output.reset().await;
        }
    }
}

impl Pod {
    /// Forwards data both ways. Returns the stream if the connection failed.
    async fn forward(&self, port: &str, mut data: Stream) -> Result<(), (String, Stream)> {
        let place = match self.place(port) {
            Ok(place) => place,
            Err(why) => return Err((why, data)),
        };
        let connected = match timeout(CONNECTING, TcpStream::connect(place)).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err((dial(place, &error), data)),
            Err(_) => return Err((format!("dial tcp {}:{}: i/o timeout", place.0, place.1), data)),
        };
        let (mut reader, mut writer) = connected.into_split();
        let output = data.output.clone();
        let answered = async {
            let mut buffer = vec![0; 32 << 10];
            while let Ok(read @ 1..) = reader.read(&mut buffer).await {
                if output.write(&buffer[..read]).await.is_err() {
                    return;
                }
            }
            output.finish().await;
        };
        let asked = async {
            while let Some(bytes) = data.input.recv().await {
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            // The program may already have closed its side.
            let _ = writer.shutdown().await;
        };
        // The program's output is forwarded completely, even if the client still sends.
        tokio::pin!(answered, asked);
        tokio::select! {
            () = &mut answered => {}
            () = &mut asked => answered.await,
        }
        Ok(())
    }

    fn place(&self, port: &str) -> Result<(IpAddr, u16), String> {
        let number: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| format!("{port:?} is no port"))?;
        if let Some(address) = self.address {
            return Ok((address, number));
        }
        let containers = self.object["spec"]["containers"].as_array().into_iter().flatten();
        let mut ports = containers.flat_map(|container| container["ports"].as_array().into_iter().flatten());
        let (namespace, name) = (text(&self.object, "/metadata/namespace"), text(&self.object, "/metadata/name"));
        if !ports.any(|declared| declared["containerPort"] == number) {
            return Err(format!("no container of pod {namespace}/{name} declares port {number}"));
        }
        if !self.loopback {
            return Err(format!("pod {namespace}/{name} is simulated and has no ports for other machines"));
        }
        Ok((Ipv4Addr::LOCALHOST.into(), number))
    }
}

/// Returns why a port could not be connected to, in the words of the kubelet.
fn dial((address, port): (IpAddr, u16), error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {address}:{port}: {why}")
}
