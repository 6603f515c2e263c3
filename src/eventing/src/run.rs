//! Starts and stops all parts of eventing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::attempt::{Delivery, Failed};
use super::control;
use super::dead_letters::{DeadLetter, DeadLetters};
use super::deliver::{deliver, drained};
use super::grants::Grant;
use super::jetstream::{Answers, ConnectError, Exists, JetStream, Limits, Nats};
use super::journal::{Journal, OpenError};
use super::metrics::Metrics;
use super::publishers::{PublisherAuth, Publishers};
use super::role::Role;
use super::seen::{Seen, Watched};
use super::send::{Resolve, Sender};
use super::server::{LIMITS, Server};
use super::services::Services;
use super::store::Store;
use super::subscriber::{Subscriber, SubscriberKind};
use super::table::Table;
use super::watch::{exists, follow};
use super::writer::Writer;
use loopback::{Listener, Reserved};
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
    /// Listener for scrapes of the metrics; by default none.
    pub metrics: Option<Reserved>,
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
    /// The tasks of this process. All but the default need NATS.
    pub role: Role,
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
    /// A client of HTTP or NATS cannot be used.
    #[error("could not make a client")]
    Client(#[source] async_nats::Error),
    /// A task panicked.
    #[error("a task has ended early")]
    Task(#[source] JoinError),
}

/// The stores of a process.
struct Stores {
    /// Takes new events.
    accepting: Store,
    /// Contain events that this process delivers.
    delivering: Vec<Store>,
    /// The writing task of a journal.
    writing: Option<BoxFuture<'static, ()>>,
}

/// Opens the stores for a role.
async fn stores(data: &Path, budget: u64, nats: Option<OnNats>, role: Role) -> Result<Stores, Error> {
    let server = match nats {
        Some(OnNats { nats, limits }) => Some(Store::JetStream(JetStream::new(&nats, limits).await?)),
        None => None,
    };
    // With NATS, an earlier process may have left events in a journal.
    let is_at = Journal::is_at(&data.join("journal"));
    let accepting = match server {
        Some(server) if !is_at || !role.delivers() => {
            let delivering = role.delivers().then(|| server.clone()).into_iter().collect();
            return Ok(Stores { accepting: server, delivering, writing: None });
        }
        server => server,
    };
    let (journal, writing) = Journal::open(&data.join("journal"), budget)?;
    let failed = |cause| Error::Io { what: "the directory of dead letters", cause };
    let letters = DeadLetters::new(data).map_err(failed)?;
    let (waiting, bytes) = journal.size();
    tracing::info!(waiting, bytes, "events of the journal are delivered");
    let log = Store::Log { journal, letters: Arc::new(letters) };
    let delivering = [log.clone()].into_iter().chain(accepting.clone()).collect();
    Ok(Stores { accepting: accepting.unwrap_or(log), delivering, writing: Some(writing.boxed()) })
}

/// The tasks of a process. All end after the first one.
#[derive(Default)]
struct Tasks {
    all: JoinSet<Result<(), Error>>,
    stop: CancellationToken,
}

impl Tasks {
    /// Starts a task that ends without `stop`.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.all.spawn(async move {
            task.await;
            Ok(())
        });
    }

    /// Starts a task that ends with `stop`.
    fn spawn_until_stop(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.spawn(async move {
            stop.run_until_cancelled(task).await;
            stop.cancelled().await;
        });
    }

    async fn join(mut self) -> Result<(), Error> {
        let first = self.all.join_next().await;
        self.stop.cancel();
        while self.all.join_next().await.is_some() {}
        match first {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => Err(Error::Task(error)),
            None => Ok(()),
        }
    }
}

/// Accepts and delivers events until `stop`, or until a task fails.
///
/// # Errors
/// Fails if the data directory or the listener cannot be used, or if a task panics.
pub async fn run(mut settings: Settings, cluster: Cluster, stop: CancellationToken) -> Result<(), Error> {
    let (metrics, scraped) = (Metrics::default(), settings.metrics.take());
    let scraped = scraped.map(|reserved| reserved.listen()).transpose().map_err(listening)?;
    let Settings {
        data, budget, nats, listener, resolve, publishers, grants, written_endpoints, instance, role, ..
    } = settings;
    let services = Arc::new(Services::new(written_endpoints));
    let seen = Seen::new(Arc::clone(&services), grants.into());
    let mut tasks = Tasks { stop: stop.clone(), ..Tasks::default() };
    let Stores { accepting, delivering, writing } = stores(&data, budget, nats, role).await?;
    let listener = listener.listen().map_err(listening)?;
    let sender = Arc::new(Sender::new(services, resolve).map_err(|error| Error::Client(error.into()))?);
    let (known, table) = watch::channel(None);
    let (events, recording) = EventRecorder::new(cluster.clone(), EVENTING_REPORTER, &instance);
    let failed: Arc<Failed> = Arc::new(move |to, letter| {
        tracing::warn!(subscriber = %to.id, reason = letter.reason, "an event could not be delivered");
        events.publish(event(to, letter));
    });
    // The writing task ends only with all other tasks, because they send commands until their end.
    if let Some(writing) = writing {
        tasks.spawn(writing);
    }
    let answers = answers_of(&accepting, (role, &instance), &table, &mut tasks).await?;
    let writer = writer_of(&accepting, role, &mut tasks).await?;
    let asking = cluster.clone();
    let exists: Arc<Exists> = Arc::new(move |to| exists(&asking, &to));
    for store in delivering {
        let delivery = Arc::new(Delivery {
            store,
            answers: accepting.clone(),
            sender: Arc::clone(&sender),
            table: table.clone(),
            failed: Arc::clone(&failed),
            exists: Arc::clone(&exists),
            metrics: metrics.clone(),
        });
        control_of(&data, &delivery, &mut tasks);
        if let (Store::Log { journal, .. }, Store::JetStream(_)) = (&delivery.store, &delivery.answers) {
            tasks.spawn_until_stop(drained(journal.clone()));
        }
        let until = stop.clone();
        tasks.all.spawn(async move { deliver(delivery, until).await.map_err(Error::Task) });
    }
    let publishers = Publishers::new(publishers, cluster.clone());
    tasks.spawn_until_stop(known_to(metrics.clone(), table.clone()));
    let server = Arc::new(Server { store: accepting, table, publishers, role, nats: answers, metrics });
    if let Some(scraped) = scraped {
        serve_metrics(scraped, Arc::clone(&server), &mut tasks);
    }
    let answer = move |request| {
        let server = Arc::clone(&server);
        async move { server.answer(request).await }
    };
    let until = stop.clone();
    tasks.spawn(async move { recording.run(until).await });
    tasks.spawn(follow(cluster, seen, known, writer, stop.clone()));
    tasks.spawn(async move { listener::serve(listener, LIMITS, answer, stop).await });
    tasks.join().await
}

/// Returns whether NATS responds, if it stores the events. A process that accepts events also answers those that write
/// statuses.
async fn answers_of(
    store: &Store,
    (role, instance): (Role, &str),
    table: &watch::Receiver<Option<Arc<Table>>>,
    tasks: &mut Tasks,
) -> Result<Option<watch::Receiver<Answers>>, Error> {
    let Store::JetStream(store) = store else { return Ok(None) };
    let (found, answers) = watch::channel(Err("NATS has not responded yet".to_owned()));
    let mut announcement = None;
    if role.accepts() {
        let (questions, own) = store.questions(instance).await.map_err(Error::Client)?;
        tasks.spawn(questions.answer(table.clone(), tasks.stop.clone()));
        announcement = Some(own);
    }
    tasks.spawn_until_stop(store.clone().probe(announcement, found));
    Ok(Some(answers))
}

/// Returns the writer of statuses, if the process delivers.
async fn writer_of(store: &Store, role: Role, tasks: &mut Tasks) -> Result<Option<Writer>, Error> {
    if !role.delivers() {
        return Ok(None);
    }
    let Store::JetStream(store) = store else { return Ok(Some(Writer { publishers: None })) };
    let (publishers, following) = store.roll_call().await.map_err(Error::Client)?;
    tasks.spawn_until_stop(following);
    Ok(Some(Writer { publishers: Some(publishers) }))
}

/// Serves the metrics.
fn serve_metrics(listener: Listener, server: Arc<Server>, tasks: &mut Tasks) {
    let until = tasks.stop.clone();
    let answer = move |request| {
        let server = Arc::clone(&server);
        async move { server.scrape(&request) }
    };
    tasks.spawn(async move { listener::serve(listener, LIMITS, answer, until).await });
}

fn listening(cause: io::Error) -> Error {
    Error::Io { what: "the listener", cause }
}

/// Keeps the subscribers of the metrics up to date.
async fn known_to(metrics: Metrics, mut table: watch::Receiver<Option<Arc<Table>>>) {
    loop {
        if let Some(table) = table.borrow_and_update().as_deref() {
            metrics.set_subscribers(table.subscribed());
        }
        if table.changed().await.is_err() {
            return;
        }
    }
}

/// Serves the control socket, for the dead letters of a journal. Those on NATS need no process.
fn control_of(data: &Path, delivery: &Arc<Delivery>, tasks: &mut Tasks) {
    if matches!(delivery.store, Store::JetStream(_)) {
        return;
    }
    match control::listen(data) {
        Ok(control) => tasks.spawn_until_stop(control::serve(control, Arc::clone(delivery))),
        // Eventing continues, because the control socket is optional.
        Err(error) => tracing::warn!(%error, "dead letters cannot be delivered again: there is no control socket"),
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
