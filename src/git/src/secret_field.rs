//! Reads single-line values of a Secret: names, passwords, tokens, addresses.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;

use super::access_fault::AccessFault;

/// Maximum length of a value, in bytes. Servers accept headers of some kilobytes.
pub(super) const MAX_BYTES: usize = 16 << 10;

/// Returns a value without one trailing line break, because `echo` adds one to the values of many Secrets.
pub(super) fn field(data: &BTreeMap<String, ByteString>, key: &'static str) -> Result<String, AccessFault> {
    let bytes = &data.get(key).ok_or(AccessFault::MissingKey { key })?.0;
    let unusable = |why| AccessFault::UnusableField { field: key, why };
    if bytes.len() > MAX_BYTES {
        return Err(unusable("it is longer than 16 KiB"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| unusable("it is not UTF-8 text"))?;
    let text = text.strip_suffix('\n').map_or(text, |rest| rest.strip_suffix('\r').unwrap_or(rest));
    if text.chars().any(char::is_control) {
        return Err(unusable("it has more than one line"));
    }
    Ok(text.to_owned())
}
