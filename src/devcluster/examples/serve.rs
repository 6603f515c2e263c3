//! Serves an empty cluster until it is interrupted: `cargo run -p devcluster --example serve -- 127.0.0.1:8001`.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "an example talks to whoever started it")]

use devcluster::{Cluster, Options};
use std::{error::Error, net::SocketAddr};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listen: SocketAddr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:0").parse()?;
    let server = Cluster::new(Options::default());
    server.start_controllers();
    let serving = server.serve(listen, None).await?;
    println!("kubectl --server {}", serving.url());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
