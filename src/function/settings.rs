//! What the operator of the agent decides about Functions.
//!
//! Deliberately absent: reading the environment. The variables come in as values.

use std::collections::BTreeMap;
use std::time::Duration;

use super::base::BaseImage;
use super::presets::{self, Presets, ReplicasPreset, ResourcesPreset};
use crate::api::{Amount, names};
use crate::runtimes;

/// The settings; [`Settings::default`] is what is shipped.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Image that holds the program `mainstay`, for the containers of build Jobs.
    pub builder_image: String,
    /// Images that Functions are built on, by runtime; `*` stands for all other runtimes.
    pub base_images: BTreeMap<String, BaseImage>,
    /// Platform of the images, as `linux/amd64`.
    pub platform: String,
    /// Runtime of Functions that name none.
    pub default_runtime: String,
    /// Numbers of pods.
    pub replicas: Presets<ReplicasPreset>,
    /// CPU and memory of running pods.
    pub resources: Presets<ResourcesPreset>,
    /// CPU and memory of builds.
    pub build_resources: Presets<ResourcesPreset>,
    /// Smallest number of pods that a Function may ask for.
    pub min_replicas: i64,
    /// Least CPU and memory of a running pod.
    pub min_resources: Least,
    /// Least CPU and memory of a build.
    pub min_build_resources: Least,
    /// Names of environment variables that Functions may not set.
    pub reserved_env: Vec<String>,
    /// Registry Secret that wins when a namespace has it.
    pub external_registry_secret: String,
    /// Registry Secret that is used otherwise.
    pub default_registry_secret: String,
    /// Secret with the configuration of package registries.
    pub package_registry_secret: String,
    /// Service account of the running pods; the namespace's default one when `None`.
    pub service_account: Option<String>,
    /// Service account of the build pods; the namespace's default one when `None`.
    pub build_service_account: Option<String>,
    /// Builds that may work at the same time, in the whole cluster.
    pub max_simultaneous_jobs: usize,
    /// CPU utilisation that autoscalers aim at, in percent of the requested CPU.
    pub target_cpu_percentage: i64,
    /// First delay before a failed build or a failed pass is tried again.
    pub requeue: Duration,
    /// First delay before Git is asked again after a failure.
    pub git_fetch_requeue: Duration,
    /// How often the reference of a Git Function is looked up.
    pub git_interval: Duration,
    /// How long a build may take.
    pub build_deadline: Duration,
    /// How long a finished build Job is kept.
    pub build_ttl: Duration,
}

/// Least CPU and memory that may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Least {
    /// CPU.
    pub cpu: Amount,
    /// Memory.
    pub memory: Amount,
}

impl Settings {
    /// The Secrets that every Function needs: those of the external and of the default registry for images, and the
    /// packages'.
    pub fn secrets(&self) -> [&str; 3] {
        [&self.external_registry_secret, &self.default_registry_secret, &self.package_registry_secret]
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            builder_image: concat!("mainstay:", env!("CARGO_PKG_VERSION")).into(),
            base_images: BTreeMap::new(),
            platform: "linux/amd64".into(),
            default_runtime: runtimes::DEFAULT.into(),
            replicas: presets::replicas(),
            resources: presets::function(),
            build_resources: presets::build(),
            min_replicas: 1,
            min_resources: Least { cpu: "10m".into(), memory: "16Mi".into() },
            min_build_resources: Least { cpu: "200m".into(), memory: "200Mi".into() },
            reserved_env: ["FUNC_RUNTIME", "FUNC_HANDLER", "FUNC_PORT", "MOD_NAME", "NODE_PATH", "PYTHONPATH"]
                .map(str::to_owned)
                .to_vec(),
            external_registry_secret: names::EXTERNAL_REGISTRY_SECRET.into(),
            default_registry_secret: names::DEFAULT_REGISTRY_SECRET.into(),
            package_registry_secret: names::PACKAGE_REGISTRY_SECRET.into(),
            service_account: None,
            build_service_account: None,
            max_simultaneous_jobs: 5,
            target_cpu_percentage: 50,
            requeue: Duration::from_secs(60),
            git_fetch_requeue: Duration::from_secs(30),
            git_interval: Duration::from_secs(60),
            build_deadline: Duration::from_secs(900),
            build_ttl: Duration::from_secs(3600),
        }
    }
}
