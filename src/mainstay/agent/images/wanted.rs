//! The listing that an ImageRepository asks for.
//!
//! Invariant: a field that is not supported is reported by its name, not ignored.

use std::time::Duration;

use regex::Regex;

use super::choice::compiled;
use crate::agent::cloud;
use mainstay_api::ImageRepositorySpec;
use mainstay_function::registry::{ImageRef, Scheme};
use mainstay_git::CloudIdentity;

/// Minimum time between two listings.
const SHORTEST: Duration = Duration::from_secs(10);
/// Default and maximum time of a listing.
const TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);

/// The listing that an ImageRepository asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) image: ImageRef,
    pub(super) scheme: Scheme,
    /// Tags that match one of these are ignored.
    pub(super) excluded: Vec<Regex>,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    /// The identity of a cloud that lists the tags.
    pub(super) identity: Option<CloudIdentity>,
}

/// Reads the spec of an ImageRepository in a namespace.
///
/// # Errors
/// Fails with the invalid fields.
pub(super) fn wanted(spec: &ImageRepositorySpec, namespace: &str) -> Result<Wanted, Vec<String>> {
    let mut problems = Vec::new();
    let image = image(&spec.image).map_err(|why| problems.push(format!("spec.image: {why}"))).ok();
    let identity = cloud::Login {
        provider: spec.provider.as_deref(),
        account: spec.service_account_name.as_deref(),
        registry: image.as_ref().map(|image| &*image.registry),
        others: [
            ("spec.secretRef", spec.secret_ref.is_some()),
            ("spec.certSecretRef", spec.cert_secret_ref.is_some()),
            ("spec.insecure", spec.insecure),
        ],
    };
    let identity = identity.identity(namespace).map_err(|why| problems.push(why)).ok().flatten();
    let mut excluded = Vec::new();
    for (at, text) in spec.exclusion_list.iter().enumerate() {
        match compiled(text) {
            Ok(regex) => excluded.push(regex),
            Err(why) => problems.push(format!("spec.exclusionList[{at}]: {why}")),
        }
    }
    let timeout = spec.timeout.map_or(TIMEOUT, |timeout| timeout.0);
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        problems.push("spec.timeout: must be between 1ms and 5m".to_owned());
    }
    if spec.interval.0 < SHORTEST {
        problems.push("spec.interval: must be at least 10s".to_owned());
    }
    let scheme = if spec.insecure { Scheme::Http } else { Scheme::Https };
    let interval = spec.interval.0;
    image
        .filter(|_| problems.is_empty())
        .map(|image| Wanted { image, scheme, excluded, interval, timeout, identity })
        .ok_or(problems)
}

/// Returns the invalid fields of an ImageRepository in a namespace.
pub(crate) fn image_repository_problems(spec: &ImageRepositorySpec, namespace: &str) -> Vec<String> {
    wanted(spec, namespace).err().unwrap_or_default()
}

fn image(text: &str) -> Result<ImageRef, String> {
    if text.contains("://") {
        return Err("must not begin with a scheme such as oci:// or https://".to_owned());
    }
    if text.split('/').next().is_some_and(|host| host.contains('@')) && text.contains('/') {
        return Err("must not contain a login; name a Secret in spec.secretRef".to_owned());
    }
    let image: ImageRef = text.parse().map_err(|why| format!("{why}; write [HOST/]PATH"))?;
    if image.tag.is_some() || image.digest.is_some() {
        return Err("must not contain a tag or a digest; an ImagePolicy chooses the tag".to_owned());
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(change: Value) -> Result<Wanted, String> {
        let mut spec = json!({"image": "ghcr.io/team/shop"});
        json_patch::merge(&mut spec, &change);
        wanted(&serde_json::from_value(spec).unwrap(), "shop").map_err(|problems| problems.join("; "))
    }

    #[test]
    fn reads_the_names_that_flux_accepts() {
        for (name, canonical) in [
            ("ghcr.io/team/shop", "ghcr.io/team/shop"),
            ("nginx", "docker.io/library/nginx"),
            ("team/shop", "docker.io/team/shop"),
            ("localhost:5000/shop", "localhost:5000/shop"),
        ] {
            let image = read(json!({ "image": name })).unwrap().image;
            assert_eq!(format!("{}/{}", image.registry, image.repository), canonical);
        }
        let usual = read(json!({})).unwrap();
        assert!(usual.excluded[0].is_match("sha256-abc.sig") && !usual.excluded[0].is_match("v1"));
        assert_eq!((usual.interval, usual.timeout, usual.scheme), (Duration::from_secs(600), TIMEOUT, Scheme::Https));
    }

    #[test]
    fn names_each_field_that_is_wrong_or_not_supported() {
        for (change, problem) in [
            (json!({"image": "oci://ghcr.io/team/shop"}), "spec.image: must not begin with a scheme"),
            (json!({"image": "ghcr.io/team/shop:v1"}), "spec.image: must not contain a tag or a digest"),
            (json!({"image": "user:hunter2@ghcr.io/shop"}), "spec.image: must not contain a login"),
            (json!({"image": "ghcr.io/Shop"}), "spec.image: "),
            (json!({"provider": "aws"}), "spec.provider: ghcr.io is not a registry of aws"),
            (json!({"serviceAccountName": "a"}), "spec.serviceAccountName: has an effect only with"),
            (json!({"exclusionList": ["a", "("]}), "spec.exclusionList[1]: is not a regular expression"),
            (json!({"interval": "1s"}), "spec.interval: must be at least 10s"),
            (json!({"timeout": "6m"}), "spec.timeout: must be between"),
        ] {
            let said = read(change.clone()).unwrap_err();
            assert!(said.starts_with(problem) && !said.contains("hunter2"), "{change}: {said}");
        }
    }
}
