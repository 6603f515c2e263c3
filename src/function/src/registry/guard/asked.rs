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
    /// A repository.
    Repository {
        /// Its name.
        name: &'a str,
        /// Whether an upload begins.
        begins_upload: bool,
    },
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
        let (name, begins_upload) = match part {
            "tags" if last == "list" => (start, false),
            "manifests" | "blobs" | "referrers" if is_reference(last) => (start, false),
            "uploads" if last.is_empty() || is_reference(last) => (start.strip_suffix("/blobs")?, last.is_empty()),
            _ => return None,
        };
        is_repository(name).then_some(Self::Repository { name, begins_upload })
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
    fn check(path: &str, expected: Option<(&str, bool)>) {
        let read = Subject::read(path).map(|subject| match subject {
            Subject::Repository { name, begins_upload } => (name, begins_upload),
            other => panic!("{path}: {other:?}"),
        });
        assert_eq!(read, expected, "{path}");
    }

    #[test]
    fn reads_the_repository_of_each_kind_of_request() {
        for path in
            ["tags/list", "manifests/latest", "manifests/sha256:00ff", "blobs/sha256:00ff", "referrers/sha256:00ff"]
        {
            check(&format!("/v2/team-fn/{path}"), Some(("team-fn", false)));
            check(&format!("/v2/base/node/{path}"), Some(("base/node", false)));
        }
        check("/v2/team-fn/blobs/uploads/", Some(("team-fn", true)));
        check("/v2/team-fn/blobs/uploads/8c1e-77==", Some(("team-fn", false)));
        check("/v2/a/manifests/x/blobs/uploads/", Some(("a/manifests/x", true)));
        assert_eq!(Subject::read("/"), Some(Subject::Health));
        assert_eq!([Subject::read("/v2"), Subject::read("/v2/")], [Some(Subject::Version); 2]);
        assert_eq!(Subject::read("/v2/_catalog"), Some(Subject::Catalog));
    }

    #[test]
    fn what_has_two_readings_has_none() {
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
            let expected = (path == "/v2/team-fn/blobs/uploads").then_some(("team-fn", false));
            check(path, expected);
        }
    }
}
