//! Fuzz targets for untrusted input. Each accepts any bytes, terminates quickly, does not panic, and checks its
//! invariants.

use super::client::fuzz::{answer, asked, token};
use super::{ImageRef, login};

/// Parses a registry's response: header lines, or the body of its token server's response.
pub fn registry_answer(bytes: &[u8]) {
    asked(&String::from_utf8_lossy(bytes));
    token(bytes);
    answer(bytes);
}

/// Parses a `.dockerconfigjson`. The password of a login must not be shown.
pub fn docker_config(bytes: &[u8]) {
    for image in ["registry.example.com:5000/shop/web:1", "docker.io/library/web", "localhost/a"] {
        let Ok(image) = image.parse::<ImageRef>() else { continue };
        let Some(login) = login(bytes, &image) else { continue };
        let password = login.password.expose();
        let is_shown = password.len() > 8 && format!("{:?}", login.password).contains(password.as_str());
        assert!(!is_shown, "a password is not shown");
        assert!(!login.username.chars().any(char::is_control), "a user name is text");
    }
}
