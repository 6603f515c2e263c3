//! Where the images of a Function are kept: what the registry Secrets of its namespace say.

use super::ResolvedFunction;
use super::context::Context;
use super::secret::Known;
use super::stage::Repository;
use crate::registry;

/// The repository, or why there is none.
pub(super) async fn choose(context: &Context, function: &ResolvedFunction) -> Result<Repository, String> {
    let settings = &context.settings;
    let (external, default) = (&settings.external_registry_secret, &settings.default_registry_secret);
    let mut known = Vec::new();
    for name in [external, default] {
        match context.secrets.known(&function.namespace, name).await {
            // Until it is known that there is none, the other one is not taken for it.
            Known::Nothing => return Err(format!("Secret \"{name}\" cannot be read yet")),
            one => known.push(one),
        }
    }
    let chosen = registry::choose(known[0].data(), known[1].data()).map_err(|problem| problem.to_string())?;
    let secret = if known[0].data().is_some() { external } else { default };
    let repository = |address: &registry::Address| {
        let image = address.image(&function.namespace, &function.name, "latest");
        image.map(|image| format!("{}/{}", image.registry, image.repository)).map_err(|error| error.to_string())
    };
    Ok(Repository { push: repository(&chosen.push)?, pull: repository(&chosen.pull)?, secret: secret.clone() })
}
