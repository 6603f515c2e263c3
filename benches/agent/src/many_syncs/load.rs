//! The load: a Git repository with four objects of four kinds for each GitSync, in a directory of its own, or as one
//! chart with a values file for each.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::Error;
use crate::commit;

/// Objects per GitSync.
pub(super) const OBJECTS: usize = 4;

/// Directory of the chart.
const CHART: &str = "chart";

/// The form of the objects in the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Each GitSync has a directory of manifests.
    Manifests,
    /// All GitSyncs render one chart, each with its own values.
    Charts,
}

impl Form {
    /// Returns what the title of the table adds for this form.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Manifests => "",
            Self::Charts => ", each renders a chart with values of its own",
        }
    }
}

/// A repository in a temporary directory, and the committed revision of each GitSync's ConfigMap.
pub(super) struct Load {
    directory: PathBuf,
    form: Form,
    revisions: Vec<u32>,
}

impl Load {
    /// Creates the repository with one commit of the objects of this many GitSyncs.
    pub(super) fn new(directory: &Path, syncs: usize, form: Form) -> Result<Self, Error> {
        let load = Self { directory: directory.to_owned(), form, revisions: vec![0; syncs] };
        fs::create_dir_all(directory).map_err(Error::Load)?;
        commit::init(directory).map_err(Error::Commit)?;
        if form == Form::Charts {
            let release = objects("{{ .Release.Name }}", "{{ .Values.revision }}");
            load.file(&format!("{CHART}/Chart.yaml"), "apiVersion: v2\nname: many\nversion: 0.1.0\n")?;
            for object in release {
                let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
                load.file(&format!("{CHART}/templates/{kind}.yaml"), &format!("{object:#}\n"))?;
            }
        }
        for number in 0..syncs {
            load.write(number)?;
        }
        commit::everything(directory, "load").map_err(Error::Commit)?;
        Ok(load)
    }

    /// Returns the number of GitSyncs.
    pub(super) fn len(&self) -> usize {
        self.revisions.len()
    }

    /// Returns the name of a GitSync and of its objects.
    pub(super) fn name(number: usize) -> String {
        format!("many-{number:05}")
    }

    /// Returns the form of the objects.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Returns the spec of a GitSync of this repository.
    pub(super) fn spec(&self, number: usize, repository: &str) -> Value {
        let (base_dir, render) = match self.form {
            Form::Manifests => (format!("/apps/{}", Self::name(number)), json!({})),
            Form::Charts => {
                let values = format!("/values/{}.yaml", Self::name(number));
                (format!("/{CHART}"), json!({ "helm": { "valuesFiles": [values] } }))
            }
        };
        json!({ "gitRepository": repository, "reference": "main", "baseDir": base_dir, "render": render })
    }

    /// Returns the committed `data.revision` of a GitSync's ConfigMap.
    pub(super) fn revision(&self, number: usize) -> String {
        self.revisions[number].to_string()
    }

    /// Commits a change of all objects of one GitSync.
    pub(super) fn change(&mut self, number: usize) -> Result<(), Error> {
        self.revisions[number] += 1;
        self.write(number)?;
        commit::everything(&self.directory, "change one").map_err(Error::Commit)
    }

    /// Commits a change of all four objects of each GitSync.
    pub(super) fn change_all(&mut self) -> Result<(), Error> {
        for number in 0..self.len() {
            self.revisions[number] += 1;
            self.write(number)?;
        }
        commit::everything(&self.directory, "change all").map_err(Error::Commit)
    }

    /// Commits a file that no GitSync reads. Returns the commit ID.
    pub(super) fn unrelated(&mut self) -> Result<String, Error> {
        fs::write(self.directory.join("README.md"), "Nothing but words.\n").map_err(Error::Load)?;
        commit::everything(&self.directory, "no manifests").map_err(Error::Commit)?;
        self.commit()
    }

    /// Returns the ID of the newest commit.
    pub(super) fn commit(&self) -> Result<String, Error> {
        commit::head(&self.directory).map_err(Error::Commit)
    }

    fn write(&self, number: usize) -> Result<(), Error> {
        let (name, revision) = (Self::name(number), self.revision(number));
        match self.form {
            Form::Manifests => {
                // JSON is YAML, too.
                let text = objects(&name, &revision).map(|object| format!("---\n{object:#}\n")).concat();
                self.file(&format!("apps/{name}/objects.yaml"), &text)
            }
            Form::Charts => self.file(&format!("values/{name}.yaml"), &format!("revision: {revision}\n")),
        }
    }

    fn file(&self, path: &str, text: &str) -> Result<(), Error> {
        let path = self.directory.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text)).map_err(Error::Load)
    }
}

/// Returns the objects of a GitSync. All of them change with the revision.
pub(super) fn objects(name: &str, revision: &str) -> [Value; OBJECTS] {
    let metadata = || json!({ "name": name, "annotations": { "revision": revision } });
    [
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(), "data": { "revision": revision } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata() }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata(), "stringData": { "word": name } }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(),
            "spec": { "selector": { "app": name }, "ports": [{ "port": 80 }] },
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_one_object_of_one_directory() {
        let folder = tempfile::tempdir().unwrap();
        let mut load = Load::new(folder.path(), 3, Form::Manifests).unwrap();
        let read = |number: usize| {
            fs::read_to_string(folder.path().join("apps").join(Load::name(number)).join("objects.yaml")).unwrap()
        };
        let before = [read(0), read(1), read(2)];
        assert_eq!(before[1].matches("\"kind\":").count(), OBJECTS);
        load.change(1).unwrap();
        assert_eq!((read(0), read(2)), (before[0].clone(), before[2].clone()));
        assert!(read(1).contains("\"revision\": \"1\""));
        assert_eq!((load.len(), load.revision(1), load.revision(2)), (3, "1".into(), "0".into()));
    }
}
