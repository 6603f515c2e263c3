//! The last decisions of the agent about objects, as the status of a GitSync lists them.
//!
//! Not here: reverts, replacements and applies of commits. They have lists of their own, so that none of them displaces
//! another decision. Failed applies and reverts are in `failures` and `drifted` as long as they last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schemas::TimeSchema;

/// Maximum length of `status.lastDecisions`.
pub const DECISIONS: usize = 20;
/// Maximum number of its entries about one object.
pub const DECISIONS_OF_OBJECT: usize = 10;

/// A decision of the agent about an object, with its cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The object, such as `Deployment.apps shop/web`.
    pub object: String,
    /// The decision.
    pub decided: Decided,
    /// Field manager whose change is the cause; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Time at which a pause ends; absent if it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub until: Option<Time>,
    /// Number of equal decisions since the object's last pause. A pause and its end are never counted together.
    pub times: i64,
    /// Time of the last of them.
    #[schemars(with = "TimeSchema")]
    pub when: Time,
}

/// The kind of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Decided {
    /// The object is left as it is, because a user has paused it.
    Paused,
    /// The object is reconciled again, because its pause has ended.
    Resumed,
    /// Reverts of the object wait, because another client keeps changing it.
    SlowedDown,
    /// The change of the object is reported and stays, because `spec.drift` is `Report`.
    Reported,
    /// An audit found a change that no watch had shown.
    Missed,
}

impl Decided {
    /// Whether a pause begins or ends.
    pub fn is_about_pause(self) -> bool {
        matches!(self, Self::Paused | Self::Resumed)
    }
}
