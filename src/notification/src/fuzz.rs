//! Fuzz targets for parsers of untrusted input. Each accepts any bytes, ends soon, does not panic, and checks an
//! invariant.

use jiff::Timestamp;

use crate::address::Place;
use crate::cloud_address;

/// Parses the address of a hub, after a line with its channel. The result is a host of Azure over TLS.
pub fn hub_address(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (channel, address) = text.split_once('\n').unwrap_or(("shop", &text));
    let Ok(hub) = cloud_address::hub(address, channel, Place::Secret) else { return };
    let host = hub.url.host_str().unwrap_or_default();
    assert!(hub.url.scheme() == "https" && host.contains(".servicebus."), "the host belongs to Azure");
    assert!(hub.url.path().ends_with("/messages"), "the address receives events");
    if let Some(key) = hub.key {
        let authorization = key.authorization(Timestamp::UNIX_EPOCH);
        assert!(authorization.expose().bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "it is a header");
    }
}
