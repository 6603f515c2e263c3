//! Checks that the host of an address is written in ASCII, without encoding.
//!
//! A letter of a different script can make a host look like a known one. The Secret would then be sent to that host.

/// The message for such an address.
pub(crate) const REFUSED: &str = "the host of a URL must be ASCII, because letters of other scripts can look the same; \
                                  write the host in its `xn--` form";

/// Returns whether the host is unencoded ASCII. `rest` is the address after `scheme://`.
pub(crate) fn is_plain(rest: &str) -> bool {
    // URL parsers skip further slashes, and treat a backslash as a slash.
    let authority = rest.trim_start_matches(['/', '\\']).split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.is_ascii() && !host.contains('%')
}

/// Same as `is_plain`, for a whole address.
pub(crate) fn is_plain_in(address: &str) -> bool {
    is_plain(address.split_once(':').map_or(address, |(_, rest)| rest))
}
