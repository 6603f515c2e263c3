//! Watches APIRules and runs a task for each, once the cluster serves the kind.

use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::functions::is_defined;
use super::kept::Name;
use super::notify::Notifier;
use super::tasks::{Input, Tasks, Work};
use mainstay_api::ApiRule;
use mainstay_cluster::{Cluster, Kind};
use mainstay_engine::apply::Writer;
use mainstay_exposure::Context;
use mainstay_object::Owner;

/// Watches APIRules until `stop`, or until a task panics, and runs a task for each.
pub(super) async fn follow(
    context: Arc<Context>,
    notifier: Notifier,
    cluster: Cluster,
    stop: CancellationToken,
) -> Result<(), JoinError> {
    if !is_defined(&mainstay_exposure::api_rules(), &cluster, || {}, &stop).await {
        return Ok(());
    }
    let mut others = JoinSet::new();
    others.spawn(mainstay_exposure::watch(Arc::clone(&context), stop.clone()));
    Tasks::new(ApiRules { context }, notifier, others, stop).run(&cluster).await
}

struct ApiRules {
    context: Arc<Context>,
}

impl Work for ApiRules {
    type Object = ApiRule;

    fn kind(&self) -> Kind {
        mainstay_exposure::api_rules()
    }

    fn owner(&self, (namespace, name): &Name) -> Owner {
        Owner::api_rule(namespace, name)
    }

    fn writer(&self) -> &Writer {
        self.context.writer()
    }

    const CONDITION: &str = "Exposed";

    fn run(
        &self,
        (namespace, name): Name,
        input: Input<ApiRule>,
        (stop, _): (CancellationToken, CancellationToken),
    ) -> impl Future<Output = ()> + Send + 'static {
        mainstay_exposure::run(Arc::clone(&self.context), namespace, name, input, stop)
    }
}
