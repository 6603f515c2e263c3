//! Whether the host of an address is written as it is looked up.
//!
//! A letter of another script makes a host that looks like a known one, and to which the Secret would be sent.

/// What is said of such an address.
pub(crate) const REFUSED: &str = "the host of an address is written in ASCII letters, because others look like these; write its \
                                  `xn--` form if you mean that host";

/// Whether the host in the rest of an address after `scheme://` is ASCII text, and not encoded.
pub(crate) fn is_plain(rest: &str) -> bool {
    // Parsers of URLs pass over further slashes, and take a backslash for one.
    let authority = rest.trim_start_matches(['/', '\\']).split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.is_ascii() && !host.contains('%')
}

/// The same of a whole address.
pub(crate) fn is_plain_in(address: &str) -> bool {
    is_plain(address.split_once(':').map_or(address, |(_, rest)| rest))
}
