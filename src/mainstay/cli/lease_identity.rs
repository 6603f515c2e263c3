//! The default identity of this process in the Lease. The identity is stable across restarts, so that a restarted agent
//! continues immediately. It is unique among running processes.
//!
//! The identity is stored in the data directory, in a file that is locked while the process lives. A process that
//! cannot get the lock, or has no such file, uses a random identity.
//!
//! Invariant: no two running processes have the same identity: the operating system grants the lock to one of them, and
//! releases the lock when the process ends.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
};

/// Identity of the agent of `mainstay dev`.
pub(super) const DEV: &str = "mainstay-dev";

/// File in the data directory with the identity.
const FILE: &str = "identity";
/// Maximum length of a stored identity, in bytes.
const LONGEST: u64 = 200;

/// An identity. It is reserved while this value exists.
#[derive(Debug)]
pub(super) struct LeaseIdentity {
    name: String,
    _lock: Option<File>,
}

impl LeaseIdentity {
    /// Uses a configured identity, such as the pod's uid, which must be unique.
    pub(super) fn given(name: String) -> Self {
        Self { name, _lock: None }
    }

    /// Returns the identity in this data directory, or a random one.
    pub(super) fn of(data: &Path) -> Self {
        let random = random_identity();
        match stored(data, &random) {
            Ok((name, lock)) => Self { name, _lock: Some(lock) },
            Err(error) => {
                let why = error.to_string();
                tracing::debug!(
                    why,
                    "the data directory holds no identity: after a restart, the agent waits until the Lease has expired"
                );
                Self::given(random)
            }
        }
    }

    /// Returns the identity.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the host's name with a random part, because a host may run several agents.
fn random_identity() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}_{:08x}", if host.is_empty() { "mainstay" } else { host }, fastrand::u32(..))
}

/// Returns the identity in the directory (or stores `new` if there is none), and its lock.
fn stored(data: &Path, new: &str) -> io::Result<(String, File)> {
    fs::create_dir_all(data)?;
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(data.join(FILE))?;
    file.try_lock()?;
    let mut name = String::new();
    (&mut file).take(LONGEST).read_to_string(&mut name)?;
    let host = new.rsplit_once('_').map_or(new, |(host, _)| host);
    // A directory that was copied to another host contains the identity of the original host.
    if name.rsplit_once('_').is_none_or(|(of, random)| of != host || random.is_empty()) {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(new.as_bytes())?;
        new.clone_into(&mut name);
    }
    Ok((name, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_process_keeps_the_identity_and_a_second_one_gets_another() {
        let data = tempfile::tempdir().unwrap();
        let first = LeaseIdentity::of(&data.path().join("data"));
        let beside = LeaseIdentity::of(&data.path().join("data"));
        assert_ne!(first.name(), beside.name());
        let name = first.name().to_owned();
        drop(first);
        assert_eq!(LeaseIdentity::of(&data.path().join("data")).name(), name);
        assert_ne!(LeaseIdentity::of(&data.path().join("other")).name(), name);
    }

    #[test]
    fn an_invalid_identity_or_one_of_another_host_is_replaced() {
        let data = tempfile::tempdir().unwrap();
        for found in ["elsewhere_00000001", "", "x", "elsewhere_"] {
            fs::write(data.path().join(FILE), found).unwrap();
            let name = LeaseIdentity::of(data.path()).name().to_owned();
            assert_ne!(name, found);
            assert_eq!(LeaseIdentity::of(data.path()).name(), name, "the new one is stored");
        }
        let nowhere = LeaseIdentity::of(Path::new("/proc/nowhere"));
        assert!(nowhere.name().contains('_'), "{}", nowhere.name());
    }
}
