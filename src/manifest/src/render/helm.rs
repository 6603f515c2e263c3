//! Renders the charts of a commit, one at a time.
//!
//! Invariant: a chart whose templates call a function that is not fixed by its arguments is rendered twice, and the
//! outputs of both runs must be equal. The second run has a later time and a different time zone, which exposes charts
//! that depend on time or randomness (see [`chart_objects`](super::chart_objects)).
//! Invariant: the values of the GitSync, which may be from Secrets, are passed to the tool by its standard input. They
//! are written to no file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::added::Added;
use super::chart::{ChartFiles, ChartOptions, chart_files, within};
use super::copies::{NotCopied, copy, write};
use super::error::Error;
use super::helm_refusal::{Told, refusal};
use super::kept::Kept;
use super::kustomize::Kustomize;
use super::program::{Program, Purpose, Run};
use super::templates::Asked;
use super::tool::Tool;
use super::turns::Turns;
use super::words::Words;
use crate::Problem;
use mainstay_git::{Entry, Snapshot};
use mainstay_object::{Digest, Place};

/// The problem if Helm is not installed.
const NO_TOOL: &str =
    "it makes its directory a Helm chart, and the program `helm`, which renders charts, was not found";
const NO_TOOL_HINT: &str = "install Helm where the agent finds it on its PATH, such as with `go install \
                            helm.sh/helm/v3/cmd/helm@latest`, or name the directory in .mainstayignore";
/// Directories and files of a run, below its root directory.
const CHART: &str = "chart";
const VALUES: &str = "values";
/// Helm's name of its standard input.
const STANDARD_INPUT: &str = "-";
const ZONE: &str = "zone";
/// A path that does not exist.
const NOWHERE: &str = "nowhere";
/// Environment variables for Helm's own directories: plug-ins, configuration and downloads.
const DIRECTORIES: [&str; 7] = [
    "HELM_PLUGINS",
    "HELM_CONFIG_HOME",
    "HELM_CACHE_HOME",
    "HELM_DATA_HOME",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
];
/// Minimum time before a chart that reads the time is rendered again.
const A_MOMENT: Duration = Duration::from_millis(1100);
/// Offset of the second run's time zone, in seconds. The offset changes year, month, day, hour, minute and second.
const AHEAD: i32 = 400 * 86_400 + 3_661;

/// Renders charts with the official tool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Helm {
    tool: Option<Tool>,
    scratch: PathBuf,
    turns: Arc<Turns>,
    words: Words,
    kept: Option<Arc<Kept>>,
}

/// Facts about the cluster that templates can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of Kubernetes, such as `v1.32.4`.
    pub kube_version: String,
    /// Each group and version (`apps/v1`, `v1`), and each kind with its group and version (`apps/v1/Deployment`), in
    /// order.
    pub api_versions: Vec<String>,
}

/// The identity of a chart's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChartKey {
    /// Digest of the chart's files and options.
    chart: Digest,
    /// Digest of the cluster's capabilities, if the chart reads them.
    capabilities: Option<Digest>,
}

/// A chart that was rendered, or that is unchanged.
#[derive(Debug)]
pub struct RenderedChart {
    /// The inputs of the chart. Their problems are in `outputs`.
    pub files: ChartFiles,
    /// The outputs with their key, or problems; `None` if the chart is unchanged.
    pub outputs: Option<Result<(Outputs, ChartKey), Vec<Problem>>>,
}

/// The outputs of a chart's runs.
#[derive(Debug)]
pub struct Outputs {
    /// The output of the first run.
    pub first: Vec<u8>,
    /// The output of the second run; `None` if two outputs cannot differ.
    pub second: Option<Vec<u8>>,
}

impl Capabilities {
    /// Returns a digest of all capabilities.
    pub fn digest(&self) -> Digest {
        Digest::of(format!("{}\n{}", self.kube_version, self.api_versions.join("\n")).as_bytes())
    }
}

impl ChartKey {
    /// Returns whether the output depends on the cluster, and the cluster has changed.
    pub fn is_outdated(&self, now: Digest) -> bool {
        self.capabilities.is_some_and(|then| then != now)
    }

    /// Returns whether the chart reads the cluster's capabilities.
    pub fn asks_the_cluster(&self) -> bool {
        self.capabilities.is_some()
    }
}

impl Helm {
    /// Uses Helm in the renderer of `kustomize` if there is one, and otherwise in the directories of `path`, which has
    /// the format of PATH. The returned instance and `kustomize` share the queue and the setting for the tools'
    /// messages.
    pub fn beside(kustomize: &Kustomize, path: Option<&OsStr>) -> Self {
        let tool = match &kustomize.renderer {
            Some(renderer) => Some(Tool::Beside(renderer.clone(), Purpose::Helm)),
            None => path.and_then(|path| Program::find(path, Purpose::Helm)).map(Tool::Here),
        };
        Self {
            tool,
            scratch: kustomize.scratch.clone(),
            turns: Arc::clone(&kustomize.turns),
            words: kustomize.words,
            kept: kustomize.kept.clone(),
        }
    }

    /// Renders the chart of a `Chart.yaml` for a namespace, unless its key is `known`.
    ///
    /// # Errors
    /// If the repository cannot be read, or the renderer does not respond. A refusal by the tool is a problem.
    pub async fn render(
        &self,
        namespace: &str,
        snapshot: &Snapshot,
        file: &str,
        options: &ChartOptions,
        capabilities: &Capabilities,
        known: Option<ChartKey>,
    ) -> Result<RenderedChart, Error> {
        let (named, given) = (file.to_owned(), options.clone());
        let read = move |mut snapshot: &Snapshot| chart_files(&mut snapshot, &named, &given);
        let mut files = snapshot.blocking(read).await??;
        let chart = files.digest(options);
        let cluster = capabilities.digest();
        let is_known = known.is_some_and(|known| known.chart == chart && !known.is_outdated(cluster));
        let outputs = match &self.tool {
            _ if !files.problems.is_empty() => Some(Err(std::mem::take(&mut files.problems))),
            _ if is_known => None,
            None => Some(Err(vec![Problem::new(Place::file(file), NO_TOOL, Some(NO_TOOL_HINT))])),
            Some(tool) => {
                if options.decoy.is_none()
                    && let Some((first, capabilities)) = self.kept(snapshot, chart, cluster).await?
                {
                    let outputs = Outputs { first, second: None };
                    let outputs = Some(Ok((outputs, ChartKey { chart, capabilities })));
                    return Ok(RenderedChart { files, outputs });
                }
                let turn = self.turns.next(namespace).await;
                let (root, asked) = self.copy(snapshot, file, &files, options).await?;
                let outputs = match root {
                    Err(not_copied) => Err(vec![not_copied.problem(file)]),
                    Ok(root) => {
                        let words = if options.decoy.is_some() { Words::Reduced } else { self.words };
                        let root = root.path();
                        let job = Job { tool, root, file, files: &files, options, capabilities, words };
                        match job.outputs(asked).await {
                            Ok(outputs) => Ok(outputs),
                            Err(NotRendered::Refused(problem)) => Err(vec![problem]),
                            Err(NotRendered::Away(error)) => return Err(Error::Renderer(error)),
                        }
                    }
                };
                drop(turn);
                let capabilities = asked.capabilities.then_some(cluster);
                if let Ok(outputs) = &outputs
                    && options.decoy.is_none()
                {
                    self.keep(snapshot, ChartKey { chart, capabilities }, outputs).await?;
                }
                Some(outputs.map(|outputs| (outputs, ChartKey { chart, capabilities })))
            }
        };
        Ok(RenderedChart { files, outputs })
    }

    /// Returns the stored output of a chart if it suits a cluster, with the digest of the capabilities that the chart
    /// has read.
    async fn kept(
        &self,
        snapshot: &Snapshot,
        chart: Digest,
        cluster: Digest,
    ) -> Result<Option<(Vec<u8>, Option<Digest>)>, mainstay_git::Error> {
        let Some(kept) = self.kept.clone() else { return Ok(None) };
        let suits = move |capabilities: Option<Digest>| capabilities.is_none_or(|then| then == cluster);
        snapshot.blocking(move |_| kept.get(&inputs(chart), suits)).await
    }

    /// Stores an output on disk, unless the outputs of the two runs differ.
    async fn keep(&self, snapshot: &Snapshot, key: ChartKey, outputs: &Outputs) -> Result<(), mainstay_git::Error> {
        let agrees = outputs.second.as_ref().is_none_or(|second| *second == outputs.first);
        let Some(kept) = self.kept.clone().filter(|_| agrees) else { return Ok(()) };
        let output = outputs.first.clone();
        snapshot.blocking(move |_| kept.put(&inputs(key.chart), key.capabilities, &output)).await
    }

    /// Copies the chart and the values files into a directory under fixed names. Returns the directory, and the facts
    /// that the templates read.
    async fn copy(
        &self,
        snapshot: &Snapshot,
        file: &str,
        files: &ChartFiles,
        options: &ChartOptions,
    ) -> Result<(Result<tempfile::TempDir, NotCopied>, Asked), mainstay_git::Error> {
        let own = files.files.iter().map(|(path, entry)| (format!("{CHART}/{}", within(file, path)), entry.clone()));
        let values = files.values.iter().enumerate().map(|(at, entry)| (format!("{VALUES}/{at}.yaml"), entry.clone()));
        let all: BTreeMap<String, Entry> = own.chain(values).collect();
        let asked = Arc::new(Mutex::new(Asked::default()));
        let looking = Arc::clone(&asked);
        let root = copy(snapshot, &all, &Added::default(), &self.scratch, move |path, content| {
            looking.lock().look_at(path, content);
        })
        .await?;
        let root = root.and_then(|root| {
            asked.lock().look_at("", options.values().as_deref().unwrap_or_default());
            write(&root.path().join(ZONE), &zone(AHEAD)).map_err(NotCopied::Disk)?;
            Ok(root)
        });
        let asked = *asked.lock();
        Ok((root, asked))
    }
}

/// Returns the name under which the output of a chart with this digest is stored.
fn inputs(chart: Digest) -> String {
    format!("chart {chart}")
}

/// A chart whose copy is ready.
struct Job<'j> {
    tool: &'j Tool,
    root: &'j Path,
    file: &'j str,
    files: &'j ChartFiles,
    options: &'j ChartOptions,
    capabilities: &'j Capabilities,
    words: Words,
}

/// The reason that a run failed.
enum NotRendered {
    /// A problem of the chart.
    Refused(Problem),
    /// The container with the tool does not respond.
    Away(std::io::Error),
}

impl Job<'_> {
    async fn outputs(&self, asked: Asked) -> Result<Outputs, NotRendered> {
        let zone = self.root.join(ZONE);
        let begun = Instant::now();
        let first = self.once(None).await?;
        if !asked.varies() {
            return Ok(Outputs { first, second: None });
        }
        if asked.time {
            tokio::time::sleep(A_MOMENT.saturating_sub(begun.elapsed())).await;
        }
        // If the chart parses local times, its output would differ in a different time zone, so the second run has the
        // same time zone.
        let second = self.once((asked.time && !asked.zone).then_some(&*zone)).await?;
        Ok(Outputs { first, second: Some(second) })
    }

    async fn once(&self, zone: Option<&Path>) -> Result<Vec<u8>, NotRendered> {
        let nowhere = self.root.join(NOWHERE);
        let mut variables: Vec<(&str, &Path)> = DIRECTORIES.map(|name| (name, &*nowhere)).to_vec();
        variables.extend(zone.map(|zone| ("TZ", zone)));
        let input = self.options.values();
        match self.tool.run(self.root, &self.arguments(), &variables, input.as_deref()).await {
            Run::Built(documents) => Ok(documents),
            Run::Failed(words) => {
                let line = |path: &str, line: usize| self.line(path, line);
                let told = Told { chart: self.file, files: self.files, root: self.root, words: &words };
                let problem = refusal(&told, &line);
                Err(NotRendered::Refused(self.words.add(problem, &words, &self.root.to_string_lossy())))
            }
            Run::Ended(why) => Err(self.refused(&why, "reduce the output of its templates")),
            Run::Missing => Err(self.refused(NO_TOOL, NO_TOOL_HINT)),
            Run::Away(error) => Err(NotRendered::Away(error)),
        }
    }

    fn refused(&self, what: &str, hint: &str) -> NotRendered {
        NotRendered::Refused(Problem::new(Place::file(self.file), what, Some(hint)))
    }

    /// Returns the arguments of the tool. Each value is in the same argument as its option, so the value cannot be
    /// taken for an option.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![
            "--skip-tests".into(),
            format!("--namespace={}", self.options.namespace).into(),
            format!("--kube-version={}", self.capabilities.kube_version).into(),
        ];
        if self.options.helm.include_crds {
            arguments.push("--include-crds".into());
        }
        arguments.extend(self.capabilities.api_versions.iter().map(|api| format!("--api-versions={api}").into()));
        let files = (0..self.files.values.len()).map(|at| self.root.join(format!("{VALUES}/{at}.yaml")));
        let own = self.options.helm.values.is_some().then(|| STANDARD_INPUT.into());
        for values in files.chain(own) {
            let mut argument = OsString::from("--values=");
            argument.push(values);
            arguments.push(argument);
        }
        arguments.extend(["--".into(), self.options.release().into(), self.root.join(CHART).into()]);
        arguments
    }

    /// Returns the line with this number, from 1, in a file of the chart.
    fn line(&self, path: &str, line: usize) -> Option<String> {
        let text = std::fs::read(self.root.join(CHART).join(within(self.file, path))).ok()?;
        String::from_utf8_lossy(&text).lines().nth(line.checked_sub(1)?).map(str::to_owned)
    }
}

/// Returns a time zone with this offset in seconds, in the format of RFC 9636, version 1, with one local time type.
fn zone(ahead: i32) -> Vec<u8> {
    let mut bytes = b"TZif".to_vec();
    bytes.extend([0; 16]);
    for count in [0u32, 0, 0, 0, 1, 4] {
        bytes.extend(count.to_be_bytes());
    }
    bytes.extend(ahead.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(b"ZZZ\0");
    bytes
}
