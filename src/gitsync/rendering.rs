//! The kustomizations of a commit become objects, and stay what they are for as long as what they read stays as it was.
//!
//! Invariant: a commit that changes nothing of what a kustomization reads builds nothing, wherever that lies.

use super::attempt::Attempt;
use crate::manifest::{self, Decoded, Limits};
use crate::source::{self, BaseDir, Entry, Found, Snapshot};

impl Attempt<'_> {
    /// Builds the kustomizations that were found while a commit was decoded. Their objects and problems join the others.
    pub(super) async fn build_kustomizations(
        &mut self,
        snapshot: &Snapshot,
        base_dir: &BaseDir,
        limits: &Limits,
        decoded: &mut Decoded,
    ) -> Result<(), source::Error> {
        let mut before = std::mem::take(&mut self.state.kustomizations);
        for file in &decoded.kustomizations {
            let known = before.by_file.remove(file);
            let kustomize = &self.context.kustomize;
            let digest = known.as_ref().map(|(digest, _)| *digest);
            let rendered = kustomize.build(self.namespace(), snapshot, file, digest).await?;
            self.state.kustomizations.read(base_dir.path(), &rendered.closure.files);
            let objects = match (rendered.documents, known) {
                (None, Some((_, objects))) => objects,
                (None, None) => continue,
                (Some(Err(problems)), _) => {
                    decoded.problems.extend(problems);
                    continue;
                }
                (Some(Ok(documents)), _) => {
                    let (file, limits) = (file.clone(), limits.clone());
                    let read = move |_: &Snapshot| manifest::decode_rendered(&file, &documents, &limits);
                    let read = snapshot.blocking(read).await?;
                    if !read.problems.is_empty() {
                        decoded.problems.extend(read.problems);
                        decoded.objects.extend(read.objects);
                        continue;
                    }
                    read.objects
                }
            };
            decoded.objects.extend(objects.iter().cloned());
            self.state.kustomizations.by_file.insert(file.clone(), (rendered.closure.digest(), objects));
        }
        if !decoded.kustomizations.is_empty() && decoded.problems.is_empty() {
            let objects = decoded.objects.iter().map(|object| (&object.key, &**object));
            decoded.problems = manifest::duplicates(objects);
        }
        Ok(())
    }

    /// The files outside of `baseDir` that the kustomizations read which were built last, as a commit has them.
    pub(super) async fn read_outside(&self, snapshot: &Snapshot) -> Result<Vec<Entry>, source::Error> {
        let outside: Vec<String> = self.state.kustomizations.outside.keys().cloned().collect();
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
