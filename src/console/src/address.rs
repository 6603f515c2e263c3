//! URLs of pages. Names are encoded, so that they cannot leave their segment.

use form_urlencoded::Serializer;
use mainstay_object::Key;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Returns the path of a page from its segments.
pub(crate) fn path(segments: &[&str]) -> String {
    segments
        .iter()
        .flat_map(|segment| ["/"].into_iter().chain(utf8_percent_encode(segment, NON_ALPHANUMERIC)))
        .collect()
}

/// Returns a path with a query. Empty values are omitted.
pub(crate) fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// Returns a path that may have a query, with more pairs. Empty values are omitted.
pub(crate) fn and_query(address: &str, pairs: &[(&str, &str)]) -> String {
    let more = with_query("", pairs);
    if address.contains('?') { format!("{address}{}", more.replacen('?', "&", 1)) } else { format!("{address}{more}") }
}

/// Returns the path of an object's page.
pub(crate) fn of_object(key: &Key) -> String {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    if key.is("mainstay.dev", "GitSync") {
        return of_git_sync(namespace, &key.name);
    }
    if key.is("serverless.kyma-project.io", "GitRepository") {
        return path(&["gitrepository", namespace, &key.name]);
    }
    if key.is("serverless.kyma-project.io", "Function") {
        return path(&["function", namespace, &key.name]);
    }
    of_any(key)
}

/// Returns the path of the page that each kind has: origin, field managers and YAML.
pub(crate) fn of_any(key: &Key) -> String {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    with_query("/object", &[("group", &key.group), ("kind", &key.kind), ("namespace", namespace), ("name", &key.name)])
}

/// Returns the path of a GitSync's page.
pub(crate) fn of_git_sync(namespace: &str, name: &str) -> String {
    path(&["gitsync", namespace, name])
}

/// Returns the path of the differences of a GitSync.
pub(crate) fn of_differences(namespace: &str, name: &str) -> String {
    path(&["gitsync", namespace, name, "differences"])
}

/// Returns the path of the network of a GitSync or a Function.
pub(crate) fn of_network(key: &Key) -> String {
    format!("{}/network", of_object(key))
}

/// Returns the URL in a form if it is a path of this server, and `/` otherwise.
pub(crate) fn within(address: &str) -> &str {
    let is_path = address.starts_with('/') && !address.starts_with("//") && address.len() <= 4 << 10;
    if is_path && address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') { address } else { "/" }
}

/// Parses the name of an object in a status, such as `Deployment.apps shop/web` or `Namespace shop`.
pub(crate) fn key_of(text: &str) -> Option<Key> {
    let (kind, name) = text.split_once(' ')?;
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (namespace, name) = name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    let is_name = |text: &str| !text.is_empty() && !text.contains([' ', '/']);
    (is_name(kind) && is_name(name) && namespace.is_none_or(is_name)).then(|| Key::new(group, kind, namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_segment_and_their_value() {
        assert_eq!(of_git_sync("a/../b", "x?y#z"), "/gitsync/a%2F%2E%2E%2Fb/x%3Fy%23z");
        let key = Key::new("apps", "Deployment", Some("a&name=b"), "\"><script>");
        assert_eq!(
            of_object(&key),
            "/object?group=apps&kind=Deployment&namespace=a%26name%3Db&name=%22%3E%3Cscript%3E"
        );
    }

    #[test]
    fn pairs_are_added_to_a_path_with_and_without_a_query() {
        for (address, added) in [("/a", "/a?x=%26"), ("/a?b=c", "/a?b=c&x=%26")] {
            assert_eq!(and_query(address, &[("x", "&"), ("y", "")]), added);
            assert_eq!(and_query(address, &[("y", "")]), address);
        }
    }

    #[test]
    fn an_address_of_another_server_becomes_the_first_page() {
        for address in ["/", "/gitsync/a/b", "/?q=a%20b&state=Failed"] {
            assert_eq!(within(address), address);
        }
        for address in ["", "//evil.example", "/\\evil.example", "https://evil.example", "a", "/a\r\nb", "/a b", "/ä"]
        {
            assert_eq!(within(address), "/", "{address:?}");
        }
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let held = "Namespace legacy: a guard keeps it; to delete it: kubectl annotate gitsync/shop a=b";
        assert_eq!(key_of(held), None, "a sentence is no key");
        for key in [
            Key::new("apps", "Deployment", Some("shop"), "web"),
            Key::new("", "Namespace", None, "shop"),
            Key::new("rbac.authorization.k8s.io", "ClusterRole", None, "system:x"),
        ] {
            assert_eq!(key_of(&key.to_string()), Some(key));
        }
        for text in ["", "Deployment", "Deployment ", "a b c", "Deployment.apps a/b/c"] {
            assert_eq!(key_of(text), None, "{text}");
        }
    }
}
