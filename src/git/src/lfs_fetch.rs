//! Fetches the needed Git LFS files into the mirror of their repository.
//!
//! Invariant: a file is used only if it has the size and the SHA-256 in its pointer. Both are checked when it is
//! received and when it is read.
//! Invariant: existing files are not requested again, and the budget of the mirrors holds.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::auth::Credentials;
use super::entry::Entry;
use super::error::{Error, Fault};
use super::large_files::{self, DIRECTORY, IncomingFile, LargeFiles, Pointers, WantedFiles};
use super::lfs::{self, LfsServer, Pointer, ServerPlace};
use super::mirror::Generation;
use super::remote::Remote;
use super::remotes::Source;
use super::settings::Limits;
use super::snapshot::Snapshot;
use super::ssh_fault::SshFault;
use super::submodules;
use super::transport::{self, Wire};

/// Maximum number of files of one repository.
const FILES: usize = 10_000;
/// Bytes per write.
const PIECE: usize = 64 << 10;

/// The context of a request.
struct Fetching<'f> {
    remote: &'f Remote,
    server: &'f LfsServer,
    generation: &'f Arc<Generation>,
}

impl Source {
    /// Returns the snapshot with the content of its listed Git LFS files, including those in submodules. If the remote
    /// does not have `lfs` set, all files stay pointers.
    pub async fn fetch_large_files(
        &self,
        remote: &Remote,
        snapshot: Snapshot,
        list: impl FnOnce(&Snapshot) -> Result<Vec<Entry>, Error> + Send + 'static,
    ) -> Result<Snapshot, Error> {
        if !remote.lfs {
            return Ok(snapshot);
        }
        let wanted = snapshot.blocking(move |snapshot| snapshot.wanted_files(list(snapshot)?)).await??;
        let Some(first) = wanted.first() else { return Ok(snapshot) };
        let (deadline, mut left) = (self.inner.settings.deadlines.fetch, self.inner.settings.limits.mirror_bytes);
        let fetched = self.with_large_files(remote.clone(), snapshot, wanted, &mut left);
        let late = |_| failed(&first, Fault::Timeout { after: deadline, what: "fetching files in Git LFS" });
        tokio::time::timeout(deadline, fetched).await.map_err(late)?
    }

    /// Fetches the files of a commit and its submodules. `left` is the remaining number of bytes for all of them.
    fn with_large_files<'s>(
        &'s self,
        remote: Remote,
        snapshot: Snapshot,
        wanted: WantedFiles,
        left: &'s mut u64,
    ) -> BoxFuture<'s, Result<Snapshot, Error>> {
        Box::pin(async move {
            let WantedFiles { pointers, config, below, addresses } = wanted;
            let snapshot = self.with_own_large_files(&remote, snapshot, pointers, config.as_deref(), left).await?;
            if below.is_empty() {
                return Ok(snapshot);
            }
            let mut found = snapshot.fetched_submodules();
            for (path, wanted) in below {
                let (Some(address), Some(submodule)) = (addresses.get(&path), found.get(&path).cloned()) else {
                    continue;
                };
                let fetched = match submodules::remote(&remote, address) {
                    Ok(remote) => self.with_large_files(remote, submodule, wanted, left).await,
                    Err(error) => Err(error),
                };
                let submodule =
                    fetched.map_err(|cause| Error::Submodule { path: path.clone(), cause: Arc::new(cause) })?;
                found.insert(path, submodule);
            }
            Ok(snapshot.with_submodules(found))
        })
    }

    async fn with_own_large_files(
        &self,
        remote: &Remote,
        snapshot: Snapshot,
        pointers: Pointers,
        config: Option<&str>,
        left: &mut u64,
    ) -> Result<Snapshot, Error> {
        let Some((first, _)) = pointers.values().next().cloned() else { return Ok(snapshot) };
        let Some(generation) = snapshot.generation() else {
            let what = "Git LFS of a repository on this machine";
            return Err(failed(&first, Fault::Unsupported { what, instead: "give the address of a Git server" }));
        };
        let place = lfs::server(&remote.url, config).map_err(|cause| failed(&first, cause))?;
        // The files share the space of the mirror with the repository's packs.
        let limits = self.inner.settings.limits;
        let looker = Arc::clone(&generation);
        let size = snapshot.blocking(move |_| looker.pack_bytes()).await?.map_err(|cause| failed(&first, cause))?;
        check(&pointers, &limits, left, limits.mirror_bytes.saturating_sub(size))?;
        let directory = generation.path().join(DIRECTORY);
        let pointers = Arc::new(pointers);
        let look = async || {
            let (directory, pointers) = (directory.clone(), Arc::clone(&pointers));
            snapshot.blocking(move |_| large_files::missing(&directory, &pointers)).await
        };
        if !look().await?.is_empty() {
            // Another consumer in the namespace may be fetching the same files. Other namespaces and servers have
            // separate locks.
            let fetching = self.state(remote).fetching_large_files.get(&self.tenant, &place.name());
            let fetching = fetching.lock().await;
            let missing: Vec<_> = look().await?.into_iter().collect();
            if !missing.is_empty() {
                let server = self.lfs_server(remote, place).await.map_err(|cause| failed(&first, cause))?;
                self.missing_files(&Fetching { remote, server: &server, generation: &generation }, &missing).await?;
            }
            drop(fetching);
        }
        let pointers = pointers.iter().map(|(id, (_, pointer))| (*id, pointer.clone())).collect();
        Ok(snapshot.with_large_files(LargeFiles::new(directory, pointers)))
    }

    /// Returns the LFS server. For a repository on SSH, the SSH server is asked where the LFS server is.
    async fn lfs_server(&self, remote: &Remote, place: ServerPlace) -> Result<LfsServer, Fault> {
        let (about, leads_inside) = match place {
            ServerPlace::At(server) => return Ok(server),
            ServerPlace::Asked { about, leads_inside } => (about, leads_inside),
        };
        let at = Remote { url: about, ..remote.clone() };
        let Wire::Ssh(ssh) = self.wire(&at)? else { return Err(Fault::Stopped) };
        let asked =
            transport::on_behalf_of(&self.tenant, ssh.lfs_server(remote.credentials(), lfs::ANSWER_BYTES)).await;
        let answer = asked.map_err(|fault| match fault {
            Fault::Refused { .. } | Fault::Protocol { .. } | Fault::Ssh(SshFault::NoCommand { .. }) => Fault::Lfs {
                why: "the server does not run git-lfs-authenticate; write the https:// address of its LFS server into \
                      .lfsconfig as `lfs.url`",
            },
            fault => fault,
        })?;
        lfs::asked(&at.url, leads_inside, &answer)
    }

    /// Fetches the missing files.
    async fn missing_files(&self, fetching: &Fetching<'_>, missing: &[(Pointer, String)]) -> Result<(), Error> {
        let fetched = self.missing_chunks(fetching, missing).await;
        let (storage, generation) = (self.inner.storage.clone(), Arc::clone(fetching.generation));
        let measured = self.shared(fetching.remote).run(move || storage.measure_generation(generation.path())).await;
        fetched.and_then(|()| measured.map_err(|cause| failed(&missing[0].1, cause)))
    }

    async fn missing_chunks(&self, fetching: &Fetching<'_>, missing: &[(Pointer, String)]) -> Result<(), Error> {
        for some in missing.chunks(lfs::AT_ONCE) {
            let first = &some[0].1;
            let asked: Vec<_> = some.iter().map(|(pointer, _)| pointer.clone()).collect();
            let credentials = self.for_lfs(fetching).await.map_err(|cause| failed(first, cause))?;
            let places = self.places(fetching, &credentials, &asked).await;
            let mut places = places.map_err(|cause| failed(first, cause))?;
            for (pointer, path) in some {
                let place = places.remove(&pointer.oid).unwrap_or(Err(lfs::UNSAID));
                let place = place.map_err(|cause| failed(path, cause))?;
                let downloaded = self.download(fetching, &credentials, pointer, &place).await;
                downloaded.map_err(|cause| failed(path, cause))?;
            }
        }
        Ok(())
    }

    /// Returns the credentials for the LFS server: the repository's for its own server, otherwise none.
    async fn for_lfs(&self, fetching: &Fetching<'_>) -> Result<Credentials, Fault> {
        match self.wire(fetching.remote)? {
            wire @ Wire::Http(..) if fetching.server.is_own => self.opened(fetching.remote, &wire).await,
            _ => Ok(Credentials::Anonymous),
        }
    }

    async fn places(
        &self,
        &Fetching { remote, server, .. }: &Fetching<'_>,
        credentials: &Credentials,
        asked: &[Pointer],
    ) -> Result<HashMap<String, Result<lfs::Download, Fault>>, Fault> {
        let http = self.http(remote)?;
        let answered = http.lfs_batch(server, credentials, lfs::request(asked), lfs::ANSWER_BYTES);
        let answered = transport::on_behalf_of(&self.tenant, answered).await;
        let answered = answered.map_err(|fault| match fault {
            Fault::NotFound { .. } => Fault::Lfs {
                why: "no LFS server grants read access; check that the repository has Git LFS, `lfs.url` in \
                      .lfsconfig, and the permissions of the credentials",
            },
            fault => self.not_given(remote, server.is_own, credentials, fault),
        })?;
        self.shared(remote).run(move || lfs::answer(&answered)).await?
    }

    /// Returns the error of a request. For a server other than the repository's own, no Secret would help.
    fn not_given(&self, remote: &Remote, is_own: bool, credentials: &Credentials, fault: Fault) -> Fault {
        match fault {
            Fault::Denied { .. } if !is_own => Fault::Lfs {
                why: "the server asks for credentials, and those of the repository are sent to its own server only",
            },
            // The `Retry-After` of a server that does not belong to the repository must not delay the repository.
            Fault::Status { status, .. } if !is_own => Fault::Status { status, retry_after: None },
            fault => self.refused(remote, credentials, fault),
        }
    }

    async fn download(
        &self,
        &Fetching { remote, server, generation }: &Fetching<'_>,
        credentials: &Credentials,
        pointer: &Pointer,
        place: &lfs::Download,
    ) -> Result<(), Fault> {
        let url = lfs::download_url(&place.href, server)?;
        let is_own = server.is_own && lfs::is_same(&server.url, &url);
        let http = self.http(remote)?;
        // The server may be slow, so the file is streamed to disk instead of kept in memory.
        let (source, kept_in) = (self.clone(), Arc::clone(generation));
        let (wanted, permits) = (pointer.clone(), self.shared(remote));
        let begin = move || {
            let room = source.room(kept_in.path());
            IncomingFile::new(&kept_in.path().join(DIRECTORY), wanted, room)
        };
        let mut file = permits.run(begin).await??;
        let received = async {
            let mut body = http.lfs_object((url, is_own), &place.header, credentials, pointer.size).await?;
            let mut piece = Vec::new();
            while let Some(bytes) = body.chunk().await? {
                piece.extend_from_slice(&bytes);
                if piece.len() >= PIECE {
                    let bytes = std::mem::take(&mut piece);
                    file = permits.run(move || file.write(&bytes)).await??;
                }
            }
            permits.run(move || file.write(&piece)).await?
        };
        let received = transport::on_behalf_of(&self.tenant, received).await;
        let file = received.map_err(|fault| match fault {
            Fault::NotFound { .. } => lfs::MISSING,
            // The limit is the pointer's size, so a larger file is not the requested one.
            Fault::TooLarge { .. } => lfs::OTHER,
            fault => self.not_given(remote, is_own, credentials, fault),
        })?;
        let (storage, generation) = (self.inner.storage.clone(), Arc::clone(generation));
        // The size of the file is counted before its reserved space is released.
        let keep = move || file.keep(|bytes| storage.grow_generation(generation.path(), bytes));
        self.shared(remote).run(keep).await?
    }
}

fn failed(path: &str, cause: Fault) -> Error {
    Error::LargeFile { path: path.to_owned(), cause: Arc::new(cause) }
}

/// Checks the limits: number of files, size of each file, size of all files of one repository (`room`), and total size
/// (`left`).
fn check(pointers: &Pointers, limits: &Limits, left: &mut u64, mut room: u64) -> Result<(), Error> {
    if let Some((path, _)) = pointers.values().nth(FILES) {
        let what = "the number of files in Git LFS";
        return Err(failed(path, Fault::TooLarge { what, limit: FILES as u64 }));
    }
    for (path, pointer) in pointers.values() {
        if pointer.size > limits.file_bytes {
            return Err(failed(path, Fault::TooLarge { what: "the file in bytes", limit: limits.file_bytes }));
        }
        for left in [&mut *left, &mut room] {
            let what = "the repository with all files in Git LFS in bytes";
            let less = left.checked_sub(pointer.size);
            *left = less.ok_or_else(|| failed(path, Fault::TooLarge { what, limit: limits.mirror_bytes }))?;
        }
    }
    Ok(())
}
