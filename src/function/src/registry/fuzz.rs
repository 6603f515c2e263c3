//! Readers of hostile input, for a fuzzer: each takes any bytes, ends soon, does not panic, and keeps its promise.

use super::client::fuzz::{answer, asked, token};
use super::{ImageRef, login};

/// What a registry answers: headers in lines, or a body of its token server. What it wants has an address that is an address.
pub fn registry_answer(bytes: &[u8]) {
    asked(&String::from_utf8_lossy(bytes));
    token(bytes);
    answer(bytes);
}

/// A `.dockerconfigjson`: nobody sees the password of a login.
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
