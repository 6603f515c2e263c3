//! `mainstay install`: everything that a cluster needs to follow a repository, as one YAML stream for `kubectl apply -f -`.
//!
//! Invariant: it contacts no cluster and no Git server, and the same flags print the same bytes.
//! Invariant: no private key, password or token is printed: the agent makes the key, and credentials stay in Secrets.
//!
//! Deliberately absent: what the agent does with these objects (`agent::bootstrap`, `agent::ssh_keys`).

mod choice;
mod kinds;
mod label;
mod manifests;
mod newer;
mod objects;
mod parts;
mod registry;
mod request;
mod restricted;

use std::{fs, io, path::Path};

use super::{Error, Exit, output};

pub(super) use request::Arguments;

/// Maximum size of a file with host keys.
const MAX_KNOWN_HOSTS: u64 = 256 << 10;

pub(super) fn run(arguments: Arguments) -> Result<Exit, Error> {
    let known_hosts = arguments.known_hosts.as_deref().map(read).transpose()?;
    let (request, notes) = request::resolve(&arguments, known_hosts).map_err(Error::Install)?;
    let objects = objects::all(&request)?;
    output::print(&objects::stream(&objects)?)?;
    if let Some(warning) = request::image_warning(&arguments) {
        output::note(&format!("warning: {warning}\n"));
    }
    for note in notes.into_iter().chain(parts::notes(&request)?) {
        output::note(&format!("note: {note}\n"));
    }
    Ok(Exit::Fine)
}

fn read(path: &Path) -> Result<String, Error> {
    let failed = |cause| Error::ReadFile { path: path.to_owned(), cause };
    if fs::metadata(path).map_err(failed)?.len() > MAX_KNOWN_HOSTS {
        return Err(failed(io::Error::other(
            "it is larger than 256 KiB; keep only the lines of the Git server's host",
        )));
    }
    fs::read_to_string(path).map_err(failed)
}
