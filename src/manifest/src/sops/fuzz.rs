//! Fuzz targets for parsers of untrusted input. Each target accepts any bytes, ends soon, does not panic, and checks an
//! invariant.

use super::{Format, Keys, open};

/// A key for tests. The seed files are encrypted to it.
const IDENTITY: &str = "AGE-SECRET-KEY-1VJ8FSJRQU3QGLWZ6USVC7YYUK5F07QF7DAUZF5WWXRDGTLKK86KSM6DVM0";

/// Opens the bytes as YAML and as JSON. Each error refers to one of the documents.
pub fn sops(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(keys) = Keys::of([("a.agekey", IDENTITY.as_bytes()), ("b.agekey", IDENTITY.as_bytes())].into_iter()) else {
        return;
    };
    let documents: Vec<(u32, &str)> = (1..).zip(text.split("\n---\n")).collect();
    for (documents, format) in [(&documents[..], Format::Yaml), (&[(1, &*text)][..], Format::Json)] {
        if let Err(faults) = open(documents, format, &keys) {
            assert!(!faults.is_empty(), "what is not opened has a reason");
            for fault in faults {
                assert!(documents.iter().any(|(number, _)| *number == fault.document), "a fault has a document");
            }
        }
    }
    // The bytes are parsed as keys, too.
    _ = Keys::of([("a.agekey", bytes), ("a.asc", bytes)].into_iter());
}
