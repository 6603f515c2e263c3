//! Wires the parts together and runs them until the end.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::announce::Announcer;
use super::metrics::{Facts, Metrics, SyncFacts};
use super::{functions, health, inputs};
use crate::api::names::LEASE;
use crate::cluster::{Cluster, Elector, Leadership, Timing};
use crate::drift::{self, Drift};
use crate::function;
use crate::gitsync::Context;
use crate::notification::Teller;
use crate::pulse::Pulse;
use crate::secrets::Secrets;
use crate::source::{self, Repositories, Source};

/// How the agent works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agent's own namespace: its Lease, and the GitSyncs that may touch everything.
    pub namespace: String,
    /// Further namespaces whose GitSyncs may touch everything.
    pub allow_namespaces: Vec<String>,
    /// Name in the Lease.
    pub identity: String,
    /// Where health and metrics are served.
    pub listen: Option<SocketAddr>,
    /// Git.
    pub source: source::Settings,
    /// Functions.
    pub functions: function::Settings,
    /// Whether to hold the Lease before acting.
    pub elect: bool,
    /// How long work that is under way may stand still before `/healthz` says so; [`STANDSTILL`](crate::pulse::STANDSTILL) unless a test
    /// cannot wait for it.
    pub standstill: Duration,
    /// Makes the agent look at every remote at once.
    pub nudge: Nudge,
}

/// Makes the agent look at every remote at once, as when a local repository has a new commit.
#[derive(Clone, Debug, Default)]
pub struct Nudge(watch::Sender<u64>);

impl Nudge {
    /// Looks now.
    pub fn look_now(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

/// Why the agent ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener for health and metrics could not be opened, or broke.
    #[error("could not serve health and metrics on {address}")]
    Serve {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The backward loop ended.
    #[error("the drift loop ended")]
    Drift(#[source] drift::Error),
    /// A task broke: a defect of the agent.
    #[error("a task of the agent broke")]
    Task(#[source] JoinError),
}

/// What is shared by all GitSyncs, and by all Functions.
type Contexts = (Arc<Context>, Arc<function::Context>);

/// What the listener shows of the running agent.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Option<Contexts>>>);

impl Shown {
    fn set(&self, contexts: Option<Contexts>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = contexts;
    }

    fn get(&self) -> Option<Contexts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs the agent over a cluster until `stop`, or until a part of it breaks.
pub async fn run(settings: Settings, cluster: Cluster, teller: Teller, stop: CancellationToken) -> Result<(), Error> {
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
    let (announcer, writer) = Announcer::new(teller.clone(), &cluster, &settings.identity);
    let farewell = stop.clone();
    tasks.spawn(async move {
        writer.run(farewell).await;
        Ok(())
    });
    // The Lease is given back only when the work has stopped: until then nobody else may begin.
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
    let (shown, pulse) = (Shown::default(), Pulse::default());
    let (ready, readiness) = watch::channel(Err("starting".to_owned()));
    serve(&settings, &cluster, &teller, &shown, leadership.clone(), readiness, &pulse, &mut tasks, &stop).await?;
    let leading = lead_by_terms(settings, cluster, announcer, leadership, shown, pulse, ready, stop.clone());
    tasks.spawn(async move {
        let _over = worked.drop_guard();
        leading.await
    });
    // Asked to stop, the parts end by themselves; before that, any end is the end of all.
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
    teller: &Teller,
    shown: &Shown,
    leadership: Option<Leadership>,
    readiness: watch::Receiver<Result<(), String>>,
    pulse: &Pulse,
    tasks: &mut JoinSet<Result<(), Error>>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let Some(address) = settings.listen else { return Ok(()) };
    let listener = TcpListener::bind(address).await.map_err(|cause| Error::Serve { address, cause })?;
    let (shown, cluster) = (shown.clone(), cluster.clone());
    let metrics = Arc::new(Metrics::new(move || facts(&shown, &cluster, leadership.as_ref())));
    let (follower, messages, end) = (Arc::clone(&metrics), teller.listen(), stop.clone());
    tasks.spawn(async move {
        follower.follow(messages, end).await;
        Ok(())
    });
    let (end, pulse, standstill) = (stop.clone(), pulse.clone(), settings.standstill);
    tasks.spawn(async move {
        let ready = move || readiness.borrow().clone();
        let alive = move || pulse.check(standstill);
        health::serve(listener, metrics, alive, ready, end).await.map_err(|cause| Error::Serve { address, cause })
    });
    Ok(())
}

fn facts(shown: &Shown, cluster: &Cluster, leadership: Option<&Leadership>) -> Facts {
    let (context, functions) = shown.get().unzip();
    let syncs = context.iter().flat_map(|context| {
        context.facts().into_iter().map(|(owner, facts)| {
            let summary = context.drift.summary(&owner);
            SyncFacts {
                objects: summary.objects as u64,
                paused: summary.paused.count as u64,
                contended: summary.contended.count as u64,
                heated: summary.heated as u64,
                failed: (facts.failed + summary.failures.count) as u64,
                lag_seconds: facts.lag().as_secs_f64(),
                sync: owner.to_string(),
            }
        })
    });
    let queue = functions.as_ref().map(|functions| functions.queue_lengths()).unwrap_or_default();
    Facts {
        leader: leadership.map_or(context.is_some(), Leadership::is_leading),
        requests: cluster.requests().snapshot(),
        lookups: context.as_ref().map_or(0, |context| context.source.traffic().lookups),
        fetches: context.as_ref().map_or(0, |context| context.source.traffic().fetches),
        syncs: syncs.collect(),
        functions: functions.as_ref().map(|functions| functions.facts()).unwrap_or_default(),
        builds_running: queue.building as u64,
        builds_held_up: queue.held_up as u64,
        builds_waiting: queue.waiting as u64,
    }
}

/// Leads whenever we hold the Lease; without election, always.
#[expect(clippy::too_many_arguments, reason = "wiring names every part once")]
async fn lead_by_terms(
    settings: Settings,
    cluster: Cluster,
    announcer: Announcer,
    leadership: Option<Leadership>,
    shown: Shown,
    pulse: Pulse,
    ready: watch::Sender<Result<(), String>>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let Some(mut leadership) = leadership else {
        return lead(&settings, &cluster, &announcer, &shown, &pulse, &ready, stop).await;
    };
    while !stop.is_cancelled() {
        // A standby is as ready as it can be.
        let _ = ready.send_replace(Ok(()));
        let Some(Some(term)) = stop.run_until_cancelled(leadership.term()).await else { break };
        let _ = ready.send_replace(Err("starting to lead".to_owned()));
        let end = term.ended().child_token();
        let mut led = pin!(lead(&settings, &cluster, &announcer, &shown, &pulse, &ready, end.clone()));
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

async fn lead(
    settings: &Settings,
    cluster: &Cluster,
    announcer: &Announcer,
    shown: &Shown,
    pulse: &Pulse,
    ready: &watch::Sender<Result<(), String>>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let announce = |announcer: &Announcer| {
        let announcer = announcer.clone();
        move |announcement: &drift::Announcement<'_>| announcer.announce(announcement)
    };
    let drift = Drift::new(cluster.clone(), pulse.part("what is put back"), announce(announcer));
    let trusted = std::iter::once(&settings.namespace).chain(&settings.allow_namespaces).cloned().collect();
    let source = Source::new(settings.source.clone());
    let repositories = Arc::new(Repositories::default());
    let secrets = Arc::new(Secrets::new(settings.functions.secrets().map(str::to_owned)));
    let context = Arc::new(Context::new(
        drift.clone(),
        source.clone(),
        Arc::clone(&repositories),
        Arc::clone(&secrets),
        trusted,
        pulse.part("what is done for GitSyncs"),
        announce(announcer),
    ));
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
    let watching = Arc::clone(&secrets).run(cluster.clone(), stop.clone());
    tasks.spawn(async move { watching.await.map_err(Error::Task) });
    let (end, part) = (stop.clone(), pulse.part("the loop that puts objects back"));
    tasks.spawn(async move { part.turn(drift.run(end)).await.map_err(Error::Drift) });
    let (seen, repositories_known) = watch::channel(false);
    let repositories_of_functions = seen.subscribe();
    let (syncs_known, mut known) = watch::channel(false);
    let watching = inputs::repositories(repositories, cluster.clone(), seen, stop.clone());
    tasks.spawn(async move {
        watching.await;
        Ok(())
    });
    let part = pulse.part("the loop that follows GitSyncs");
    let following = inputs::syncs(
        Arc::clone(&context),
        announcer.clone(),
        cluster.clone(),
        repositories_known,
        syncs_known,
        stop.clone(),
    );
    tasks.spawn(async move { part.turn(following).await.map_err(Error::Task) });
    let functions = Arc::new(function::Context::new(
        context.drift.clone(),
        context.source.clone(),
        Arc::clone(&context.repositories),
        secrets,
        settings.functions.clone(),
        pulse.part("what is done for Functions"),
        announce(announcer),
    ));
    shown.set(Some((Arc::clone(&context), Arc::clone(&functions))));
    let part = pulse.part("the loop that follows Functions");
    let following = functions::follow(
        Arc::clone(&functions),
        announcer.clone(),
        cluster.clone(),
        repositories_of_functions,
        stop.clone(),
    );
    tasks.spawn(async move { part.turn(following).await.map_err(Error::Task) });
    let (nudges, looks) = (settings.nudge.0.subscribe(), [context.look_now.clone(), functions.look_now.clone()]);
    tasks.spawn(pass_on(nudges, looks, stop.clone()));
    tasks.spawn(sweep(context.source.clone(), stop.clone()));
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
    // What is under way is cut off: every write of ours can be repeated, and none may follow the end of a term.
    tasks.shutdown().await;
    result
}

/// Removes the mirrors that nobody reads any more since an earlier agent.
async fn sweep(source: Source, stop: CancellationToken) -> Result<(), Error> {
    if let Some(mirrors @ 1..) = stop.run_until_cancelled(source.sweep()).await {
        tracing::info!(mirrors, "mirrors of remotes that nobody reads any more are removed");
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
