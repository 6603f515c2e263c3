//! Maps the value paths of Kyma's chart to settings, so that the data of an override works unchanged.
//!
//! Invariant: every path of the chart is known. A path without an effect has a reason, or is refused if a missing
//! effect would be a surprise.

use super::super::Settings;
use super::super::presets::{ReplicasPreset, ResourcesPreset};
use super::parse::{amount, at_least_one};
use super::table::{EXECUTOR_ARGS, EXECUTOR_IMAGE, Set};
use mainstay_api::Amount;

/// The meaning of a path of the chart.
#[derive(Clone, Copy)]
pub(super) enum Path {
    /// The path sets this variable.
    Variable(&'static str),
    /// The path sets a part of the default preset.
    Preset(Set),
    /// The path has no effect, for this reason.
    WithoutEffect(&'static str),
    /// The path must not be set. The string says what to do instead.
    Refused(&'static str),
}

use Path::{Preset, Refused, Variable, WithoutEffect};

const MANAGER: &str = "containers.manager.envs.";
const WEBHOOK: &str = "webhook.values.";
/// The prefix of webhook settings in the chart of Kyma 1.14.
const WEBHOOK_1_14: &str = "webhook.container.envs.";

const WATCHED: &str = "objects are watched, not read periodically";
const POD: &str = "the agent is one Deployment, which its manifest describes";
const REGISTRY: &str = "the registry that `mainstay install` brings is what its manifest says";

const OF_MANAGER: &[(&str, Path)] = &[
    ("functionBuildMaxSimultaneousJobs", Variable("APP_FUNCTION_BUILD_MAX_SIMULTANEOUS_JOBS")),
    ("buildRequestsCPU", Preset(|s, v| of_preset(s, Of::Build, v, |p| &mut p.request_cpu))),
    ("buildRequestsMemory", Preset(|s, v| of_preset(s, Of::Build, v, |p| &mut p.request_memory))),
    ("buildLimitsCPU", Preset(|s, v| of_preset(s, Of::Build, v, |p| &mut p.limit_cpu))),
    ("buildLimitsMemory", Preset(|s, v| of_preset(s, Of::Build, v, |p| &mut p.limit_memory))),
    ("functionRequeueDuration", Variable("APP_FUNCTION_REQUEUE_DURATION")),
    ("configMapRequeueDuration", WithoutEffect(WATCHED)),
    ("secretRequeueDuration", WithoutEffect(WATCHED)),
    ("serviceAccountRequeueDuration", WithoutEffect(WATCHED)),
    ("roleRequeueDuration", WithoutEffect(WATCHED)),
    ("roleBindingRequeueDuration", WithoutEffect(WATCHED)),
    ("kserviceRequeueDuration", WithoutEffect(WATCHED)),
    ("namespaceExcludedNames", Variable("APP_KUBERNETES_EXCLUDED_NAMESPACES")),
    (
        "imageRegistryDefaultDockerConfigSecretName",
        Variable("APP_FUNCTION_IMAGE_REGISTRY_DEFAULT_DOCKER_CONFIG_SECRET_NAME"),
    ),
    (
        "imageRegistryExternalDockerConfigSecretName",
        Variable("APP_FUNCTION_IMAGE_REGISTRY_EXTERNAL_DOCKER_CONFIG_SECRET_NAME"),
    ),
    ("packageRegistryConfigSecretName", Variable("APP_FUNCTION_PACKAGE_REGISTRY_CONFIG_SECRET_NAME")),
    ("imagePullAccountName", Variable("APP_FUNCTION_IMAGE_PULL_ACCOUNT_NAME")),
    ("buildServiceAccountName", Variable("APP_FUNCTION_BUILD_SERVICE_ACCOUNT_NAME")),
    ("targetCPUUtilizationPercentage", Variable("APP_FUNCTION_TARGET_CPU_UTILIZATION_PERCENTAGE")),
    ("functionBuildExecutorArgs", Variable(EXECUTOR_ARGS)),
    ("functionBuildExecutorImage", Variable(EXECUTOR_IMAGE)),
    ("functionBuildRepoFetcherImage", Variable("MAINSTAY_BUILDER_IMAGE")),
    ("logLevel", WithoutEffect("RUST_LOG sets the log level when the agent starts")),
    ("functionTraceCollectorEndpoint", Variable("APP_FUNCTION_TRACE_COLLECTOR_ENDPOINT")),
    ("functionPublisherProxyAddress", Variable("APP_FUNCTION_PUBLISHER_PROXY_ADDRESS")),
    ("runtimeConfigMapName", WithoutEffect("builds need no Dockerfile")),
    ("funtionMaxConcurrentReconciles", WithoutEffect("all Functions are reconciled at the same time")),
];

const OF_WEBHOOK: &[(&str, Path)] = &[
    ("reservedEnvs", Variable("WEBHOOK_VALIDATION_RESERVED_ENVS")),
    ("function.replicas.minValue", Variable("WEBHOOK_VALIDATION_FUNCTION_REPLICAS_MIN_VALUE")),
    ("function.replicas.defaultPreset", Variable("WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_DEFAULT_PRESET")),
    ("function.replicas.presets", Variable("WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_PRESETS_MAP")),
    ("function.resources.minRequestCpu", Variable("WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_CPU")),
    ("function.resources.minRequestMemory", Variable("WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_MEMORY")),
    ("function.resources.defaultPreset", Variable("WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_DEFAULT_PRESET")),
    ("function.resources.presets", Variable("WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_PRESETS_MAP")),
    ("buildJob.resources.minRequestCpu", Variable("WEBHOOK_VALIDATION_BUILD_JOB_RESOURCES_MIN_REQUEST_CPU")),
    ("buildJob.resources.minRequestMemory", Variable("WEBHOOK_VALIDATION_BUILD_JOB_RESOURCES_MIN_REQUEST_MEMORY")),
    ("buildJob.resources.defaultPreset", Variable("WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_DEFAULT_PRESET")),
    ("buildJob.resources.presets", Variable("WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_PRESETS_MAP")),
];

const OF_WEBHOOK_1_14: &[(&str, Path)] = &[
    ("minRequestCpu", Variable("WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_CPU")),
    ("minRequestMemory", Variable("WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_MEMORY")),
    ("minReplicasValue", Variable("WEBHOOK_VALIDATION_FUNCTION_REPLICAS_MIN_VALUE")),
    ("requestCpu", Preset(|s, v| of_preset(s, Of::Function, v, |p| &mut p.request_cpu))),
    ("requestMemory", Preset(|s, v| of_preset(s, Of::Function, v, |p| &mut p.request_memory))),
    ("limitsCpu", Preset(|s, v| of_preset(s, Of::Function, v, |p| &mut p.limit_cpu))),
    ("limitsMemory", Preset(|s, v| of_preset(s, Of::Function, v, |p| &mut p.limit_memory))),
    ("minReplicas", Preset(|s, v| replicas(s, v, |p| &mut p.min))),
    ("maxReplicas", Preset(|s, v| replicas(s, v, |p| &mut p.max))),
];

/// Other paths, and prefixes that end with a dot.
const OTHERS: &[(&str, Path)] = &[
    ("webhook.deployment.", WithoutEffect("there is no webhook process")),
    ("webhook.values.deployment.", WithoutEffect("there is no webhook process")),
    ("containers.manager.resources.", WithoutEffect(POD)),
    ("deployment.replicas", WithoutEffect(POD)),
    (
        "dockerRegistry.",
        Refused(
            "logins belong into Secrets: label a Secret serverless-registry-config-default of this namespace \
      with serverless.kyma-project.io/config: credentials",
        ),
    ),
    ("docker-registry.", WithoutEffect(REGISTRY)),
    ("global.dockerServicePort", WithoutEffect(REGISTRY)),
    ("global.registryNodePort", WithoutEffect(REGISTRY)),
    ("global.ingress.domainName", WithoutEffect(REGISTRY)),
    ("metrics.", WithoutEffect("the agent always serves its metrics")),
    ("grafanaDashboard.", WithoutEffect("manifests/monitoring has a dashboard")),
    ("usageKind.", WithoutEffect("the UsageKind of Functions is built in")),
    ("backendModule.", WithoutEffect("it is for Kyma's console")),
    ("clusterMicroFrontend.", WithoutEffect("it is for Kyma's console")),
    ("injectCerts.", WithoutEffect("there is no webhook process")),
    ("migration.", WithoutEffect("there is nothing to migrate")),
    ("tests.", WithoutEffect("there are no tests of a chart")),
];

/// The resources that a preset is for.
#[derive(Clone, Copy)]
enum Of {
    Function,
    Build,
}

/// Returns the meaning of a path; `None` if the chart did not have it. The path may end with `.value`.
pub(super) fn find(path: &str) -> Option<Path> {
    let path = path.strip_suffix(".value").unwrap_or(path);
    for (prefix, all) in GROUPS {
        if let Some(rest) = path.strip_prefix(prefix)
            && let Some((_, found)) = all.iter().find(|(name, _)| *name == rest)
        {
            return Some(*found);
        }
    }
    let is = |name: &str| path == name.trim_end_matches('.') || (name.ends_with('.') && path.starts_with(name));
    OTHERS.iter().find(|(name, _)| is(name)).map(|(_, found)| *found)
}

const GROUPS: [(&str, &[(&str, Path)]); 3] =
    [(MANAGER, OF_MANAGER), (WEBHOOK, OF_WEBHOOK), (WEBHOOK_1_14, OF_WEBHOOK_1_14)];

/// Returns all paths that are settings, for suggestions.
pub(super) fn names() -> impl Iterator<Item = String> {
    GROUPS.into_iter().flat_map(|(prefix, all)| all.iter().map(move |(name, _)| format!("{prefix}{name}")))
}

/// Sets an amount of the default preset.
fn of_preset(
    settings: &mut Settings,
    of: Of,
    value: &str,
    field: fn(&mut ResourcesPreset) -> &mut Option<Amount>,
) -> Result<(), String> {
    let mut given = Amount::default();
    amount(&mut given, value)?;
    let presets = match of {
        Of::Function => &mut settings.resources,
        Of::Build => &mut settings.build_resources,
    };
    // A missing preset is reported by the check of all settings.
    if let Some(preset) = presets.all.get_mut(&presets.default) {
        *field(preset) = Some(given);
    }
    Ok(())
}

/// Sets the minimum or maximum of the default preset.
fn replicas(
    settings: &mut Settings,
    value: &str,
    field: fn(&mut ReplicasPreset) -> &mut Option<i64>,
) -> Result<(), String> {
    let mut given = 1;
    at_least_one(&mut given, value)?;
    if let Some(preset) = settings.replicas.all.get_mut(&settings.replicas.default) {
        *field(preset) = Some(given);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::VARIABLES;
    use super::*;

    #[test]
    fn paths_lead_to_variables_that_there_are() {
        for (_, all) in GROUPS {
            for (name, path) in all {
                let Variable(variable) = path else { continue };
                assert!(VARIABLES.iter().any(|known| known.name == *variable), "{name}: {variable}");
            }
        }
    }
}
