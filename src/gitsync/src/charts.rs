//! The charts of a commit that were rendered, for as long as what they read stays as it was.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::resolve::Directory;
use mainstay_manifest::Problem;
use mainstay_manifest::render::{Capabilities, ChartKey};
use mainstay_object::{Object, Place, printable};

/// The file that makes a directory a chart.
const CHART: &str = "Chart.yaml";

/// What was rendered last.
#[derive(Debug, Default)]
pub(super) struct RenderedCharts {
    /// Of the chart in each file: what decided what it is rendered to, and its objects.
    pub(super) by_file: BTreeMap<String, (ChartKey, Vec<Arc<Object>>)>,
}

impl RenderedCharts {
    /// Whether any of them asks what the cluster is.
    pub(super) fn ask_the_cluster(&self) -> bool {
        self.by_file.values().any(|(key, _)| key.asks_the_cluster())
    }
}

/// What is said to charts of the cluster.
pub(super) fn capabilities(cluster: &mainstay_cluster::Capabilities) -> Capabilities {
    Capabilities { kube_version: cluster.kube_version.clone(), api_versions: cluster.api_versions.clone() }
}

/// The problem of a directory that is said to be a chart and is none; `found` are those in it.
pub(super) fn misplaced(directory: &Directory, found: &[String]) -> Option<Problem> {
    directory.helm.as_ref()?;
    let base_dir = directory.base_dir.path();
    let file = if base_dir.is_empty() { CHART.to_owned() } else { format!("{base_dir}/{CHART}") };
    let hint = match found.first() {
        Some(other) => format!("name the chart's directory as baseDir: that of {}, for example", printable(other)),
        None => "name the chart's directory as baseDir, or take spec.render.helm away".to_owned(),
    };
    let what =
        "spec.render.helm is for a chart in baseDir, which has none with a name and a version, or has a kustomization";
    (!found.contains(&file)).then(|| Problem::new(Place::file(file), what, Some(&hint)))
}
