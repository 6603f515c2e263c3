//! Percent encoding in addresses.

/// Returns the decoded text. Invalid escapes are kept.
pub(super) fn decoded(text: &str) -> String {
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    while let Some((&byte, tail)) = rest.split_first() {
        let mut decoded = [0];
        let is_code = byte == b'%' && tail.len() >= 2 && hex::decode_to_slice(&tail[..2], &mut decoded).is_ok();
        out.push(if is_code { decoded[0] } else { byte });
        rest = if is_code { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&out).into_owned()
}
