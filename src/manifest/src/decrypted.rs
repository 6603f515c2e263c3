//! Decrypts SOPS-encrypted objects in memory, after all other changes to the objects.
//!
//! Invariant: an object is decrypted only with the data key of a verified file of the commit, and only if that file
//! contains an object of the same kind. So no tool can move a value of a Secret into an object that is shown.
//! Invariant: decrypted objects are confidential, whatever their kind.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Problem;
use super::decryption::Decryption;
use super::document::{At, objects};
use super::encrypted::{State, mac_in, sealed_content, state};
use super::limits::{Deadline, Limits};
use super::tokens::Mark;
use crate::sops::Sealed;
use mainstay_object::{Flaw, Names, Object, path_text};

/// The objects of a commit after decryption.
#[derive(Debug, Default)]
pub struct Decrypted {
    /// All objects, in order. Encrypted objects are included in decrypted form.
    pub objects: Vec<Arc<Object>>,
    /// Problems of objects that cannot be decrypted.
    pub problems: Vec<Problem>,
    /// The encrypted objects, in encrypted form.
    pub encrypted: Vec<Arc<Object>>,
}

/// Decrypts objects with the encrypted files from which the objects come.
pub fn decrypted(all: Vec<Arc<Object>>, files: &[Arc<Sealed>], limits: &Limits) -> Decrypted {
    let by_mac: HashMap<&str, &Sealed> = files.iter().map(|file| (file.mac(), &**file)).collect();
    let (mut found, deadline) = (Decrypted::default(), Deadline::new(limits));
    for object in all {
        let Some(map) = sealed_content(&object) else {
            found.objects.push(object);
            continue;
        };
        if deadline.is_over() {
            let hint = "spread the files over several GitSyncs, each with a baseDir of its own";
            found.problems.push(Problem::new(object.place.clone(), "timed out while it was decrypted", Some(hint)));
            break;
        }
        let decrypted = match state(&map, &limits.decryption) {
            Ok(State::Plain) => {
                found.objects.push(object);
                continue;
            }
            Ok(State::Encrypted) => one(&object, map, files, &by_mac, limits),
            Err(flaw) => Err(vec![flaw]),
        };
        match decrypted {
            Ok(decrypted) => found.objects.extend(decrypted),
            Err(flaws) => found.problems.extend(flaws.into_iter().map(|flaw| problem(&object, flaw))),
        }
        found.encrypted.push(object);
    }
    found
}

fn problem(object: &Object, Flaw { path, what, hint }: Flaw) -> Problem {
    let shown = path_text(&path);
    let at = if shown.is_empty() || what.starts_with(&shown) { String::new() } else { format!("{shown}: ") };
    Problem::new(object.place.clone(), format!("{}: {at}{what}", object.key), hint)
}

/// Decrypts an object; `None` if the decrypted object is ignored.
fn one(
    object: &Object,
    map: Map<String, Value>,
    files: &[Arc<Sealed>],
    by_mac: &HashMap<&str, &Sealed>,
    limits: &Limits,
) -> Result<Option<Arc<Object>>, Vec<Flaw>> {
    let flaw = |what: &str, hint| Err(vec![Flaw::new(vec![], what, Some(hint))]);
    let Some(file) = mac_in(&map).and_then(|mac| by_mac.get(mac)) else {
        let what = "its SOPS metadata match none of the encrypted files in the commit";
        return flaw(what, "name the encrypted file itself among the resources, and leave its field `sops` as it is");
    };
    if !file.holds(&object.api_version, &object.key.kind) {
        let what = "its kind differs from the kind in the encrypted file, so its values cannot be decrypted";
        return flaw(what, "encrypt the manifest of the object itself");
    }
    let mut value = Value::Object(map);
    // Patches may have added values from other files.
    let others = files
        .iter()
        .map(|other| &**other)
        .filter(|other| other.mac() != file.mac() && other.holds(&object.api_version, &object.key.kind));
    file.decrypt(&others.collect::<Vec<_>>(), &mut value)?;
    let mark = Mark { line: object.place.line, column: object.place.column };
    let at = At {
        file: &object.place.file,
        document: object.place.document,
        mark,
        items: &[],
        form: limits.form,
        decryption: &Decryption::NotConfigured,
        origins: None,
    };
    let mut read = objects(value, &at, &mut Names::default());
    if !read.flaws.is_empty() {
        return Err(read.flaws);
    }
    Ok(read.objects.pop().map(|read| Arc::new(Arc::unwrap_or_clone(read).from_secret())))
}
