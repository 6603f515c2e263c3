//! Finds out from the kernel to which user a connection belongs.
//!
//! Not here: a cache, because another user can take the port of a closed connection immediately.

use std::fs;
use std::io;
use std::net::SocketAddr;

use super::{diagnosis, table};

/// TCP socket tables of this network namespace.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Number of attempts to read the tables, because a table is read in parts and rows may move in between.
const ATTEMPTS: usize = 3;

/// Accepts a client of this user or of root. Systems other than Linux do not report the user, so every client is
/// accepted there.
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

/// The reason for refusing a client.
#[derive(Debug)]
pub(crate) enum Stranger {
    User(u32),
    /// The client has closed its connection.
    Gone,
    Unknown(io::Error),
}

pub(crate) fn user(client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
    // If the kernel does not respond, the tables are read.
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
