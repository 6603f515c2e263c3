//! The login in the Secret of `spec.secretRef`.
//!
//! Invariant: an error names keys of the Secret, and none of its values.

use super::named::Named;
use super::wanted::Place;
use mainstay_api::git_sync::SourceKind;
use mainstay_cluster::secrets::SecretData;
use mainstay_function::registry::{Login, login};
use mainstay_object::Secret;

/// The key of a Secret that contains logins.
const LOGINS: &str = ".dockerconfigjson";

/// Returns the login in a Secret: for a registry the login of its image, for a chart also user name and password.
pub(super) fn login_of<S: Named>(name: &str, data: &SecretData, place: &Place) -> Result<Login, String> {
    let text = |key: &str| data.get(key).and_then(|value| std::str::from_utf8(&value.0).ok());
    let pair = || {
        let (username, password) = (text("username")?, text("password")?);
        let is_readable = !username.is_empty() && !username.contains(':');
        let is_plain = !username.chars().chain(password.chars()).any(char::is_control);
        (is_readable && is_plain)
            .then(|| Login { username: username.to_owned(), password: Secret::new(password.to_owned()) })
    };
    let image = match place {
        Place::Registry(image) => &image.repository,
        Place::Charts(_) => {
            let missing = || format!("spec.secretRef: the Secret {name} has no keys username and password");
            return pair().ok_or_else(missing);
        }
    };
    let Some(file) = data.get(LOGINS) else {
        let pair = pair().filter(|_| S::SOURCE == SourceKind::HelmChart);
        return pair.ok_or_else(|| {
            format!("spec.secretRef: the Secret {name} has no key {LOGINS}; create it with `kubectl create secret docker-registry`")
        });
    };
    let found = login(&file.0, image);
    found.ok_or_else(|| format!("spec.secretRef: the Secret {name} has no login for {}", image.registry))
}
