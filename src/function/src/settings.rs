//! The operator's settings for Functions.
//!
//! Not here: reading the environment. The caller passes the variables.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::LocalObjectReference;

use super::base::BaseImage;
use super::executor::{self, Builder};
use super::flavour::Flavour;
use super::pod_keys::PodKeys;
use super::presets::{self, Presets, ReplicasPreset, ResourcesPreset};
use crate::runtimes::{self, Language};
use mainstay_api::{Amount, names};
use mainstay_cluster::secrets::Purpose;
use mainstay_object::cron::Cron;

/// System namespaces of the cluster and of Kyma.
const EXCLUDED_NAMESPACES: [&str; 9] = [
    "istio-system",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    "kyma-installer",
    "kyma-integration",
    "kyma-system",
    "natss",
    "compass-system",
];

/// Versions of the node's programs that run Function code; `None` if the node lacks the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePrograms {
    /// Version of Node.js, for example `22.4.1`.
    pub nodejs: Option<String>,
    /// Version of Python, for example `3.12.4`.
    pub python: Option<String>,
}

impl NodePrograms {
    /// Returns the version for a language.
    pub(crate) fn version(&self, language: Language) -> Option<&str> {
        match language {
            Language::NodeJs => self.nodejs.as_deref(),
            Language::Python => self.python.as_deref(),
        }
    }
}

/// The settings. [`Settings::default`] returns the shipped values.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Image with the program `mainstay`, for the containers of build Jobs.
    pub builder_image: String,
    /// Whether Functions run as Deployments or on Knative, unless a Function chooses for itself.
    pub serving: Flavour,
    /// Secret in a Function's namespace with the credentials for pulling `builder_image`, if any.
    pub image_pull_secret: Option<String>,
    /// Key of a Secret in a Function's namespace with the CA bundle for registries of base images.
    pub base_ca: Option<SecretKey>,
    /// The program that builds images.
    pub builder: Builder,
    /// Image of Kaniko's executor, if set.
    pub executor_image: Option<String>,
    /// Extra arguments of Kaniko's executor.
    pub executor_args: Vec<String>,
    /// Base images by runtime, instead of the [shipped base images](runtimes::Runtime::base_image). `*` matches all
    /// other runtimes.
    pub base_images: BTreeMap<String, BaseImage>,
    /// The node's programs that run all Functions instead of their base images; with `None`, base images are used.
    pub node_programs: Option<NodePrograms>,
    /// When Functions switch to a changed base image and resolve base image tags again. With `None`, Functions switch
    /// to a changed base image immediately and never resolve tags again.
    pub base_schedule: Option<Cron>,
    /// Platform of the images, for example `linux/amd64`.
    pub platform: String,
    /// Default runtime.
    pub default_runtime: String,
    /// Presets for numbers of pods.
    pub replicas: Presets<ReplicasPreset>,
    /// Presets for resources of serving pods.
    pub resources: Presets<ResourcesPreset>,
    /// Presets for resources of builds.
    pub build_resources: Presets<ResourcesPreset>,
    /// Smallest allowed number of pods.
    pub min_replicas: i64,
    /// Smallest allowed resources of a serving pod.
    pub min_resources: MinResources,
    /// Smallest allowed resources of a build.
    pub min_build_resources: MinResources,
    /// Environment variables that Functions must not set.
    pub reserved_env: Vec<String>,
    /// Additional labels and annotations that Functions may put on their pods.
    pub pod_keys: PodKeys,
    /// Registry Secret that takes precedence in every namespace that contains it.
    pub external_registry_secret: String,
    /// Default registry Secret.
    pub default_registry_secret: String,
    /// Secret with the configuration of package registries.
    pub package_registry_secret: String,
    /// Namespaces that receive no copies of the agent's registry and package Secrets.
    pub excluded_namespaces: Vec<String>,
    /// ServiceAccount of serving pods; `None` selects the namespace's default.
    pub service_account: Option<String>,
    /// ServiceAccount of build pods; `None` selects the namespace's default.
    pub build_service_account: Option<String>,
    /// URL for publishing events: `PUBLISHER_PROXY_ADDRESS` of every pod.
    pub publisher: String,
    /// URL for traces: `TRACE_COLLECTOR_ENDPOINT` of every pod.
    pub trace_collector: String,
    /// The agent's proxy settings, as environment variables of the `fetch` container.
    pub proxies: Vec<(String, String)>,
    /// Maximum number of concurrent builds in the cluster.
    pub max_simultaneous_jobs: usize,
    /// Target CPU utilisation of autoscalers, in percent of the CPU request.
    pub target_cpu_percentage: i64,
    /// First delay before a failed build or a refused write is retried.
    pub requeue: Duration,
    /// First delay before Git is read again after a failure.
    pub git_fetch_requeue: Duration,
    /// Polling interval of Git Functions.
    pub git_interval: Duration,
    /// Deadline of a build.
    pub build_deadline: Duration,
    /// How long a finished build Job is kept.
    pub build_ttl: Duration,
    /// Retention of unused images in the in-cluster registry.
    pub retention: Retention,
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKey {
    /// Name.
    pub secret: String,
    /// Key in the Secret.
    pub key: String,
}

/// The retention policy for images in the in-cluster registry.
#[derive(Clone, Debug, PartialEq)]
pub struct Retention {
    /// When images are removed; `None` means never.
    pub schedule: Option<Cron>,
    /// Number of builds of each Function that are kept besides the running images.
    pub builds: usize,
    /// How long an image is kept after a build pushed it or found it in the registry.
    pub grace: Duration,
    /// How long a new leader waits before it lists used images. The delay exists because nodes report their images late
    /// after an outage.
    pub settle: Duration,
}

impl Default for Retention {
    /// Returns the policy that removes images every night at 03:30 UTC.
    fn default() -> Self {
        Self {
            schedule: Cron::parse("30 3 * * *", TimeZone::UTC).ok(),
            builds: 2,
            grace: Duration::from_secs(24 * 3600),
            settle: Duration::from_secs(600),
        }
    }
}

/// Smallest allowed CPU and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinResources {
    /// Smallest allowed CPU.
    pub cpu: Amount,
    /// Smallest allowed memory.
    pub memory: Amount,
}

impl Settings {
    /// Returns the image of Kaniko's executor if Kaniko builds.
    pub fn executor(&self) -> Option<&str> {
        (self.builder == Builder::Kaniko).then(|| self.executor_image.as_deref().unwrap_or_default())
    }

    /// Returns the `imagePullSecrets` of build pods. `registry` is the name of the registry's Secret.
    pub(crate) fn pull_secrets(&self, registry: &str) -> Vec<LocalObjectReference> {
        let other = self.image_pull_secret.as_deref().filter(|secret| *secret != registry);
        let all = [registry].into_iter().chain(other);
        all.map(|name| LocalObjectReference { name: name.to_owned() }).collect()
    }

    /// Returns the Secrets that every Function uses: external registry, default registry, packages.
    pub fn secrets(&self) -> [&str; 3] {
        [&self.external_registry_secret, &self.default_registry_secret, &self.package_registry_secret]
    }

    /// Returns the purposes of all Secrets that the settings reference; they apply in every namespace.
    pub fn purposes(&self) -> Vec<(String, Purpose)> {
        let [external, default, packages] = self.secrets();
        let pull = self.image_pull_secret.as_deref().map(|secret| (secret, Purpose::BuilderImage));
        let named = [
            (external, Purpose::ImageRegistry),
            (default, Purpose::ImageRegistry),
            (packages, Purpose::PackageRegistry),
        ];
        named.into_iter().chain(pull).map(|(name, purpose)| (name.to_owned(), purpose)).collect()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            builder_image: concat!("mainstay:", env!("CARGO_PKG_VERSION")).into(),
            serving: Flavour::Deployment,
            image_pull_secret: None,
            base_ca: None,
            builder: Builder::Own,
            executor_image: None,
            executor_args: executor::DEFAULT_ARGS.map(str::to_owned).to_vec(),
            base_images: BTreeMap::new(),
            node_programs: None,
            base_schedule: None,
            platform: "linux/amd64".into(),
            default_runtime: runtimes::DEFAULT.into(),
            replicas: presets::replicas(),
            resources: presets::function(),
            build_resources: presets::build(),
            min_replicas: 1,
            min_resources: MinResources { cpu: "10m".into(), memory: "16Mi".into() },
            min_build_resources: MinResources { cpu: "200m".into(), memory: "200Mi".into() },
            reserved_env: ["FUNC_RUNTIME", "FUNC_HANDLER", "FUNC_PORT", "MOD_NAME", "NODE_PATH", "PYTHONPATH"]
                .map(str::to_owned)
                .to_vec(),
            pod_keys: PodKeys::default(),
            external_registry_secret: names::EXTERNAL_REGISTRY_SECRET.into(),
            default_registry_secret: names::DEFAULT_REGISTRY_SECRET.into(),
            package_registry_secret: names::PACKAGE_REGISTRY_SECRET.into(),
            excluded_namespaces: EXCLUDED_NAMESPACES.map(str::to_owned).to_vec(),
            service_account: None,
            build_service_account: None,
            publisher: "http://eventing-publisher-proxy.kyma-system.svc.cluster.local/publish".into(),
            trace_collector: "http://tracing-jaeger-collector.kyma-system.svc.cluster.local:4318/v1/traces".into(),
            proxies: Vec::new(),
            max_simultaneous_jobs: 5,
            target_cpu_percentage: 50,
            requeue: Duration::from_secs(60),
            git_fetch_requeue: Duration::from_secs(30),
            git_interval: Duration::from_secs(60),
            build_deadline: Duration::from_secs(900),
            build_ttl: Duration::from_secs(3600),
            retention: Retention::default(),
        }
    }
}
