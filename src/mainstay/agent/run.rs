//! Runs the agent: its listeners, its Lease, and its work while it leads.
//!
//! Not here: the work itself (`term`).

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::error::Error;
use super::metrics::Metrics;
use super::notify::Notifier;
use super::settings::Settings;
use super::shard::Shard;
use super::shown::{Shown, gauges};
use super::term::{Agent, lead};
use super::{health, operator_settings};
use crate::Component;
use loopback::{Listener, Reach};
use mainstay_api::names::LEASE;
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::shards::Seen;
use mainstay_cluster::{Cluster, Elector, Leadership};
use mainstay_engine::notification::Emitter;
use mainstay_function::admission::{self, Admission};
use mainstay_object::failure::{Backoff, chain};

/// Delay before work that panicked is restarted.
const PANICKED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));
/// Time without a panic after which the next one counts as the first.
const PANICKED_LATELY: Duration = Duration::from_secs(600);

/// An address that is not known.
const UNSPECIFIED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Runs the agent until `stop`, or until a component fails.
pub async fn run(settings: Settings, cluster: Cluster, emitter: Emitter, stop: CancellationToken) -> Result<(), Error> {
    if let Some(namespaces) = settings.scope() {
        cluster.limit_to(namespaces);
    }
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
    let (notifier, writer) = Notifier::new(emitter.clone(), &cluster, &settings.identity);
    let farewell = stop.clone();
    tasks.spawn(async move {
        writer.run(farewell).await;
        Ok(())
    });
    // The Lease is released only after the work has stopped, so that no other agent starts earlier.
    let worked = CancellationToken::new();
    let ((note, published), seen) = (watch::channel(None), Seen::default());
    let leadership = settings.elect.then(|| {
        let (cluster, namespace, identity) = (cluster.clone(), &settings.namespace, &settings.identity);
        let (timing, seen, worked) = (settings.timing, seen.clone(), worked.clone());
        let (elector, leadership) = match settings.shards {
            None => Elector::new(cluster, namespace, LEASE, identity, timing),
            Some(count) => following(Elector::of_shards(cluster, namespace, count, identity, timing, published, seen)),
        };
        tasks.spawn(async move {
            elector.run(worked).await;
            Ok(())
        });
        leadership
    });
    let (ready, readiness) = watch::channel(Err("starting".to_owned()));
    let agent = Agent {
        settings,
        cluster,
        notifier,
        shown: Shown::default(),
        deliveries: Arc::default(),
        liveness: Liveness::default(),
        ready,
    };
    receive(&agent, &mut tasks, &stop)?;
    let admission = admit(&agent, &mut tasks, &stop)?;
    let (leads, leader) = watch::channel(None);
    let shown = if agent.settings.shards.is_some() { leader } else { watch::channel(leadership.clone()).1 };
    serve(&agent, &emitter, admission, shown, readiness, &mut tasks, &stop)?;
    let end = stop.clone();
    tasks.spawn(async move {
        let _over = worked.drop_guard();
        let is_shared = agent.settings.shards.is_some();
        match leadership {
            Some(shards) if is_shared => share_by_terms(agent, shards, (note, leads, seen), end).await,
            leadership => lead_by_terms(agent, leadership, end).await,
        }
    });
    // After `stop`, the components end by themselves. Before `stop`, the end of any component ends all others.
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(Error::Task)??;
        if !stop.is_cancelled() {
            stop.cancel();
        }
    }
    Ok(())
}

/// Returns the elector of an agent that takes an expired Lease as soon as another agent shows it.
fn following<T>((elector, leadership): (Elector, T)) -> (Elector, T) {
    (elector.following_expiries(), leadership)
}

/// Serves deliveries of webhooks, whether this agent leads or not.
fn receive(agent: &Agent, tasks: &mut JoinSet<Result<(), Error>>, stop: &CancellationToken) -> Result<(), Error> {
    let Agent { settings, deliveries, .. } = agent;
    if let Some(receive) = &settings.receive {
        let failed = |cause| Error::Receive { address: receive.address().unwrap_or(UNSPECIFIED), cause };
        let listener = receive.listener.listen().map_err(failed)?;
        let (deliveries, limits, end) = (Arc::clone(deliveries), settings.limits, stop.clone());
        tasks.spawn(async move {
            deliveries.serve(listener, limits, end).await;
            Ok(())
        });
    }
    Ok(())
}

/// Serves admission requests, whether this agent leads or not.
fn admit(
    agent: &Agent,
    tasks: &mut JoinSet<Result<(), Error>>,
    stop: &CancellationToken,
) -> Result<Option<Arc<Admission>>, Error> {
    let Agent { settings, cluster, .. } = agent;
    let Some(admit) = &settings.admit else { return Ok(None) };
    let failed = |cause| Error::Admit { address: admit.address().unwrap_or(UNSPECIFIED), cause };
    let listener = admit.listener.listen().map_err(failed)?;
    let with_functions = settings.components.has(Component::Functions);
    let webhooks = Arc::new(Admission::new(admit.client_authorities.clone()));
    let serving = Arc::clone(&webhooks).serve(listener, stop.clone());
    let namespace = settings.namespace.clone();
    let following =
        admission::follow(Arc::clone(&webhooks), cluster.clone(), namespace.clone(), with_functions, stop.clone());
    let (judging, base) = (Arc::clone(&webhooks), settings.functions.clone());
    let set = move |settings| judging.set_settings(settings);
    if with_functions {
        let setting = operator_settings::follow_for_webhooks(base, set, cluster.clone(), namespace, stop.clone());
        tasks.spawn(async move {
            setting.await;
            Ok(())
        });
    } else {
        set(base);
    }
    tasks.spawn(async move {
        tokio::join!(serving, following);
        Ok(())
    });
    Ok(Some(webhooks))
}

/// Serves health and metrics.
fn serve(
    agent: &Agent,
    emitter: &Emitter,
    admission: Option<Arc<Admission>>,
    leadership: watch::Receiver<Option<Leadership>>,
    readiness: watch::Receiver<Result<(), String>>,
    tasks: &mut JoinSet<Result<(), Error>>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let settings = &agent.settings;
    let Some(address) = settings.listen else { return Ok(()) };
    let listener = Listener::bind(address, Reach::Anyone).map_err(|cause| Error::Serve { address, cause })?;
    let (shown, cluster) = (agent.shown.clone(), agent.cluster.clone());
    let (notifier, deliveries) = (agent.notifier.clone(), Arc::clone(&agent.deliveries));
    let metrics = Arc::new(Metrics::new(move || {
        gauges(&shown, &cluster, &notifier, &deliveries, admission.as_deref(), leadership.borrow().as_ref())
    }));
    let (follower, messages, end) = (Arc::clone(&metrics), emitter.subscribe(), stop.clone());
    tasks.spawn(async move {
        follower.follow(messages, end).await;
        Ok(())
    });
    let (end, liveness) = (stop.clone(), agent.liveness.clone());
    let (stuck_after, limits) = (settings.stuck_after, settings.limits);
    tasks.spawn(async move {
        let ready = move || readiness.borrow().clone();
        let alive = move || liveness.check(stuck_after);
        health::serve(listener, limits, metrics, alive, ready, end).await;
        Ok(())
    });
    Ok(())
}

/// Runs the leader's work while this agent holds the Lease, or always without election.
async fn lead_by_terms(agent: Agent, leadership: Option<Leadership>, stop: CancellationToken) -> Result<(), Error> {
    let Some(mut leadership) = leadership else { return lead_despite_panics(&agent, None, stop).await };
    while !stop.is_cancelled() {
        // A standby counts as ready.
        let _ = agent.ready.send_replace(Ok(()));
        let Some(Some(term)) = stop.run_until_cancelled(leadership.term()).await else { break };
        let _ = agent.ready.send_replace(Err("starting to lead".to_owned()));
        let end = term.ended().child_token();
        let mut led = pin!(lead_despite_panics(&agent, None, end.clone()));
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

/// Runs the work of a shard while this agent holds one. The agent takes part in the election of the leader meanwhile.
async fn share_by_terms(
    agent: Agent,
    mut shards: Leadership,
    (note, leads, seen): (watch::Sender<Option<String>>, watch::Sender<Option<Leadership>>, Seen),
    stop: CancellationToken,
) -> Result<(), Error> {
    while !stop.is_cancelled() {
        // A standby counts as ready.
        let _ = agent.ready.send_replace(Ok(()));
        let Some(Some(term)) = stop.run_until_cancelled(shards.term()).await else { break };
        let Some(member) = term.member() else { break };
        let (elector, leadership) = {
            let Settings { namespace, identity, timing, .. } = &agent.settings;
            Elector::new(agent.cluster.clone(), namespace, LEASE, identity, *timing)
        };
        leads.send_replace(Some(leadership.clone()));
        // The Lease of the leader is released after the work, and before that of the shard.
        let worked = CancellationToken::new();
        let electing = AbortOnDropHandle::new(tokio::spawn(elector.leading_members().run(worked.clone())));
        let shard = Shard { member, leadership, note: note.clone(), seen: seen.clone() };
        let shared = share(&agent, &shard, (term.ended(), &stop)).await;
        worked.cancel();
        let _ = electing.await;
        leads.send_replace(None);
        shared?;
    }
    Ok(())
}

/// Runs the work of a shard until its term ends or `stop`. The work begins again when this agent ends to lead.
async fn share(
    agent: &Agent,
    shard: &Shard,
    (ended, stop): (&CancellationToken, &CancellationToken),
) -> Result<(), Error> {
    while !ended.is_cancelled() && !stop.is_cancelled() {
        let _ = agent.ready.send_replace(Err(format!("starting to work as {}", shard.member)));
        let end = ended.child_token();
        let mut led = pin!(lead_despite_panics(agent, Some(shard), end.clone()));
        let led = tokio::select! {
            led = &mut led => led,
            () = stop.cancelled() => {
                end.cancel();
                led.await
            }
        };
        end.cancel();
        led?;
    }
    Ok(())
}

/// Runs the leader's work, or that of a shard, until `end`, and restarts it after a panic.
async fn lead_despite_panics(agent: &Agent, shard: Option<&Shard>, end: CancellationToken) -> Result<(), Error> {
    let mut panics = 0;
    loop {
        let began = Instant::now();
        let led = lead(agent, shard, end.clone()).await;
        let Err(error) = led else { return led };
        if !error.is_panic() {
            return Err(error);
        }
        // All state is rebuilt from the cluster. The Lease is not passed on, because another replica has the same
        // defect.
        panics = if began.elapsed() > PANICKED_LATELY { 1 } else { panics + 1 };
        tracing::error!(why = chain(&error), "the work restarts");
        if end.run_until_cancelled(tokio::time::sleep(PANICKED.delay(panics))).await.is_none() {
            return Ok(());
        }
    }
}
