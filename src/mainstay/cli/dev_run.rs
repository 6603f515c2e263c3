//! The facts that `mainstay dev` passes to other commands of this machine, in an extension of the kubeconfig's context:
//! the directory that `mainstay dev` follows, and the file of its log.
//!
//! Invariant: these facts are read only from the kubeconfig, never from the cluster. The kubeconfig is trusted, because
//! it may run programs of this user anyway.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use mainstay_cluster::Origin;
use mainstay_object::egress::Egress;

/// Name of the extension.
const EXTENSION: &str = "mainstay-dev";

/// A running `mainstay dev`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DevRun {
    /// The local repository that `mainstay dev` follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) repository: Option<PathBuf>,
    /// The log file of the agent in `mainstay dev`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<PathBuf>,
}

impl DevRun {
    /// Reads the facts from the kubeconfig. Without the extension, all facts are unknown.
    pub(super) fn of(origin: &Origin) -> Self {
        let extension = origin.extension(EXTENSION);
        extension.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
    }

    /// Returns the addresses in the cluster that a command or a page may connect to. The servers of `mainstay dev` are on this machine,
    /// and its cluster belongs to this user.
    pub(super) fn egress(&self) -> Egress {
        if self.repository.is_some() { Egress::Unrestricted } else { Egress::OffMachine }
    }

    /// Adds the facts to the kubeconfig of the embedded cluster. Its only context is the last map in the file.
    /// Other lines stay.
    #[cfg(feature = "dev")]
    pub(super) fn add(&self, kubeconfig: &str) -> String {
        let extensions = serde_json::json!([{ "name": EXTENSION, "extension": self }]);
        let parts = kubeconfig.rsplit_once("context: {");
        parts.map_or_else(
            || kubeconfig.to_owned(),
            |(before, after)| format!("{before}context: {{extensions: {extensions}, {after}"),
        )
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "dev")]
    #[tokio::test]
    async fn the_kubeconfig_names_the_repository_and_the_log() {
        use super::*;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let plain = devcluster::Cluster::new(devcluster::Options::default());
        let plain = plain.kubeconfig(([127, 0, 0, 1], 1).into(), Some("context: {"));
        let run = DevRun { repository: Some("/r: \"x\"".into()), log: Some("/l".into()) };
        std::fs::write(&path, run.add(&plain)).unwrap();
        assert_eq!(DevRun::of(&Origin::of_file(&path)), run);
        std::fs::write(&path, plain).unwrap();
        assert_eq!(DevRun::of(&Origin::of_file(&path)), DevRun::default());
    }
}
