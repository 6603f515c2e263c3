//! The artifact that a spec asks for.
//!
//! Invariant: a field that is not supported is reported by its name, not ignored.

use std::time::Duration;

use regex::{Regex, RegexBuilder};

use mainstay_api::OciRepositorySpec;
use mainstay_api::oci_repository::OciReference;
use mainstay_function::registry::{Digest, ImageRef};
use mainstay_git::highest_version;

/// The form of a URL.
const FORM: &str = "oci://HOST/PATH";
/// Minimum time between two lookups.
const SHORTEST: Duration = Duration::from_secs(10);
/// Default and maximum time of a lookup with its download.
const TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum size of a compiled regular expression, in bytes.
const REGEX_BYTES: usize = 1 << 20;

/// The artifact that a spec asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The repository in the registry, without a tag.
    pub(super) image: ImageRef,
    pub(super) version: Version,
    /// The media type of the layer; by default the first layer is read.
    pub(super) media_type: Option<String>,
    /// Patterns of files to exclude.
    pub(super) ignore: String,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
}

/// The version that the spec follows.
#[derive(Clone, Debug)]
pub(super) enum Version {
    Tag(String),
    /// The tag with the highest version in a range, among the tags that match the regular expression.
    Range(String, Option<Regex>),
    Digest(Digest),
}

/// Returns the artifact that a spec asks for.
///
/// # Errors
/// Fails with the invalid fields.
pub(super) fn wanted(spec: &OciRepositorySpec) -> Result<Wanted, Vec<String>> {
    let mut problems = unsupported(spec);
    let image = image(&spec.url).map_err(|why| problems.push(format!("spec.url: {why}"))).ok();
    let version = version(&spec.reference.clone().unwrap_or_default());
    let version = version.map_err(|why| problems.push(format!("spec.ref.{why}"))).ok();
    let timeout = spec.timeout.map_or(TIMEOUT, |timeout| timeout.0);
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        problems.push("spec.timeout: must be between 1ms and 5m".to_owned());
    }
    if spec.interval.0 < SHORTEST {
        problems.push("spec.interval: must be at least 10s".to_owned());
    }
    match (image, version) {
        (Some(image), Some(version)) if problems.is_empty() => Ok(Wanted {
            image,
            version,
            media_type: spec.layer_selector.as_ref().and_then(|selector| selector.media_type.clone()),
            ignore: spec.ignore.clone().unwrap_or_default(),
            interval: spec.interval.0,
            timeout,
        }),
        _ => Err(problems),
    }
}

fn unsupported(spec: &OciRepositorySpec) -> Vec<String> {
    let mut problems = Vec::new();
    if spec.provider.as_deref().is_some_and(|provider| provider != "generic") {
        let instead = "name a login in spec.secretRef, and leave the field out";
        problems.push(format!("spec.provider: only generic is supported; {instead}"));
    }
    if spec.service_account_name.is_some() {
        problems.push("spec.serviceAccountName: is not supported; name a login in spec.secretRef".to_owned());
    }
    if spec.verify.is_some() {
        let instead = "remove it, and name a digest in spec.ref if only known artifacts may be applied";
        problems.push(format!("spec.verify: signatures of artifacts are not supported; {instead}"));
    }
    problems
}

fn image(url: &str) -> Result<ImageRef, String> {
    let rest = url.strip_prefix("oci://").ok_or_else(|| format!("must have the form {FORM}"))?.trim_end_matches('/');
    if rest.split('/').next().is_some_and(|host| host.contains('@')) {
        return Err("must not contain a login; name a Secret in spec.secretRef".to_owned());
    }
    let image: ImageRef = rest.parse().map_err(|why| format!("{why}; write {FORM}"))?;
    if image.tag.is_some() || image.digest.is_some() {
        return Err("must not contain a tag or a digest; set them in spec.ref".to_owned());
    }
    let host = rest.split('/').next().unwrap_or_default();
    if host == image.registry {
        Ok(image)
    } else {
        Err("its host must contain a dot or a port, or be localhost".to_owned())
    }
}

fn version(reference: &OciReference) -> Result<Version, String> {
    if let Some(digest) = &reference.digest {
        return digest.parse().map(Version::Digest).map_err(|why| format!("digest: {why}"));
    }
    if let Some(range) = &reference.semver {
        let _: Option<&str> = highest_version(range, std::iter::empty()).map_err(|why| format!("semver: {why}"))?;
        let compiled = |text: &String| RegexBuilder::new(text).size_limit(REGEX_BYTES).build();
        let filter = reference.semver_filter.as_ref().map(compiled).transpose();
        let filter = filter.map_err(|_| "semverFilter: is not a regular expression, or is too large".to_owned())?;
        return Ok(Version::Range(range.clone(), filter));
    }
    if reference.semver_filter.is_some() {
        return Err("semverFilter: has an effect only together with semver".to_owned());
    }
    let tag = reference.tag.as_deref().unwrap_or("latest");
    let is_tag =
        format!("host.example/a:{tag}").parse::<ImageRef>().is_ok_and(|image| image.tag.as_deref() == Some(tag));
    if is_tag { Ok(Version::Tag(tag.to_owned())) } else { Err("tag: is not a valid tag".to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(change: Value) -> Result<Wanted, Vec<String>> {
        let mut spec = json!({"url": "oci://registry.example.org/team/shop"});
        json_patch::merge(&mut spec, &change);
        wanted(&serde_json::from_value(spec).unwrap())
    }

    #[track_caller]
    fn check(change: Value, problem: &str) {
        assert_eq!(read(change).unwrap_err(), [problem]);
    }

    #[test]
    fn follows_the_tag_latest_by_default() {
        let wanted = read(json!({})).unwrap();
        assert!(matches!(wanted.version, Version::Tag(tag) if tag == "latest"));
        assert_eq!(
            (wanted.image.registry.as_str(), wanted.image.repository.as_str()),
            ("registry.example.org", "team/shop")
        );
        assert_eq!((wanted.interval, wanted.timeout), (Duration::from_secs(600), TIMEOUT));
    }

    #[test]
    fn a_digest_wins_over_a_range_and_a_range_over_a_tag() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let all = json!({"ref": {"tag": "v1", "semver": ">=1", "digest": digest}});
        assert!(matches!(read(all).unwrap().version, Version::Digest(_)));
        let both = json!({"ref": {"tag": "v1", "semver": ">=1", "semverFilter": ".*-rc.*"}});
        assert!(matches!(read(both).unwrap().version, Version::Range(range, Some(_)) if range == ">=1"));
    }

    #[test]
    fn names_each_field_that_is_wrong_or_not_supported() {
        check(json!({"url": "https://registry.example.org/a"}), "spec.url: must have the form oci://HOST/PATH");
        check(
            json!({"url": "oci://registry.example.org/a:v1"}),
            "spec.url: must not contain a tag or a digest; set them in spec.ref",
        );
        let login = json!({"url": "oci://user:hunter2@registry.example.org/a"});
        check(login, "spec.url: must not contain a login; name a Secret in spec.secretRef");
        check(json!({"url": "oci://team/shop"}), "spec.url: its host must contain a dot or a port, or be localhost");
        check(json!({"ref": {"tag": "a b"}}), "spec.ref.tag: is not a valid tag");
        check(json!({"ref": {"semverFilter": "x"}}), "spec.ref.semverFilter: has an effect only together with semver");
        check(json!({"interval": "1s"}), "spec.interval: must be at least 10s");
        check(json!({"timeout": "1h"}), "spec.timeout: must be between 1ms and 5m");
        let account = "spec.serviceAccountName: is not supported; name a login in spec.secretRef";
        check(json!({"serviceAccountName": "x"}), account);
        let found = read(json!({"provider": "aws", "verify": {"provider": "cosign"}})).unwrap_err().join(" ");
        assert!(found.contains("spec.provider: only generic") && found.contains("spec.verify: signatures"), "{found}");
    }
}
