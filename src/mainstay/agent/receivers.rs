//! Watches Receivers and runs a task for each, once the cluster serves the kind.

use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::functions::is_defined;
use super::kept::Name;
use super::notify::Notifier;
use super::tasks::{Input, Tasks, Work};
use mainstay_api::Receiver;
use mainstay_cluster::secrets::{Namer, Names as _};
use mainstay_cluster::{Cluster, Kind};
use mainstay_engine::apply::Writer;
use mainstay_gitsync::receiver::{self, Context};
use mainstay_object::Owner;

/// Name of the CustomResourceDefinition of Receivers.
const DEFINITION: &str = "receivers.mainstay.dev";

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
        context.secrets().set_listed(Namer::Receiver);
    };
    if !is_defined(DEFINITION, &cluster, absent, &stop).await {
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
        let named = receiver.map(|one| one.spec.secrets()).unwrap_or_default();
        self.context.secrets().name(namespace, (Namer::Receiver, name), named);
    }

    fn enter(&self, owner: &Owner, _: &Name) {
        self.context.register(owner);
    }

    fn complete(&self) {
        self.context.all_registered();
        self.context.secrets().set_listed(Namer::Receiver);
    }

    fn run(
        &self,
        (namespace, name): Name,
        input: Input<Receiver>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        receiver::run(Arc::clone(&self.context), namespace, name, input, stop)
    }
}
