//! Bech32, the encoding of age's keys.
//!
//! Not here: the limit of 90 characters. age does not apply it either.

/// The characters, by value.
const CHARACTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
/// Length of the checksum, in characters.
const CHECKSUM: usize = 6;
/// Maximum length of an encoded text, far above that of any key.
const LONGEST: usize = 8192;

/// Decodes a text into its prefix in lower case and its bytes; `None` if it is invalid or mistyped.
pub(super) fn decode(text: &str) -> Option<(String, Vec<u8>)> {
    let is_mixed = text.bytes().any(|b| b.is_ascii_lowercase()) && text.bytes().any(|b| b.is_ascii_uppercase());
    if is_mixed || text.len() > LONGEST {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let (prefix, data) = lower.rsplit_once('1')?;
    let is_prefix = !prefix.is_empty() && prefix.bytes().all(|b| (33..=126).contains(&b));
    let values: Vec<u8> = data.bytes().map(value).collect::<Option<_>>()?;
    if !is_prefix || values.len() < CHECKSUM || checksum(prefix, &values) != 1 {
        return None;
    }
    Some((prefix.to_owned(), regrouped(&values[..values.len() - CHECKSUM])?))
}

/// Encodes bytes.
pub(super) fn encode(prefix: &str, bytes: &[u8]) -> String {
    let mut values: Vec<u8> = Vec::with_capacity(bytes.len() * 2);
    let (mut bits, mut count) = (0u32, 0);
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            values.push((bits >> count & 31) as u8);
        }
        bits &= (1 << count) - 1;
    }
    if count > 0 {
        values.push((bits << (5 - count) & 31) as u8);
    }
    let payload = values.len();
    values.extend([0; CHECKSUM]);
    let sum = checksum(prefix, &values) ^ 1;
    for (at, slot) in values[payload..].iter_mut().enumerate() {
        *slot = (sum >> (5 * (CHECKSUM - 1 - at)) & 31) as u8;
    }
    let characters = values.iter().map(|value| char::from(CHARACTERS[usize::from(*value)]));
    prefix.chars().chain(['1']).chain(characters).collect()
}

fn value(character: u8) -> Option<u8> {
    CHARACTERS.iter().position(|known| *known == character).and_then(|at| u8::try_from(at).ok())
}

fn checksum(prefix: &str, values: &[u8]) -> u32 {
    let high = prefix.bytes().map(|byte| byte >> 5);
    let low = prefix.bytes().map(|byte| byte & 31);
    let mut sum = 1u32;
    for value in high.chain([0]).chain(low).chain(values.iter().copied()) {
        let top = sum >> 25;
        sum = (sum & 0x01ff_ffff) << 5 ^ u32::from(value);
        for (bit, generator) in GENERATOR.iter().enumerate() {
            if top >> bit & 1 == 1 {
                sum ^= generator;
            }
        }
    }
    sum
}

/// Regroups five-bit values into bytes. Remaining bits must be zero.
fn regrouped(values: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(values.len() * 5 / 8);
    let (mut bits, mut count) = (0u32, 0);
    for value in values {
        bits = bits << 5 | u32::from(*value);
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 255) as u8);
        }
        bits &= (1 << count) - 1;
    }
    (count < 5 && bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_sees_every_mistyped_character() {
        for length in [0usize, 1, 5, 32, 33, 64] {
            let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at * 37 % 256).unwrap()).collect();
            let text = encode("age", &bytes);
            assert_eq!(decode(&text), Some(("age".to_owned(), bytes.clone())));
            assert_eq!(decode(&text.to_ascii_uppercase()), Some(("age".to_owned(), bytes)));
            for at in 4..text.len() {
                let mut wrong = text.clone().into_bytes();
                wrong[at] = if wrong[at] == b'q' { b'p' } else { b'q' };
                assert_eq!(decode(std::str::from_utf8(&wrong).unwrap()), None, "{at}");
            }
        }
        for none in ["", "1", "age", "age1", "age1qqqqq", "aGe1qqqqqq", "äge1qqqqqq", "age1bbbbbbb"] {
            assert_eq!(decode(none), None, "{none}");
        }
    }
}
