//! Triggers an immediate lookup of Git, as a user would.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    Error,
    stand::{NAMESPACE, Stand},
};
use crate::api::{Function, REQUESTED_AT};

/// Makes the agent look up the remote of a Function immediately instead of within its interval.
pub(super) async fn look_now(stand: &Stand, name: &str) -> Result<(), Error> {
    let api = Api::<Function>::namespaced(stand.client.clone(), NAMESPACE);
    let token = jiff::Timestamp::now().to_string();
    let patch = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop).map_err(Error::Ask)
}
