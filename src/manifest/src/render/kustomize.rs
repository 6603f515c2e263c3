//! Builds the kustomizations of a commit, one at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::added::{Added, WithAdded};
use super::closure::{Closure, closure, components, join, parent};
use super::copies::copy;
use super::error::Error;
use super::kept::Kept;
use super::kustomization::fields;
use super::origins::{Asking, Origins, asking};
use super::overlay::Overlay;
use super::patches::Patches;
use super::program::{Program, Purpose, Run};
use super::refusal::refusal;
use super::renderer::{self, Renderer};
use super::tool::Tool;
use super::turns::Turns;
use super::words::Words;
use crate::Problem;
use mainstay_git::Snapshot;
use mainstay_object::{Digest, Place};

/// The problem if no tool is installed.
const NO_TOOL: &str = "it is built by `kustomize` or `kubectl kustomize`, but neither program was found";
const NO_TOOL_HINT: &str =
    "install one of the two where the agent finds it on its PATH, or name the directory in .mainstayignore";

/// Directory below `baseDir` for the generated kustomization of an overlay.
const OWN_DIRECTORY: &str = ".mainstay-overlay";
/// File in `OWN_DIRECTORY` with the objects to change.
const OBJECTS: &str = "objects.yaml";

/// Builds kustomizations with the official tool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kustomize {
    tool: Option<Tool>,
    /// The renderer, if the tools run in a separate container.
    pub(super) renderer: Option<Renderer>,
    pub(super) scratch: PathBuf,
    pub(super) turns: Arc<Turns>,
    pub(super) words: Words,
    /// The stored outputs; `None` if outputs are not stored.
    pub(super) kept: Option<Arc<Kept>>,
}

/// The input of a build.
#[derive(Debug)]
pub enum Built<'a> {
    /// The kustomization in a file, with the overlay of a GitSync.
    Kustomization(&'a str, Option<&'a Overlay>),
    /// Serialized objects, with the overlay of the GitSync that has this `baseDir`.
    Objects(&'a str, Vec<u8>, &'a Overlay),
}

/// A kustomization that was built, or that is unchanged.
#[derive(Debug)]
pub struct Rendered {
    /// The inputs of the kustomization. Their problems are in `documents`.
    pub closure: Closure,
    /// The identity of the documents.
    pub key: Digest,
    /// The documents, or problems; `None` if the kustomization is unchanged.
    pub documents: Option<Result<Vec<u8>, Vec<Problem>>>,
    /// The origins of the objects in the documents.
    pub origins: Origins,
}

impl Kustomize {
    /// Uses the tool in the directories of `path`, which has the format of PATH. The inputs of the tool are copied into
    /// directories below `scratch`.
    pub fn new(path: Option<&std::ffi::OsStr>, scratch: PathBuf) -> Self {
        let tool = path.and_then(|path| Program::find(path, Purpose::Kustomize)).map(Tool::Here);
        Self::with(tool, None, scratch)
    }

    /// Uses the tool of the renderer that shares this directory with the agent.
    pub fn in_renderer(shared: &Path) -> Self {
        let renderer = Renderer::new(shared);
        let tool = Tool::Beside(renderer.clone(), Purpose::Kustomize);
        Self::with(Some(tool), Some(renderer), renderer::files(shared))
    }

    fn with(tool: Option<Tool>, renderer: Option<Renderer>, scratch: PathBuf) -> Self {
        // Removes the files that a killed agent left.
        _ = std::fs::remove_dir_all(&scratch);
        Self { tool, renderer, scratch, turns: Arc::default(), words: Words::Reduced, kept: None }
    }

    /// Sets how much of the tools' own messages problems show. The setting also applies to charts.
    #[must_use]
    pub fn showing(self, words: Words) -> Self {
        Self { words, ..self }
    }

    /// Stores outputs in a directory, including those of charts. `path` contains the tools, also if they run in the
    /// renderer.
    #[must_use]
    pub fn keeping(self, directory: PathBuf, path: Option<&std::ffi::OsStr>) -> Self {
        Self { kept: Some(Arc::new(Kept::new(directory, path))), ..self }
    }

    /// Returns the number of built kustomizations and rendered charts so far, including refused ones.
    pub fn renders(&self) -> u64 {
        self.turns.taken()
    }

    /// Builds a kustomization for a namespace, unless its key is `known`.
    ///
    /// # Errors
    /// If the repository cannot be read, or the renderer does not respond. A refusal by the tool is a problem.
    pub async fn build(
        &self,
        namespace: &str,
        snapshot: &Snapshot,
        built: Built<'_>,
        known: Option<Digest>,
    ) -> Result<Rendered, Error> {
        let prepared = Prepared::of(built);
        let (file, shown) = (prepared.file.clone(), prepared.shown.clone());
        let (mut closure, added, keeps) = snapshot.blocking(move |snapshot| prepared.read(snapshot)).await??;
        let key = match added.digest() {
            Some(added) => Digest::of(format!("{} {added}", closure.digest()).as_bytes()),
            None => closure.digest(),
        };
        let mut origins = Origins::new(&shown, &file, &closure, keeps);
        let problem = |what: &str, hint: &str| vec![Problem::new(Place::file(&*shown), what, Some(hint))];
        let documents = match &self.tool {
            _ if !closure.problems.is_empty() => Some(Err(std::mem::take(&mut closure.problems))),
            _ if known == Some(key) => None,
            None => Some(Err(problem(NO_TOOL, NO_TOOL_HINT))),
            Some(tool) => {
                let inputs = format!("kustomization {file} {key}");
                if let Some(documents) = self.kept(snapshot, &inputs).await? {
                    let (closure, patches) = patches_of(snapshot, closure, &added, &file).await?;
                    let origins = origins.patched_by(patches);
                    return Ok(Rendered { closure, key, documents: Some(Ok(documents)), origins });
                }
                let turn = self.turns.next(namespace).await;
                // A build that waits for its turn keeps no patches, because they take memory.
                let patches;
                (closure, patches) = patches_of(snapshot, closure, &added, &file).await?;
                origins = origins.patched_by(patches.clone());
                let root = copy(snapshot, &closure.files, &added, &self.scratch, |_, _| {}).await?;
                let built = match &root {
                    Err(not_copied) => Err(vec![not_copied.problem(&shown)]),
                    Ok(root) => match run(tool, root.path(), parent(&file)).await {
                        Run::Built(documents) => {
                            if let Some(kept) = self.kept.clone() {
                                let documents = documents.clone();
                                snapshot.blocking(move |_| kept.put(&inputs, None, &documents)).await?;
                            }
                            Ok(documents)
                        }
                        Run::Failed(words) => Err({
                            let files = closure.files.keys().map(String::as_str);
                            let root = root.path().to_string_lossy();
                            let problem = refusal(&shown, &root, &words, files, &patches);
                            vec![self.words.add(problem, &words, &root)]
                        }),
                        Run::Ended(why) => Err(problem(&why, "split it")),
                        Run::Missing => Err(problem(NO_TOOL, NO_TOOL_HINT)),
                        Run::Away(error) => return Err(Error::Renderer(error)),
                    },
                };
                drop(turn);
                Some(built)
            }
        };
        Ok(Rendered { closure, key, documents, origins })
    }
}

impl Kustomize {
    /// Returns the stored documents for these inputs.
    async fn kept(&self, snapshot: &Snapshot, inputs: &str) -> Result<Option<Vec<u8>>, mainstay_git::Error> {
        let Some(kept) = self.kept.clone() else { return Ok(None) };
        let inputs = inputs.to_owned();
        let found = snapshot.blocking(move |_| kept.get(&inputs, |_| true)).await?;
        Ok(found.map(|(documents, _)| documents))
    }
}

/// Reads the patches of the kustomization in `file`. Returns the patches together with the inputs of the kustomization.
async fn patches_of(
    snapshot: &Snapshot,
    closure: Closure,
    added: &Added,
    file: &str,
) -> Result<(Closure, Patches), mainstay_git::Error> {
    let (added, file) = (added.clone(), file.to_owned());
    let read = move |snapshot: &Snapshot| {
        let patches = Patches::read(&mut WithAdded { tree: snapshot, added: &added }, &closure, &file);
        patches.map(|patches| (closure, patches))
    };
    snapshot.blocking(read).await?
}

/// A build whose inputs have not been read from the commit.
struct Prepared {
    /// The file of the kustomization.
    file: String,
    /// The file, or directory, that problems name.
    shown: String,
    base_dir: String,
    objects: Option<Vec<u8>>,
    overlay: Option<Overlay>,
}

impl Prepared {
    fn of(built: Built<'_>) -> Self {
        match built {
            Built::Kustomization(file, overlay) => Self {
                file: file.to_owned(),
                shown: file.to_owned(),
                base_dir: parent(file).to_owned(),
                objects: None,
                overlay: overlay.cloned(),
            },
            Built::Objects(base_dir, objects, overlay) => Self {
                file: join(base_dir, &format!("{OWN_DIRECTORY}/kustomization.yaml")),
                shown: if base_dir.is_empty() { "/".to_owned() } else { base_dir.to_owned() },
                base_dir: base_dir.to_owned(),
                objects: Some(objects),
                overlay: Some(overlay.clone()),
            },
        }
    }

    /// Returns the inputs, the additional files, and whether the kustomization itself requests origin annotations.
    fn read(self, mut snapshot: &Snapshot) -> Result<(Closure, Added, bool), mainstay_git::Error> {
        let mut added = Added::default();
        let Some(overlay) = self.overlay else {
            let found = closure(&mut snapshot, &self.file)?;
            let root = found.files.get(&self.file).filter(|_| found.problems.is_empty());
            let Some(content) = root.map(|root| snapshot.read(root)).transpose()? else {
                return Ok((found, added, false));
            };
            let Ok(root) = fields(&content) else { return Ok((found, added, false)) };
            let Asking { keeps, content } = asking(&content, &root);
            added.0.extend(content.map(|content| (self.file, content)));
            return Ok((found, added, keeps));
        };
        let root = if let Some(objects) = self.objects {
            added.0.insert(join(parent(&self.file), OBJECTS), objects);
            overlay.edit(json!({"resources": [OBJECTS]}).as_object().cloned().unwrap_or_default(), "../")
        } else {
            let found = closure(&mut snapshot, &self.file)?;
            let root = match found.files.get(&self.file) {
                // Problems must name lines of the original file.
                Some(root) if found.problems.is_empty() => fields(&snapshot.read(root)?).ok(),
                _ => None,
            };
            let Some(root) = root else { return Ok((found, added, false)) };
            overlay.edit(root, "")
        };
        let problems = components(&mut snapshot, &self.base_dir, &overlay.components)?;
        if !problems.is_empty() {
            return Ok((Closure::of_problems(problems), added, false));
        }
        let text = Value::Object(root.clone()).to_string().into_bytes();
        let Asking { keeps, content } = asking(&text, &root);
        added.0.insert(self.file.clone(), content.unwrap_or(text));
        let found = closure(&mut WithAdded { tree: snapshot, added: &added }, &self.file)?;
        Ok((found, added, keeps))
    }
}

async fn run(tool: &Tool, root: &Path, directory: &str) -> Run {
    tool.run(root, &["--".into(), root.join(directory).into()], &[], None).await
}
