//! Functions in `v1alpha2`: what the component `manifests/v1alpha2` makes of their definition, and the rights that this takes.

use serde::Deserialize;
use serde_json::Value;

use crate::cli::Error;
use mainstay_api::names;

/// Who may write whom API servers trust about conversions.
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

/// The definition as the component has it; others stay as they are.
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
