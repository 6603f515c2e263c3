//! Where the images of a Function are kept: what the registry Secrets of its namespace say.

use super::stage::Repository;
use super::{ResolvedFunction, Settings};
use crate::registry;
use crate::secrets::Known;

/// The repository, by what is known of the external registry's Secret and of the default one's, or why there is none.
pub(super) fn choose(
    settings: &Settings,
    external: &Known,
    default: &Known,
    function: &ResolvedFunction,
) -> Result<Repository, String> {
    let names = [&settings.external_registry_secret, &settings.default_registry_secret];
    for (name, known) in names.into_iter().zip([external, default]) {
        // Until it is known that there is none, the other one is not taken for it.
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
