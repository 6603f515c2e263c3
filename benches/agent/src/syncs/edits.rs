//! Manual edits of the objects of a GitSync.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use super::{Error, load::Load};
use crate::api::SYNC_LABEL;

/// The kind of edit.
#[derive(Clone, Copy)]
pub(super) enum Blow {
    Edit,
    Delete,
    Unlabel,
}

/// Deadline of a revert.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// Edits an object. Returns the time of the server's response.
pub(super) async fn edit(api: &Api<ConfigMap>, name: &str) -> Result<Instant, Error> {
    merge(api, name, json!({ "data": { "revision": "edited by hand" } })).await
}

/// Applies an edit to an object. Returns the time of the server's response.
pub(super) async fn strike(api: &Api<ConfigMap>, blow: Blow, number: usize) -> Result<Instant, Error> {
    let name = Load::name(number);
    match blow {
        Blow::Edit => edit(api, &name).await,
        Blow::Unlabel => merge(api, &name, json!({ "metadata": { "labels": { SYNC_LABEL: null } } })).await,
        Blow::Delete => {
            api.delete(&name, &DeleteParams::default()).await.map_err(Error::Ask)?;
            Ok(Instant::now())
        }
    }
}

async fn merge(api: &Api<ConfigMap>, name: &str, patch: serde_json::Value) -> Result<Instant, Error> {
    let by = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    api.patch(name, &by, &Patch::Merge(&patch)).await.map_err(Error::Ask)?;
    Ok(Instant::now())
}
