//! The rendered charts of a commit. A rendered chart is reused while its inputs do not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::resolve::Directory;
use mainstay_manifest::render::{Capabilities, ChartKey};
use mainstay_manifest::{Decoded, Problem};
use mainstay_object::{Object, Place, printable};

/// The file that makes a directory a chart.
const CHART: &str = "Chart.yaml";

/// The last rendered charts.
#[derive(Debug, Default)]
pub(super) struct RenderedCharts {
    /// The key and the objects of each chart, by file. The key covers all inputs of the rendering.
    pub(super) by_file: BTreeMap<String, (ChartKey, Vec<Arc<Object>>)>,
}

impl RenderedCharts {
    /// Whether a chart reads the capabilities of the cluster.
    pub(super) fn ask_the_cluster(&self) -> bool {
        self.by_file.values().any(|(key, _)| key.asks_the_cluster())
    }
}

/// Returns the capabilities of the cluster as charts see them.
pub(super) fn capabilities(cluster: &mainstay_cluster::Capabilities) -> Capabilities {
    Capabilities { kube_version: cluster.kube_version.clone(), api_versions: cluster.api_versions.clone() }
}

/// Returns the problem of a directory that has chart settings in the spec but is not a chart.
pub(super) fn misplaced(directory: &Directory, decoded: &Decoded) -> Option<Problem> {
    directory.helm.as_ref()?;
    let found = &decoded.charts;
    let base_dir = directory.base_dir.path();
    let file = if base_dir.is_empty() { CHART.to_owned() } else { format!("{base_dir}/{CHART}") };
    if let Some(left_out) = &decoded.left_out {
        let what = format!("spec.render.helm needs a chart in baseDir, but {left_out}");
        return Some(Problem::new(Place::file(file), what, Some("remove the rule, or add a rule with `!` after it")));
    }
    let hint = match found.first() {
        Some(other) => format!("set baseDir to the directory of a chart, such as that of {}", printable(other)),
        None => "set baseDir to the directory of a chart, or remove spec.render.helm".to_owned(),
    };
    let what =
        "spec.render.helm needs a chart with a name and a version in baseDir, and no kustomization beside the chart";
    (!found.contains(&file)).then(|| Problem::new(Place::file(file), what, Some(&hint)))
}
