//! Parses the subject of a request to a registry.
//!
//! Invariant: a path has at most one meaning. Escaped, doubled or unknown parts have no meaning.

use http::Method;

use crate::registry::image_ref::is_repository;

/// The subject of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject<'a> {
    /// The health of the registry.
    Health,
    /// The API version, which checks the login.
    Version,
    /// The names of all repositories.
    Catalog,
    /// A part of the repository that has this name.
    Of(&'a str, Part),
}

/// A part of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Tags,
    Manifest,
    Blob,
    Referrers,
    /// The URL at which uploads start.
    Uploads,
    /// A started upload.
    Upload,
}

impl Part {
    /// Returns the methods that the specification defines for this part. A registry may handle other methods in its own
    /// way: Docker's registry starts an upload for a POST to a started upload.
    fn methods(self) -> &'static [Method] {
        match self {
            Self::Tags | Self::Referrers => &[Method::GET, Method::HEAD],
            Self::Manifest => &[Method::GET, Method::HEAD, Method::PUT, Method::DELETE],
            Self::Blob => &[Method::GET, Method::HEAD, Method::DELETE],
            Self::Uploads => &[Method::POST],
            Self::Upload => &[Method::GET, Method::HEAD, Method::PATCH, Method::PUT, Method::DELETE],
        }
    }
}

impl<'a> Subject<'a> {
    /// Parses a path; `None` if the path is not part of the API.
    pub(super) fn read(path: &'a str) -> Option<Self> {
        match path {
            "/" => return Some(Self::Health),
            "/v2" | "/v2/" => return Some(Self::Version),
            "/v2/_catalog" => return Some(Self::Catalog),
            _ => {}
        }
        let rest = path.strip_prefix("/v2/")?;
        let (before, last) = rest.rsplit_once('/')?;
        let (start, part) = before.rsplit_once('/')?;
        let (name, part) = match part {
            "tags" if last == "list" => (start, Part::Tags),
            "manifests" if is_reference(last) => (start, Part::Manifest),
            "blobs" if is_reference(last) => (start, Part::Blob),
            "referrers" if is_reference(last) => (start, Part::Referrers),
            "uploads" if last.is_empty() => (start.strip_suffix("/blobs")?, Part::Uploads),
            "uploads" if is_reference(last) => (start.strip_suffix("/blobs")?, Part::Upload),
            _ => return None,
        };
        is_repository(name).then_some(Self::Of(name, part))
    }

    /// Whether the specification defines this method for the subject.
    pub(super) fn has(self, method: &Method) -> bool {
        match self {
            Self::Of(_, part) => part.methods().contains(method),
            Self::Health | Self::Version | Self::Catalog => is_read(method),
        }
    }
}

/// Whether a string may be a tag, a digest or an upload ID.
fn is_reference(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'=' | b'+');
    !text.is_empty() && text.bytes().all(is_known) && !text.starts_with('.')
}

/// Whether a request only reads.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Option<(&str, Part)>) {
        let read = Subject::read(path).map(|subject| match subject {
            Subject::Of(name, part) => (name, part),
            other => panic!("{path}: {other:?}"),
        });
        assert_eq!(read, expected, "{path}");
    }

    #[test]
    fn reads_the_repository_of_each_kind_of_request() {
        for (path, part) in [
            ("tags/list", Part::Tags),
            ("manifests/latest", Part::Manifest),
            ("manifests/sha256:00ff", Part::Manifest),
            ("blobs/sha256:00ff", Part::Blob),
            ("referrers/sha256:00ff", Part::Referrers),
            ("blobs/uploads/", Part::Uploads),
            ("blobs/uploads/8c1e-77==", Part::Upload),
        ] {
            for name in ["team-fn", "base/node", "a/manifests/x"] {
                check(&format!("/v2/{name}/{path}"), Some((name, part)));
            }
        }
        assert_eq!(Subject::read("/"), Some(Subject::Health));
        assert_eq!([Subject::read("/v2"), Subject::read("/v2/")], [Some(Subject::Version); 2]);
        assert_eq!(Subject::read("/v2/_catalog"), Some(Subject::Catalog));
    }

    #[test]
    fn an_upload_begins_by_one_method_at_one_place() {
        let begun = Subject::read("/v2/team-fn/blobs/uploads/1").unwrap();
        let begins = Subject::read("/v2/team-fn/blobs/uploads/").unwrap();
        assert!(begins.has(&Method::POST) && !begun.has(&Method::POST));
        let others = ["CONNECT", "OPTIONS", "TRACE", "GETX", "get", "PATCH"];
        for method in others.map(|name| name.parse().unwrap()) {
            for path in ["/", "/v2/", "/v2/_catalog", "/v2/team-fn/manifests/1", "/v2/team-fn/blobs/uploads/"] {
                assert!(!Subject::read(path).unwrap().has(&method), "{method} {path}");
            }
        }
    }

    #[test]
    fn an_ambiguous_path_names_no_repository() {
        for path in [
            "",
            "/v1/",
            "/v2/x",
            "/v2//manifests/a",
            "/v2/team-fn/manifests/",
            "/v2/team-fn/manifests/..",
            "/v2/../x/manifests/a",
            "/v2/a/../team-fn/manifests/a",
            "/v2/team%2dfn/manifests/a",
            "/v2/team-fn//manifests/a",
            "/v2/team-fn/blobs/uploads",
            "/v2/team-fn/uploads/",
            "/v2/Team/manifests/a",
            "/v2/_catalog/",
            "/v2/team-fn/manifests/a%2f..",
            "/debug/vars",
            "/v2/team-fn/./manifests/a",
            "/v2/team-fn;x/manifests/a",
        ] {
            // Docker's registry reads the last part of this path as a digest, although it is not one.
            let expected = (path == "/v2/team-fn/blobs/uploads").then_some(("team-fn", Part::Blob));
            check(path, expected);
        }
    }
}
