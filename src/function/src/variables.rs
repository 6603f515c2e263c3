//! Parses settings from environment variables: Mainstay's own, and those of Kyma's Functions that still apply.
//!
//! Invariant: an invalid variable is reported, never ignored. An empty one selects the default.

mod config_map;
mod paths;
mod unknown;

pub use config_map::WithoutEffect;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::de::DeserializeOwned;

use super::executor::{self, Builder};
use super::pod_keys::{self, PodKeys};
use super::presets::{Presets, ResourcesPreset};
use super::quantity::Quantity;
use super::settings::SecretKey;
use super::{BaseImage, Settings};
use crate::runtimes;
use mainstay_api::{Amount, Span};
use mainstay_object::cron::Cron;
use mainstay_object::syntax;

/// An invalid variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct InvalidVariable {
    /// Name of the variable.
    pub name: String,
    /// Why it is invalid.
    pub why: String,
}

/// Sets a variable's value in the settings, or returns why it is invalid.
type Set = fn(&mut Settings, &str) -> Result<(), String>;

/// Minimum deadline of a build. Jobs measure their deadline in whole seconds.
const SHORTEST_DEADLINE: Duration = Duration::from_secs(1);
/// Minimum lifetime of a finished Job. If its report is deleted too early, the image is unknown and built again.
const SHORTEST_TTL: Duration = Duration::from_secs(60);
/// Minimum grace period. By its end, a build that found its image in the registry has reported it to its Function.
const SHORTEST_GRACE: Duration = Duration::from_secs(2 * 3600);

const BUILDER: &str = "MAINSTAY_BUILDER";
const EXECUTOR_IMAGE: &str = "APP_FUNCTION_BUILD_EXECUTOR_IMAGE";
const EXECUTOR_ARGS: &str = "APP_FUNCTION_BUILD_EXECUTOR_ARGS";

/// All variables, with their setters.
pub const VARIABLES: &[(&str, Set)] = &[
    ("MAINSTAY_BUILDER_IMAGE", |s, v| text(&mut s.builder_image, v)),
    ("MAINSTAY_IMAGE_PULL_SECRET", |s, v| {
        if let Some(words) = syntax::subdomain(v) {
            return Err(format!("\"{v}\" is not the name of a Secret: {words}"));
        }
        text(s.image_pull_secret.get_or_insert_default(), v)
    }),
    ("MAINSTAY_BASE_CA", |s, v| {
        s.base_ca = Some(secret_key(v, "ca.crt")?);
        Ok(())
    }),
    (BUILDER, |s, v| {
        s.builder = v.parse()?;
        Ok(())
    }),
    (EXECUTOR_IMAGE, |s, v| {
        s.executor_image = Some(executor::image(v)?);
        Ok(())
    }),
    (EXECUTOR_ARGS, |s, v| {
        s.executor_args = executor::list(v)?;
        Ok(())
    }),
    ("MAINSTAY_SERVING", |s, v| {
        s.serving = v.parse()?;
        Ok(())
    }),
    ("MAINSTAY_BASE_IMAGES", |s, v| base_images(&mut s.base_images, v)),
    ("MAINSTAY_BASE_SCHEDULE", |s, v| {
        s.base_schedule = Some(Cron::parse(v, TimeZone::UTC)?);
        Ok(())
    }),
    ("MAINSTAY_PLATFORM", |s, v| platform(&mut s.platform, v)),
    ("MAINSTAY_GIT_INTERVAL", |s, v| duration(&mut s.git_interval, v)),
    ("MAINSTAY_BUILD_DEADLINE", |s, v| long_enough(&mut s.build_deadline, v, SHORTEST_DEADLINE)),
    ("MAINSTAY_BUILD_TTL", |s, v| long_enough(&mut s.build_ttl, v, SHORTEST_TTL)),
    ("MAINSTAY_IMAGE_RETENTION", |s, v| {
        s.retention.schedule = if v == "off" { None } else { Some(Cron::parse(v, TimeZone::UTC)?) };
        Ok(())
    }),
    ("MAINSTAY_IMAGE_RETENTION_BUILDS", |s, v| {
        let mut builds = 1_u32;
        at_least_one(&mut builds, v)?;
        s.retention.builds = usize::try_from(builds).unwrap_or(usize::MAX);
        Ok(())
    }),
    ("MAINSTAY_IMAGE_RETENTION_GRACE", |s, v| long_enough(&mut s.retention.grace, v, SHORTEST_GRACE)),
    (pod_keys::SETTING, |s, v| {
        s.pod_keys = PodKeys::parse(v)?;
        Ok(())
    }),
    ("APP_FUNCTION_IMAGE_REGISTRY_DEFAULT_DOCKER_CONFIG_SECRET_NAME", |s, v| text(&mut s.default_registry_secret, v)),
    ("APP_FUNCTION_IMAGE_REGISTRY_EXTERNAL_DOCKER_CONFIG_SECRET_NAME", |s, v| text(&mut s.external_registry_secret, v)),
    ("APP_FUNCTION_PACKAGE_REGISTRY_CONFIG_SECRET_NAME", |s, v| text(&mut s.package_registry_secret, v)),
    ("APP_FUNCTION_IMAGE_PULL_ACCOUNT_NAME", |s, v| text(s.service_account.get_or_insert_default(), v)),
    ("APP_FUNCTION_BUILD_SERVICE_ACCOUNT_NAME", |s, v| text(s.build_service_account.get_or_insert_default(), v)),
    ("APP_FUNCTION_PUBLISHER_PROXY_ADDRESS", |s, v| address(&mut s.publisher, v)),
    ("APP_FUNCTION_TRACE_COLLECTOR_ENDPOINT", |s, v| address(&mut s.trace_collector, v)),
    ("APP_FUNCTION_TARGET_CPU_UTILIZATION_PERCENTAGE", |s, v| at_least_one(&mut s.target_cpu_percentage, v)),
    ("APP_FUNCTION_REQUEUE_DURATION", |s, v| duration(&mut s.requeue, v)),
    ("APP_FUNCTION_GIT_FETCH_REQUEUE_DURATION", |s, v| duration(&mut s.git_fetch_requeue, v)),
    ("APP_FUNCTION_BUILD_MAX_SIMULTANEOUS_JOBS", |s, v| at_least_one(&mut s.max_simultaneous_jobs, v)),
    ("APP_KUBERNETES_EXCLUDED_NAMESPACES", |s, v| {
        s.excluded_namespaces = list(v);
        Ok(())
    }),
    ("WEBHOOK_VALIDATION_RESERVED_ENVS", |s, v| {
        s.reserved_env = list(v);
        Ok(())
    }),
    ("WEBHOOK_VALIDATION_FUNCTION_REPLICAS_MIN_VALUE", |s, v| {
        parsed(&mut s.min_replicas, v, "a whole number of at least 0")?;
        if s.min_replicas < 0 { Err(format!("\"{v}\" is not a whole number of at least 0")) } else { Ok(()) }
    }),
    ("WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_CPU", |s, v| amount(&mut s.min_resources.cpu, v)),
    ("WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_MEMORY", |s, v| amount(&mut s.min_resources.memory, v)),
    ("WEBHOOK_VALIDATION_BUILD_JOB_RESOURCES_MIN_REQUEST_CPU", |s, v| amount(&mut s.min_build_resources.cpu, v)),
    ("WEBHOOK_VALIDATION_BUILD_JOB_RESOURCES_MIN_REQUEST_MEMORY", |s, v| amount(&mut s.min_build_resources.memory, v)),
    ("WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_DEFAULT_PRESET", |s, v| text(&mut s.replicas.default, v)),
    ("WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_PRESETS_MAP", |s, v| map(&mut s.replicas.all, v)),
    ("WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_DEFAULT_PRESET", |s, v| text(&mut s.resources.default, v)),
    ("WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_PRESETS_MAP", |s, v| map(&mut s.resources.all, v)),
    ("WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_DEFAULT_PRESET", |s, v| {
        s.build_resources.unnamed = None;
        text(&mut s.build_resources.default, v)
    }),
    ("WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_PRESETS_MAP", |s, v| {
        s.build_resources.unnamed = None;
        map(&mut s.build_resources.all, v)
    }),
    ("WEBHOOK_DEFAULTING_RUNTIME", |s, v| {
        runtimes::find(v).ok_or("there is no such runtime").map_err(str::to_owned)?;
        text(&mut s.default_runtime, v)
    }),
];

/// Proxy variables of HTTP clients. Builds fetch their source through the agent's proxies.
const PROXIES: [&str; 6] = ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"];

impl Settings {
    /// Returns `base` with the values of these variables, which may include others than [`VARIABLES`]. Reports all
    /// invalid ones.
    pub fn from_env(
        base: Self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, Vec<InvalidVariable>> {
        let mut settings = base;
        let mut refused = Vec::new();
        for (name, value) in variables {
            let outcome = match VARIABLES.iter().find(|(known, _)| *known == name) {
                Some(_) if value.is_empty() => Ok(()),
                Some((_, set)) => set(&mut settings, value.trim()),
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

/// Returns the default presets that are missing or incomplete. All others are completed from them.
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

/// Returns why Kaniko cannot build with these settings. Other builders ignore them, so they are checked here.
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
            let why = format!("{runtime}: Kaniko builds on images in registries only, and \"{base}\" is none");
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

fn text(field: &mut String, value: &str) -> Result<(), String> {
    if value.is_empty() || value.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("it must be one word".to_owned());
    }
    value.clone_into(field);
    Ok(())
}

/// Parses a key of a Secret: `SECRET/KEY`, or `SECRET` for its usual key.
fn secret_key(value: &str, usual: &str) -> Result<SecretKey, String> {
    let (secret, key) = value.split_once('/').unwrap_or((value, usual));
    if let Some(words) = syntax::subdomain(secret) {
        return Err(format!("\"{secret}\" is not the name of a Secret: {words}"));
    }
    let is_key = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if key.is_empty() || key.len() > 253 || !key.chars().all(is_key) || key.starts_with("..") || key == "." {
        return Err(format!("\"{key}\" is not a key of a Secret: write SECRET or SECRET/KEY"));
    }
    Ok(SecretKey { secret: secret.to_owned(), key: key.to_owned() })
}

fn list(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn parsed<T: std::str::FromStr>(field: &mut T, value: &str, expected: &str) -> Result<(), String> {
    *field = value.parse().map_err(|_| format!("\"{value}\" is not {expected}"))?;
    Ok(())
}

fn at_least_one<T: std::str::FromStr + PartialOrd + From<u8>>(field: &mut T, value: &str) -> Result<(), String> {
    let expected = "a whole number of at least 1";
    parsed(field, value, expected)?;
    if *field < T::from(1) { Err(format!("\"{value}\" is not {expected}")) } else { Ok(()) }
}

fn duration(field: &mut Duration, value: &str) -> Result<(), String> {
    let span: Span = value.parse().map_err(|error: mainstay_api::duration::NotADuration| error.to_string())?;
    if span.0.is_zero() {
        return Err("it must be longer than 0s".to_owned());
    }
    *field = span.0;
    Ok(())
}

fn long_enough(field: &mut Duration, value: &str, least: Duration) -> Result<(), String> {
    let mut given = *field;
    duration(&mut given, value)?;
    if given < least {
        return Err(format!("it must be at least {}", Span(least)));
    }
    *field = given;
    Ok(())
}

fn amount(field: &mut Amount, value: &str) -> Result<(), String> {
    Quantity::parse(value).ok_or_else(|| format!("\"{value}\" is not a quantity"))?;
    *field = value.into();
    Ok(())
}

/// Parses an address without credentials, because it is visible to all readers of Functions' pods.
fn address(field: &mut String, value: &str) -> Result<(), String> {
    let is_http = value.starts_with("http://") || value.starts_with("https://");
    if !is_http || value.contains('@') || value.contains(char::is_whitespace) || value.len() > 2048 {
        return Err("it must be an address that begins with http:// or https://, without credentials".to_owned());
    }
    text(field, value)
}

fn platform(field: &mut String, value: &str) -> Result<(), String> {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    match value.split('/').collect::<Vec<_>>()[..] {
        [os, architecture] if part(os) && part(architecture) => text(field, value),
        _ => Err(format!("\"{value}\" is not a platform such as linux/amd64")),
    }
}

fn map<T: DeserializeOwned>(field: &mut BTreeMap<String, T>, value: &str) -> Result<(), String> {
    *field = serde_json::from_str(value).map_err(|error| format!("it is not the expected JSON object: {error}"))?;
    Ok(())
}

fn base_images(field: &mut BTreeMap<String, BaseImage>, value: &str) -> Result<(), String> {
    let mut named = BTreeMap::<String, String>::new();
    map(&mut named, value)?;
    field.clear();
    for (runtime, image) in named {
        if runtime != "*" && runtimes::find(&runtime).is_none() {
            return Err(format!("there is no runtime \"{runtime}\""));
        }
        let base = BaseImage::parse(&image).map_err(|error| format!("{runtime}: \"{image}\": {error}"))?;
        field.insert(runtime, base);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
