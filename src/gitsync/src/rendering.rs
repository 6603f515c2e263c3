//! Builds the kustomizations and renders the charts of a commit. A result is reused while its inputs do not change.
//! Then encrypted values are decrypted in all objects, and variables are substituted.
//!
//! Invariant: a commit that changes no input of a kustomization or chart causes no build, wherever the input is.

use super::attempt::Attempt;
use super::chart_secrets::{self, Rendered};
use super::chart_values::SecretValues;
use super::charts;
use super::decryption::Which;
use super::kustomizations::{Built as BuiltOne, Verified};
use super::outcome::Refused;
use super::resolve::Directory;
use super::substitution;
use mainstay_api::render::Hooks;
use mainstay_git::{BaseDir, Entry, Found, Snapshot};
use mainstay_manifest::render::chart_objects::chart_objects;
use mainstay_manifest::render::written_out::{read_back, with_metadata, written_out};
use mainstay_manifest::render::{Built, Capabilities, ChartFiles, ChartOptions, Outputs, Overlay};
use mainstay_manifest::{Decoded, Limits};
use mainstay_object::Digest;

/// Whether a directory contains a file directly.
fn is_in(directory: &BaseDir, file: &str) -> bool {
    file.rsplit_once('/').map_or("", |(parent, _)| parent) == directory.path()
}

/// Returns the changes of the GitSync to all objects; `None` if the kustomization of its directory makes them, or if they
/// are refused.
fn overlay_of<'d>(directory: &'d Directory, decoded: &mut Decoded) -> Option<&'d Overlay> {
    let is_built = decoded.kustomizations.iter().any(|file| is_in(&directory.base_dir, file));
    let overlay = directory.overlay.as_ref().filter(|_| !is_built && !decoded.objects.is_empty())?;
    match chart_secrets::unwritable(&decoded.objects) {
        None => Some(overlay),
        Some(problem) => {
            decoded.problems.push(problem);
            None
        }
    }
}

/// Returns a function that decodes the objects of a rendered chart.
fn chart(
    file: &str,
    files: ChartFiles,
    outputs: Outputs,
    hooks: Hooks,
    limits: &Limits,
) -> impl FnOnce(&Snapshot) -> Rendered + use<> {
    let limits = Limits { decryption: limits.decryption.in_chart(), ..limits.clone() };
    let file = file.to_owned();
    move |_: &Snapshot| chart_objects(&file, &files, &outputs, hooks, &limits)
}

impl Attempt<'_> {
    /// Builds the kustomizations found by decoding. Adds their objects and problems to `decoded`.
    pub(super) async fn build_kustomizations(
        &mut self,
        snapshot: &Snapshot,
        directory: &Directory,
        limits: &Limits,
        decoded: &mut Decoded,
    ) -> Result<(), Refused> {
        self.state.compiled.decode_as(limits.form, limits.decryption.keys().is_some());
        let mut before = std::mem::take(&mut self.state.compiled.kustomizations);
        let base_dir = &directory.base_dir;
        for file in &decoded.kustomizations {
            let known = before.by_file.remove(file);
            let kustomize = &self.context.kustomize;
            let key = known.as_ref().map(|built| built.key);
            let overlay = directory.overlay.as_ref().filter(|_| is_in(base_dir, file));
            let rendered =
                kustomize.build(self.namespace(), snapshot, Built::Kustomization(file, overlay), key).await?;
            self.state.compiled.kustomizations.read(base_dir.path(), &rendered.closure.files);
            let (objects, was) = match (rendered.documents, known) {
                (None, Some(built)) => (built.objects, Some(built.verified)),
                (None, None) => continue,
                (Some(Err(problems)), _) => {
                    decoded.problems.extend(problems);
                    continue;
                }
                (Some(Ok(documents)), _) => {
                    let (origins, limits) = (rendered.origins, limits.clone());
                    let read = move |_: &Snapshot| mainstay_manifest::decode_rendered(&origins, &documents, &limits);
                    let read = snapshot.blocking(read).await?;
                    if !read.problems.is_empty() {
                        let problems = self.rather(snapshot, &rendered.closure.files, read.problems).await?;
                        decoded.problems.extend(problems);
                        decoded.objects.extend(read.objects);
                        continue;
                    }
                    (read.objects, None)
                }
            };
            decoded.objects.extend(objects.iter().cloned());
            let which = Which::of(&Decoded::default(), &objects);
            let verified = self.verified(snapshot, &rendered.closure.files, which, was).await?;
            let verified = verified.unwrap_or_else(|problems| {
                decoded.problems.extend(problems);
                // If the keys changed, the kustomization is verified again but not rebuilt.
                Verified::default()
            });
            decoded.sealed.extend(verified.sealed.iter().cloned());
            let built = BuiltOne { key: rendered.key, objects, verified };
            self.state.compiled.kustomizations.by_file.insert(file.clone(), built);
        }
        self.state.compiled.kustomizations.overlaid = before.overlaid;
        Ok(())
    }

    /// Applies the changes of the GitSync to all objects, unless the kustomization of its directory already did.
    pub(super) async fn overlay(
        &mut self,
        snapshot: &Snapshot,
        directory: &Directory,
        limits: &Limits,
        decoded: &mut Decoded,
    ) -> Result<(), Refused> {
        let known = self.state.compiled.kustomizations.overlaid.take();
        let base_dir = &directory.base_dir;
        if let Some(overlay) = overlay_of(directory, decoded) {
            let before = std::mem::take(&mut decoded.objects);
            let written = written_out(&before);
            let (kustomize, key) = (&self.context.kustomize, known.as_ref().map(|built| built.key));
            let built = Built::Objects(base_dir.path(), written, overlay);
            let rendered = kustomize.build(self.namespace(), snapshot, built, key).await?;
            self.state.compiled.kustomizations.read(base_dir.path(), &rendered.closure.files);
            let (objects, was) = match (rendered.documents, known) {
                (None, Some(built)) => (Ok(built.objects), Some(built.verified)),
                (None, None) => return Ok(()),
                (Some(Err(problems)), _) => (Err(problems), None),
                (Some(Ok(documents)), _) => {
                    let (origins, limits) = (rendered.origins, limits.clone());
                    let read = move |_: &Snapshot| {
                        let read = mainstay_manifest::decode_rendered(&origins, &documents, &limits);
                        if read.problems.is_empty() {
                            read_back(&read.objects, &before, limits.form)
                        } else {
                            Err(read.problems)
                        }
                    };
                    (snapshot.blocking(read).await?, None)
                }
            };
            // Components of the GitSync may read encrypted files, too.
            let which = Which::of(decoded, objects.as_deref().unwrap_or_default());
            let verified = self.verified(snapshot, &rendered.closure.files, which, was).await?;
            match objects {
                Ok(objects) => {
                    let verified = verified.unwrap_or_else(|problems| {
                        decoded.problems.extend(problems);
                        Verified::default()
                    });
                    decoded.objects.clone_from(&objects);
                    decoded.sealed.extend(verified.sealed.iter().cloned());
                    self.state.compiled.kustomizations.overlaid =
                        Some(BuiltOne { key: rendered.key, objects, verified });
                }
                Err(problems) => decoded.problems.extend(problems),
            }
        }
        if let Some(common) = directory.common_metadata.clone() {
            let (objects, form) = (std::mem::take(&mut decoded.objects), limits.form);
            match snapshot.blocking(move |_| with_metadata(&objects, &common, form)).await? {
                Ok(objects) => decoded.objects = objects,
                Err(problems) => decoded.problems.extend(problems),
            }
        }
        Ok(())
    }

    /// Renders the charts found by decoding. Adds their objects and problems to `decoded`.
    pub(super) async fn render_charts(
        &mut self,
        snapshot: &Snapshot,
        directory: &Directory,
        limits: &Limits,
        decoded: &mut Decoded,
    ) -> Result<(), Refused> {
        let mut before = std::mem::take(&mut self.state.compiled.charts);
        let base_dir = directory.base_dir.path();
        let misplaced = charts::misplaced(directory, decoded);
        decoded.problems.extend(misplaced);
        if decoded.charts.is_empty() {
            return Ok(());
        }
        let capabilities = charts::capabilities(&*self.context.writer.cluster().capabilities().await?);
        let mut helm = directory.helm.clone().unwrap_or_default();
        if let Some(values) = self.state.inputs.chart() {
            // They include those of `values`.
            (helm.values, helm.values_from) = (Some(values.map.clone()), Vec::new());
        }
        let namespace = directory.target_namespace.clone();
        let decoy = self.state.inputs.secret_of_chart().map(SecretValues::digest);
        let options = ChartOptions { name: self.name().to_owned(), namespace, helm, decoy };
        for file in &decoded.charts {
            let known = before.by_file.remove(file);
            let key = known.as_ref().map(|(key, _)| *key);
            let helm = &self.context.helm;
            let rendered = helm.render(self.namespace(), snapshot, file, &options, &capabilities, key).await?;
            let values = rendered.files.values.iter().map(|entry| (entry.path.clone(), entry.clone()));
            self.state.compiled.kustomizations.read(base_dir, &values.collect());
            let (key, objects) = match (rendered.outputs, known) {
                (None, Some(known)) => known,
                (None, None) => continue,
                (Some(Err(problems)), _) => {
                    decoded.problems.extend(problems);
                    continue;
                }
                (Some(Ok((outputs, key))), _) => {
                    let read = chart(file, rendered.files, outputs, options.helm.hooks, limits);
                    let read = snapshot.blocking(read).await?;
                    match self.marked(read, snapshot, (file, &options, &capabilities), limits).await? {
                        Ok(objects) => (key, objects),
                        Err(problems) => {
                            decoded.problems.extend(problems);
                            continue;
                        }
                    }
                }
            };
            decoded.objects.extend(objects.iter().cloned());
            self.state.compiled.charts.by_file.insert(file.clone(), (key, objects));
        }
        Ok(())
    }

    /// Marks the objects of a chart that depend on values of Secrets. For that, renders the chart with other values.
    async fn marked(
        &self,
        rendered: Rendered,
        snapshot: &Snapshot,
        (file, options, capabilities): (&str, &ChartOptions, &Capabilities),
        limits: &Limits,
    ) -> Result<Rendered, Refused> {
        let Some(secret) = self.state.inputs.secret_of_chart() else { return Ok(rendered) };
        let mut options = options.clone();
        options.helm.values = Some(secret.decoy.clone());
        let decoy = self.context.helm.render(self.namespace(), snapshot, file, &options, capabilities, None).await?;
        let decoy = match decoy.outputs {
            Some(Ok((outputs, _))) => {
                Some(snapshot.blocking(chart(file, decoy.files, outputs, options.helm.hooks, limits)).await?)
            }
            _ => None,
        };
        Ok(chart_secrets::marked(rendered, decoy.as_ref(), &secret.texts))
    }

    /// Substitutes variables, if the GitSync requests that. Returns whether it does.
    pub(super) async fn substitute(
        &mut self,
        snapshot: &Snapshot,
        limits: &Limits,
        decoded: &mut Decoded,
    ) -> Result<bool, mainstay_git::Error> {
        let Some(values) = self.state.inputs.variables().cloned() else {
            self.state.compiled.set_with_expressions(Vec::new());
            return Ok(false);
        };
        // Objects with problems would be reported twice.
        if decoded.problems.is_empty() {
            let (objects, limits) = (std::mem::take(&mut decoded.objects), limits.clone());
            let substituted = snapshot.blocking(move |_| substitution::with_values(objects, &values, &limits)).await?;
            (decoded.objects, decoded.problems) = (substituted.objects, substituted.problems);
            self.state.compiled.set_with_expressions(substituted.with_expressions);
        }
        Ok(true)
    }

    /// Returns a digest of the cluster's capabilities, if a rendered chart reads them.
    pub(super) async fn asked_capabilities(&self) -> Result<Option<Digest>, Refused> {
        if !self.state.compiled.charts.ask_the_cluster() {
            return Ok(None);
        }
        let capabilities = self.context.writer.cluster().capabilities().await?;
        Ok(Some(charts::capabilities(&capabilities).digest()))
    }

    /// Returns the entries of a commit for the files outside of `baseDir` that the cached kustomizations and charts
    /// read.
    pub(super) async fn read_outside(&self, snapshot: &Snapshot) -> Result<Vec<Entry>, mainstay_git::Error> {
        let outside: Vec<String> = self.state.compiled.kustomizations.outside.keys().cloned().collect();
        if outside.is_empty() {
            return Ok(Vec::new());
        }
        let found =
            move |snapshot: &Snapshot| outside.iter().map(|path| snapshot.at(path)).collect::<Result<Vec<_>, _>>();
        let found = snapshot.blocking(found).await??;
        let files = found.into_iter().filter_map(|found| match found {
            Found::File(entry) => Some(entry),
            Found::Directory | Found::Other(_) | Found::Nothing => None,
        });
        Ok(files.collect())
    }
}
