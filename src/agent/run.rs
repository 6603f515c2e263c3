//! Wires the components together and runs them.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::metrics::{Gauges, Metrics, SyncGauges};
use super::notify::Notifier;
use super::{bootstrap, functions, health, host_keys, inputs, leader_label, pins, receivers, ssh_keys};
use crate::api::names::LEASE;
use crate::apply::{Announcement, Writer};
use crate::cluster::{Cluster, Elector, Leadership, Timing};
use crate::drift::{self, Drift};
use crate::function;
use crate::gitsync::Context;
use crate::listener::Limits;
use crate::liveness::Liveness;
use crate::notification::Emitter;
use crate::receiver::{self, BaseUrl, Deliveries};
use crate::render::Kustomize;
use crate::secrets::Secrets;
use crate::source::{self, Pushes, Repositories, SharedHostKeys, Source};

/// Directory below that of the mirrors in which kustomizations are built.
const RENDERED: &str = "render";

/// The agent's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agent's own namespace: its Lease, and the GitSyncs that may apply everything.
    pub namespace: String,
    /// Further namespaces whose GitSyncs may apply everything.
    pub allow_namespaces: Vec<String>,
    /// The agent's identity in the Lease.
    pub identity: String,
    /// The pod that this is; labelled while it leads and receives deliveries.
    pub pod: Option<String>,
    /// Address for health and metrics.
    pub listen: Option<SocketAddr>,
    /// Where deliveries of webhooks come in, if anywhere.
    pub receive: Option<Receive>,
    /// Limits for clients of health, metrics and webhooks.
    pub limits: Limits,
    /// Git.
    pub source: source::Settings,
    /// Functions.
    pub functions: function::Settings,
    /// Whether the agent must hold the Lease to act.
    pub elect: bool,
    /// How long a component may make no progress before `/healthz` fails:
    /// [`STUCK_AFTER`](crate::liveness::STUCK_AFTER), except in tests.
    pub stuck_after: Duration,
    /// Makes the agent poll every remote at once.
    pub nudge: Nudge,
}

/// Where deliveries of webhooks come in.
#[derive(Clone, Debug)]
pub struct Receive {
    /// The listener.
    pub listener: Arc<std::net::TcpListener>,
    /// The address under which hosts reach it.
    pub base: BaseUrl,
}

impl Receive {
    /// Listens on an address. Port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(address: SocketAddr, base: BaseUrl) -> Result<Self, Error> {
        let bound = std::net::TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = bound.map_err(|cause| Error::Receive { address, cause })?;
        Ok(Self { listener: Arc::new(listener), base })
    }

    /// The address that is listened on.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }
}

/// Makes the agent poll every remote at once, because a local repository has a new commit.
#[derive(Clone, Debug, Default)]
pub struct Nudge(watch::Sender<u64>);

impl Nudge {
    /// Polls now.
    pub fn look_now(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

/// Why the agent ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener for health and metrics could not be opened, or failed.
    #[error("could not serve health and metrics on {address}")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The listener for webhooks could not be opened.
    #[error("could not receive webhooks on {address}")]
    Receive {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The drift loop ended.
    #[error("the drift loop ended")]
    Drift(#[source] drift::Error),
    /// A task panicked.
    #[error("a task of the agent broke")]
    Task(#[source] JoinError),
}

/// An address that is not known.
const UNSPECIFIED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// The contexts of all GitSyncs and of all Functions.
type Contexts = (Arc<Context>, Arc<function::Context>);

/// The contexts of the current term, for the listener.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Option<Contexts>>>);

impl Shown {
    fn set(&self, contexts: Option<Contexts>) {
        *self.0.lock() = contexts;
    }

    fn get(&self) -> Option<Contexts> {
        self.0.lock().clone()
    }
}

/// Runs the agent until `stop`, or until a component fails.
pub async fn run(settings: Settings, cluster: Cluster, emitter: Emitter, stop: CancellationToken) -> Result<(), Error> {
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
    let (notifier, writer) = Notifier::new(emitter.clone(), &cluster, &settings.identity);
    let farewell = stop.clone();
    tasks.spawn(async move {
        writer.run(farewell).await;
        Ok(())
    });
    // The Lease is released only after the work has stopped, so that no other agent starts before.
    let worked = CancellationToken::new();
    let leadership = settings.elect.then(|| {
        let (elector, leadership) =
            Elector::new(cluster.clone(), &settings.namespace, LEASE, &settings.identity, Timing::default());
        let worked = worked.clone();
        tasks.spawn(async move {
            elector.run(worked).await;
            Ok(())
        });
        leadership
    });
    let (shown, liveness) = (Shown::default(), Liveness::default());
    let (ready, readiness) = watch::channel(Err("starting".to_owned()));
    let deliveries = Arc::new(Deliveries::default());
    if let Some(receive) = &settings.receive {
        let failed = |cause| Error::Receive { address: receive.address().unwrap_or(UNSPECIFIED), cause };
        let listener = receive.listener.try_clone().and_then(TcpListener::from_std).map_err(failed)?;
        let (deliveries, limits, end) = (Arc::clone(&deliveries), settings.limits, stop.clone());
        tasks.spawn(async move {
            deliveries.serve(listener, limits, end).await;
            Ok(())
        });
    }
    serve(
        &settings,
        &cluster,
        &emitter,
        &notifier,
        &shown,
        &deliveries,
        leadership.clone(),
        readiness,
        &liveness,
        &mut tasks,
        &stop,
    )
    .await?;
    let leading =
        lead_by_terms(settings, cluster, notifier, leadership, shown, deliveries, liveness, ready, stop.clone());
    tasks.spawn(async move {
        let _over = worked.drop_guard();
        leading.await
    });
    // After `stop` the components end by themselves; before, the end of any ends all.
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(Error::Task)??;
        if !stop.is_cancelled() {
            stop.cancel();
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "wiring names every part once")]
async fn serve(
    settings: &Settings,
    cluster: &Cluster,
    emitter: &Emitter,
    notifier: &Notifier,
    shown: &Shown,
    deliveries: &Arc<Deliveries>,
    leadership: Option<Leadership>,
    readiness: watch::Receiver<Result<(), String>>,
    liveness: &Liveness,
    tasks: &mut JoinSet<Result<(), Error>>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let Some(address) = settings.listen else { return Ok(()) };
    let listener = TcpListener::bind(address).await.map_err(|cause| Error::Serve { address, cause })?;
    let (shown, cluster, notifier, deliveries) =
        (shown.clone(), cluster.clone(), notifier.clone(), Arc::clone(deliveries));
    let metrics = Arc::new(Metrics::new(move || gauges(&shown, &cluster, &notifier, &deliveries, leadership.as_ref())));
    let (follower, messages, end) = (Arc::clone(&metrics), emitter.subscribe(), stop.clone());
    tasks.spawn(async move {
        follower.follow(messages, end).await;
        Ok(())
    });
    let (end, liveness, stuck_after, limits) = (stop.clone(), liveness.clone(), settings.stuck_after, settings.limits);
    tasks.spawn(async move {
        let ready = move || readiness.borrow().clone();
        let alive = move || liveness.check(stuck_after);
        health::serve(listener, limits, metrics, alive, ready, end).await;
        Ok(())
    });
    Ok(())
}

fn gauges(
    shown: &Shown,
    cluster: &Cluster,
    notifier: &Notifier,
    deliveries: &Deliveries,
    leadership: Option<&Leadership>,
) -> Gauges {
    let (context, functions) = shown.get().unzip();
    let syncs = context.iter().flat_map(|context| {
        context.facts().into_iter().map(|(owner, facts)| {
            let summary = context.writer.summary(&owner);
            SyncGauges {
                objects: summary.objects as u64,
                health: [summary.healthy, summary.progressing.count, summary.broken.count, summary.absent.count]
                    .map(|count| count as u64),
                drifted: summary.drifted.count as u64,
                ready: facts.is_ready,
                suspended: facts.is_suspended,
                last_success: facts.last_success.map(|at| at.as_millisecond() as f64 / 1000.0),
                paused: summary.paused.count as u64,
                contended: summary.contended.count as u64,
                heated: summary.backing_off as u64,
                failed: (facts.failed + summary.failures.count) as u64,
                lag_seconds: facts.lag().as_secs_f64(),
                sync: owner.to_string(),
            }
        })
    });
    let queue = functions.as_ref().map(|functions| functions.queue_lengths()).unwrap_or_default();
    Gauges {
        leader: leadership.map_or(context.is_some(), Leadership::is_leading),
        requests: cluster.requests().snapshot(),
        lookups: context.as_ref().map_or(0, |context| context.source.traffic().lookups),
        fetches: context.as_ref().map_or(0, |context| context.source.traffic().fetches),
        subjects: context.is_some().then(|| notifier.subjects().into_iter().collect()),
        syncs: syncs.collect(),
        functions: functions.as_ref().map(|functions| functions.metrics()).unwrap_or_default(),
        builds_running: queue.building as u64,
        builds_held_up: queue.held_up as u64,
        builds_waiting: queue.waiting as u64,
        deliveries: deliveries.counts(),
    }
}

/// Leads while this agent holds the Lease; without election, always.
#[expect(clippy::too_many_arguments, reason = "wiring names every part once")]
async fn lead_by_terms(
    settings: Settings,
    cluster: Cluster,
    notifier: Notifier,
    leadership: Option<Leadership>,
    shown: Shown,
    deliveries: Arc<Deliveries>,
    liveness: Liveness,
    ready: watch::Sender<Result<(), String>>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let Some(mut leadership) = leadership else {
        return lead(&settings, &cluster, &notifier, &shown, &deliveries, &liveness, &ready, stop).await;
    };
    while !stop.is_cancelled() {
        // A standby is ready.
        let _ = ready.send_replace(Ok(()));
        let Some(Some(term)) = stop.run_until_cancelled(leadership.term()).await else { break };
        let _ = ready.send_replace(Err("starting to lead".to_owned()));
        let end = term.ended().child_token();
        let mut led = pin!(lead(&settings, &cluster, &notifier, &shown, &deliveries, &liveness, &ready, end.clone()));
        let led = tokio::select! {
            led = &mut led => led,
            () = stop.cancelled() => {
                end.cancel();
                led.await
            }
        };
        led?;
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "wiring names every part once")]
async fn lead(
    settings: &Settings,
    cluster: &Cluster,
    notifier: &Notifier,
    shown: &Shown,
    deliveries: &Deliveries,
    liveness: &Liveness,
    ready: &watch::Sender<Result<(), String>>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let notify = |notifier: &Notifier| {
        let notifier = notifier.clone();
        move |announcement: &Announcement<'_>| notifier.notify(announcement)
    };
    notifier.clear_subjects();
    let (writer, follow_ups) = Writer::new(cluster.clone(), liveness.component("reverting drift"), notify(notifier));
    let drift = Drift::new(writer.clone());
    let trusted = std::iter::once(&settings.namespace).chain(&settings.allow_namespaces).cloned().collect();
    let source = Source::new(settings.source.clone());
    source.set_host_keys(SharedHostKeys::Unknown(None));
    let repositories = Arc::new(Repositories::default());
    let secrets = Arc::new(Secrets::new(settings.functions.secrets().map(str::to_owned)));
    let pushes = Arc::new(Pushes::default());
    let context = Arc::new(Context::new(
        writer,
        source.clone(),
        Arc::clone(&repositories),
        Arc::clone(&secrets),
        Arc::clone(&pushes),
        trusted,
        Kustomize::new(std::env::var_os("PATH").as_deref(), settings.source.directory.join(RENDERED)),
        liveness.component("reconciling GitSyncs"),
        notify(notifier),
    ));
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
    let watching = Arc::clone(&secrets).run(cluster.clone(), stop.clone());
    tasks.spawn(async move { watching.await.map_err(Error::Task) });
    let (end, component, running) = (stop.clone(), liveness.component("the drift loop"), drift.clone());
    tasks.spawn(async move { component.track_loop(running.run(follow_ups, end)).await.map_err(Error::Drift) });
    let following = host_keys::follow(source.clone(), cluster.clone(), settings.namespace.clone(), stop.clone());
    tasks.spawn(async move {
        following.await;
        Ok(())
    });
    let pinning =
        pins::keep(source.host_keys_to_pin(), source.clone(), Arc::clone(&repositories), cluster.clone(), stop.clone());
    tasks.spawn(async move {
        pinning.await;
        Ok(())
    });
    let (seen, repositories_known) = watch::channel(false);
    let repositories_of_functions = seen.subscribe();
    let (syncs_known, mut known) = watch::channel(false);
    let watching = inputs::repositories(repositories, cluster.clone(), seen, stop.clone());
    tasks.spawn(async move {
        watching.await;
        Ok(())
    });
    let component = liveness.component("the watch of GitSyncs");
    let following = inputs::syncs(
        Arc::clone(&context),
        notifier.clone(),
        cluster.clone(),
        repositories_known,
        syncs_known,
        stop.clone(),
    );
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let functions = Arc::new(function::Context::new(
        context.writer.clone(),
        context.source.clone(),
        Arc::clone(&context.repositories),
        Arc::clone(&secrets),
        Arc::clone(&pushes),
        settings.functions.clone(),
        liveness.component("reconciling Functions"),
        notify(notifier),
    ));
    shown.set(Some((Arc::clone(&context), Arc::clone(&functions))));
    let component = liveness.component("the watch of Functions");
    let following = functions::follow(
        Arc::clone(&functions),
        drift,
        notifier.clone(),
        cluster.clone(),
        repositories_of_functions,
        stop.clone(),
    );
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let emit = notify(notifier);
    let hooks = Arc::new(receiver::Context::new(
        cluster.clone(),
        secrets,
        pushes,
        settings.receive.as_ref().map(|receive| receive.base.clone()),
        liveness.component("reconciling Receivers"),
        move |owner, message| emit(&Announcement { owner, object: None, message }),
    ));
    deliveries.set(Some(Arc::clone(&hooks)));
    if let (Some(pod), Some(_)) = (&settings.pod, &settings.receive) {
        let labelling = leader_label::keep(cluster.clone(), settings.namespace.clone(), pod.clone(), stop.clone());
        tasks.spawn(async move {
            labelling.await;
            Ok(())
        });
    } else if settings.receive.as_ref().is_some_and(|receive| receive.base.known().is_none()) {
        // An agent that is told its URL may run outside of the cluster, where nothing leads through the Service.
        tracing::warn!(
            "the name of this pod is not known, so it gets no label, and deliveries do not arrive through the Service; set \
             MAINSTAY_POD"
        );
    }
    let component = liveness.component("the watch of Receivers");
    let following = receivers::follow(hooks, notifier.clone(), cluster.clone(), stop.clone());
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let (nudges, looks) = (settings.nudge.0.subscribe(), [context.look_now.clone(), functions.poll_now.clone()]);
    tasks.spawn(pass_on(nudges, looks, stop.clone()));
    tasks.spawn(sweep(context.source.clone(), stop.clone()));
    let keys = ssh_keys::make(cluster.clone(), settings.namespace.clone(), stop.clone());
    let installed = bootstrap::create(cluster.clone(), settings.namespace.clone(), stop.clone());
    tasks.spawn(async move {
        tokio::join!(keys, installed);
        Ok(())
    });
    let mut announced = false;
    let result = loop {
        tokio::select! {
            () = stop.cancelled() => break Ok(()),
            changed = known.wait_for(|known| *known), if !announced => {
                announced = changed.is_ok();
                let _ = ready.send_replace(Ok(()));
            }
            Some(ended) = tasks.join_next() => break ended.map_err(Error::Task).and_then(|ended| ended),
        }
    };
    shown.set(None);
    deliveries.set(None);
    // Running tasks are cancelled: every write can be repeated, and none may follow the end of a term.
    tasks.shutdown().await;
    result
}

/// Removes the mirrors that have lost their last consumer since an earlier agent.
async fn sweep(source: Source, stop: CancellationToken) -> Result<(), Error> {
    if let Some(mirrors @ 1..) = stop.run_until_cancelled(source.sweep()).await {
        tracing::info!(mirrors, "removed mirrors of remotes that are not used any more");
    }
    stop.cancelled().await;
    Ok(())
}

async fn pass_on(
    mut nudges: watch::Receiver<u64>,
    looks: [watch::Sender<u64>; 2],
    stop: CancellationToken,
) -> Result<(), Error> {
    while let Some(Ok(())) = stop.run_until_cancelled(nudges.changed()).await {
        for look in &looks {
            look.send_modify(|count| *count += 1);
        }
    }
    Ok(())
}
