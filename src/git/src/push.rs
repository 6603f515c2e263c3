//! Creates a commit with other contents of some files, and pushes it to a branch or another reference.
//!
//! Invariant: a push needs credentials of its own; the caller passes them with the remote. Invariant: nothing is forced.
//! Invariant: neither the mirror nor a work tree changes. The objects are in memory until they are sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use git2::{ObjectType, Odb, Repository};
use jiff::Timestamp;

use super::error::{Error, Fault};
use super::id::{Commit, Id};
use super::objects::{Objects, damaged};
use super::remote::Remote;
use super::remotes::Source;
use super::snapshot::Snapshot;
use super::transport::{self, PushAnswer, PushRequest, PushTarget};
use super::tree::{ItemKind, TreeItem};
use super::verify::{CommitSigner, Verification};

/// Maximum number of bytes of a pushed pack.
const PACK_BYTES: usize = 32 << 20;

/// The facts of a new commit besides its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCommit {
    /// Name of the author and of the committer.
    pub name: String,
    /// Their e-mail address.
    pub email: String,
    /// The message.
    pub message: String,
    /// Seconds since 1970.
    pub seconds: i64,
}

/// A commit that can be pushed.
#[derive(Clone)]
pub struct Upload {
    /// The commit.
    pub commit: Commit,
    /// The commit in Git's stored form.
    raw: Arc<String>,
    pack: Arc<Vec<u8>>,
}

/// Omits the content, which may be that of a Secret.
impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Upload({})", self.commit)
    }
}

impl Upload {
    /// Verifies the signature of the commit itself, if the verification requires one. Blocks.
    ///
    /// # Errors
    /// A lookup of the commit would be refused, too.
    pub fn verify(&self, keys: &Verification, now: Timestamp) -> Result<(), Fault> {
        if keys.asks_for_commit() { keys.judge_commit(self.raw.as_bytes(), now).map(drop) } else { Ok(()) }
    }
}

/// The result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Each reference has the commit.
    Done,
    /// A reference had another commit than expected.
    Moved,
    /// The server refused the push, with this message.
    Refused(String),
}

impl Snapshot {
    /// Returns a commit upon this one, with these contents of existing files by their paths. Blocks. With a signer, call it
    /// on a thread of [`Snapshot::blocking`].
    ///
    /// # Errors
    /// A file does not exist, a name contains characters that a commit cannot have, the mirror is damaged, or the key
    /// cannot sign.
    pub fn with_files(
        &self,
        files: &BTreeMap<String, Vec<u8>>,
        new: &NewCommit,
        signer: Option<&CommitSigner>,
    ) -> Result<Upload, Error> {
        // The key of a signer may need much memory to open.
        let alone = signer.map(|_| self.alone()).transpose();
        let made = alone.and_then(|_alone| make(self.objects(), (self.commit, self.root()), files, new, signer));
        made.map_err(|cause| match cause {
            cause @ Fault::Signing(_) => Error::Sign { cause: Arc::new(cause) },
            cause => Error::Read { path: String::new(), commit: self.commit, cause: Arc::new(cause) },
        })
    }
}

fn make(
    objects: &Objects,
    (parent, root): (Commit, Id),
    files: &BTreeMap<String, Vec<u8>>,
    new: &NewCommit,
    signer: Option<&CommitSigner>,
) -> Result<Upload, Fault> {
    let is_bad = |text: &str| text.is_empty() || text.contains(['<', '>']) || text.contains(char::is_control);
    if is_bad(&new.name) || is_bad(&new.email) || new.message.contains('\0') {
        return Err(Fault::Malformed {
            why: "the author of a commit must have a name and an e-mail address in one line",
        });
    }
    let made = Odb::new().map_err(Fault::git)?;
    made.add_new_mempack_backend(1).map_err(Fault::git)?;
    let mut written = Vec::new();
    let mut write = |kind: ObjectType, bytes: &[u8]| -> Result<Id, Fault> {
        let id = made.write(kind, bytes).map_err(Fault::git)?;
        written.push(id);
        Ok(Id::from(id))
    };
    let mut changes = Vec::new();
    for (path, content) in files {
        changes.push((path.split('/').collect::<Vec<_>>(), write(ObjectType::Blob, content)?));
    }
    let changes: Vec<(&[&str], Id)> = changes.iter().map(|(parts, id)| (&parts[..], *id)).collect();
    let tree = rewrite(objects, root, &changes, &mut write)?;
    let NewCommit { name, email, message, seconds } = new;
    let by = format!("{name} <{email}> {seconds} +0000");
    let text = format!("tree {tree}\nparent {parent}\nauthor {by}\ncommitter {by}\n\n{}\n", message.trim_end());
    let text = match signer {
        Some(signer) => signer.signed(&text, *seconds)?,
        None => text,
    };
    let commit = write(ObjectType::Commit, text.as_bytes())?;
    let repository = Repository::from_odb(made).map_err(Fault::git)?;
    let mut pack = repository.packbuilder().map_err(Fault::git)?;
    for id in written {
        pack.insert_object(id, None).map_err(Fault::git)?;
    }
    let mut bytes = git2::Buf::new();
    pack.write_buf(&mut bytes).map_err(Fault::git)?;
    if bytes.len() > PACK_BYTES {
        return Err(Fault::TooLarge { what: "the pack in bytes", limit: PACK_BYTES as u64 });
    }
    Ok(Upload { commit: Commit(commit), raw: Arc::new(text), pack: Arc::new(bytes.to_vec()) })
}

/// Returns the tree with other ids of files. `changes` has the remaining parts of each path.
fn rewrite(
    objects: &Objects,
    tree: Id,
    changes: &[(&[&str], Id)],
    write: &mut impl FnMut(ObjectType, &[u8]) -> Result<Id, Fault>,
) -> Result<Id, Fault> {
    let bytes = objects.tree(tree)?;
    let mut new = Vec::with_capacity(bytes.len());
    let mut found = 0;
    for item in TreeItem::all(&bytes) {
        let item = item?;
        let is_below = |(parts, _): &&(&[&str], Id)| parts.first().is_some_and(|first| first.as_bytes() == item.name);
        let below: Vec<(&[&str], Id)> = changes.iter().filter(is_below).map(|(parts, id)| (&parts[1..], *id)).collect();
        let id = match (item.kind, &below[..]) {
            (_, []) => item.id,
            (ItemKind::File, [([], id)]) => *id,
            (ItemKind::Directory, _) => rewrite(objects, item.id, &below, write)?,
            _ => return Err(damaged("a changed path is not a file")),
        };
        found += below.len();
        new.extend_from_slice(item.mode);
        new.push(b' ');
        new.extend_from_slice(item.name);
        new.push(0);
        new.extend_from_slice(&id.0);
    }
    if found != changes.len() {
        return Err(damaged("a changed file does not exist"));
    }
    write(ObjectType::Tree, &new)
}

impl Source {
    /// Pushes a commit to all references or to none. `options` are for the server, each in one line.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the credentials, or takes no options.
    pub async fn push(
        &self,
        remote: &Remote,
        targets: &[PushTarget],
        options: &[String],
        upload: &Upload,
    ) -> Result<Pushed, Fault> {
        self.check(remote)?;
        let deadline = self.inner.settings.deadlines.fetch;
        let limit = self.inner.settings.limits.advertisement_bytes;
        let pushing = async {
            let _sending = self.receiving().acquire().await?;
            let wire = self.wire(remote)?;
            let credentials = self.opened(remote, &wire).await?;
            let push = PushRequest { targets, options, new: upload.commit.0, pack: &upload.pack };
            let pushed = transport::push_pack(&wire, &credentials, push, limit).await;
            match pushed.map_err(|fault| self.refused(remote, &credentials, fault))? {
                PushAnswer::Done => Ok(Pushed::Done),
                PushAnswer::Moved => Ok(Pushed::Moved),
                PushAnswer::Refused(text) => {
                    // The message of a server may repeat the credentials.
                    match self.refused(remote, &credentials, Fault::Refused { text }) {
                        Fault::Refused { text } => Ok(Pushed::Refused(text)),
                        fault => Err(fault),
                    }
                }
            }
        };
        let pushed = tokio::time::timeout(deadline, transport::on_behalf_of(&self.tenant, pushing)).await;
        pushed.unwrap_or(Err(Fault::Timeout { after: deadline, what: "pushing" }))
    }
}
