//! Applies the same objects by a bare client: the limit that the agent is compared with.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Error,
    load::{Load, objects},
};

/// Number of connections, as many as the agent's.
const CONNECTIONS: usize = 32;
/// Namespace of the client's objects.
const NAMESPACE: &str = "mainstay-bench-bare";
const MANAGER: &str = "bare-client";

/// Applies the objects of this many GitSyncs, each at a revision. Returns the time until the last response.
pub(super) async fn apply_all(client: &Client, count: usize, revision: &str) -> Result<Duration, Error> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    apply(client, &namespace, false).await?;
    let all: Vec<Value> = (0..count).flat_map(|number| objects(&Load::name(number), revision)).collect();
    let start = Instant::now();
    let applies = stream::iter(&all).map(|object| apply(client, object, true));
    applies.buffer_unordered(CONNECTIONS).try_for_each(|()| std::future::ready(Ok(()))).await?;
    Ok(start.elapsed())
}

async fn apply(client: &Client, object: &Value, is_namespaced: bool) -> Result<(), Error> {
    let of = |field: &str| object[field].as_str().unwrap_or_default();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", of("apiVersion"), of("kind")));
    let api = if is_namespaced {
        Api::<DynamicObject>::namespaced_with(client.clone(), NAMESPACE, &kind)
    } else {
        Api::all_with(client.clone(), &kind)
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let how = PatchParams::apply(MANAGER).force();
    api.patch(name, &how, &Patch::Apply(object)).await.map(drop).map_err(Error::Ask)
}
