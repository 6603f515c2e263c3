//! Explains why a pull from a loopback address of the node failed, from the kubelet's message.

use super::access::is_loopback;

/// Words in the kubelet's message if containerd and the registry use different protocols.
const OTHER_PROTOCOL: [&str; 3] = ["400 bad request", "http response to https client", "malformed http response"];
/// Words in the kubelet's message if no server is reachable.
const UNREACHABLE: [&str; 3] = ["connection refused", "i/o timeout", "no route to host"];

/// Returns a hint for a failed pull from a repository at a loopback address.
pub(crate) fn of(repository: &str, text: &str) -> Option<&'static str> {
    if !is_loopback(repository.split('/').next().unwrap_or_default()) {
        return None;
    }
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| text.contains(words));
    if says(&OTHER_PROTOCOL) {
        Some(
            "the registry and the node's containerd use different protocols: containerd before 1.6.33 and 1.7.16 uses plain HTTP \
             for a loopback address. Install Mainstay again, because its registry now accepts both, or update containerd",
        )
    } else if says(&UNREACHABLE) {
        Some(
            "the node does not reach the registry at its own address: this needs kube-proxy in the mode iptables, or \
             a proxy that serves NodePorts at 127.0.0.1. Without one, use a registry that nodes reach by its name \
             (mainstay install --registry ADDRESS)",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_about_the_registry_of_the_node_itself() {
        let check = |repository: &str, text: &str, expected: Option<&str>| {
            let hint = of(repository, text);
            assert_eq!(hint.is_some(), expected.is_some(), "{repository}: {text}");
            assert!(hint.zip(expected).is_none_or(|(hint, expected)| hint.contains(expected)), "{hint:?}");
        };
        let old = "failed to resolve reference \"127.0.0.1:32137/a@sha256:0\": unexpected status from HEAD request to \
                   http://127.0.0.1:32137/v2/a/manifests/sha256:0: 400 Bad Request";
        check("127.0.0.1:32137/a", old, Some("update containerd"));
        check("127.0.0.1:32137/a", "http: server gave HTTP response to HTTPS client", Some("update containerd"));
        check("127.0.0.1:32137/a", "dial tcp 127.0.0.1:32137: connect: connection refused", Some("kube-proxy"));
        check("127.0.0.1:32137/a", "manifest unknown", None);
        check("r.example.com/a", "400 Bad Request", None);
    }
}
