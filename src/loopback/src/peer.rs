//! Asks the kernel whose connection it is.
//!
//! Deliberately absent: a kept answer. The port of a client that has gone may be another user's at once.

use std::fs;
use std::io;
use std::net::SocketAddr;

use super::{diagnosis, table};

/// The tables of this network namespace.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// A table is read in parts, between which rows may move.
const ATTEMPTS: usize = 3;

/// Whether the client at `client` may use the port at `server`: this user, or root. Other systems than Linux do not say.
pub(crate) fn is_ours(client: SocketAddr, server: SocketAddr) -> Result<(), Stranger> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let own = rustix::process::geteuid().as_raw();
    match user(client, server) {
        Ok(Some(user)) if user == own || user == 0 => Ok(()),
        Ok(Some(user)) => Err(Stranger::User(user)),
        Ok(None) => Err(Stranger::Gone),
        Err(cause) => Err(Stranger::Unknown(cause)),
    }
}

/// Who was refused.
#[derive(Debug)]
pub(crate) enum Stranger {
    User(u32),
    /// The client has closed its connection.
    Gone,
    Unknown(io::Error),
}

pub(crate) fn user(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    // A kernel that does not answer, or not to this process, still has the tables.
    if let Ok(Some(user)) = diagnosis::user(client, server) {
        return Ok(Some(user));
    }
    for _ in 0..ATTEMPTS {
        for path in TABLES {
            // A machine without IPv6 has no second table.
            let read = match fs::read_to_string(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && path == TABLES[1] => continue,
                read => read?,
            };
            if let Some(user) = table::user(&read, client, server) {
                return Ok(Some(user));
            }
        }
    }
    Ok(None)
}
