//! Names of Services for the programs that stand for pods.
//!
//! A pod of a cluster asks the cluster's DNS; a program of this machine asks this machine, which knows no Service. Node.js
//! and Python are therefore started with a file that looks a name up here first: every Service is a small file with its
//! address and its ports, so what a name means is never stale and costs one read. A proxy for HTTP would not do: `fetch`
//! and `http` of Node.js do not look at its variables, and the world's traffic would run through it as well.
//!
//! Programs that a pod starts look names up as it does, as long as they are Node.js or Python and have its environment.
//!
//! Deliberately absent: other languages, headless and external Services, and host images, which are programs of this
//! machine with work of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// What Node.js and Python read before a program. It finds the Services two directories above, and its namespace in the
/// name of its directory.
const HOOKS: [(&str, &str); 2] =
    [("names.js", include_str!("names/names.js")), ("sitecustomize.py", include_str!("names/sitecustomize.py"))];

/// The names of a node, in a directory of its own.
#[derive(Debug)]
pub(super) struct Names {
    place: PathBuf,
}

impl Names {
    pub(super) fn new(node: &Path) -> Self {
        Self { place: node.join("names") }
    }

    /// Says where a Service is: its address, and for each of its ports the one that is listened on.
    pub(super) fn set(&self, namespace: &str, name: &str, address: Ipv4Addr, ports: &[(u16, u16)]) -> io::Result<()> {
        let mut text = format!("{address}\n");
        for (port, bound) in ports {
            text.push_str(&format!("{port} {bound}\n"));
        }
        write(&self.address(address), &text)?;
        write(&self.service(namespace, name), &text)
    }

    /// Forgets a Service that was at an address.
    pub(super) fn remove(&self, namespace: &str, name: &str, address: Ipv4Addr) {
        // What was never written is not there either.
        let _ = fs::remove_file(self.service(namespace, name));
        let _ = fs::remove_file(self.address(address));
    }

    /// Adds to an environment what has the programs of a namespace look names up here.
    pub(super) fn add_to(&self, env: &mut BTreeMap<String, String>, namespace: &str) -> io::Result<()> {
        let hooks = self.place.join("hooks").join(namespace);
        for (name, text) in HOOKS {
            if !hooks.join(name).exists() {
                write(&hooks.join(name), text)?;
            }
        }
        let script = hooks.join(HOOKS[0].0).to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
        before(env, "NODE_OPTIONS", &format!("--require \"{script}\""), ' ');
        before(env, "PYTHONPATH", &hooks.to_string_lossy(), ':');
        Ok(())
    }

    fn service(&self, namespace: &str, name: &str) -> PathBuf {
        self.place.join("services").join(namespace).join(name)
    }

    fn address(&self, address: Ipv4Addr) -> PathBuf {
        self.place.join("addresses").join(address.to_string())
    }
}

/// Puts a value before that of a variable.
fn before(env: &mut BTreeMap<String, String>, name: &str, value: &str, between: char) {
    let known = env.get(name).filter(|known| !known.is_empty());
    let all = known.map_or_else(|| value.to_owned(), |known| format!("{value}{between}{known}"));
    env.insert(name.to_owned(), all);
}

/// Writes a file as a whole: it may be read at any time.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent)?;
    // No Service and no address is called so.
    let draft = parent.join(format!(".{:032x}", fastrand::u128(..)));
    fs::write(&draft, text)?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests;
