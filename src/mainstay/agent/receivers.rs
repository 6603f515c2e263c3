//! Watches Receivers and runs a task for each, once the cluster serves the kind.

use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::functions::is_defined;
use super::kept::Name;
use super::notify::Notifier;
use super::tasks::{Input, Tasks, Work};
use mainstay_api::Receiver;
use mainstay_cluster::secrets::{Referrer, SecretReferences as _};
use mainstay_cluster::{Cluster, Kind};
use mainstay_engine::apply::Writer;
use mainstay_gitsync::receiver::{self, Context};
use mainstay_object::Owner;

/// Watches Receivers until `stop`, or until a task panics, and runs a task for each.
pub(super) async fn follow(
    context: Arc<Context>,
    writer: Writer,
    notifier: Notifier,
    cluster: Cluster,
    stop: CancellationToken,
) -> Result<(), JoinError> {
    let absent = || {
        context.all_registered();
        context.secrets().set_listed(Referrer::Receiver);
    };
    if !is_defined(&receiver::receivers(), &cluster, absent, &stop).await {
        return Ok(());
    }
    Tasks::new(Receivers { context, writer }, notifier, JoinSet::new(), stop).run(&cluster).await
}

struct Receivers {
    context: Arc<Context>,
    writer: Writer,
}

impl Work for Receivers {
    type Object = Receiver;

    fn kind(&self) -> Kind {
        receiver::receivers()
    }

    fn owner(&self, (namespace, name): &Name) -> Owner {
        Owner::receiver(namespace, name)
    }

    fn writer(&self) -> &Writer {
        &self.writer
    }

    fn see(&self, (namespace, name): &Name, receiver: Option<&Receiver>) {
        let references = receiver.map(|one| one.spec.secret_references()).unwrap_or_default();
        self.context.secrets().set_references(namespace, (Referrer::Receiver, name), references);
    }

    fn enter(&self, owner: &Owner, _: &Name) {
        self.context.register(owner);
    }

    fn complete(&self) {
        self.context.all_registered();
        self.context.secrets().set_listed(Referrer::Receiver);
    }

    fn run(
        &self,
        (namespace, name): Name,
        input: Input<Receiver>,
        (stop, _): (CancellationToken, CancellationToken),
    ) -> impl Future<Output = ()> + Send + 'static {
        receiver::run(Arc::clone(&self.context), namespace, name, input, stop)
    }
}
