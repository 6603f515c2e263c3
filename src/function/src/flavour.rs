//! How a Function is run: by a Deployment, or by Knative Serving.
//!
//! The operator's setting holds for all Functions, and a label of a Function overrides it: a label, so that
//! `kubectl get functions -l` finds them.
//!
//! Invariant: only these two choose; that Knative is installed, or no longer, moves no Function.

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

/// The flavour of a Function; that of the settings if it does not say.
pub(super) fn of(function: &Function, set: Flavour) -> Result<Flavour, String> {
    function.labels().get(SERVING).map_or(Ok(set), |text| text.parse())
}
