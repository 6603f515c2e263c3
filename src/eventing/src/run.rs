//! Starts and stops all parts of eventing.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::control;
use super::dead_letters::{DeadLetter, DeadLetters};
use super::deliver::{Delivery, Failed, deliver};
use super::grants::Grant;
use super::jetstream::{ConnectError, JetStream, Limits, Nats};
use super::journal::{Journal, OpenError};
use super::publishers::{PublisherAuth, Publishers};
use super::seen::{Seen, Watched};
use super::send::{Resolve, Sender};
use super::server::{LIMITS, Server};
use super::services::Services;
use super::store::Store;
use super::subscriber::{Subscriber, SubscriberKind};
use super::watch::follow;
use loopback::Reserved;
use mainstay_api::events::Reason;
use mainstay_api::names::EVENTING_REPORTER;
use mainstay_cluster::listener;
use mainstay_cluster::{Cluster, Event, EventRecorder, EventType, Priority, Regarding};

/// The CRDs of Trigger, Broker and Subscription, as a stream of YAML documents.
pub const DEFINITIONS: &str = include_str!("../../../manifests/eventing/crd.yaml");

/// Maximum length in characters of a string from another component in the note of an Event.
const NOTE: usize = 500;

/// The settings of eventing.
pub struct Settings {
    /// Directory of the journal and the dead letters. Only this process may write there.
    pub data: PathBuf,
    /// Maximum size of the journal in bytes. Events are refused while it is full.
    pub budget: u64,
    /// NATS, if it stores the events instead of the journal. Events that an earlier process left in the journal are
    /// delivered, too.
    pub nats: Option<OnNats>,
    /// Listener for events.
    pub listener: Reserved,
    /// Resolves Services if their names do not resolve on this machine.
    pub resolve: Option<Resolve>,
    /// Who may publish at the endpoints for a namespace.
    pub publishers: PublisherAuth,
    /// Subscribers that may receive events of other namespaces.
    pub grants: Vec<Grant>,
    /// Namespaces in which a subscriber's Service needs no selector; `*` matches all.
    pub written_endpoints: Vec<String>,
    /// Name of this process in Events, for example the pod's name.
    pub instance: String,
}

/// The connection to NATS, and the limits of its streams.
#[derive(Clone, Debug)]
pub struct OnNats {
    /// URLs and credentials.
    pub nats: Nats,
    /// Limits of the streams.
    pub limits: Limits,
}

/// Why eventing ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// The URL or the credentials of NATS are not valid.
    #[error(transparent)]
    Nats(#[from] ConnectError),
    /// Another file or a socket cannot be used.
    #[error("could not use {what}")]
    Io {
        /// The description of the file or socket.
        what: &'static str,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The HTTP client cannot be created.
    #[error("could not make a client")]
    Client(#[source] reqwest::Error),
    /// A task panicked.
    #[error("a task has ended early")]
    Task(#[source] JoinError),
}

/// Accepts and delivers events until `stop`, or until a task fails.
///
/// # Errors
/// Fails if the data directory or the listener cannot be used, or if a task panics.
pub async fn run(settings: Settings, cluster: Cluster, stop: CancellationToken) -> Result<(), Error> {
    let Settings { data, budget, nats, listener, resolve, publishers, grants, written_endpoints, instance } = settings;
    let services = Arc::new(Services::new(written_endpoints));
    let seen = Seen::new(Arc::clone(&services), grants.into());
    let failed = |what: &'static str| move |cause| Error::Io { what, cause };
    let server = match nats {
        Some(OnNats { nats, limits }) => Some(Store::JetStream(JetStream::new(&nats, limits).await?)),
        None => None,
    };
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
    // With NATS, an earlier process may have left events in a journal.
    let log = if server.is_none() || Journal::is_at(&data.join("journal")) {
        let (journal, writing) = Journal::open(&data.join("journal"), budget)?;
        let letters = DeadLetters::new(&data).map_err(failed("the directory of dead letters"))?;
        let (waiting, bytes) = journal.size();
        tracing::info!(waiting, bytes, "events of the journal are delivered");
        // The writing task ends only after all other tasks, because these send commands until they end.
        tasks.spawn(async move {
            writing.await;
            Ok(())
        });
        Some(Store::Log { journal, letters: Arc::new(letters) })
    } else {
        None
    };
    let stores: Vec<Store> = log.iter().chain(&server).cloned().collect();
    let Some(accepting) = server.or(log) else { return Ok(()) };
    let control = control::listen(&data);
    let listener = listener.listen().map_err(failed("the listener"))?;
    let (events, recording) = EventRecorder::new(cluster.clone(), EVENTING_REPORTER, &instance);
    let (known, table) = watch::channel(None);
    let sender = Arc::new(Sender::new(services, resolve).map_err(Error::Client)?);
    let failed: Arc<Failed> = Arc::new(move |to, letter| {
        tracing::warn!(subscriber = %to.id, reason = letter.reason, "an event could not be delivered");
        events.publish(event(to, letter));
    });
    let deliveries = stores.into_iter().map(|store| {
        let (answers, sender, failed) = (accepting.clone(), Arc::clone(&sender), Arc::clone(&failed));
        Arc::new(Delivery { store, answers, sender, table: table.clone(), failed })
    });
    let deliveries: Vec<_> = deliveries.collect();
    let publishers = Publishers::new(publishers, cluster.clone());
    let server = Arc::new(Server { store: accepting, table, publishers });
    let answer = move |request| {
        let server = Arc::clone(&server);
        async move { server.answer(request).await }
    };
    let until = stop.clone();
    match control {
        Ok(control) => {
            // The socket is for dead letters of the journal. Redelivery of dead letters on NATS needs no process.
            let controlled = deliveries.first().cloned();
            tasks.spawn(async move {
                if let Some(controlled) = controlled {
                    until.run_until_cancelled(control::serve(control, controlled)).await;
                }
                until.cancelled().await;
                Ok(())
            });
        }
        // Eventing continues, because the control socket is optional.
        Err(error) => tracing::warn!(%error, "dead letters cannot be delivered again: there is no control socket"),
    }
    for delivery in deliveries {
        let until = stop.clone();
        tasks.spawn(async move { deliver(delivery, until).await.map_err(Error::Task) });
    }
    let until = stop.clone();
    tasks.spawn(async move {
        recording.run(until).await;
        Ok(())
    });
    let until = stop.clone();
    tasks.spawn(async move {
        follow(cluster, seen, known, until).await;
        Ok(())
    });
    let until = stop.clone();
    tasks.spawn(async move {
        listener::serve(listener, LIMITS, answer, until).await;
        Ok(())
    });
    let first = tasks.join_next().await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    match first {
        Some(Ok(ended)) => ended,
        Some(Err(error)) => Err(Error::Task(error)),
        None => Ok(()),
    }
}

/// Returns the Kubernetes Event about an event that was given up.
fn event(to: &Subscriber, letter: &DeadLetter) -> Event {
    let (kind, namespace, name) = to.id.parts();
    let kind = match kind {
        SubscriberKind::Trigger => Watched::Triggers.kind(),
        SubscriberKind::Subscription => Watched::Subscriptions.kind(),
    };
    let text = |name: &str| letter.attributes.get(name).map(|text| text.chars().take(100).collect::<String>());
    let (id, of) = (text("id").unwrap_or_default(), text("type").unwrap_or_default());
    let why: String = letter.reason.chars().take(NOTE).collect();
    Event {
        regarding: Regarding {
            key: kind.key(Some(namespace), name),
            api_version: kind.api_version(),
            uid: Some(to.uid.clone()).filter(|uid| !uid.is_empty()),
        },
        related: None,
        kind: EventType::Warning,
        priority: Priority::Failure,
        about: None,
        reason: Reason::DeliveryFailed.into(),
        action: "Deliver".to_owned(),
        note: format!(
            "event {id:?} of type {of:?} is a dead letter: {why}; `mainstay eventing replay {}` delivers it again",
            to.id
        ),
        aggregation_key: String::new(),
    }
}
