//! Parses a registry address from a Secret into a prefix of image names.

use std::fmt;

use super::image_ref::{self, ImageRef, ParseImageRefError};

const DOCKER_HUB: &str = "docker.io";

/// The address that images are pushed to or pulled from: a host and a path prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host and port.
    host: String,
    /// Empty, or a path without leading and trailing slashes.
    path: String,
}

impl Address {
    /// Parses an address. Ignores a scheme and trailing slashes. An address without a host, such as `user`, refers to
    /// Docker Hub.
    pub fn parse(text: &str) -> Result<Self, ParseImageRefError> {
        let text = text.trim();
        let text = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        let text = text.trim_end_matches('/');
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, path) = if image_ref::names_host(host) { (host, path) } else { (DOCKER_HUB, text) };
        // Docker's configuration uses these names for Docker Hub.
        let (host, path) = match (host, path) {
            ("index.docker.io" | "registry-1.docker.io", "v1" | "v2") => (DOCKER_HUB, ""),
            ("index.docker.io" | "registry-1.docker.io", path) => (DOCKER_HUB, path),
            other => other,
        };
        if !image_ref::is_host(host) {
            return Err(ParseImageRefError::Host);
        }
        if !path.is_empty() && !image_ref::is_repository(path) || text.is_empty() {
            return Err(ParseImageRefError::Repository);
        }
        Ok(Self { host: host.to_owned(), path: path.to_owned() })
    }

    /// Returns the host and port.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the image of a Function in the Function's repository ([`image_name`]).
    ///
    /// # Errors
    /// Fails if the address, a name or the tag is not valid in an image reference.
    pub fn image(&self, namespace: &str, function: &str, tag: &str) -> Result<ImageRef, ParseImageRefError> {
        format!("{self}/{}:{tag}", image_name(namespace, function)).parse()
    }
}

/// Returns the last segment of a Function's repository: `NAMESPACE-FUNCTION` as in Kyma, or `NAMESPACE_FUNCTION` if the
/// namespace contains a hyphen.
///
/// Invariant: no two Functions share a repository. Names of namespaces and Functions contain no underscore. So the
/// namespace ends at the underscore, or at the first hyphen if there is no underscore.
pub(crate) fn image_name(namespace: &str, function: &str) -> String {
    let separator = if namespace.contains('-') { '_' } else { '-' };
    format!("{namespace}{separator}{function}")
}

/// The repository of the in-cluster registry in which builds of all namespaces share layers of base images. The
/// repository belongs to no Function.
pub(crate) const SHARED_LAYERS: &str = "mainstay/base-layers";

/// Returns the namespace of the Function that owns this repository or a repository that contains it, such as that of
/// Kaniko's cache. `repository` has no path prefix, because the in-cluster registry uses none. Returns `None` for other
/// repositories.
pub(super) fn owner(repository: &str) -> Option<&str> {
    let name = repository.split('/').next().unwrap_or_default();
    let divided = name.split_once('_').or_else(|| name.split_once('-'));
    divided.map(|(namespace, _)| namespace)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let got = Address::parse(text).and_then(|address| address.image("ns", "fn", "t"));
        assert_eq!(got.map_or_else(|error| format!("{error:?}"), |image| image.to_string()), expected, "{text}");
    }

    #[test]
    fn names_the_image_of_a_function() {
        check("gcr.io/project", "gcr.io/project/ns-fn:t");
        check("localhost:32137", "localhost:32137/ns-fn:t");
        check("https://x.azurecr.io/", "x.azurecr.io/ns-fn:t");
        check("docker.io/user", "docker.io/user/ns-fn:t");
        check("user", "docker.io/user/ns-fn:t");
        check("https://index.docker.io/v1/", "docker.io/library/ns-fn:t");
        check(" registry.svc.cluster.local:5000 \n", "registry.svc.cluster.local:5000/ns-fn:t");
        for text in ["", "/", "https://", "User", "a//b", "h.io/../x", "h.io/a?b", "h.io/a:tag"] {
            check(text, "Repository");
        }
        check("u:p@h.io", "Host");
    }

    proptest! {
        #[test]
        fn no_two_functions_share_a_repository(
            one in ("[a-c]([a-c-]{0,4}[a-c])?", "[a-c]([a-c-]{0,4}[a-c])?"),
            other in ("[a-c]([a-c-]{0,4}[a-c])?", "[a-c]([a-c-]{0,4}[a-c])?"),
        ) {
            let address = Address::parse("h.io").unwrap();
            let of = |(namespace, function): &(String, String)| address.image(namespace, function, "t").unwrap().repository;
            let repository = of(&one);
            prop_assert_eq!(owner(&repository), Some(&*one.0));
            prop_assert_eq!(of(&one) == of(&other), one == other);
        }
    }

    #[test]
    fn a_repository_without_a_separator_belongs_to_no_function() {
        for (repository, expected) in [
            ("team-fn", Some("team")),
            ("team-a-fn", Some("team")),
            ("team-a_fn-x", Some("team-a")),
            ("team-fn/cache", Some("team")),
            ("team-a_fn/cache", Some("team-a")),
            ("base/team-fn", None),
            ("node22", None),
        ] {
            assert_eq!(owner(repository), expected, "{repository}");
        }
    }

    #[test]
    fn a_namespace_with_a_hyphen_shares_no_repository_with_one_without() {
        let address = Address::parse("h.io").unwrap();
        let of = |namespace, function| address.image(namespace, function, "t").unwrap().to_string();
        assert_eq!(of("team", "a-fn"), "h.io/team-a-fn:t");
        assert_eq!(of("team-a", "fn"), "h.io/team-a_fn:t");
    }
}
