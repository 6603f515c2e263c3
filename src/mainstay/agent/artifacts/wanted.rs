//! The artifact that a spec asks for.
//!
//! Invariant: a field that is not supported is reported by its name, not ignored.

use std::time::Duration;

use regex::{Regex, RegexBuilder};
use reqwest::Url;

use super::signed::{Signed, Tool, signed};
use mainstay_api::oci_repository::OciReference;
use mainstay_api::{HelmChartSpec, OciRepositorySpec, Span};
use mainstay_function::registry::{Digest, ImageRef, Scheme};
use mainstay_git::{CloudIdentity, Root, highest_version};
use mainstay_object::pattern_problem;

use crate::agent::cloud;

/// The form of a URL.
const FORM: &str = "oci://HOST/PATH";
/// Minimum time between two lookups.
const SHORTEST: Duration = Duration::from_secs(10);
/// Default and maximum time of a lookup with its download.
const TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);
/// The media type of a packed chart in a registry.
pub(super) const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Maximum size of a compiled regular expression, in bytes.
const REGEX_BYTES: usize = 1 << 20;

/// The artifact that a spec asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) struct Wanted {
    pub(super) place: Place,
    /// The files that become the root of the commit.
    pub(super) root: Root,
    /// Patterns of files to exclude.
    pub(super) ignore: String,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    /// The required signature.
    pub(super) signed: Option<Signed>,
    /// The identity of a cloud that reads the artifact.
    pub(super) identity: Option<CloudIdentity>,
}

/// The place of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Registry(Image),
    Charts(Chart),
}

/// An artifact in an image registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// The repository in the registry, without a tag.
    pub(super) repository: ImageRef,
    pub(super) scheme: Scheme,
    pub(super) version: Version,
    /// The media type of the layer; by default the first layer is read.
    pub(super) media_type: Option<String>,
}

/// A chart in a chart repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chart {
    /// The URL of the chart repository, with a slash at its end.
    pub(super) repository: Url,
    pub(super) name: String,
    pub(super) range: String,
}

/// The version that the spec follows.
#[derive(Clone, Debug)]
pub(super) enum Version {
    Tag(String),
    /// The tag with the highest version in a range, among the tags that match the regular expression.
    Range(String, Option<Regex>),
    /// The tag of the highest version of a chart in a range. A tag has `_` for the `+` of its version.
    OfChart(String),
    Digest(Digest),
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        let filter = |filter: &Option<Regex>| filter.as_ref().map(|filter| filter.as_str().to_owned());
        match (self, other) {
            (Self::Tag(one), Self::Tag(two)) | (Self::OfChart(one), Self::OfChart(two)) => one == two,
            (Self::Range(one, first), Self::Range(two, second)) => one == two && filter(first) == filter(second),
            (Self::Digest(one), Self::Digest(two)) => one == two,
            _ => false,
        }
    }
}

impl Eq for Version {}

/// Returns the artifact that an OCIRepository in a namespace asks for.
///
/// # Errors
/// Fails with the invalid fields.
pub(super) fn of_repository(spec: &OciRepositorySpec, namespace: &str) -> Result<Wanted, Vec<String>> {
    let mut problems = Vec::new();
    let image = image(&spec.url).map_err(|why| problems.push(format!("spec.url: {why}"))).ok();
    let version = version(&spec.reference.clone().unwrap_or_default());
    let version = version.map_err(|why| problems.push(format!("spec.ref.{why}"))).ok();
    let timeout = timeout(spec.timeout, spec.interval, &mut problems);
    let signed = signed(spec.verify.as_ref(), &[Tool::Cosign, Tool::Notation], &mut problems);
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
    match (image, version) {
        (Some(image), Some(version)) if problems.is_empty() => Ok(Wanted {
            place: Place::Registry(Image {
                repository: image,
                scheme: scheme(spec.insecure),
                version,
                media_type: spec.layer_selector.as_ref().and_then(|selector| selector.media_type.clone()),
            }),
            root: Root::Top,
            ignore: spec.ignore.clone().unwrap_or_default(),
            interval: spec.interval.0,
            timeout,
            signed,
            identity,
        }),
        _ => Err(problems),
    }
}

/// Returns the invalid fields of an OCIRepository in a namespace.
pub(crate) fn oci_repository_problems(spec: &OciRepositorySpec, namespace: &str) -> Vec<String> {
    of_repository(spec, namespace).err().unwrap_or_default()
}

/// Returns the invalid fields of a HelmChart in a namespace.
pub(crate) fn chart_problems(spec: &HelmChartSpec, namespace: &str) -> Vec<String> {
    of_chart(spec, namespace).err().unwrap_or_default()
}

/// Returns the chart that a HelmChart in a namespace asks for.
///
/// # Errors
/// Fails with the invalid fields.
pub(super) fn of_chart(spec: &HelmChartSpec, namespace: &str) -> Result<Wanted, Vec<String>> {
    let mut problems = Vec::new();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if spec.name.starts_with('.') || !spec.name.chars().all(is_plain) {
        problems.push(
            "spec.name: must consist of letters, digits, `-`, `_` and `.`, and must not begin with `.`".to_owned(),
        );
    }
    let range = spec.version.clone().unwrap_or_else(|| "*".to_owned());
    if let Err(why) = highest_version(&range, std::iter::empty()) {
        problems.push(format!("spec.version: {why}"));
    }
    let timeout = timeout(spec.timeout, spec.interval, &mut problems);
    let is_registry = spec.repository.starts_with("oci://");
    let tools: &[Tool] = if is_registry { &[Tool::Cosign, Tool::Notation, Tool::Helm] } else { &[Tool::Helm] };
    let signed = signed(spec.verify.as_ref(), tools, &mut problems);
    let place = chart_place(spec, range).map_err(|why| problems.push(format!("spec.repository: {why}"))).ok();
    let identity = cloud::Login {
        provider: spec.provider.as_deref(),
        account: spec.service_account_name.as_deref(),
        registry: place.as_ref().map(|place| match place {
            Place::Registry(image) => &*image.repository.registry,
            Place::Charts(chart) => chart.repository.host_str().unwrap_or_default(),
        }),
        others: [
            ("spec.secretRef", spec.secret_ref.is_some()),
            ("spec.certSecretRef", spec.cert_secret_ref.is_some()),
            ("spec.insecure", spec.insecure),
        ],
    };
    let identity = identity.identity(namespace).map_err(|why| problems.push(why)).ok().flatten();
    if identity.is_some() && !is_registry {
        problems.push("spec.provider: has an effect only for a repository that begins with oci://".to_owned());
    }
    match place {
        Some(place) if problems.is_empty() => {
            let (root, ignore) = (Root::Directory, String::new());
            Ok(Wanted { place, root, ignore, interval: spec.interval.0, timeout, signed, identity })
        }
        _ => Err(problems),
    }
}

fn chart_place(spec: &HelmChartSpec, range: String) -> Result<Place, String> {
    let address = spec.repository.trim_end_matches('/');
    if address.starts_with("oci://") {
        let repository = image(&format!("{address}/{}", spec.name))?;
        let (version, media_type) = (Version::OfChart(range), Some(CHART.to_owned()));
        return Ok(Place::Registry(Image { repository, scheme: scheme(spec.insecure), version, media_type }));
    }
    let form = || format!("must have the form https://HOST/PATH or {FORM}");
    let url = Url::parse(&format!("{address}/")).map_err(|_| form())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a login; name a Secret in spec.secretRef".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not contain a query or a fragment".to_owned());
    }
    match url.scheme() {
        "https" => {}
        "http" if spec.insecure => {}
        "http" => return Err("must begin with https://, unless spec.insecure is set".to_owned()),
        _ => return Err(form()),
    }
    Ok(Place::Charts(Chart { repository: url, name: spec.name.clone(), range }))
}

fn scheme(insecure: bool) -> Scheme {
    if insecure { Scheme::Http } else { Scheme::Https }
}

/// Returns the timeout of a lookup, and adds the problems of both fields.
fn timeout(timeout: Option<Span>, interval: Span, problems: &mut Vec<String>) -> Duration {
    let timeout = timeout.map_or(TIMEOUT, |timeout| timeout.0);
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        problems.push("spec.timeout: must be between 1ms and 5m".to_owned());
    }
    if interval.0 < SHORTEST {
        problems.push("spec.interval: must be at least 10s".to_owned());
    }
    timeout
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
        let compiled = |text: &String| {
            let built = RegexBuilder::new(text).size_limit(REGEX_BYTES).build();
            built.map_err(|_| format!("semverFilter: {}", pattern_problem(text)))
        };
        let filter = reference.semver_filter.as_ref().map(compiled).transpose()?;
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
        of_repository(&serde_json::from_value(spec).unwrap(), "shop")
    }

    fn read_image(change: Value) -> Image {
        match read(change).unwrap().place {
            Place::Registry(image) => image,
            Place::Charts(chart) => panic!("{chart:?}"),
        }
    }

    fn chart(change: Value) -> Result<Place, String> {
        let mut spec = json!({"repository": "https://charts.example.org/stable/", "name": "shop"});
        json_patch::merge(&mut spec, &change);
        of_chart(&serde_json::from_value(spec).unwrap(), "shop")
            .map(|wanted| wanted.place)
            .map_err(|all| all.join("; "))
    }

    #[track_caller]
    fn check(change: Value, problem: &str) {
        assert_eq!(read(change).unwrap_err(), [problem]);
    }

    #[test]
    fn follows_the_tag_latest_by_default() {
        let wanted = read(json!({})).unwrap();
        let followed = read_image(json!({}));
        assert_eq!((followed.version, followed.scheme), (Version::Tag("latest".to_owned()), Scheme::Https));
        assert_eq!(
            (&*followed.repository.registry, &*followed.repository.repository),
            ("registry.example.org", "team/shop")
        );
        assert_eq!((wanted.interval, wanted.timeout), (Duration::from_secs(600), TIMEOUT));
    }

    #[test]
    fn a_digest_wins_over_a_range_and_a_range_over_a_tag() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let all = json!({"ref": {"tag": "v1", "semver": ">=1", "digest": digest}});
        assert!(matches!(read_image(all).version, Version::Digest(_)));
        let both = json!({"ref": {"tag": "v1", "semver": ">=1", "semverFilter": ".*-rc.*"}});
        assert!(matches!(read_image(both).version, Version::Range(range, Some(_)) if range == ">=1"));
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
        let account = "spec.serviceAccountName: has an effect only with spec.provider aws, azure or gcp; with provider \
                       generic, name a Secret with a login";
        check(json!({"serviceAccountName": "x"}), account);
        let found = read(json!({"provider": "aws", "verify": {}})).unwrap_err().join(" ");
        assert!(found.contains("spec.provider: registry.example.org is not a registry of aws"), "{found}");
        assert!(found.contains("spec.verify.secretRef: is missing"), "{found}");
        let helm = json!({"verify": {"provider": "helm", "secretRef": {"name": "keys"}}});
        check(helm, "spec.verify.provider: must be cosign or notation");
    }

    #[test]
    fn an_identity_of_a_cloud_needs_a_registry_of_this_cloud_with_tls_and_no_secret() {
        let url = "oci://shop.azurecr.io/manifests";
        let found = read(json!({"url": url, "provider": "azure", "serviceAccountName": "puller"})).unwrap().identity;
        assert_eq!(found, CloudIdentity::read(Some("azure"), Some("puller"), "shop").unwrap());
        assert!(found.is_some() && read(json!({"provider": "generic"})).unwrap().identity.is_none());
        for (field, value) in [
            ("insecure", json!(true)),
            ("secretRef", json!({"name": "login"})),
            ("certSecretRef", json!({"name": "ca"})),
        ] {
            let problem = format!("spec.{field}: must not be set with spec.provider azure; remove one of them");
            check(json!({"url": url, "provider": "azure", field: value}), &problem);
        }
    }

    #[test]
    fn finds_a_chart_in_a_chart_repository_or_a_registry() {
        let Ok(Place::Charts(found)) = chart(json!({})) else { panic!() };
        assert_eq!((found.repository.as_str(), &*found.range), ("https://charts.example.org/stable/", "*"));
        let Ok(Place::Registry(found)) = chart(json!({"repository": "oci://r.example.org/charts", "version": "1.x"}))
        else {
            panic!()
        };
        assert_eq!((&*found.repository.repository, found.media_type.as_deref()), ("charts/shop", Some(CHART)));
        assert_eq!(found.version, Version::OfChart("1.x".to_owned()));
    }

    #[test]
    fn names_each_wrong_field_of_a_chart() {
        for (change, problem) in [
            (
                json!({"repository": "charts.example.org"}),
                "spec.repository: must have the form https://HOST/PATH or oci://",
            ),
            (json!({"repository": "file:///etc"}), "spec.repository: must have the form"),
            (json!({"repository": "http://charts.example.org"}), "unless spec.insecure is set"),
            (
                json!({"repository": "https://u:hunter2@charts.example.org"}),
                "spec.repository: must not contain a login",
            ),
            (json!({"repository": "https://charts.example.org/?token=hunter2"}), "must not contain a query"),
            (json!({"repository": "oci://r.example.org/charts:v1"}), "spec.repository: "),
            (json!({"repository": "oci://r.example.org/charts", "name": "Shop"}), "spec.repository: "),
            (json!({"name": ".."}), "spec.name: must consist of letters"),
            (json!({"name": "../shop"}), "spec.name: must consist of letters"),
            (json!({"version": "one"}), "spec.version: "),
            (json!({"interval": "1s"}), "spec.interval: must be at least 10s"),
            (
                json!({"verify": {"secretRef": {"name": "keys"}}}),
                "must be helm: cosign and notation sign only charts whose repository",
            ),
            (json!({"verify": {"provider": "helm"}}), "spec.verify.secretRef: is missing"),
        ] {
            let said = chart(change.clone()).unwrap_err();
            assert!(said.contains(problem) && !said.contains("hunter2"), "{change}: {said}");
        }
        assert!(chart(json!({"repository": "http://charts.example.org", "insecure": true})).is_ok());
        let keyless = json!({"matchOIDCIdentity": [{"issuer": "a", "subject": "b"}]});
        assert!(chart(json!({"repository": "oci://r.example.org/charts", "verify": keyless})).is_ok());
        let said = chart(json!({"provider": "gcp"})).unwrap_err();
        assert!(said.contains("spec.provider: charts.example.org is not a registry of gcp"), "{said}");
        let plain = json!({"provider": "gcp", "repository": "https://europe-docker.pkg.dev/shop/charts"});
        assert_eq!(
            chart(plain).unwrap_err(),
            "spec.provider: has an effect only for a repository that begins with oci://"
        );
    }
}
