//! The operator's settings for Functions.
//!
//! Deliberately absent: reading the environment. The variables are arguments.

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

/// Namespaces of the cluster itself, and of what Kyma brought along.
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

/// The versions of the programs that a node runs code with; `None`: it has no such program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePrograms {
    /// Of Node.js, as `22.4.1`.
    pub nodejs: Option<String>,
    /// Of Python, as `3.12.4`.
    pub python: Option<String>,
}

impl NodePrograms {
    /// The version for a language.
    pub(crate) fn version(&self, language: Language) -> Option<&str> {
        match language {
            Language::NodeJs => self.nodejs.as_deref(),
            Language::Python => self.python.as_deref(),
        }
    }
}

/// The settings; [`Settings::default`] is what Mainstay ships with.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Image with the program `mainstay`, for the containers of build Jobs.
    pub builder_image: String,
    /// How Functions are run that do not say so themselves.
    pub serving: Flavour,
    /// Secret of a Function's namespace with which nodes pull that image, if it takes one.
    pub image_pull_secret: Option<String>,
    /// Key of a Secret of a Function's namespace with the CA bundle of the registries of base images.
    pub base_ca: Option<SecretKey>,
    /// What builds images.
    pub builder: Builder,
    /// Image of Kaniko's executor, if it is named.
    pub executor_image: Option<String>,
    /// Arguments of Kaniko's executor, beside those that every build needs.
    pub executor_args: Vec<String>,
    /// Base images by runtime, over those that are [shipped](runtimes::Runtime::base_image); `*` is for all others.
    pub base_images: BTreeMap<String, BaseImage>,
    /// The programs of the node that code runs with, whatever base image a Function names; `None`: those of its image.
    pub node_programs: Option<NodePrograms>,
    /// When Functions move to another base image, and find out what a tag of theirs names; `None`: at once, and never.
    pub base_schedule: Option<Cron>,
    /// Platform of the images, as `linux/amd64`.
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
    /// Labels and annotations that Functions may put on their pods, besides those that steer nothing.
    pub pod_keys: PodKeys,
    /// Registry Secret that takes precedence in a namespace that has it.
    pub external_registry_secret: String,
    /// Default registry Secret.
    pub default_registry_secret: String,
    /// Secret with the configuration of package registries.
    pub package_registry_secret: String,
    /// Namespaces that get no copies of the agent's registry and package Secrets.
    pub excluded_namespaces: Vec<String>,
    /// Service account of serving pods; `None` is the namespace's default.
    pub service_account: Option<String>,
    /// Service account of build pods; `None` is the namespace's default.
    pub build_service_account: Option<String>,
    /// Where Functions publish events: `PUBLISHER_PROXY_ADDRESS` of every pod.
    pub publisher: String,
    /// Where Functions send traces: `TRACE_COLLECTOR_ENDPOINT` of every pod.
    pub trace_collector: String,
    /// The agent's proxies, as environment variables for the container that fetches the source of a build.
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
    /// What becomes of images in the registry of the installation that nothing uses any more.
    pub retention: Retention,
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKey {
    /// Name of the Secret.
    pub secret: String,
    /// The key.
    pub key: String,
}

/// When images go from the registry of the installation, and which stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Retention {
    /// When; `None`: never.
    pub schedule: Option<Cron>,
    /// Builds of each Function that are kept, beside what runs.
    pub builds: usize,
    /// How long every image is kept after it was pushed, or found to be there, by a build.
    pub grace: Duration,
    /// How long an agent that begins to lead waits before it looks: what nodes run is shown late after an outage.
    pub settle: Duration,
}

impl Default for Retention {
    /// Every night.
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
    /// CPU.
    pub cpu: Amount,
    /// Memory.
    pub memory: Amount,
}

impl Settings {
    /// The image of Kaniko's executor, if it builds.
    pub fn executor(&self) -> Option<&str> {
        (self.builder == Builder::Kaniko).then(|| self.executor_image.as_deref().unwrap_or_default())
    }

    /// The `imagePullSecrets` of the pods of builds, whose registry has this Secret.
    pub(crate) fn pull_secrets(&self, registry: &str) -> Vec<LocalObjectReference> {
        let other = self.image_pull_secret.as_deref().filter(|secret| *secret != registry);
        let all = [registry].into_iter().chain(other);
        all.map(|name| LocalObjectReference { name: name.to_owned() }).collect()
    }

    /// The Secrets that every Function uses: external registry, default registry, packages.
    pub fn secrets(&self) -> [&str; 3] {
        [&self.external_registry_secret, &self.default_registry_secret, &self.package_registry_secret]
    }

    /// The purposes of all Secrets that the settings name, in every namespace.
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
