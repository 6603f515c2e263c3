//! Chooses the image repository of a Function from the registry Secrets of its namespace.

use super::stage::Repository;
use super::{ResolvedFunction, Settings};
use crate::registry;
use crate::secrets::Known;

/// The repository according to the external registry's Secret, else the default one's; or why there is none.
pub(super) fn choose(
    settings: &Settings,
    external: &Known,
    default: &Known,
    function: &ResolvedFunction,
) -> Result<Repository, String> {
    let names = [&settings.external_registry_secret, &settings.default_registry_secret];
    for (name, known) in names.into_iter().zip([external, default]) {
        // While it is unknown whether the external one exists, the default one is not used.
        if let (false, Some((_, problem))) = (matches!(known, Known::Absent), known.problem()) {
            return Err(format!("Secret \"{name}\" {problem}"));
        }
    }
    let chosen = registry::choose(external.data(), default.data()).map_err(|problem| problem.to_string())?;
    let secret = if external.data().is_some() { names[0] } else { names[1] };
    let repository = |address: &registry::Address| {
        let image = address.image(&function.namespace, &function.name, "latest");
        image.map(|image| format!("{}/{}", image.registry, image.repository)).map_err(|error| error.to_string())
    };
    Ok(Repository { push: repository(&chosen.push)?, pull: repository(&chosen.pull)?, secret: secret.clone() })
}
