//! The simulated outcome of a pod.

use serde_json::Value;

use super::super::simulated_outcome::SimulatedOutcome;
use super::faults::Faults;
use devcluster_apiserver::object::text;

/// The simulated outcome of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Runs and is ready; succeeds if it does not restart.
    Fine,
    /// Is never scheduled.
    Pending,
    /// Runs, but is not ready.
    NeverReady,
    /// The image cannot be pulled.
    NoImage,
    /// Crashes repeatedly.
    CrashLoop,
    /// Exits with a code.
    Exit(i64),
    /// Runs until its simulated end.
    Busy {
        /// Whether the pod is still in its init containers.
        init: bool,
    },
    /// Has reached its simulated end.
    Simulated(SimulatedOutcome),
    /// Some containers would not run or not become ready on any node.
    Faulty(Faults),
}

impl Outcome {
    /// Returns the outcome of the annotation; otherwise the outcome of images and probes.
    pub(super) fn of(pod: &Value) -> Self {
        let outcome = text(pod, "/metadata/annotations/devcluster.dev~1outcome");
        match outcome {
            "pending" => Self::Pending,
            "never-ready" => Self::NeverReady,
            "image-pull-backoff" => Self::NoImage,
            "crash-loop" => Self::CrashLoop,
            _ => match outcome.strip_prefix("exit:").and_then(|code| code.parse().ok()) {
                Some(code) => Self::Exit(code),
                None => Faults::of(pod).map_or(Self::Fine, Self::Faulty),
            },
        }
    }

    /// Whether the pod only seems to run: its status claims images that were not pulled.
    pub(super) fn is_pretended(&self) -> bool {
        match self {
            Self::NoImage | Self::Pending => false,
            Self::Faulty(faults) => !faults.lack_images(),
            _ => true,
        }
    }
}
