//! Files with expected output.

use std::path::Path;

/// Compares a string with a file below `tests/golden/`; `UPDATE_GOLDEN=1` rewrites it.
pub fn check_golden(name: &str, actual: &str) {
    let path = Path::new(crate::ROOT).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs (UPDATE_GOLDEN=1 rewrites it):\n{}",
        path.display(),
        similar::TextDiff::from_lines(&expected, actual).unified_diff()
    );
}
