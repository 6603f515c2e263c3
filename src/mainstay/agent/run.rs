//! Wires the components together and runs them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::error::Error;
use super::listening::{Admit, Receive};
use super::metrics::Metrics;
use super::notify::Notifier;
use super::serverless::Serverless;
use super::shown::{Shown, gauges};
use super::{
    api_rules, artifacts, bootstrap, cloud, functions, health, host_keys, images, inputs, installation, leader_label,
    nats_login, notifications, operator_settings, pins, receivers, repositories, ssh_keys,
};
use crate::{Component, Components};
use loopback::{Listener, Reach};
use mainstay_api::names::LEASE;
use mainstay_api::{HelmChartSpec, ImagePolicySpec, ImageRepositorySpec, ImageUpdateAutomationSpec, OciRepositorySpec};
use mainstay_cluster::listener::Limits;
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::secrets::Secrets;
use mainstay_cluster::{Cluster, Elector, Leadership, Timing};
use mainstay_engine::apply::{Announcement, Writer};
use mainstay_engine::drift::Drift;
use mainstay_engine::managed::kept_within;
use mainstay_engine::notification::Emitter;
use mainstay_engine::prevention;
use mainstay_function::admission::{self, Admission, Registration};
use mainstay_function::bindings::Bindings;
use mainstay_git::{Repositories, SharedHostKeys, Source};
use mainstay_gitsync::receiver::{self, Deliveries};
use mainstay_gitsync::{Begun, Context, Rights};
use mainstay_manifest::render::{Helm, Kustomize, Words};
use mainstay_object::failure::{Backoff, chain};

/// Directory for building kustomizations and rendering charts, below the directory of the mirrors.
const RENDERED: &str = "render";
/// Directory for the outputs of renders, beside the mirrors.
const KEPT_RENDERS: &str = "kept-renders";

/// The agent's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agent's own namespace, with its Lease and the GitSyncs that may apply everything.
    pub namespace: String,
    /// Further namespaces whose GitSyncs may apply everything.
    pub allow_namespaces: Vec<String>,
    /// ServiceAccount to impersonate for GitSyncs of other namespaces that specify no ServiceAccount. With `None`, such
    /// GitSyncs are confined to their own namespace.
    pub default_service_account: Option<String>,
    /// The agent's identity in the Lease.
    pub identity: String,
    /// The agent's own pod. The pod is labelled while its agent leads and receives deliveries.
    pub pod: Option<String>,
    /// Address for health and metrics.
    pub listen: Option<SocketAddr>,
    /// The listener for deliveries of webhooks, if any.
    pub receive: Option<Receive>,
    /// The listener for admission requests, if any.
    pub admit: Option<Admit>,
    /// Limits for clients of health, metrics and webhooks.
    pub limits: Limits,
    /// Settings for Git.
    pub source: mainstay_git::Settings,
    /// Settings for Functions.
    pub functions: mainstay_function::Settings,
    /// The parts of Mainstay that the agent runs.
    pub components: Components,
    /// Whether the agent has its own permissions to apply objects.
    pub profile: Profile,
    /// Namespaces besides its own in which the agent sees objects; empty means all namespaces.
    pub namespaces: Vec<String>,
    /// Settings for the hosts of APIRules.
    pub exposure: mainstay_exposure::Settings,
    /// Whether the agent must hold the Lease to act.
    pub elect: bool,
    /// How long a component may make no progress before `/healthz` fails:
    /// [`STUCK_AFTER`](mainstay_cluster::liveness::STUCK_AFTER), except in tests.
    pub stuck_after: Duration,
    /// Memory limit of the process, in bytes. Three tenths of the limit are for objects kept for GitSyncs and
    /// Functions.
    pub memory: usize,
    /// Makes the agent poll every remote immediately.
    pub nudge: Nudge,
    /// Interval in which each managed object is audited once; 0 disables audits.
    pub audit: Duration,
    /// The directory shared with the container that renders kustomizations and charts; `None` renders them in this
    /// process's container.
    pub renderer: Option<PathBuf>,
    /// The part of the messages of kustomize and Helm that a status shows.
    pub words: Words,
}

/// The rights that an agent is installed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// May apply everything, and impersonate any ServiceAccount.
    #[default]
    Full,
    /// May apply nothing itself: each GitSync names a ServiceAccount, and the agent may impersonate only a few.
    Restricted,
}

/// Default interval in which each managed object is audited once.
pub const AUDIT: Duration = Duration::from_secs(3600);

/// Makes the agent poll every remote immediately, because a local repository has a new commit.
#[derive(Clone, Debug, Default)]
pub struct Nudge(watch::Sender<u64>);

impl Nudge {
    /// Makes the agent poll now.
    pub fn look_now(&self) {
        self.0.send_modify(|count| *count += 1);
    }
}

/// Delay before work that panicked is restarted.
const PANICKED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));
/// Time without a panic after which the next one counts as the first.
const PANICKED_LATELY: Duration = Duration::from_secs(600);

/// An address that is not known.
const UNSPECIFIED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

impl Settings {
    /// Returns the namespaces in which the agent sees objects; `None` for all.
    fn scope(&self) -> Option<Arc<[String]>> {
        let all: BTreeSet<String> = std::iter::once(&self.namespace).chain(&self.namespaces).cloned().collect();
        (!self.namespaces.is_empty()).then(|| all.into_iter().collect())
    }
}

/// Returns the settings for Git with egress rules: users of confined namespaces choose the hosts that the agent
/// connects to.
fn confined(settings: &Settings) -> mainstay_git::Settings {
    let mut source = settings.source.clone();
    let trusted = std::iter::once(&settings.namespace).chain(&settings.allow_namespaces);
    source.egress.unconfined.get_or_insert_with(|| trusted.cloned().collect());
    source
}

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
    receive(&settings, &deliveries, &mut tasks, &stop)?;
    let admission = admit(&settings, &cluster, &mut tasks, &stop)?;
    serve(
        &settings,
        &cluster,
        &emitter,
        &notifier,
        &shown,
        &deliveries,
        admission,
        leadership.clone(),
        readiness,
        &liveness,
        &mut tasks,
        &stop,
    )?;
    let leading =
        lead_by_terms(settings, cluster, notifier, leadership, shown, deliveries, liveness, ready, stop.clone());
    tasks.spawn(async move {
        let _over = worked.drop_guard();
        leading.await
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

/// Serves deliveries of webhooks, whether this agent leads or not.
fn receive(
    settings: &Settings,
    deliveries: &Arc<Deliveries>,
    tasks: &mut JoinSet<Result<(), Error>>,
    stop: &CancellationToken,
) -> Result<(), Error> {
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
    settings: &Settings,
    cluster: &Cluster,
    tasks: &mut JoinSet<Result<(), Error>>,
    stop: &CancellationToken,
) -> Result<Option<Arc<Admission>>, Error> {
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

#[expect(clippy::too_many_arguments, reason = "wiring names every part once")]
fn serve(
    settings: &Settings,
    cluster: &Cluster,
    emitter: &Emitter,
    notifier: &Notifier,
    shown: &Shown,
    deliveries: &Arc<Deliveries>,
    admission: Option<Arc<Admission>>,
    leadership: Option<Leadership>,
    readiness: watch::Receiver<Result<(), String>>,
    liveness: &Liveness,
    tasks: &mut JoinSet<Result<(), Error>>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let Some(address) = settings.listen else { return Ok(()) };
    let listener = Listener::bind(address, Reach::Anyone).map_err(|cause| Error::Serve { address, cause })?;
    let (shown, cluster, notifier, deliveries) =
        (shown.clone(), cluster.clone(), notifier.clone(), Arc::clone(deliveries));
    let metrics = Arc::new(Metrics::new(move || {
        gauges(&shown, &cluster, &notifier, &deliveries, admission.as_deref(), leadership.as_ref())
    }));
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

/// Runs the leader's work while this agent holds the Lease, or always without election.
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
    let lead = async |end: CancellationToken| {
        let mut panics = 0;
        loop {
            let began = Instant::now();
            let led = lead(&settings, &cluster, &notifier, &shown, &deliveries, &liveness, &ready, end.clone()).await;
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
    };
    let Some(mut leadership) = leadership else { return lead(stop).await };
    while !stop.is_cancelled() {
        // A standby counts as ready.
        let _ = ready.send_replace(Ok(()));
        let Some(Some(term)) = stop.run_until_cancelled(leadership.term()).await else { break };
        let _ = ready.send_replace(Err("starting to lead".to_owned()));
        let end = term.ended().child_token();
        let mut led = pin!(lead(end.clone()));
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
    writer.limit_memory(kept_within(settings.memory));
    let looking = installation::find(cluster, &settings.namespace, settings.pod.as_deref());
    // The installation must be known before any deletion.
    let Some(installed) = stop.run_until_cancelled(looking).await else { return Ok(()) };
    writer.set_installation(installed);
    let drift = Drift::new(writer.clone());
    let trusted: BTreeSet<String> =
        std::iter::once(&settings.namespace).chain(&settings.allow_namespaces).cloned().collect();
    let rights = Rights {
        trusted: trusted.iter().cloned().collect(),
        default_service_account: settings.default_service_account.clone(),
        requires_account: settings.profile == Profile::Restricted,
        namespaces: settings.scope(),
    };
    let with_functions = settings.components.has(Component::Functions);
    let source = Source::new(cloud::with_identities(confined(settings), trusted.iter().cloned(), cluster));
    source.set_host_keys(SharedHostKeys::Unknown(None));
    let repositories = Arc::new(Repositories::default());
    let secrets = Arc::new(Secrets::default());
    if with_functions {
        secrets.set_everywhere(settings.functions.purposes());
    }
    let context = Arc::new(Context::new(
        writer.clone(),
        source.clone(),
        Arc::clone(&repositories),
        Arc::clone(&secrets),
        rights,
        renderers(settings),
        liveness.component("reconciling GitSyncs"),
        notify(notifier),
        other_clusters(writer, notifier.clone(), liveness.clone(), settings.audit, stop.clone()),
    ));
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();
    let watching = Arc::clone(&secrets).run(cluster.clone(), stop.clone());
    tasks.spawn(async move { watching.await.map_err(Error::Task) });
    let (end, component, running) = (stop.clone(), liveness.component("the drift loop"), drift.clone());
    tasks.spawn(async move { component.track_loop(running.run(follow_ups, end)).await.map_err(Error::Drift) });
    let auditing = drift.clone().audit(settings.audit, stop.clone());
    tasks.spawn(async move {
        auditing.await;
        Ok(())
    });
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
    let kept = repositories::Kept::new(repositories, Arc::clone(&secrets), context.writer.clone(), notifier.clone());
    let watching = repositories::follow(kept, seen, stop.clone());
    tasks.spawn(async move {
        watching.await;
        Ok(())
    });
    let statuses = mainstay_gitsync::repository::Context {
        source: context.source.clone(),
        repositories: Arc::clone(&context.repositories),
        secrets: Arc::clone(&secrets),
        cluster: cluster.clone(),
        kind: Arc::new(repositories::git_repositories()),
    };
    let keeping = mainstay_gitsync::repository::keep(statuses, stop.clone());
    tasks.spawn(async move {
        keeping.await;
        Ok(())
    });
    let preventing = prevention::keep(Arc::clone(&context.prevention), context.writer.clone(), stop.clone());
    tasks.spawn(async move {
        preventing.await;
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
    let bound = Arc::new(Bindings::new(liveness.component("reconciling ServiceBindingUsages")));
    let functions = Arc::new(mainstay_function::Context::new(
        context.writer.clone(),
        context.source.clone(),
        Arc::clone(&context.repositories),
        Arc::clone(&secrets),
        Arc::clone(&bound),
        settings.functions.clone(),
        settings.namespace.clone(),
        liveness.component("reconciling Functions"),
        notify(notifier),
    ));
    shown.set(Some((Arc::clone(&context), Arc::clone(&functions))));
    if with_functions {
        let serverless = Serverless {
            namespace: &settings.namespace,
            cluster,
            notifier,
            shown,
            liveness,
            functions: &functions,
            writer: &context.writer,
        };
        serverless.spawn(bound, drift, repositories_of_functions, &mut tasks, &stop);
    } else {
        functions::are_absent(&functions);
    }
    let notifications = Arc::new(notifications::Context {
        cluster: cluster.clone(),
        secrets: Arc::clone(&secrets),
        source: context.source.clone(),
        notifier: notifier.clone(),
        trusted,
    });
    let artifacts = Arc::new(artifacts::Context {
        cluster: cluster.clone(),
        secrets: Arc::clone(&secrets),
        source: context.source.clone(),
        repositories: Arc::clone(&context.repositories),
        notifier: notifier.clone(),
    });
    let component = liveness.component("the watch of OCIRepositories");
    let following = artifacts::follow::<OciRepositorySpec>(Arc::clone(&artifacts), stop.clone());
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let component = liveness.component("the watch of HelmCharts");
    let following = artifacts::follow::<HelmChartSpec>(artifacts, stop.clone());
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let images = Arc::new(images::Context::new(
        cluster.clone(),
        Arc::clone(&secrets),
        (context.source.clone(), Arc::clone(&context.repositories)),
        notifier.clone(),
    ));
    let component = liveness.component("the watch of ImageUpdateAutomations");
    let following = images::follow::<ImageUpdateAutomationSpec>(Arc::clone(&images), stop.clone());
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let component = liveness.component("the watch of ImageRepositories");
    let following = images::follow::<ImageRepositorySpec>(Arc::clone(&images), stop.clone());
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let component = liveness.component("the watch of ImagePolicies");
    let following = images::follow::<ImagePolicySpec>(images, stop.clone());
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let component = liveness.component("the watch of Providers and Alerts");
    let following = notifications::follow(notifications, stop.clone());
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    let emit = notify(notifier);
    let hooks = Arc::new(receiver::Context::new(
        cluster.clone(),
        secrets,
        Arc::clone(context.source.pushes()),
        Arc::clone(&context.repositories),
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
        // An agent with a configured URL may run outside of the cluster, where the Service does not route to it.
        tracing::warn!(
            "the name of this pod is not known, so it gets no label, and deliveries do not arrive through the Service; set \
             MAINSTAY_POD"
        );
    }
    let component = liveness.component("the watch of Receivers");
    let following = receivers::follow(hooks, context.writer.clone(), notifier.clone(), cluster.clone(), stop.clone());
    tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    if settings.components.has(Component::Exposure) {
        let emit = notify(notifier);
        let exposed = mainstay_exposure::Context::new(
            context.writer.clone(),
            settings.exposure.clone(),
            liveness.component("reconciling APIRules"),
            move |owner, message| emit(&Announcement { owner, object: None, message }),
        );
        let component = liveness.component("the watch of APIRules");
        let following = api_rules::follow(Arc::new(exposed), notifier.clone(), cluster.clone(), stop.clone());
        tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    }
    let (nudges, looks) = (settings.nudge.0.subscribe(), [context.look_now.clone(), functions.poll_now.clone()]);
    tasks.spawn(pass_on(nudges, looks, stop.clone()));
    tasks.spawn(sweep(context.source.clone(), stop.clone()));
    if let Some(admit) = &settings.admit {
        let registration = Registration {
            namespace: settings.namespace.clone(),
            names: admit.names(&settings.namespace),
            lifetimes: admit.lifetimes,
            with_functions,
        };
        let leading = admission::lead(registration, cluster.clone(), stop.clone());
        tasks.spawn(async move {
            leading.await;
            Ok(())
        });
    }
    let keys = ssh_keys::make(cluster.clone(), settings.namespace.clone(), stop.clone());
    let installed = bootstrap::create(cluster.clone(), settings.namespace.clone(), stop.clone());
    let nats = nats_login::make(cluster.clone(), stop.clone());
    let with_events = settings.components.has(Component::Eventing);
    tasks.spawn(async move {
        tokio::join!(keys, installed, async {
            if with_events {
                nats.await;
            }
        });
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
    // Running tasks are cancelled. Every write can be repeated, but no write may follow the end of a term.
    tasks.shutdown().await;
    result
}

/// Creates writers and drift detection for remote clusters, while they are used.
fn other_clusters(
    writer: Writer,
    notifier: Notifier,
    liveness: Liveness,
    audit: Duration,
    stop: CancellationToken,
) -> impl Fn(Cluster) -> Begun + Send + Sync + 'static {
    move |cluster| {
        let component = liveness.component("reverting drift in another cluster");
        let notifier = notifier.clone();
        // No Event is sent, because Events about objects of the remote cluster would refer to objects that this cluster
        // does not have.
        let notify = move |said: &Announcement<'_>| notifier.notify(&Announcement { object: None, ..*said });
        let (writer, follow_ups) = writer.beside(cluster, component, notify);
        let (drift, over, end) = (Drift::new(writer.clone()), CancellationToken::new(), stop.clone());
        let ended = over.clone().drop_guard();
        let running = tokio::spawn(async move {
            let _ended = ended;
            let auditing = drift.clone().audit(audit, end.clone());
            let ran = tokio::select! {
                ran = drift.run(follow_ups, end) => ran,
                () = auditing => return,
            };
            if let Err(error) = ran {
                tracing::error!(why = chain(&error), "the work in another cluster restarts");
            }
        });
        Begun { writer, running: Box::new(AbortOnDropHandle::new(running)), over }
    }
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

/// Returns the tools for kustomizations and charts: in the renderer, or found on the PATH.
fn renderers(settings: &Settings) -> (Kustomize, Helm) {
    let path = std::env::var_os("PATH");
    let kustomize = match &settings.renderer {
        Some(shared) => Kustomize::in_renderer(shared),
        None => Kustomize::new(path.as_deref(), settings.source.directory.join(RENDERED)),
    };
    let kept = settings.source.directory.join(KEPT_RENDERS);
    let kustomize = kustomize.showing(settings.words).keeping(kept, path.as_deref());
    let helm = Helm::beside(&kustomize, path.as_deref());
    (kustomize, helm)
}
