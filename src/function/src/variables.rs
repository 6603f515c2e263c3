//! Parses settings from environment variables: Mainstay's own, and those of Kyma's Functions that still apply.
//!
//! Invariant: an invalid variable is reported, never ignored. An empty variable selects the default.

mod config_map;
mod parse;
mod paths;
mod table;
mod unknown;

pub use config_map::WithoutEffect;
pub use table::{VARIABLES, Variable};

use super::executor::{self, Builder};
use super::presets::{Presets, ResourcesPreset};
use super::quantity::Quantity;
use super::{BaseImage, Settings};
use mainstay_api::Amount;
use table::{BUILDER, EXECUTOR_ARGS, EXECUTOR_IMAGE};

/// An invalid variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct InvalidVariable {
    /// Name of the variable.
    pub name: String,
    /// Why the variable is invalid.
    pub why: String,
}

/// Proxy variables of HTTP clients. Builds fetch their source through the agent's proxies.
const PROXIES: [&str; 6] = ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"];

impl Settings {
    /// Returns `base` with the values of these variables. Variables that are not in [`VARIABLES`] may be among them.
    /// Reports all invalid variables.
    pub fn from_env(
        base: Self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Vec<InvalidVariable>> {
        let mut settings = base;
        let mut refused = Vec::new();
        for (name, value) in variables {
            let outcome = match VARIABLES.iter().find(|known| known.name == name) {
                Some(_) if value.is_empty() => Ok(()),
                Some(known) => (known.set)(&mut settings, value.trim()),
                // The value is visible to all readers of Jobs, so a proxy with credentials is not passed on.
                None if PROXIES.contains(&&*name) && !value.is_empty() && !value.contains('@') => {
                    settings.proxies.push((name.clone(), value));
                    Ok(())
                }
                None => unknown::refuse(&name, &value),
            };
            refused.extend(outcome.err().map(|why| InvalidVariable { name, why }));
        }
        refused.extend(incomplete(&settings));
        refused.sort_by(|a, b| a.name.cmp(&b.name));
        if refused.is_empty() { Ok(settings) } else { Err(refused) }
    }
}

/// Returns an error for each default preset that is missing or incomplete. All other presets are completed from the
/// defaults.
fn incomplete(settings: &Settings) -> Vec<InvalidVariable> {
    let refuse = |kind: &str, default: &str, why: &str| InvalidVariable {
        name: format!("WEBHOOK_DEFAULTING_{kind}_DEFAULT_PRESET"),
        why: format!("the preset \"{default}\" {why}"),
    };
    let mut refused = Vec::new();
    match settings.replicas.fallback() {
        None => refused.push(refuse("FUNCTION_REPLICAS", &settings.replicas.default, "does not exist")),
        Some(preset) if preset.min.is_none() || preset.max.is_none() => {
            refused.push(refuse("FUNCTION_REPLICAS", &settings.replicas.default, "has no min or no max"));
        }
        Some(_) => {}
    }
    let all = [("FUNCTION_RESOURCES", &settings.resources), ("BUILD_JOB_RESOURCES", &settings.build_resources)];
    for (kind, presets) in all {
        refused.extend(flaw(presets).map(|why| refuse(kind, &presets.default, &why)));
    }
    if settings.builder == Builder::Kaniko {
        refused.extend(unfit_for_kaniko(settings));
    }
    refused
}

/// Returns why Kaniko cannot build with these settings. Mainstay's own builder ignores these settings, so they are
/// checked here and not when they are parsed.
fn unfit_for_kaniko(settings: &Settings) -> Vec<InvalidVariable> {
    let refuse = |name: &str, why: String| InvalidVariable { name: name.to_owned(), why };
    let mut refused = Vec::new();
    if settings.executor_image.is_none() {
        let why =
            format!("Kaniko needs the image of its executor: name one in {EXECUTOR_IMAGE}, {}", executor::EXAMPLE);
        refused.push(refuse(BUILDER, why));
    }
    let all = settings.executor_args.iter().filter_map(|arg| executor::flaw(arg));
    refused.extend(all.map(|why| refuse(EXECUTOR_ARGS, why)));
    for (runtime, base) in &settings.base_images {
        if !matches!(base, BaseImage::Image(_)) {
            let why = format!("{runtime}: Kaniko builds on images in registries only, and \"{base}\" is not one");
            refused.push(refuse("MAINSTAY_BASE_IMAGES", why));
        }
    }
    refused
}

fn flaw(presets: &Presets<ResourcesPreset>) -> Option<String> {
    let Some(fallback) = presets.fallback() else { return Some("does not exist".to_owned()) };
    let wrong = |amount: &Amount| Quantity::parse(&amount.0).is_none();
    if let Some(amount) = presets.all.values().flat_map(ResourcesPreset::amounts).flatten().find(|a| wrong(a)) {
        return Some(format!("is used with a preset that has \"{amount}\", which is not a quantity"));
    }
    fallback.amounts().iter().any(Option::is_none).then(|| "lacks a request or a limit".to_owned())
}

#[cfg(test)]
mod tests;
