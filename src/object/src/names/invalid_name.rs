//! [`InvalidName`]: why a string is not a valid name.

/// Why a string is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Not a label.
    #[error("must be 1 to 63 lower-case letters, digits and '-', and begin and end with a letter or a digit")]
    Label,
    /// Not the name of a Service.
    #[error(
        "must be 1 to 63 lower-case letters, digits and '-', begin with a letter, and end with a letter or a digit"
    )]
    Service,
    /// Not a host.
    #[error("must be a host such as shop.example.com: labels of letters, digits and '-' with dots between them")]
    Host,
    /// A host of one label.
    #[error("must be a host in a domain, such as shop.example.com, and not a single label")]
    SingleLabel,
    /// An IP address in any notation.
    #[error("must be the name of a host and not an IP address")]
    IpAddress,
    /// Not the host of a Service.
    #[error("must be the host of a Service in the cluster, NAME.NAMESPACE.svc.cluster.local")]
    ServiceHost,
    /// Not a path of a URL.
    #[error("must be a path that begins with / and has no blank, no control character and no #")]
    Path,
    /// Not a gateway.
    #[error("must be NAMESPACE/NAME or NAME.NAMESPACE.svc.cluster.local")]
    Gateway,
    /// Istio's reserved word.
    #[error(
        "mesh is reserved: it would take the requests that pods send to each other; write NAMESPACE/NAME of a gateway"
    )]
    Mesh,
}
