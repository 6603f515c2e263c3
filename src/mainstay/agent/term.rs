//! The work of a leader, from the beginning to the end of its term.
//!
//! Invariant: the end of any task ends the term, with the reason of that task. Invariant: all state is rebuilt for every
//! term. Invariant: no write follows the end of a term. Invariant: an agent with a shard that begins to lead continues its
//! work for GitSyncs; one that ends to lead begins its work again.
//!
//! Not here: the work that only the leader does (`leader`), the election, the listeners, and everything else that outlives
//! a term (`run`).

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::error::Error;
use super::leading::{Change, Leading, Parts};
use super::notify::Notifier;
use super::settings::{Profile, Settings};
use super::shard::{Joined, Shard};
use super::share::Share;
use super::shown::Shown;
use super::{
    artifacts, cloud, functions, host_keys, inputs, installation, notifications, own_tasks, pins, repositories, shard,
};
use crate::Component;
use mainstay_api::{HelmChartSpec, OciRepositorySpec};
use mainstay_cluster::Cluster;
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::secrets::Secrets;
use mainstay_cluster::shards::{self, PushNote};
use mainstay_engine::apply::{Announcement, FollowUps, Writer};
use mainstay_engine::drift::Drift;
use mainstay_engine::managed::kept_within;
use mainstay_engine::notification::Message;
use mainstay_engine::prevention;
use mainstay_function::bindings::Bindings;
use mainstay_git::{Repositories, SharedHostKeys, Source};
use mainstay_gitsync::receiver::Deliveries;
use mainstay_gitsync::{Begun, Context, Rights};
use mainstay_manifest::render::{Helm, Kustomize};
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Directory for building kustomizations and rendering charts, below the directory of the mirrors.
const RENDERED: &str = "render";
/// Directory for the outputs of renders, beside the mirrors.
const KEPT_RENDERS: &str = "kept-renders";

/// The parts of the agent that outlive a term.
pub(super) struct Agent {
    pub(super) settings: Settings,
    pub(super) cluster: Cluster,
    pub(super) notifier: Notifier,
    pub(super) shown: Shown,
    pub(super) deliveries: Arc<Deliveries>,
    pub(super) liveness: Liveness,
    /// Whether the agent is ready, or else why it is not.
    pub(super) ready: watch::Sender<Result<(), String>>,
}

/// Leads until `stop`. With a shard, works for the GitSyncs of this agent, and for all else only if the agent leads.
///
/// # Errors
/// The reason why a task ended.
pub(super) async fn lead(agent: &Agent, shard: Option<&Shard>, stop: CancellationToken) -> Result<(), Error> {
    let Agent { settings, cluster, notifier, liveness, .. } = agent;
    notifier.clear_subjects();
    let component = liveness.component("reverting drift");
    let (writer, follow_ups) = Writer::new(cluster.clone(), component, announcer(notifier));
    writer.limit_memory(kept_within(settings.memory));
    let looking = installation::find(cluster, &settings.namespace, settings.pod.as_deref());
    // The installation must be known before any deletion.
    let Some(installed) = stop.run_until_cancelled(looking).await else { return Ok(()) };
    writer.set_installation(installed);
    let trusted = std::iter::once(&settings.namespace).chain(&settings.allow_namespaces).cloned().collect();
    let leading = Leading::of(shard.map(|shard| &shard.leadership));
    let leads = watch::Sender::new(leading.is_leading());
    let mut term = Term { agent, leads, trusted, stop, tasks: JoinSet::new() };
    let context = term.context(writer);
    let (share, push_note) = shard.map(|shard| term.join(shard, &context)).unzip();
    let drift = term.revert_drift(&context, follow_ups);
    let repositories_known = term.follow_repositories(&context);
    let syncs_known = term.follow_syncs(&context, repositories_known.clone(), share);
    let (functions, bound) = term.functions(&context);
    term.notify(&context);
    term.follow_artifacts(&context);
    term.spawn(pass_on(settings.nudge.0.subscribe(), [context.look_now.clone(), functions.poll_now.clone()]));
    term.spawn(sweep(context.source.clone()));
    let parts = Parts { context, functions, bound, drift, repositories_known, push_note };
    let waiting = if leading.is_leading() {
        term.begin_to_lead(parts);
        None
    } else {
        shard::set_led_elsewhere(&parts.context.secrets);
        functions::are_absent(&parts.functions);
        Some(parts)
    };
    term.finish(syncs_known, leading, waiting).await
}

/// A term of the leader.
pub(super) struct Term<'a> {
    pub(super) agent: &'a Agent,
    /// Whether the agent does the work that is not that of a GitSync.
    pub(super) leads: watch::Sender<bool>,
    /// The namespaces whose GitSyncs may apply everything.
    trusted: BTreeSet<String>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: JoinSet<Result<(), Error>>,
}

impl Term<'_> {
    /// Spawns work that has no end of its own.
    pub(super) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let _ = stop.run_until_cancelled(work).await;
            stop.cancelled().await;
            Ok(())
        });
    }

    /// Spawns work that ends when it sees `stop`.
    pub(super) fn spawn_until_stop(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            work.await;
            Ok(())
        });
    }

    /// Spawns the watch of a kind with its tasks. `component` is its name in the report that it is stuck.
    pub(super) fn spawn_watch(
        &mut self,
        component: &'static str,
        watch: impl Future<Output = Result<(), JoinError>> + Send + 'static,
    ) {
        let component = self.agent.liveness.component(component);
        self.tasks.spawn(async move { component.track_loop(watch).await.map_err(Error::Task) });
    }

    /// Returns the parts that all GitSyncs share.
    fn context(&self, writer: Writer) -> Arc<Context> {
        let Agent { settings, notifier, liveness, .. } = self.agent;
        let rights = Rights {
            trusted: self.trusted.iter().cloned().collect(),
            default_service_account: settings.default_service_account.clone(),
            requires_account: settings.profile == Profile::Restricted,
            namespaces: settings.scope(),
        };
        let source =
            Source::new(cloud::with_identities(self.confined(), self.trusted.iter().cloned(), &self.agent.cluster));
        source.set_host_keys(SharedHostKeys::Unknown(None));
        let secrets = Arc::new(Secrets::default());
        if settings.components.has(Component::Functions) {
            secrets.set_everywhere(settings.functions.purposes());
        }
        Arc::new(Context::new(
            writer.clone(),
            source,
            Arc::new(Repositories::default()),
            secrets,
            rights,
            renderers(settings),
            liveness.component("reconciling GitSyncs"),
            announcer(notifier),
            other_clusters(writer, self.agent, self.stop.clone()),
        ))
    }

    /// Returns the settings for Git with egress rules: users of confined namespaces choose the hosts that the agent
    /// connects to.
    fn confined(&self) -> mainstay_git::Settings {
        let mut source = self.agent.settings.source.clone();
        source.egress.unconfined.get_or_insert_with(|| self.trusted.iter().cloned().collect());
        source
    }

    /// Follows the other agents that share the GitSyncs. Returns the share of this agent, and the channel for pushes
    /// that it receives.
    fn join(&mut self, shard: &Shard, context: &Arc<Context>) -> (Share, watch::Sender<PushNote>) {
        let Agent { settings, cluster, shown, .. } = self.agent;
        let Joined { share, push_note, received, followed } = shard.join(settings, cluster, Arc::clone(&shown.share));
        self.spawn_until_stop(shards::follow(followed, self.stop.clone()));
        self.spawn(shard::hear(received, Arc::clone(context)));
        (share, push_note)
    }

    /// Watches Secrets and managed objects, and reverts drift.
    fn revert_drift(&mut self, context: &Arc<Context>, follow_ups: FollowUps) -> Drift {
        let drift = Drift::new(context.writer.clone());
        let watching = Arc::clone(&context.secrets).run(self.agent.cluster.clone(), self.stop.clone());
        self.tasks.spawn(async move { watching.await.map_err(Error::Task) });
        let (end, running) = (self.stop.clone(), drift.clone());
        let component = self.agent.liveness.component("the drift loop");
        self.tasks.spawn(async move { component.track_loop(running.run(follow_ups, end)).await.map_err(Error::Drift) });
        self.spawn_until_stop(drift.clone().audit(self.agent.settings.audit, self.stop.clone()));
        let prevention = Arc::clone(&context.prevention);
        self.spawn_until_stop(prevention::keep(prevention, context.writer.clone(), self.stop.clone()));
        drift
    }

    /// Watches GitRepositories, and keeps their host keys. The returned value is true once they are listed.
    fn follow_repositories(&mut self, context: &Context) -> watch::Receiver<bool> {
        let Agent { settings, cluster, notifier, .. } = self.agent;
        let (source, repositories) = (context.source.clone(), Arc::clone(&context.repositories));
        let stop = self.stop.clone();
        self.spawn_until_stop(host_keys::follow(
            source.clone(),
            cluster.clone(),
            settings.namespace.clone(),
            stop.clone(),
        ));
        let requests: mpsc::Receiver<_> = source.host_keys_to_pin();
        self.spawn_until_stop(pins::keep(
            requests,
            source.clone(),
            Arc::clone(&repositories),
            cluster.clone(),
            stop.clone(),
        ));
        let (seen, known) = watch::channel(false);
        let secrets = Arc::clone(&context.secrets);
        let kept = repositories::Kept::new(
            Arc::clone(&repositories),
            Arc::clone(&secrets),
            context.writer.clone(),
            notifier.clone(),
        );
        self.spawn_until_stop(repositories::follow(kept, seen, stop));
        known
    }

    /// Watches GitSyncs, and works for those of this agent. The returned value is true once they are listed.
    fn follow_syncs(
        &mut self,
        context: &Arc<Context>,
        repositories_known: watch::Receiver<bool>,
        share: Option<Share>,
    ) -> watch::Receiver<bool> {
        let Agent { cluster, notifier, .. } = self.agent;
        let (seen, known) = watch::channel(false);
        let following = inputs::syncs(
            Arc::clone(context),
            notifier.clone(),
            cluster.clone(),
            repositories_known,
            (seen, share),
            self.stop.clone(),
        );
        self.spawn_watch("the watch of GitSyncs", following);
        known
    }

    /// Returns the parts that all Functions share.
    fn functions(&self, context: &Arc<Context>) -> (Arc<mainstay_function::Context>, Arc<Bindings>) {
        let Agent { settings, notifier, shown, liveness, .. } = self.agent;
        let bound = Arc::new(Bindings::new(liveness.component("reconciling ServiceBindingUsages")));
        let functions = Arc::new(mainstay_function::Context::new(
            context.writer.clone(),
            context.source.clone(),
            Arc::clone(&context.repositories),
            Arc::clone(&context.secrets),
            Arc::clone(&bound),
            settings.functions.clone(),
            settings.namespace.clone(),
            liveness.component("reconciling Functions"),
            announcer(notifier),
        ));
        shown.set(Some((Arc::clone(context), Arc::clone(&functions))));
        (functions, bound)
    }

    /// Watches Providers and Alerts, and sends notifications.
    fn notify(&mut self, context: &Context) {
        let notifications = notifications::Context {
            cluster: self.agent.cluster.clone(),
            secrets: Arc::clone(&context.secrets),
            source: context.source.clone(),
            notifier: self.agent.notifier.clone(),
            trusted: self.trusted.clone(),
            leads: self.leads.subscribe(),
        };
        let following = notifications::follow(Arc::new(notifications), self.stop.clone());
        self.spawn_watch("the watch of Providers and Alerts", following);
    }

    /// Watches OCIRepositories and HelmCharts.
    fn follow_artifacts(&mut self, context: &Context) {
        let artifacts = Arc::new(artifacts::Context {
            cluster: self.agent.cluster.clone(),
            secrets: Arc::clone(&context.secrets),
            source: context.source.clone(),
            repositories: Arc::clone(&context.repositories),
            notifier: self.agent.notifier.clone(),
            leads: self.leads.subscribe(),
        });
        let following = own_tasks::follow::<OciRepositorySpec>(Arc::clone(&artifacts), self.stop.clone());
        self.spawn_watch("the watch of OCIRepositories", following);
        let following = own_tasks::follow::<HelmChartSpec>(artifacts, self.stop.clone());
        self.spawn_watch("the watch of HelmCharts", following);
    }

    /// Waits for the end of the term, and begins to lead with the `waiting` parts meanwhile. The agent is ready once all
    /// GitSyncs are known.
    async fn finish(
        mut self,
        mut syncs_known: watch::Receiver<bool>,
        mut leading: Leading,
        mut waiting: Option<Parts>,
    ) -> Result<(), Error> {
        let mut is_announced = false;
        let result = loop {
            tokio::select! {
                () = self.stop.cancelled() => break Ok(()),
                change = leading.change() => match (change, waiting.take()) {
                    (Change::Begun, Some(parts)) => self.begin_to_lead(parts),
                    // The work begins again without that of the leader.
                    (Change::Begun | Change::Ended, _) => break Ok(()),
                },
                changed = syncs_known.wait_for(|known| *known), if !is_announced => {
                    is_announced = changed.is_ok();
                    let _ = self.agent.ready.send_replace(Ok(()));
                }
                Some(ended) = self.tasks.join_next() => break ended.map_err(Error::Task).and_then(|ended| ended),
            }
        };
        self.agent.shown.set(None);
        self.agent.deliveries.set(None);
        // Running tasks are cancelled. Every write can be repeated, but no write may follow the end of a term.
        self.tasks.shutdown().await;
        result
    }
}

/// Returns the function that reports messages about objects.
fn announcer(notifier: &Notifier) -> impl Fn(&Announcement<'_>) + Send + Sync + use<> {
    let notifier = notifier.clone();
    move |announcement| notifier.notify(announcement)
}

/// Returns the function that reports messages about owners.
pub(super) fn emitter(notifier: &Notifier) -> impl Fn(&Owner, &Message) + Send + Sync + use<> {
    let announce = announcer(notifier);
    move |owner, message| announce(&Announcement { owner, object: None, message })
}

/// Creates writers and drift detection for remote clusters, while they are used.
fn other_clusters(
    writer: Writer,
    agent: &Agent,
    stop: CancellationToken,
) -> impl Fn(Cluster) -> Begun + Send + Sync + use<> {
    let (notifier, liveness, audit) = (agent.notifier.clone(), agent.liveness.clone(), agent.settings.audit);
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
async fn sweep(source: Source) {
    let mirrors = source.sweep().await;
    if mirrors > 0 {
        tracing::info!(mirrors, "removed mirrors of remotes that are not used any more");
    }
}

async fn pass_on(mut nudges: watch::Receiver<u64>, looks: [watch::Sender<u64>; 2]) {
    while nudges.changed().await.is_ok() {
        for look in &looks {
            look.send_modify(|count| *count += 1);
        }
    }
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
