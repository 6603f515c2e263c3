//! How a simulated pod fares.

use serde_json::Value;

use super::super::simulated_outcome::SimulatedOutcome;
use super::faults::Faults;
use devcluster_apiserver::object::text;

/// How a pod fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Runs and is ready, or succeeds when it does not restart.
    Fine,
    /// Is never placed.
    Pending,
    /// Runs, but is not ready.
    NeverReady,
    /// Its image cannot be pulled.
    NoImage,
    /// Crashes again and again.
    CrashLoop,
    /// Ends with a code.
    Exit(i64),
    /// Runs until it ends as simulated; in its init containers or beyond them.
    Busy {
        /// Whether an init container runs.
        init: bool,
    },
    /// Has ended as simulated.
    Simulated(SimulatedOutcome),
    /// Some of its containers would not run, or not become ready, on any node.
    Faulty(Faults),
}

impl Outcome {
    /// The one that a pod names, or else the one that its images and probes have.
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

    /// Whether the pod only seems to run: it has images, which nobody pulled.
    pub(super) fn is_pretended(&self) -> bool {
        match self {
            Self::NoImage | Self::Pending => false,
            Self::Faulty(faults) => !faults.lack_images(),
            _ => true,
        }
    }
}
