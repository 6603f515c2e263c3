//! Schemas of values: what they refer to, which Helm would fetch.

use std::io::Read;

use flate2::read::MultiGzDecoder;
use serde_json::Value;

/// Bytes of one schema that are looked at, and no more are taken.
const SCHEMA_BYTES: u64 = 4 << 20;
/// Bytes that a packed chart may unpack to.
const UNPACKED_BYTES: u64 = 64 << 20;
/// Keywords of JSON Schema that refer to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Where the schemas of schemas are that Helm brings along.
const KNOWN: [&str; 2] = ["http://json-schema.org/", "https://json-schema.org/"];

/// What is wrong with something, and what to do.
type Refused = Option<(&'static str, &'static str)>;

/// Whether a schema refers to anything but itself.
pub(super) fn refused(content: &[u8]) -> Refused {
    // What is no JSON Helm refuses.
    let schema: Value = serde_json::from_slice(content).ok()?;
    leads_elsewhere(&schema).then_some((
        "the schema refers to another one, which is not fetched",
        "let every $ref begin with `#`, and have what it refers to in the same schema",
    ))
}

fn leads_elsewhere(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| match value.as_str() {
            Some(text) if REFERENCES.contains(&key.as_str()) => !text.starts_with('#'),
            Some(text) if key == "$schema" => !KNOWN.iter().any(|known| text.starts_with(known)),
            _ => leads_elsewhere(value),
        }),
        Value::Array(items) => items.iter().any(leads_elsewhere),
        _ => false,
    }
}

/// The same of all files with this name in a packed chart. One that unpacks to too much is refused for that.
pub(super) fn refused_in_archive(content: &[u8], name: &str) -> Refused {
    const TOO_LARGE: (&str, &str) = ("the packed chart is larger than 64 MiB", "unpack it, and commit what is needed");
    let mut unpacked = MultiGzDecoder::new(content).take(UNPACKED_BYTES + 1);
    let mut archive = tar::Archive::new(&mut unpacked);
    // What is no archive, or breaks off, Helm refuses.
    let mut found = None;
    for entry in archive.entries().ok()? {
        let Ok(mut entry) = entry else { break };
        let is_schema = entry.path().is_ok_and(|path| path.file_name().is_some_and(|own| own == name));
        if is_schema {
            let mut schema = Vec::new();
            if entry.by_ref().take(SCHEMA_BYTES + 1).read_to_end(&mut schema).is_err() {
                break;
            }
            if schema.len() as u64 > SCHEMA_BYTES {
                found = Some(("a schema in the packed chart is larger than 4 MiB", "take it out"));
                break;
            }
            if let Some((_, hint)) = refused(&schema) {
                found = Some(("a schema in the packed chart refers to another one, which is not fetched", hint));
                break;
            }
        }
    }
    // To its end, whatever came of reading it.
    if found.is_none() {
        _ = std::io::copy(&mut unpacked, &mut std::io::sink());
    }
    if unpacked.limit() == 0 { Some(TOO_LARGE) } else { found }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    const REMOTE: &str = r#"{"properties": {"a": {"$ref": "http://127.0.0.1:8080/x"}}}"#;

    #[test]
    fn schemas_refer_to_themselves_only() {
        for good in [
            "{",
            r##"{"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$ref": "#/$defs/a"}}}"##,
            r#"{"properties": {"$ref": {"type": "string"}}}"#,
        ] {
            assert_eq!(refused(good.as_bytes()), None, "{good}");
        }
        for bad in [
            REMOTE,
            r#"{"$ref": "file:///etc/passwd"}"#,
            r#"{"allOf": [{"$ref": "other.json"}]}"#,
            r#"{"$schema": "http://169.254.169.254/latest"}"#,
        ] {
            assert!(refused(bad.as_bytes()).is_some(), "{bad}");
        }
    }

    #[test]
    fn packed_charts_are_looked_into_and_bounded() {
        let packed = |schema: &str, more: u64| {
            let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
            let mut header = tar::Header::new_gnu();
            header.set_size(schema.len() as u64);
            builder.append_data(&mut header, "db/values.schema.json", schema.as_bytes()).unwrap();
            let mut header = tar::Header::new_gnu();
            header.set_size(more);
            builder.append_data(&mut header, "db/zeros", std::io::repeat(0).take(more)).unwrap();
            builder.into_inner().unwrap().finish().unwrap()
        };
        assert_eq!(refused_in_archive(&packed("{}", 10), "values.schema.json"), None);
        let (what, _) = refused_in_archive(&packed(REMOTE, 10), "values.schema.json").unwrap();
        assert!(what.contains("refers to another one"), "{what}");
        let (what, _) = refused_in_archive(&packed("{}", 70 << 20), "values.schema.json").unwrap();
        assert!(what.contains("64 MiB"), "{what}");
        let mut not_an_archive = GzEncoder::new(Vec::new(), Compression::fast());
        not_an_archive.write_all(&vec![b'x'; 70 << 20]).unwrap();
        assert!(refused_in_archive(&not_an_archive.finish().unwrap(), "values.schema.json").is_some());
        assert_eq!(refused_in_archive(b"nothing", "values.schema.json"), None);
    }
}
