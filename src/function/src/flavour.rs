//! Whether a Function runs as a Deployment or on Knative Serving.
//!
//! The operator's setting applies to all Functions, and a label of a Function overrides it. The override is a label so
//! that `kubectl get functions -l` can select Functions by flavour.
//!
//! Invariant: installing or uninstalling Knative does not change the flavour of a Function; only the setting and the
//! label do.

use std::str::FromStr;

use kube::ResourceExt as _;

use super::violation::shown;
use mainstay_api::Function;
use mainstay_api::names::SERVING;

/// How a Function is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// A Deployment, a Service, and an autoscaler.
    #[default]
    Deployment,
    /// A Knative Service.
    Knative,
}

impl FromStr for Flavour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "deployment" => Ok(Self::Deployment),
            "knative" => Ok(Self::Knative),
            other => Err(format!("\"{}\" is neither `deployment` nor `knative`", shown(other))),
        }
    }
}

/// Returns the flavour of a Function: its label, else the setting.
pub(super) fn of(function: &Function, set: Flavour) -> Result<Flavour, String> {
    function.labels().get(SERVING).map_or(Ok(set), |text| text.parse())
}
