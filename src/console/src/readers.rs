//! The functions of the program that read data which this crate cannot read itself.

use std::sync::Arc;

use crate::files::FilesReader;
use crate::freshness::AgentReader;
use crate::trace::{ManifestPart, TraceReader};
use crate::tree::TreeReader;
use mainstay_api::git_sync::Change;
use serde_json::Value;

/// The functions of the program that read inventories and the Lease. Each function receives the connection of the session.
#[derive(Clone)]
pub struct Readers {
    /// Reads the tree of a GitSync.
    pub tree: TreeReader,
    /// Reads the origin of an object.
    pub trace: TraceReader,
    /// Returns the part of a live object that its manifest sets.
    pub part: PartRule,
    /// The rules of Functions.
    pub functions: FunctionRules,
    /// The rules of other objects that the forms create.
    pub rules: ObjectRules,
    /// Reads whether an agent leads.
    pub agent: AgentReader,
    /// Reads the files of Functions with code in Git; `None` if this program does not connect to Git hosts.
    pub files: Option<FilesReader>,
}

/// Returns the part of a live object that its manifest sets, with these changes undone; `None` if Mainstay never applied
/// the object.
pub type PartRule = Arc<dyn Fn(&Value, &[Change]) -> Option<ManifestPart> + Send + Sync>;

/// Returns which inputs of its image a change of a Function changes, each as a noun. The first state is `None` for a new
/// Function. Fails with the problems of the second state.
pub type ChangedInputs = Arc<dyn Fn(Option<&Value>, &Value) -> Result<Vec<&'static str>, String> + Send + Sync>;

/// The rules of Functions.
#[derive(Clone)]
pub struct FunctionRules {
    /// The names of the runtimes.
    pub runtimes: Arc<[&'static str]>,
    /// Returns why a change builds the image.
    pub changed_inputs: ChangedInputs,
}

/// Returns the problems for which the agent would refuse an object.
pub type ObjectRule = Arc<dyn Fn(&Value) -> Result<(), String> + Send + Sync>;

/// The rules of objects that the forms create. Each fails with the problems of the object.
#[derive(Clone)]
pub struct ObjectRules {
    /// The rules of a GitRepository, except those that only its Secret decides.
    pub git_repository: ObjectRule,
    /// The rules of an APIRule, except those that only the settings of the agent or other objects decide.
    pub api_rule: ObjectRule,
}
