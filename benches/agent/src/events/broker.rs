//! A NATS server with JetStream on disk, and clients that use it without Mainstay.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        consumer::{AckPolicy, PullConsumer, pull},
        stream::{RetentionPolicy, StorageType},
    },
};
use futures::StreamExt as _;
use tokio::{process::Command, task::JoinSet};

use super::{Error, Process, stand};

/// Stream and subject of the events.
const STREAM: &str = "bare";
/// Number of concurrent deliveries of a consumer, as of a subscriber.
const IN_FLIGHT: usize = 10;
/// The server that `.ci/test --install` installs.
const TOOLS: &str = "target/tools/nats-server";

/// When a message is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// As by default: every two minutes. NATS relies on further servers.
    Later,
    /// Before its publisher has a response.
    Immediate,
}

/// The server.
pub(super) struct Broker {
    process: Process,
    pub(super) url: String,
}

impl Broker {
    /// Starts the server with its data in a directory.
    pub(super) async fn start(directory: &Path, durability: Durability) -> Result<Self, Error> {
        let (port, monitor) = (stand::free_port()?, stand::free_port()?);
        let mut command = Command::new(program()?);
        command.args(["--addr", "127.0.0.1"]).stderr(std::process::Stdio::null());
        command.args(["--port", &port.to_string(), "--http_port", &monitor.to_string()]);
        let (data, interval) = match durability {
            Durability::Later => ("nats", "2m"),
            Durability::Immediate => ("nats-synced", "always"),
        };
        let (store, configuration) = (directory.join(data), directory.join(format!("{data}.conf")));
        let text = format!("jetstream {{ store_dir: \"{}\", sync_interval: \"{interval}\" }}\n", store.display());
        std::fs::write(&configuration, text).map_err(Error::Start)?;
        command.arg("--config").arg(configuration);
        let mut process = Process::spawn(command).map_err(|error| Error::Broker(error.to_string()))?;
        process.answers(&format!("http://127.0.0.1:{monitor}/healthz")).await?;
        Ok(Self { process, url: format!("nats://127.0.0.1:{port}") })
    }

    /// Returns the peak memory in MiB and the CPU time in seconds.
    pub(super) fn cost(&self) -> Result<(f64, f64), Error> {
        Ok((self.process.peak_mib()?, self.process.processor_seconds()?))
    }

    /// Returns the subject of new events. The consumers deliver them to this address.
    pub(super) async fn consumed(
        &self,
        subscribers: usize,
        url: &str,
        tasks: &mut JoinSet<()>,
    ) -> Result<(jetstream::Context, String), Error> {
        let context = jetstream::new(async_nats::connect(&self.url).await.map_err(broken)?);
        let config = jetstream::stream::Config {
            name: STREAM.to_owned(),
            subjects: vec![STREAM.to_owned()],
            retention: RetentionPolicy::Interest,
            storage: StorageType::File,
            ..Default::default()
        };
        // Each measurement begins with an empty stream.
        let _ = context.delete_stream(STREAM).await;
        let stream = context.create_stream(config).await.map_err(broken)?;
        let client = reqwest::Client::new();
        for number in 0..subscribers {
            let config = pull::Config {
                durable_name: Some(format!("subscriber-{number}")),
                ack_policy: AckPolicy::Explicit,
                ack_wait: Duration::from_secs(10),
                ..Default::default()
            };
            let consumer = stream.create_consumer(config).await.map_err(broken)?;
            tasks.spawn(deliver(consumer, client.clone(), url.to_owned()));
        }
        Ok((context, STREAM.to_owned()))
    }
}

/// Returns the program of the server: that of `.ci/test --install`, or else the one in the `PATH`.
pub(super) fn program() -> Result<PathBuf, Error> {
    let installed = Path::new(TOOLS);
    if installed.is_file() { installed.canonicalize().map_err(Error::Start) } else { Ok(PathBuf::from("nats-server")) }
}

/// Posts each message with the headers of its event, and acknowledges it.
async fn deliver(consumer: PullConsumer, client: reqwest::Client, url: String) {
    let Ok(messages) = consumer.messages().await else { return };
    let delivering = messages.for_each_concurrent(IN_FLIGHT, |message| async {
        let Ok(message) = message else { return };
        let headers = message.headers.iter().flat_map(HeaderMap::iter);
        let request = headers.fold(client.post(&url), |request, (name, values)| {
            let name: &str = name.as_ref();
            values.iter().fold(request, |request, value| request.header(name, value.as_str()))
        });
        let request = request.body(message.payload.clone());
        if request.send().await.is_ok_and(|answer| answer.status().is_success()) {
            // The server delivers a message without this again.
            let _ = message.ack().await;
        }
    });
    delivering.await;
}

pub(super) fn broken(error: impl std::error::Error) -> Error {
    Error::Broker(error.to_string())
}
