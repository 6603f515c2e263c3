//! `spec.decryption`: the agent watches the Secret with the keys, verifies files that SOPS encrypted, and decrypts
//! their objects.
//!
//! Invariant: keys are parsed once per state of the Secret, and never shown.
//! Invariant: decrypted data is written to no file, and leaves the process only in applies. Only substitution comes
//! after decryption, and the cached state of a commit stays encrypted.
//!
//! Not here: decryption itself (`sops`), and refused files (`manifest`).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::attempt::Attempt;
use super::kustomizations::Verified;
use super::outcome::{Refused, is_usable};
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_cluster::secrets::{Contents, Followed, Known, Purpose, Secrets};
use mainstay_git::{BlobId, Entry, Snapshot};
use mainstay_manifest::sops::Keys;
use mainstay_manifest::{Decoded, Decryption, Limits, Problem};
use mainstay_object::Object;

/// Keys, or the reason why there are none. The reason completes a sentence that begins with the name of the Secret.
type Parsed = Result<Arc<Keys>, String>;

/// The watched Secret of one GitSync; none by default.
#[derive(Default)]
pub(super) struct DecryptionSecret {
    followed: Option<Followed>,
    /// The last parsed contents and keys.
    parsed: Option<(Arc<Contents>, Parsed)>,
}

/// The files to verify.
pub(super) enum Which {
    /// All files that SOPS may have encrypted.
    All,
    /// Files that contain one of these MACs or encrypted values, because patches copied them into objects.
    With { macs: HashSet<String>, values: HashSet<String> },
}

impl DecryptionSecret {
    /// Watches only the Secret that the GitSync names, and returns its decryption.
    ///
    /// # Errors
    ///
    /// The Secret does not exist, cannot be read, or has no usable keys.
    pub(super) async fn of(&mut self, secrets: &Secrets, sync: &GitSync) -> Result<Decryption, Refused> {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let wanted = sync.spec.decryption.as_ref().map(|decryption| (namespace, &*decryption.secret_ref.name));
        if self.followed.as_ref().map(Followed::of) != wanted {
            (self.followed, self.parsed) =
                (wanted.map(|(namespace, name)| secrets.follow(namespace, name, Purpose::Decryption)), None);
        }
        let (Some(followed), Some((_, name))) = (&mut self.followed, wanted) else { return Ok(Decryption::default()) };
        let known = followed.known().await;
        is_usable(name, "keys that decrypt", &known)?;
        let Known::Data(contents) = known else { return Ok(Decryption::default()) };
        let parsed = match self.parsed.take().filter(|(before, _)| *before == contents) {
            Some((_, parsed)) => parsed,
            None => parsed(&contents),
        };
        let (_, parsed) = self.parsed.insert((contents, parsed));
        decryption(name, parsed.clone())
    }

    /// Returns the decryption by a Secret with these contents, without a watch.
    ///
    /// # Errors
    ///
    /// Same as [`of`](Self::of).
    pub(super) fn once(name: &str, known: &Known) -> Result<Decryption, Refused> {
        is_usable(name, "keys that decrypt", known)?;
        let Known::Data(contents) = known else { return Ok(Decryption::default()) };
        decryption(name, parsed(contents))
    }

    /// Returns the watched Secret, to wait for changes.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.followed.iter_mut()
    }
}

fn parsed(contents: &Contents) -> Parsed {
    Keys::of(contents.data.iter().map(|(key, value)| (key.as_str(), value.0.as_slice()))).map(Arc::new)
}

fn decryption(name: &str, parsed: Parsed) -> Result<Decryption, Refused> {
    let invalid = |why| Refused::invalid(Reason::SpecInvalid, format!("Secret {name} (spec.decryption) {why}"));
    parsed.map(Decryption::Keys).map_err(invalid)
}

impl Which {
    /// Selects the files of encrypted objects that are not verified yet.
    pub(super) fn of(decoded: &Decoded, objects: &[Arc<Object>]) -> Self {
        let known: HashSet<&str> = decoded.sealed.iter().map(|file| file.mac()).collect();
        let (mut macs, mut values) = (HashSet::new(), HashSet::new());
        for object in objects {
            if let Some(mac) = mainstay_manifest::mac(object).filter(|mac| !known.contains(&**mac)) {
                macs.insert(mac);
                values.extend(mainstay_manifest::encrypted_values(object));
            }
        }
        Self::With { macs, values }
    }

    fn is_of(&self, content: &[u8]) -> bool {
        match (self, std::str::from_utf8(content)) {
            (_, Err(_)) => false,
            (Self::All, Ok(_)) => true,
            (Self::With { macs, values }, Ok(text)) => {
                macs.iter().any(|mac| text.contains(&**mac))
                    || mainstay_manifest::holds_any(text, |value| values.contains(value))
            }
        }
    }
}

impl Attempt<'_> {
    /// Verifies the encrypted files among `files`; `was` contains earlier results for the same files.
    pub(super) async fn verified(
        &self,
        snapshot: &Snapshot,
        files: &BTreeMap<String, Entry>,
        which: Which,
        was: Option<Verified>,
    ) -> Result<Result<Verified, Vec<Problem>>, mainstay_git::Error> {
        let Some(keys) = self.state.inputs.keys().cloned() else { return Ok(Ok(Verified::default())) };
        let id = Some(keys.id());
        if let Some(was) = was.filter(|was| was.keys == id) {
            return Ok(Ok(was));
        }
        if matches!(&which, Which::With { macs, .. } if macs.is_empty()) {
            return Ok(Ok(Verified { keys: id, sealed: Vec::new() }));
        }
        // Generated files are not in the commit and never encrypted.
        let files: Vec<Entry> = files.values().filter(|entry| entry.id != BlobId::NONE).cloned().collect();
        let limits = self.context.limits.clone();
        snapshot
            .blocking(move |snapshot| {
                let (mut sealed, mut problems) = (Vec::new(), Vec::new());
                for entry in &files {
                    let content = snapshot.read(entry)?;
                    if !which.is_of(&content) {
                        continue;
                    }
                    match mainstay_manifest::verified(&Arc::from(&*entry.path), &content, &keys, &limits) {
                        Ok(more) => sealed.extend(more),
                        Err(more) => problems.extend(more),
                    }
                }
                Ok(if problems.is_empty() { Ok(Verified { keys: id, sealed }) } else { Err(problems) })
            })
            .await?
    }

    /// Returns the problems of the encrypted input files, if there are any; otherwise `problems`, those of the rendered
    /// result.
    pub(super) async fn rather(
        &self,
        snapshot: &Snapshot,
        files: &BTreeMap<String, Entry>,
        problems: Vec<Problem>,
    ) -> Result<Vec<Problem>, mainstay_git::Error> {
        Ok(self.verified(snapshot, files, Which::All, None).await?.err().unwrap_or(problems))
    }

    /// Decrypts all objects after reading, rendering and patches, if there are keys.
    pub(super) async fn decrypt(
        &mut self,
        snapshot: &Snapshot,
        limits: &Limits,
        decoded: &mut Decoded,
    ) -> Result<(), mainstay_git::Error> {
        if limits.decryption.keys().is_none() {
            self.state.compiled.set_encrypted(Vec::new());
            return Ok(());
        }
        // Objects with problems are not decrypted.
        if decoded.problems.is_empty() {
            let (objects, files) = (std::mem::take(&mut decoded.objects), std::mem::take(&mut decoded.sealed));
            let limits = limits.clone();
            let found = snapshot.blocking(move |_| mainstay_manifest::decrypted(objects, &files, &limits)).await?;
            (decoded.objects, decoded.problems) = (found.objects, found.problems);
            self.state.compiled.set_encrypted(found.encrypted);
        }
        Ok(())
    }
}
