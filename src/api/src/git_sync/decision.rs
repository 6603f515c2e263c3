//! The last decisions of the agent about objects, as the status of a GitSync lists them.
//!
//! Not here: reverts, replacements and applies of commits. They have lists of their own, so that none of them displaces
//! another decision.

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
    /// HTTP status code of the API server's refusal; absent if it has refused nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Time at which a pause ends, or at which a failed revert is tried again; absent if there is no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub until: Option<Time>,
    /// Number of equal decisions in succession. Equal pauses and failed applies count as one.
    pub times: i64,
    /// Time of the last of them; of the first pause or failed apply.
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
    /// The revert of the object failed repeatedly, so the next attempt waits.
    RevertFailed,
    /// The state of the commit could not be applied to the object.
    ApplyFailed,
    /// The change of the object is reported and stays, because `spec.drift` is `Report`.
    Reported,
    /// An audit found a change that no watch had shown.
    Missed,
}

impl Decision {
    /// Returns whether this is the same decision as `other`, made at another time. The time of the next attempt does not
    /// matter.
    pub fn repeats(&self, other: &Self) -> bool {
        let is_same_cause = self.who == other.who && self.code == other.code;
        let is_same_end = self.decided != Decided::Paused || self.until == other.until;
        self.object == other.object && self.decided == other.decided && is_same_cause && is_same_end
    }
}
