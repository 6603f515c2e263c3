//! Who this process is in the Lease, where nobody gave it a name: one that a process which takes its place has, too, so
//! that it goes on at once; and never two that run at the same time.
//!
//! The name is kept in the data directory, in a file that is locked for as long as the process lives. Who does not get
//! the lock runs beside somebody who has it, and takes a name for itself alone; so does who has no such file.
//!
//! Invariant: of two processes that run at the same time no two have the same name: the system gives a lock to one of
//! them, and takes it away when that one has ended, however it ended.

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, Write as _},
    path::Path,
};

/// File of the data directory that holds the name.
const FILE: &str = "identity";
/// Longest name that is believed.
const LONGEST: u64 = 200;

/// A name, which is this process's for as long as this is held.
#[derive(Debug)]
pub(super) struct Identity {
    name: String,
    _lock: Option<File>,
}

impl Identity {
    /// One that was given, such as the pod's uid. Whoever gives it sees to it that no other process has it.
    pub(super) fn given(name: String) -> Self {
        Self { name, _lock: None }
    }

    /// The one of this data directory, or one that nobody else has.
    pub(super) fn of(data: &Path) -> Self {
        let made = made_up();
        match kept(data, &made) {
            Ok((name, lock)) => Self { name, _lock: Some(lock) },
            Err(error) => {
                let why = error.to_string();
                tracing::debug!(
                    why,
                    "no name is kept in the data directory: a restart waits until the Lease has run out"
                );
                Self::given(made)
            }
        }
    }

    /// The name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// The host's name and a random part, for two agents of one host are two agents.
fn made_up() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    format!("{}_{:08x}", if host.is_empty() { "mainstay" } else { host }, fastrand::u32(..))
}

/// The name that the directory keeps (`new` from now on, if it keeps none), and the lock on it.
fn kept(data: &Path, new: &str) -> io::Result<(String, File)> {
    fs::create_dir_all(data)?;
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(data.join(FILE))?;
    file.try_lock()?;
    let mut name = String::new();
    (&mut file).take(LONGEST).read_to_string(&mut name)?;
    let host = new.rsplit_once('_').map_or(new, |(host, _)| host);
    // A directory that was copied to another host names a process of the first one.
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
    fn who_takes_the_place_of_an_ended_process_has_its_name_and_who_runs_beside_it_has_not() {
        let data = tempfile::tempdir().unwrap();
        let first = Identity::of(&data.path().join("data"));
        let beside = Identity::of(&data.path().join("data"));
        assert_ne!(first.name(), beside.name());
        let name = first.name().to_owned();
        drop(first);
        assert_eq!(Identity::of(&data.path().join("data")).name(), name);
        assert_ne!(Identity::of(&data.path().join("other")).name(), name);
    }

    #[test]
    fn a_name_of_another_host_or_none_at_all_is_not_believed() {
        let data = tempfile::tempdir().unwrap();
        for found in ["elsewhere_00000001", "", "x", "elsewhere_"] {
            fs::write(data.path().join(FILE), found).unwrap();
            let name = Identity::of(data.path()).name().to_owned();
            assert_ne!(name, found);
            assert_eq!(Identity::of(data.path()).name(), name, "and the right one is kept from then on");
        }
        let nowhere = Identity::of(Path::new("/proc/nowhere"));
        assert!(nowhere.name().contains('_'), "{}", nowhere.name());
    }
}
