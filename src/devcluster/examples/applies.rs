//! Measures server-side applies per second: 1 KiB ConfigMaps over HTTP, 16 connections, client and server in one
//! process. `cargo run --release -p devcluster --example applies`.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "an example talks to whoever started it")]

use devcluster::{Cluster, Options};
use std::{error::Error, io, net::SocketAddr, time::Instant};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// Concurrent connections.
const CONNECTIONS: usize = 16;
/// Objects per connection.
const OBJECTS: usize = 500;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Cluster::new(Options::default());
    let serving = server.serve("127.0.0.1:0".parse()?, None).await?;
    for (what, round) in [("create", 0), ("change", 1), ("no-op", 1), ("change", 2)] {
        let start = Instant::now();
        let mut clients = JoinSet::new();
        for client in 0..CONNECTIONS {
            clients.spawn(apply_all(serving.address(), client, round));
        }
        while let Some(done) = clients.join_next().await {
            done??;
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{what}: {:.0} applies/s", (CONNECTIONS * OBJECTS) as f64 / seconds);
    }
    Ok(())
}

async fn apply_all(address: SocketAddr, client: usize, round: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 64 << 10];
    for object in 0..OBJECTS {
        let name = format!("m-{client}-{object}");
        let filler = "x".repeat(860);
        let body = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\"labels\":{{\"app\":\"a\",\
             \"tier\":\"b\"}}}},\"data\":{{\"round\":\"{round}\",\"filler\":\"{filler}\",\"other\":\"value\"}}}}"
        );
        let request = format!(
            "PATCH /api/v1/namespaces/default/configmaps/{name}?fieldManager=load&force=true HTTP/1.1\r\nHost: \
             localhost\r\nContent-Type: application/apply-patch+yaml\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        read_answer(&mut stream, &mut buffer).await?;
    }
    Ok(())
}

/// Reads one response with a `Content-Length`.
async fn read_answer(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut have = 0;
    loop {
        have += stream.read(&mut buffer[have..]).await?;
        let text = String::from_utf8_lossy(&buffer[..have]);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if !head.starts_with("HTTP/1.1 20") {
            return Err(io::Error::other(text.into_owned()));
        }
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() >= length.unwrap_or(0) {
            return Ok(());
        }
    }
}
