//! The work that only the leader does. With shards, it begins beside the work for the agent's GitSyncs.
//!
//! Not here: when the agent leads (`leading`), and the end of its work (`term`).

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::leading::Parts;
use super::serverless::Serverless;
use super::term::{Agent, Term, emitter};
use super::{
    api_rules, bootstrap, functions, images, leader_label, nats_login, own_tasks, receivers, repositories, shard,
    ssh_keys,
};
use crate::Component;
use mainstay_api::{ImagePolicySpec, ImageRepositorySpec, ImageUpdateAutomationSpec};
use mainstay_cluster::shards::PushNote;
use mainstay_function::admission::{self, Registration};
use mainstay_gitsync::Context;
use mainstay_gitsync::receiver;

impl Term<'_> {
    /// Begins the work of the leader.
    pub(super) fn begin_to_lead(&mut self, parts: Parts) {
        // Invariant: no task of the leader reads a Secret before the kinds that may exclude its use are listed.
        shard::set_led_here(&parts.context.secrets);
        self.leads.send_replace(true);
        self.keep_repository_statuses(&parts.context);
        self.follow_functions(&parts);
        let Parts { context, push_note, .. } = parts;
        if let Some(push_note) = &push_note {
            // The notes of the former leader count as older.
            push_note.send_replace(PushNote::begin(Timestamp::now()));
        }
        self.follow_images(&context);
        self.receive(&context, push_note);
        self.expose(&context);
        self.register_webhooks();
        self.prepare_installation();
    }

    /// Keeps the statuses of GitRepositories.
    fn keep_repository_statuses(&mut self, context: &Context) {
        let statuses = mainstay_gitsync::repository::Context {
            source: context.source.clone(),
            repositories: Arc::clone(&context.repositories),
            secrets: Arc::clone(&context.secrets),
            cluster: self.agent.cluster.clone(),
            kind: Arc::new(repositories::git_repositories()),
        };
        self.spawn_until_stop(mainstay_gitsync::repository::keep(statuses, self.stop.clone()));
    }

    /// Watches Functions if the agent has that component.
    fn follow_functions(&mut self, parts: &Parts) {
        let Agent { settings, cluster, notifier, shown, liveness, .. } = self.agent;
        if !settings.components.has(Component::Functions) {
            return functions::are_absent(&parts.functions);
        }
        let serverless = Serverless {
            namespace: &settings.namespace,
            cluster,
            notifier,
            shown,
            liveness,
            functions: &parts.functions,
            writer: &parts.context.writer,
        };
        let (bound, drift, known) = (Arc::clone(&parts.bound), parts.drift.clone(), parts.repositories_known.clone());
        serverless.spawn(bound, drift, known, &mut self.tasks, &self.stop);
    }

    /// Watches ImageRepositories, ImagePolicies and ImageUpdateAutomations.
    fn follow_images(&mut self, context: &Context) {
        let images = Arc::new(images::Context::new(
            self.agent.cluster.clone(),
            Arc::clone(&context.secrets),
            (context.source.clone(), Arc::clone(&context.repositories)),
            self.agent.notifier.clone(),
        ));
        let following = own_tasks::follow::<ImageUpdateAutomationSpec>(Arc::clone(&images), self.stop.clone());
        self.spawn_watch("the watch of ImageUpdateAutomations", following);
        let following = own_tasks::follow::<ImageRepositorySpec>(Arc::clone(&images), self.stop.clone());
        self.spawn_watch("the watch of ImageRepositories", following);
        let following = own_tasks::follow::<ImagePolicySpec>(images, self.stop.clone());
        self.spawn_watch("the watch of ImagePolicies", following);
    }

    /// Watches Receivers, and takes their deliveries. `push_note` passes pushes on to other agents.
    fn receive(&mut self, context: &Context, push_note: Option<watch::Sender<PushNote>>) {
        let Agent { settings, cluster, notifier, deliveries, liveness, .. } = self.agent;
        let hooks = receiver::Context::new(
            cluster.clone(),
            Arc::clone(&context.secrets),
            context.source.clone(),
            Arc::clone(&context.repositories),
            settings.receive.as_ref().map(|receive| receive.base.clone()),
            liveness.component("reconciling Receivers"),
            emitter(notifier),
        );
        let hooks = Arc::new(match push_note {
            Some(push_note) => hooks
                .ringing(move |namespace, source| push_note.send_modify(|push_note| push_note.ring(namespace, source))),
            None => hooks,
        });
        deliveries.set(Some(Arc::clone(&hooks)));
        if let (Some(pod), Some(_)) = (&settings.pod, &settings.receive) {
            let (namespace, pod) = (settings.namespace.clone(), pod.clone());
            self.spawn_until_stop(leader_label::keep(cluster.clone(), namespace, pod, self.stop.clone()));
        } else if settings.receive.as_ref().is_some_and(|receive| receive.base.known().is_none()) {
            // An agent with a configured URL may run outside of the cluster, where the Service does not route to it.
            tracing::warn!(
                "the name of this pod is not known, so it gets no label, and deliveries do not arrive through the Service; \
                 set MAINSTAY_POD"
            );
        }
        let writer = context.writer.clone();
        let following = receivers::follow(hooks, writer, notifier.clone(), cluster.clone(), self.stop.clone());
        self.spawn_watch("the watch of Receivers", following);
    }

    /// Watches APIRules if the agent has that component.
    fn expose(&mut self, context: &Context) {
        let Agent { settings, cluster, notifier, liveness, .. } = self.agent;
        if !settings.components.has(Component::Exposure) {
            return;
        }
        let exposed = mainstay_exposure::Context::new(
            context.writer.clone(),
            settings.exposure.clone(),
            liveness.component("reconciling APIRules"),
            emitter(notifier),
        );
        let following = api_rules::follow(Arc::new(exposed), notifier.clone(), cluster.clone(), self.stop.clone());
        self.spawn_watch("the watch of APIRules", following);
    }

    /// Keeps the configurations of the admission webhooks, if the agent serves them.
    fn register_webhooks(&mut self) {
        let Agent { settings, cluster, .. } = self.agent;
        let Some(admit) = &settings.admit else { return };
        let registration = Registration {
            namespace: settings.namespace.clone(),
            names: admit.names(&settings.namespace),
            lifetimes: admit.lifetimes,
            with_functions: settings.components.has(Component::Functions),
        };
        self.spawn_until_stop(admission::lead(registration, cluster.clone(), self.stop.clone()));
    }

    /// Makes the keys and logins that `mainstay install` requests, and creates its first GitSync.
    fn prepare_installation(&mut self) {
        let Agent { settings, cluster, .. } = self.agent;
        let keys = ssh_keys::make(cluster.clone(), settings.namespace.clone(), self.stop.clone());
        let installed = bootstrap::create(cluster.clone(), settings.namespace.clone(), self.stop.clone());
        let nats = nats_login::make(cluster.clone(), self.stop.clone());
        let with_events = settings.components.has(Component::Eventing);
        self.spawn_until_stop(async move {
            tokio::join!(keys, installed, async {
                if with_events {
                    nats.await;
                }
            });
        });
    }
}
