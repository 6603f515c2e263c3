//! Resolves names of Services in the programs of pods.
//!
//! Programs use this machine's DNS, which does not know the cluster's Services. A hook file in Node.js and Python
//! therefore resolves names first. Each Service has a small file with its address and ports, so names are never stale
//! and a lookup costs one read. An HTTP proxy would not work: `fetch` and `http` of Node.js ignore proxy variables, and
//! all external traffic would pass through the proxy.
//!
//! Child processes resolve names, too, if they are Node.js or Python and inherit the environment.
//!
//! Not here: other languages, headless and external Services, and host images, whose programs belong to this machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Hook files that Node.js and Python load before a program. A hook finds the Services two levels above its own
/// directory, which is named after the namespace.
const HOOKS: [(&str, &str); 2] =
    [("names.js", include_str!("names/names.js")), ("sitecustomize.py", include_str!("names/sitecustomize.py"))];

/// The names of a node, in their own directory.
#[derive(Debug)]
pub(super) struct Names {
    place: PathBuf,
}

impl Names {
    pub(super) fn new(node: &Path) -> Self {
        Self { place: node.join("names") }
    }

    /// Writes the address of a Service, and the port that is bound for each of its ports.
    pub(super) fn set(&self, namespace: &str, name: &str, address: Ipv4Addr, ports: &[(u16, u16)]) -> io::Result<()> {
        let mut text = format!("{address}\n");
        for (port, bound) in ports {
            text.push_str(&format!("{port} {bound}\n"));
        }
        write(&self.address(address), &text)?;
        write(&self.service(namespace, name), &text)
    }

    /// Removes a Service with this address.
    pub(super) fn remove(&self, namespace: &str, name: &str, address: Ipv4Addr) {
        // The files may be missing.
        let _ = fs::remove_file(self.service(namespace, name));
        let _ = fs::remove_file(self.address(address));
    }

    /// Adds the hooks to the environment of a program in a namespace.
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

/// Prepends a value to a variable.
fn before(env: &mut BTreeMap<String, String>, name: &str, value: &str, between: char) {
    let known = env.get(name).filter(|known| !known.is_empty());
    let all = known.map_or_else(|| value.to_owned(), |known| format!("{value}{between}{known}"));
    env.insert(name.to_owned(), all);
}

/// Writes a file atomically, because it may be read at any time.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent)?;
    // No Service or address has such a name.
    let draft = parent.join(format!(".{:032x}", fastrand::u128(..)));
    fs::write(&draft, text)?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests;
