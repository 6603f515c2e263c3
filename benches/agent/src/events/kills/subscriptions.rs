//! The namespaces and their Subscriptions.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::json;

use super::tenant::{SUBSCRIBER, Tenant};
use crate::{Error, events::publisher::TYPE, stand::MANAGER};

/// Deadline until they are ready.
const DEADLINE: Duration = Duration::from_mins(5);
/// Interval of reads.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of concurrent deliveries of a dispatcher to a subscriber.
const IN_FLIGHT: u32 = 50;

fn subscriptions(client: &Client, tenant: Tenant) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("eventing.kyma-project.io", "v1alpha1", "Subscription");
    Api::namespaced_with(client.clone(), tenant.namespace(), &ApiResource::from_gvk(&kind))
}

/// Creates a namespace with a Subscription for each tenant.
pub(super) async fn create(client: &Client) -> Result<(), Error> {
    let how = PatchParams::apply(MANAGER).force();
    let exact = |property: &str, value: &str| json!({"property": property, "type": "exact", "value": value});
    let filter = json!({"filters": [{"eventSource": exact("source", ""), "eventType": exact("type", TYPE)}]});
    for tenant in Tenant::ALL {
        let name = tenant.namespace();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.patch(name, &how, &Patch::Apply(&namespace)).await.map_err(Error::Ask)?;
        let sink = format!("http://{SUBSCRIBER}.{name}.svc.cluster.local");
        let object = json!({
            "apiVersion": "eventing.kyma-project.io/v1alpha1", "kind": "Subscription", "metadata": {"name": SUBSCRIBER},
            "spec": {"sink": sink, "filter": filter, "config": {"maxInFlightMessages": IN_FLIGHT}},
        });
        subscriptions(client, tenant).patch(SUBSCRIBER, &how, &Patch::Apply(&object)).await.map_err(Error::Ask)?;
    }
    Ok(())
}

/// Waits until all are ready. Events that are accepted after that reach them.
pub(super) async fn until_ready(client: &Client) -> Result<(), Error> {
    let begun = Instant::now();
    for tenant in Tenant::ALL {
        let all = subscriptions(client, tenant);
        while all.get(SUBSCRIBER).await.map_err(Error::Ask)?.data["status"]["ready"] != true {
            if begun.elapsed() > DEADLINE {
                return Err(Error::NotReady { what: "Subscriptions", seconds: DEADLINE.as_secs() });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}
