//! The table of all variables: for each its name, its form, its default, its meaning, and how it is set.
//!
//! Invariant: the written default is the default of [`Settings`], unless the written default is empty.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::parse::{
    address, amount, at_least_one, base_images, duration, list, long_enough, map, parsed, platform, secret_key, text,
};
use crate::pod_keys::{self, PodKeys};
use crate::{Settings, executor, runtimes};
use mainstay_api::names;
use mainstay_object::cron::Cron;
use mainstay_object::syntax;

/// Sets a variable's value in the settings, or returns why it is invalid.
pub(super) type Set = fn(&mut Settings, &str) -> Result<(), String>;

/// A variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// The variable's name.
    pub name: &'static str,
    /// The form of the variable's values, with their bounds, in Markdown.
    pub form: &'static str,
    /// The variable's default; empty if there is no default, or if the meaning says more.
    pub default: &'static str,
    /// The variable's meaning, in Markdown.
    pub meaning: &'static str,
    pub(super) set: Set,
}

const fn variable(
    name: &'static str,
    form: &'static str,
    default: &'static str,
    meaning: &'static str,
    set: Set,
) -> Variable {
    Variable { name, form, default, meaning, set }
}

/// Minimum deadline of a build. Jobs measure their deadline in whole seconds.
const SHORTEST_DEADLINE: Duration = Duration::from_secs(1);
/// Minimum lifetime of a finished Job. If its report is deleted too early, the image is unknown and is rebuilt.
const SHORTEST_TTL: Duration = Duration::from_secs(60);
/// Minimum grace period. A build that found its image in the registry has reported the image to its Function by then.
const SHORTEST_GRACE: Duration = Duration::from_secs(2 * 3600);
pub(super) const BUILDER: &str = "MAINSTAY_BUILDER";
pub(super) const EXECUTOR_IMAGE: &str = "APP_FUNCTION_BUILD_EXECUTOR_IMAGE";
pub(super) const EXECUTOR_ARGS: &str = "APP_FUNCTION_BUILD_EXECUTOR_ARGS";

/// All variables.
pub const VARIABLES: &[Variable] = &[
    variable(
        "MAINSTAY_BUILDER_IMAGE",
        "image",
        concat!("mainstay:", env!("CARGO_PKG_VERSION")),
        "Image with the program `mainstay`, for the containers of build Jobs.",
        |s, v| text(&mut s.builder_image, v),
    ),
    variable(
        "MAINSTAY_IMAGE_PULL_SECRET",
        "Secret",
        "",
        "Image pull Secret for `MAINSTAY_BUILDER_IMAGE`, in the namespace of each Function.",
        |s, v| {
            if let Some(words) = syntax::subdomain(v) {
                return Err(format!("\"{v}\" is not the name of a Secret: {words}"));
            }
            text(s.image_pull_secret.get_or_insert_default(), v)
        },
    ),
    variable(
        "MAINSTAY_BASE_CA",
        "`SECRET` or `SECRET/KEY`",
        "",
        "Secret of a Function's namespace with the CA bundle of the registries of base images; the usual key is `ca.crt`.",
        |s, v| {
            s.base_ca = Some(secret_key(v, "ca.crt")?);
            Ok(())
        },
    ),
    variable(BUILDER, "`mainstay` or `kaniko`", "mainstay", "Builder of images.", |s, v| {
        s.builder = v.parse()?;
        Ok(())
    }),
    variable(EXECUTOR_IMAGE, "image", "", "Image of the executor of Kaniko.", |s, v| {
        s.executor_image = Some(executor::image(v)?);
        Ok(())
    }),
    variable(
        EXECUTOR_ARGS,
        "list",
        "--skip-unused-stages,--log-format=text,--cache=true",
        "Arguments of the executor of Kaniko, besides those that every build needs.",
        |s, v| {
            s.executor_args = executor::list(v)?;
            Ok(())
        },
    ),
    variable(
        "MAINSTAY_SERVING",
        "`deployment` or `knative`",
        "deployment",
        "Serving mode of Functions that do not select one.",
        |s, v| {
            s.serving = v.parse()?;
            Ok(())
        },
    ),
    variable("MAINSTAY_BASE_IMAGES", "JSON object", "", "Base images by runtime; `*` is for all others.", |s, v| {
        base_images(&mut s.base_images, v)
    }),
    variable(
        "MAINSTAY_BASE_SCHEDULE",
        "cron schedule, UTC",
        "",
        "Times at which Functions move to a new base image and tags are resolved again; without it, they move \
         immediately.",
        |s, v| {
            s.base_schedule = Some(Cron::parse(v, TimeZone::UTC)?);
            Ok(())
        },
    ),
    variable("MAINSTAY_PLATFORM", "`OS/ARCHITECTURE`", "linux/amd64", "Platform of the images.", |s, v| {
        platform(&mut s.platform, v)
    }),
    variable("MAINSTAY_GIT_INTERVAL", "duration", "1m", "Polling interval of Functions from Git.", |s, v| {
        duration(&mut s.git_interval, v)
    }),
    variable("MAINSTAY_BUILD_DEADLINE", "duration", "15m", "Deadline of a build.", |s, v| {
        long_enough(&mut s.build_deadline, v, SHORTEST_DEADLINE)
    }),
    variable("MAINSTAY_BUILD_TTL", "duration, at least 1m", "1h", "How long a finished build Job is kept.", |s, v| {
        long_enough(&mut s.build_ttl, v, SHORTEST_TTL)
    }),
    variable(
        "MAINSTAY_IMAGE_RETENTION",
        "cron schedule, UTC, or `off`",
        "30 3 * * *",
        "Times at which unused images are removed from the internal registry.",
        |s, v| {
            s.retention.schedule = if v == "off" { None } else { Some(Cron::parse(v, TimeZone::UTC)?) };
            Ok(())
        },
    ),
    variable(
        "MAINSTAY_IMAGE_RETENTION_BUILDS",
        "number, at least 1",
        "2",
        "Builds of each Function that are kept besides the running one.",
        |s, v| {
            let mut builds = 1_u32;
            at_least_one(&mut builds, v)?;
            s.retention.builds = usize::try_from(builds).unwrap_or(usize::MAX);
            Ok(())
        },
    ),
    variable(
        "MAINSTAY_IMAGE_RETENTION_GRACE",
        "duration, at least 2h",
        "24h",
        "How long an image is kept after a build used it.",
        |s, v| long_enough(&mut s.retention.grace, v, SHORTEST_GRACE),
    ),
    variable(
        pod_keys::SETTING,
        "list",
        "",
        "Keys, prefixes and domains of labels and annotations that Functions may put on their pods.",
        |s, v| {
            s.pod_keys = PodKeys::parse(v)?;
            Ok(())
        },
    ),
    variable(
        "APP_FUNCTION_IMAGE_REGISTRY_DEFAULT_DOCKER_CONFIG_SECRET_NAME",
        "Secret",
        names::DEFAULT_REGISTRY_SECRET,
        "Login Secret of the default registry.",
        |s, v| text(&mut s.default_registry_secret, v),
    ),
    variable(
        "APP_FUNCTION_IMAGE_REGISTRY_EXTERNAL_DOCKER_CONFIG_SECRET_NAME",
        "Secret",
        names::EXTERNAL_REGISTRY_SECRET,
        "Login Secret of an external registry, which takes precedence in a namespace that has it.",
        |s, v| text(&mut s.external_registry_secret, v),
    ),
    variable(
        "APP_FUNCTION_PACKAGE_REGISTRY_CONFIG_SECRET_NAME",
        "Secret",
        names::PACKAGE_REGISTRY_SECRET,
        "Secret with the configuration of package registries.",
        |s, v| text(&mut s.package_registry_secret, v),
    ),
    variable(
        "APP_FUNCTION_IMAGE_PULL_ACCOUNT_NAME",
        "ServiceAccount",
        "",
        "ServiceAccount of serving pods; without it, the default one of the namespace.",
        |s, v| text(s.service_account.get_or_insert_default(), v),
    ),
    variable(
        "APP_FUNCTION_BUILD_SERVICE_ACCOUNT_NAME",
        "ServiceAccount",
        "",
        "ServiceAccount of build pods; without it, the default one of the namespace.",
        |s, v| text(s.build_service_account.get_or_insert_default(), v),
    ),
    variable(
        "APP_FUNCTION_PUBLISHER_PROXY_ADDRESS",
        "URL",
        "http://eventing-publisher-proxy.kyma-system.svc.cluster.local/publish",
        "Address at which Functions publish events.",
        |s, v| address(&mut s.publisher, v),
    ),
    variable(
        "APP_FUNCTION_TRACE_COLLECTOR_ENDPOINT",
        "URL",
        "http://tracing-jaeger-collector.kyma-system.svc.cluster.local:4318/v1/traces",
        "Address to which Functions send traces.",
        |s, v| address(&mut s.trace_collector, v),
    ),
    variable(
        "APP_FUNCTION_TARGET_CPU_UTILIZATION_PERCENTAGE",
        "percent, at least 1",
        "50",
        "Target CPU utilisation of autoscalers, in percent of the CPU request.",
        |s, v| at_least_one(&mut s.target_cpu_percentage, v),
    ),
    variable(
        "APP_FUNCTION_REQUEUE_DURATION",
        "duration",
        "1m",
        "First delay before a failed build or a refused write is retried.",
        |s, v| duration(&mut s.requeue, v),
    ),
    variable(
        "APP_FUNCTION_GIT_FETCH_REQUEUE_DURATION",
        "duration",
        "30s",
        "First delay before Git is read again after a failure.",
        |s, v| duration(&mut s.git_fetch_requeue, v),
    ),
    variable(
        "APP_FUNCTION_BUILD_MAX_SIMULTANEOUS_JOBS",
        "number, at least 1",
        "5",
        "Maximum number of concurrent builds in the cluster.",
        |s, v| at_least_one(&mut s.max_simultaneous_jobs, v),
    ),
    variable(
        "APP_KUBERNETES_EXCLUDED_NAMESPACES",
        "list",
        "istio-system,kube-node-lease,kube-public,kube-system,kyma-installer,kyma-integration,kyma-system,natss,compass-system",
        "Namespaces that get no copies of login Secrets and ServiceAccounts.",
        |s, v| {
            s.excluded_namespaces = list(v);
            Ok(())
        },
    ),
    variable(
        "WEBHOOK_VALIDATION_RESERVED_ENVS",
        "list",
        "FUNC_RUNTIME,FUNC_HANDLER,FUNC_PORT,MOD_NAME,NODE_PATH,PYTHONPATH",
        "Environment variables that Functions must not set.",
        |s, v| {
            s.reserved_env = list(v);
            Ok(())
        },
    ),
    variable(
        "WEBHOOK_VALIDATION_FUNCTION_REPLICAS_MIN_VALUE",
        "number, at least 0",
        "1",
        "Smallest allowed number of pods.",
        |s, v| {
            parsed(&mut s.min_replicas, v, "an integer of at least 0")?;
            if s.min_replicas < 0 { Err(format!("\"{v}\" is not an integer of at least 0")) } else { Ok(()) }
        },
    ),
    variable(
        "WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_CPU",
        "quantity",
        "10m",
        "Smallest allowed CPU request of a serving pod.",
        |s, v| amount(&mut s.min_resources.cpu, v),
    ),
    variable(
        "WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_MEMORY",
        "quantity",
        "16Mi",
        "Smallest allowed memory request of a serving pod.",
        |s, v| amount(&mut s.min_resources.memory, v),
    ),
    variable(
        "WEBHOOK_VALIDATION_BUILD_JOB_RESOURCES_MIN_REQUEST_CPU",
        "quantity",
        "200m",
        "Smallest allowed CPU request of a build.",
        |s, v| amount(&mut s.min_build_resources.cpu, v),
    ),
    variable(
        "WEBHOOK_VALIDATION_BUILD_JOB_RESOURCES_MIN_REQUEST_MEMORY",
        "quantity",
        "200Mi",
        "Smallest allowed memory request of a build.",
        |s, v| amount(&mut s.min_build_resources.memory, v),
    ),
    variable(
        "WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_DEFAULT_PRESET",
        "preset",
        "S",
        "Default preset for numbers of pods.",
        |s, v| text(&mut s.replicas.default, v),
    ),
    variable(
        "WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_PRESETS_MAP",
        "JSON object",
        "",
        "Presets for numbers of pods: `min` and `max` by name.",
        |s, v| map(&mut s.replicas.all, v),
    ),
    variable(
        "WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_DEFAULT_PRESET",
        "preset",
        "M",
        "Default preset for the resources of serving pods.",
        |s, v| text(&mut s.resources.default, v),
    ),
    variable(
        "WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_PRESETS_MAP",
        "JSON object",
        "",
        "Presets for the resources of serving pods: `requestCpu`, `requestMemory`, `limitCpu` and `limitMemory` by name.",
        |s, v| map(&mut s.resources.all, v),
    ),
    variable(
        "WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_DEFAULT_PRESET",
        "preset",
        "",
        "Default preset for the resources of builds; if it is set, it also applies to Functions that name no preset.",
        |s, v| {
            s.build_resources.unnamed = None;
            text(&mut s.build_resources.default, v)
        },
    ),
    variable(
        "WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_PRESETS_MAP",
        "JSON object",
        "",
        "Presets for the resources of builds, as for serving pods.",
        |s, v| {
            s.build_resources.unnamed = None;
            map(&mut s.build_resources.all, v)
        },
    ),
    variable("WEBHOOK_DEFAULTING_RUNTIME", "runtime", runtimes::DEFAULT, "Default runtime of Functions.", |s, v| {
        runtimes::find(v).ok_or("there is no such runtime").map_err(str::to_owned)?;
        text(&mut s.default_runtime, v)
    }),
];
