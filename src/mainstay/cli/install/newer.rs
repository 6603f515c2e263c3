//! Functions in `v1alpha2`: the changes of the component `manifests/v1alpha2` to the CRD of Function, and the
//! permissions of that component.

use serde::Deserialize;
use serde_json::Value;

use crate::cli::Error;
use mainstay_api::names;

/// The permissions for writing the CA bundle of the conversion webhook.
pub(super) const RBAC: &str = include_str!("../../../../manifests/v1alpha2/rbac.yaml");
const COMPONENT: &str = include_str!("../../../../manifests/v1alpha2/kustomization.yaml");

#[derive(Deserialize)]
struct Component {
    patches: Vec<Patch>,
}

#[derive(Deserialize)]
struct Patch {
    patch: String,
}

/// Applies the component's patches to the CRD of Function. Other CRDs are unchanged.
pub(super) fn serve(definition: &mut Value) -> Result<(), Error> {
    if definition["metadata"]["name"] != names::FUNCTION_DEFINITION {
        return Ok(());
    }
    let component: Component = serde_yaml::from_str(COMPONENT).map_err(Error::WriteYaml)?;
    for Patch { patch } in component.patches {
        let patch: json_patch::Patch = serde_yaml::from_str(&patch).map_err(Error::WriteYaml)?;
        json_patch::patch(definition, &patch).map_err(Error::Component)?;
    }
    Ok(())
}
