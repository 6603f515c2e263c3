//! What a request to a registry is about.
//!
//! Invariant: a path has one reading. Whatever is escaped, doubled or unknown has none.

use http::Method;

use crate::registry::image_ref::is_repository;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject<'a> {
    /// Whether the registry is alive.
    Health,
    /// Whether the login is let in.
    Version,
    /// The names of all repositories.
    Catalog,
    /// Something of the repository of this name.
    Of(&'a str, Part),
}

/// What a repository has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Tags,
    Manifest,
    Blob,
    Referrers,
    /// Where uploads begin.
    Uploads,
    /// An upload that has begun.
    Upload,
}

impl Part {
    /// The methods that the specification has for it. A registry takes any other one for whatever it likes: Docker's begins an
    /// upload for a POST to one that has begun.
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
    /// Reads a path; `None` if a registry has nothing there.
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

    /// Whether the specification has this method for it.
    pub(super) fn has(self, method: &Method) -> bool {
        match self {
            Self::Of(_, part) => part.methods().contains(method),
            Self::Health | Self::Version | Self::Catalog => is_read(method),
        }
    }
}

/// Whether a text may be a tag, a digest or the id of an upload.
fn is_reference(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'=' | b'+');
    !text.is_empty() && text.bytes().all(is_known) && !text.starts_with('.')
}

/// Whether a request changes nothing.
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
            // Docker's registry takes the last part of this one for a digest, which it is not.
            let expected = (path == "/v2/team-fn/blobs/uploads").then_some(("team-fn", Part::Blob));
            check(path, expected);
        }
    }
}
