//! Subjects of certificates: attributes such as the country and the organization of a signer.
//!
//! Invariant: an accepted subject has a country, a state and an organization, and a certificate matches it only if it has
//! all of its attributes. Attributes are unique.

use std::collections::BTreeMap;

use x509_cert::der::asn1::{Any, Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::name::Name;
use x509_cert::spki::ObjectIdentifier;

/// The attributes with their names.
const NAMES: [(ObjectIdentifier, &str); 9] = [
    (ObjectIdentifier::new_unwrap("2.5.4.3"), "CN"),
    (ObjectIdentifier::new_unwrap("2.5.4.5"), "SERIALNUMBER"),
    (ObjectIdentifier::new_unwrap("2.5.4.6"), "C"),
    (ObjectIdentifier::new_unwrap("2.5.4.7"), "L"),
    (ObjectIdentifier::new_unwrap("2.5.4.8"), "ST"),
    (ObjectIdentifier::new_unwrap("2.5.4.9"), "STREET"),
    (ObjectIdentifier::new_unwrap("2.5.4.10"), "O"),
    (ObjectIdentifier::new_unwrap("2.5.4.11"), "OU"),
    (ObjectIdentifier::new_unwrap("2.5.4.17"), "POSTALCODE"),
];
/// The attributes that each subject must have.
const REQUIRED: [&str; 3] = ["C", "ST", "O"];
/// Characters that a backslash makes a part of a value.
const SPECIAL: &str = " \"#+,;<=>\\";

/// The attributes of a subject by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Subject(BTreeMap<&'static str, String>);

impl Subject {
    /// Reads a subject in the notation of RFC 4514, such as `C=US, ST=WA, O=Example`. An error is the end of a sentence.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut subject = Self::default();
        for part in parts(text) {
            let (name, value) = part.split_once('=').ok_or("has a part that is not NAME=VALUE")?;
            let name = if name.trim() == "S" { "ST" } else { name.trim() };
            let known = NAMES.into_iter().map(|(_, known)| known).find(|known| *known == name);
            let all = NAMES.map(|(_, known)| known).join(", ");
            let name = known.ok_or_else(|| format!("has an attribute that is not one of {all}"))?;
            subject.add(name, unescaped(value)?)?;
        }
        subject.complete()
    }

    /// Returns the subject of a certificate. An error is the end of a sentence about the subject.
    pub(super) fn of(name: &Name) -> Result<Self, String> {
        let mut subject = Self::default();
        for attribute in name.0.iter().flat_map(|part| part.0.iter()) {
            let known = NAMES.into_iter().find(|(oid, _)| *oid == attribute.oid);
            let (_, name) =
                known.ok_or_else(|| format!("has the attribute {}, which is not supported", attribute.oid))?;
            let value = text(&attribute.value).ok_or_else(|| format!("has a value of {name} that cannot be read"))?;
            subject.add(name, value)?;
        }
        subject.complete()
    }

    fn add(&mut self, name: &'static str, value: String) -> Result<(), String> {
        if value.is_empty() {
            return Err(format!("has an empty value of {name}"));
        }
        match self.0.insert(name, value) {
            None => Ok(()),
            Some(_) => Err(format!("has {name} twice")),
        }
    }

    fn complete(self) -> Result<Self, String> {
        match REQUIRED.into_iter().find(|name| !self.0.contains_key(name)) {
            None => Ok(self),
            Some(name) => Err(format!("has no {name}; it must have C, ST and O")),
        }
    }

    /// Whether a subject has all attributes of this one.
    pub(super) fn accepts(&self, other: &Self) -> bool {
        self.0.iter().all(|(name, value)| other.0.get(name) == Some(value))
    }
}

/// Returns the text of a value.
fn text(value: &Any) -> Option<String> {
    let utf8 = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
    let printable = || value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned());
    let ia5 = || value.decode_as::<Ia5StringRef<'_>>().map(|text| text.as_str().to_owned());
    let teletex = || value.decode_as::<TeletexStringRef<'_>>().map(|text| text.as_str().to_owned());
    utf8.or_else(|_| printable()).or_else(|_| ia5()).or_else(|_| teletex()).ok()
}

/// Divides a subject at each `,` and `;` without a backslash.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut is_escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        if matches!(c, ',' | ';') && !is_escaped {
            parts.push(&text[begin..at]);
            begin = at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    parts.push(&text[begin..]);
    parts
}

/// Returns a value without its backslashes, and without the spaces around it.
fn unescaped(value: &str) -> Result<String, String> {
    const INVALID: &str = "has a backslash that escapes nothing";
    let value = value.trim_start_matches(' ');
    if value.starts_with('#') {
        return Err("has a value that begins with #, which is not supported".to_owned());
    }
    let (mut bytes, mut kept) = (Vec::new(), 0);
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        if c == '+' {
            return Err("has several attributes in one part, which is not supported".to_owned());
        }
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            // A space at the end does not count, unless a backslash is before it.
            kept = if c == ' ' { kept } else { bytes.len() };
            continue;
        }
        let next = rest.next().ok_or(INVALID)?;
        if SPECIAL.contains(next) {
            bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            let digits = next.to_digit(16).zip(rest.next().and_then(|c| c.to_digit(16)));
            let byte = digits.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
            bytes.push(byte.ok_or(INVALID)?);
        }
        kept = bytes.len();
    }
    bytes.truncate(kept);
    String::from_utf8(bytes).map_err(|_| "has a value that is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use proptest::prelude::*;

    use super::*;

    fn subject(text: &str) -> Subject {
        Subject::parse(text).unwrap()
    }

    #[test]
    fn accepts_subjects_that_have_all_of_its_attributes() {
        let accepted = subject("C=US, ST=WA, O=Example");
        assert!(accepted.accepts(&subject("CN=web,OU=Shop,O=Example,L=Seattle,S=WA,C=US")), "any order, S for ST");
        assert!(!accepted.accepts(&subject("CN=web,O=Other,ST=WA,C=US")));
        assert!(!subject("CN=web,C=US,ST=WA,O=Example").accepts(&accepted));
        assert!(accepted.accepts(&subject("C=US;ST=WA;O= Example ")), "spaces around values do not count");
        assert!(!accepted.accepts(&subject("C=US,ST=WA,O=Example\\ ")));
    }

    #[test]
    fn reads_escaped_values() {
        let escaped = subject("C=US,ST=WA,O=Example\\, Inc\\2E \\\"\\C3\\A4\\\"");
        assert_eq!(escaped.0["O"], "Example, Inc. \"ä\"");
    }

    #[test]
    fn refuses_subjects_that_are_not_clear() {
        for (text, why) in [
            ("", "has a part that is not NAME=VALUE"),
            ("C=US,ST=WA", "has no O; it must have C, ST and O"),
            ("C=US,ST=WA,O=a,O=b", "has O twice"),
            ("C=US,ST=WA,S=WA,O=a", "has ST twice"),
            ("C=US,ST=WA,O=", "has an empty value of O"),
            ("C=US,ST=WA,O=a+OU=b", "has several attributes in one part"),
            ("C=US,ST=WA,O=#0401", "has a value that begins with #"),
            ("C=US,ST=WA,O=a\\", "has a backslash that escapes nothing"),
            ("C=US,ST=WA,O=a\\zz", "has a backslash that escapes nothing"),
            ("C=US,ST=WA,O=\\C3", "has a value that is not UTF-8"),
            ("c=US,ST=WA,O=a", "has an attribute that is not one of CN"),
            ("C=US,ST=WA,O=a,2.5.4.12=x", "has an attribute that is not one of CN"),
        ] {
            let found = Subject::parse(text).unwrap_err();
            assert!(found.starts_with(why), "{text}: {found}");
        }
    }

    #[test]
    fn reads_the_subject_of_a_certificate() {
        let name = Name::from_str("2.5.4.3=web,2.5.4.10=Example,2.5.4.8=WA,2.5.4.6=US").unwrap();
        assert_eq!(Subject::of(&name), Ok(subject("C=US,ST=WA,O=Example,CN=web")));
        let incomplete = Name::from_str("2.5.4.3=web,2.5.4.6=US").unwrap();
        assert_eq!(Subject::of(&incomplete), Err("has no ST; it must have C, ST and O".to_owned()));
        let double = Name::from_str("2.5.4.10=a,2.5.4.10=b,2.5.4.8=WA,2.5.4.6=US").unwrap();
        assert_eq!(Subject::of(&double), Err("has O twice".to_owned()));
        let odd = Name::from_str("2.5.4.12=web,2.5.4.10=Example,2.5.4.8=WA,2.5.4.6=US").unwrap();
        assert!(Subject::of(&odd).unwrap_err().ends_with("which is not supported"));
    }

    proptest! {
        #[test]
        fn reads_any_text_without_panic(text in "[CSTO=,;+\\\\#ä 2]{0,40}") {
            let _ = Subject::parse(&text);
        }
    }
}
