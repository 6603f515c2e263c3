//! The files of a Function with code in Git.

use std::sync::Arc;

use futures::future::BoxFuture;
use mainstay_cluster::Cluster;
use serde_json::Value;

/// The files of a commit below the directory of a Function.
#[derive(Clone, Debug)]
pub struct Files {
    /// The commit.
    pub commit: String,
    /// The paths of the first files from the root of the repository, with their sizes in bytes.
    pub paths: Vec<(String, u64)>,
    /// Number of further files.
    pub more: usize,
    /// The content of the wanted file, or why it is not shown; `None` if there is no such file.
    pub file: Option<Result<String, String>>,
}

/// Reads the files of a Function with the permissions of this connection, and the one at this path; or returns why that
/// failed.
pub type FilesReader = Arc<dyn Fn(Cluster, Value, String) -> BoxFuture<'static, Result<Files, String>> + Send + Sync>;
