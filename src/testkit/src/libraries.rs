//! The packages of the runtime servers, fetched into this user's cache by the first test that needs them.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::LazyLock,
};

use mainstay_function::runtimes::libraries;

static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = libraries::place(std::env::var_os(libraries::VARIABLE).map(PathBuf::from));
    // Each test is a process: the first process fetches the packages, and the others wait.
    fs::create_dir_all(&place).unwrap();
    let lock = File::create(place.join(".tests.lock")).unwrap();
    lock.lock().unwrap();
    libraries::fetch_all(&place)
        .unwrap_or_else(|error| panic!("{error}; it needs npm, pip and, once, their registries"));
    place
});

/// Returns the directory of the packages.
pub fn place() -> &'static str {
    PLACE.to_str().unwrap()
}
