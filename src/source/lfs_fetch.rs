//! Fetches the files in Git LFS that are read, into the mirror of their repository.
//!
//! Invariant: a file counts only if it has the size and the SHA-256 of its pointer; it is checked when it comes and when it is
//! read.
//! Invariant: what is there is not asked for again; the budget of the mirrors holds.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::auth::Credentials;
use super::error::{Error, Fault};
use super::large_files::{self, DIRECTORY, LargeFiles, Pointers};
use super::lfs::{self, LfsServer, Pointer};
use super::mirror::Generation;
use super::reference::BaseDir;
use super::remote::Remote;
use super::remotes::Source;
use super::settings::Limits;
use super::snapshot::Snapshot;
use super::spool::Space as _;
use super::transport::{self, Wire};

impl Source {
    /// The snapshot with the content of the files in Git LFS, among those under `base_dir` that are read; files of submodules
    /// stay pointers. Without `lfs` of the remote, all do.
    pub async fn fetch_large_files(
        &self,
        remote: &Remote,
        snapshot: Snapshot,
        base_dir: &BaseDir,
        is_read: fn(&str) -> bool,
    ) -> Result<Snapshot, Error> {
        if !remote.lfs {
            return Ok(snapshot);
        }
        let base_dir = base_dir.clone();
        let (pointers, config) = snapshot.blocking(move |snapshot| snapshot.pointers(&base_dir, is_read)).await??;
        if pointers.is_empty() {
            return Ok(snapshot);
        }
        let first = pointers.values().next().map(|(path, _)| path.clone()).unwrap_or_default();
        let Some(generation) = snapshot.generation() else {
            let what = "Git LFS of a repository on this machine";
            return Err(failed(&first, Fault::Unsupported { what, instead: "give the address of a Git server" }));
        };
        let server = lfs::server(&remote.url, config.as_deref()).map_err(|cause| failed(&first, cause))?;
        check(&pointers, &self.inner.settings.limits)?;
        let directory = generation.path().join(DIRECTORY);
        let (state, place, deadline) = (self.state(remote), directory.clone(), self.inner.settings.deadlines.fetch);
        let fetch = async {
            // Other consumers of the repository may be fetching the same files.
            let _fetching = state.fetching_large_files.lock().await;
            let found = snapshot.blocking(move |_| (large_files::missing(&place, &pointers), pointers)).await?;
            self.missing_files(remote, &server, &generation, found.0.into_iter().collect()).await?;
            Ok(found.1)
        };
        let late = |_| failed(&first, Fault::Timeout { after: deadline, what: "fetching files in Git LFS" });
        let pointers = tokio::time::timeout(deadline, fetch).await.map_err(late)??;
        let pointers = pointers.into_iter().map(|(id, (_, pointer))| (id, pointer)).collect();
        Ok(snapshot.with_large_files(LargeFiles::new(directory, pointers)))
    }

    /// Fetches the files that are not there.
    async fn missing_files(
        &self,
        remote: &Remote,
        server: &LfsServer,
        generation: &Arc<Generation>,
        missing: Vec<(Pointer, String)>,
    ) -> Result<(), Error> {
        for some in missing.chunks(lfs::AT_ONCE) {
            let asked: Vec<_> = some.iter().map(|(pointer, _)| pointer.clone()).collect();
            let credentials = self.for_lfs(remote, server).await.map_err(|cause| failed(&some[0].1, cause))?;
            let places = self.places(remote, server, &credentials, &asked).await;
            let mut places = places.map_err(|cause| failed(&some[0].1, cause))?;
            for (pointer, path) in some {
                let place = places.remove(&pointer.oid).unwrap_or(Err(lfs::UNSAID));
                let place = place.map_err(|cause| failed(path, cause))?;
                let downloaded = self.download(remote, server, &credentials, pointer, &place, generation).await;
                downloaded.map_err(|cause| failed(path, cause))?;
            }
        }
        Ok(())
    }

    /// The credentials for the LFS server, if it is the repository's own.
    async fn for_lfs(&self, remote: &Remote, server: &LfsServer) -> Result<Credentials, Fault> {
        match self.wire(remote)? {
            wire @ Wire::Http(..) if server.is_own => self.opened(remote, &wire).await,
            _ => Ok(Credentials::Anonymous),
        }
    }

    async fn places(
        &self,
        remote: &Remote,
        server: &LfsServer,
        credentials: &Credentials,
        asked: &[Pointer],
    ) -> Result<HashMap<String, Result<lfs::Download, Fault>>, Fault> {
        let http = self.http(remote)?;
        let at = (&server.url, server.is_own);
        let answered = http.lfs_batch(at, credentials, lfs::request(asked), lfs::ANSWER_BYTES);
        let answered = transport::on_behalf_of(&self.tenant, answered).await;
        lfs::answer(&answered.map_err(|fault| self.not_given(remote, server.is_own, credentials, fault))?)
    }

    /// The fault of a request. Elsewhere, no Secret helps.
    fn not_given(&self, remote: &Remote, is_own: bool, credentials: &Credentials, fault: Fault) -> Fault {
        match fault {
            Fault::Denied { .. } if !is_own => Fault::Lfs {
                why: "the server asks for credentials, and those of the repository are sent to its own server only",
            },
            fault => self.refused(remote, credentials, fault),
        }
    }

    async fn download(
        &self,
        remote: &Remote,
        server: &LfsServer,
        credentials: &Credentials,
        pointer: &Pointer,
        place: &lfs::Download,
        generation: &Arc<Generation>,
    ) -> Result<(), Fault> {
        let url = lfs::download_url(&place.href, server)?;
        let is_own = server.is_own && lfs::is_same(&server.url, &url);
        let http = self.http(remote)?;
        let body = http.lfs_object((url, is_own), &place.header, credentials, pointer.size);
        let body = transport::on_behalf_of(&self.tenant, body).await;
        let mut body = body.map_err(|fault| self.not_given(remote, is_own, credentials, fault))?;
        // A file has at most as many bytes as any file that is read, so it is kept in memory meanwhile.
        let mut content = Vec::new();
        while let Some(bytes) = body.chunk().await? {
            content.extend_from_slice(&bytes);
        }
        let (source, generation, pointer) = (self.clone(), Arc::clone(generation), pointer.clone());
        let kept = move || {
            if content.len() as u64 != pointer.size || hex::encode(Sha256::digest(&content)) != pointer.oid {
                return Err(Fault::Lfs { why: "the server sent another file than the pointer names" });
            }
            let mut room = source.room(generation.path());
            room.take(pointer.size)?;
            large_files::keep(&generation.path().join(DIRECTORY), &pointer.oid, &content)?;
            // Before the room for it is given back.
            source.inner.storage.measure_generation(generation.path());
            Ok(())
        };
        self.shared(remote).run(kept).await?
    }
}

fn failed(path: &str, cause: Fault) -> Error {
    Error::LargeFile { path: path.to_owned(), cause: Arc::new(cause) }
}

/// Whether files are within the limits: each of them, and all together.
fn check(pointers: &Pointers, limits: &Limits) -> Result<(), Error> {
    let mut left = limits.mirror_bytes;
    for (path, pointer) in pointers.values() {
        if pointer.size > limits.file_bytes {
            return Err(failed(path, Fault::TooLarge { what: "the file in bytes", limit: limits.file_bytes }));
        }
        let what = "all files in Git LFS in bytes";
        let more = left.checked_sub(pointer.size);
        left = more.ok_or_else(|| failed(path, Fault::TooLarge { what, limit: limits.mirror_bytes }))?;
    }
    Ok(())
}
