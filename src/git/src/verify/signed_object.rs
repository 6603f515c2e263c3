//! Splits a stored commit or tag into its signature and the signed bytes.
//!
//! A commit has its signature in the header `gpgsig`, and the signed bytes are the commit without that header. A tag
//! has its signature at the end of the message, and the signed bytes are everything before the signature. `git
//! verify-commit` and `git verify-tag` verify the same bytes.
//!
//! Invariant: an object with two signatures is unusable, because Git joins them, and one signer could pass for another.

use super::fault::SignatureFault;
use mainstay_object::is_unprintable;

/// First lines of a signature at the end of a tag.
const BEGINNINGS: [&[u8]; 4] = [
    b"-----BEGIN PGP SIGNATURE-----",
    b"-----BEGIN PGP MESSAGE-----",
    b"-----BEGIN SSH SIGNATURE-----",
    b"-----BEGIN SIGNED MESSAGE-----",
];
/// Header with the signature of an object in a repository with SHA-1 ids.
const OURS: &[u8] = b"gpgsig ";
/// Header with the signature of the same object with SHA-256 ids. The signature covers other bytes, and the header is
/// excluded from the payload.
const OTHER: &[u8] = b"gpgsig-sha256 ";

/// A signed object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed {
    /// The signed bytes.
    pub(super) payload: Vec<u8>,
    pub(super) signature: Vec<u8>,
    /// The object's own creation time, in seconds since 1970.
    pub(super) made: Option<i64>,
}

/// The target of a tag object.
pub(super) struct TagTarget<'t> {
    /// The tag's name.
    pub(super) name: &'t [u8],
    /// Id of the commit; empty if the target is not a commit.
    pub(super) commit: &'t str,
}

/// Returns the signature of a commit; `None` if the commit has none.
pub(super) fn commit(raw: &[u8]) -> Result<Option<Signed>, SignatureFault> {
    #[derive(PartialEq)]
    enum In {
        Payload,
        Signature,
        Other,
    }
    let (mut payload, mut signature) = (Vec::with_capacity(raw.len()), None::<Vec<u8>>);
    let mut now_in = In::Payload;
    let mut rest = raw;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(end);
        if line == b"\n" {
            // The rest is the message, which contains no headers.
            payload.extend_from_slice(rest);
            break;
        }
        match line.strip_prefix(b" ") {
            Some(continued) => match (&now_in, &mut signature) {
                (In::Signature, Some(signature)) => signature.extend_from_slice(continued),
                (In::Other, _) => {}
                _ => payload.extend_from_slice(line),
            },
            None if line.starts_with(OURS) => {
                if signature.is_some() {
                    return Err(SignatureFault::Unreadable { why: "the commit has more than one signature" });
                }
                signature = Some(line[OURS.len()..].to_vec());
                now_in = In::Signature;
            }
            None if line.starts_with(OTHER) => now_in = In::Other,
            None if line.starts_with(b"gpgsig") => {
                return Err(SignatureFault::Unreadable {
                    why: "the commit has a header of signatures that Git does not know",
                });
            }
            None => {
                now_in = In::Payload;
                payload.extend_from_slice(line);
            }
        }
        rest = after;
    }
    let made = header(&payload, b"committer ").and_then(seconds);
    Ok(signature.map(|signature| Signed { payload, signature, made }))
}

/// Returns the signature of a tag object; `None` if the tag has none.
pub(super) fn tag(raw: &[u8]) -> Result<Option<Signed>, SignatureFault> {
    let mut begins = Vec::new();
    let mut at = 0;
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        if BEGINNINGS.iter().any(|beginning| line.starts_with(beginning)) {
            begins.push(at);
        }
        at += line.len();
    }
    match begins[..] {
        [] => Ok(None),
        [begin] => {
            let (payload, signature) = raw.split_at(begin);
            let made = header(payload, b"tagger ").and_then(seconds);
            Ok(Some(Signed { payload: payload.to_vec(), signature: signature.to_vec(), made }))
        }
        _ => Err(SignatureFault::Unreadable { why: "the tag has more than one signature" }),
    }
}

/// Returns the target of a tag object; `None` if it is malformed.
pub(super) fn tag_is_about(raw: &[u8]) -> Option<TagTarget<'_>> {
    let mut lines = raw.split(|byte| *byte == b'\n');
    let object = lines.next()?.strip_prefix(b"object ")?;
    let kind = lines.next()?.strip_prefix(b"type ")?;
    let name = lines.next()?.strip_prefix(b"tag ")?;
    let commit = if kind == b"commit" { std::str::from_utf8(object).ok()? } else { "" };
    Some(TagTarget { name, commit })
}

/// Returns a name from a repository in a printable form.
pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().map(|c| if is_unprintable(c) { '?' } else { c }).take(100).collect()
}

/// Returns the first header with this name.
fn header<'p>(payload: &'p [u8], name: &[u8]) -> Option<&'p [u8]> {
    let mut lines = payload.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    lines.find_map(|line| line.strip_prefix(name))
}

/// Parses the time in `Name <address> 1700000000 +0100`.
fn seconds(person: &[u8]) -> Option<i64> {
    let text = String::from_utf8_lossy(person);
    text.rsplit(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCK: &str = "-----BEGIN SSH SIGNATURE-----\n AAAA\n -----END SSH SIGNATURE-----\n";

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_commit_without_its_signature_is_what_was_signed() {
        let commit_of = |extra: &str| {
            format!(
                "tree 1\nparent 2\nauthor A <a> 5 +0000\ncommitter C <c> 7 +0200\n{extra}\nsubject\n\ngpgsig x\n y\n"
            )
        };
        let merge = "mergetag object 3\n type commit\n \n gpgsig no\n";
        let raw = commit_of(&format!("{merge}gpgsig {BLOCK}encoding x\ngpgsig-sha256 {BLOCK}"));
        let signed = commit(raw.as_bytes()).unwrap().unwrap();
        assert_eq!(text(&signed.payload), commit_of(&format!("{merge}encoding x\n")));
        assert_eq!(text(&signed.signature), BLOCK.replace("\n ", "\n"));
        assert_eq!(signed.made, Some(7));
        assert_eq!(commit(commit_of(merge).as_bytes()), Ok(None));
        for twice in [format!("gpgsig {BLOCK}gpgsig {BLOCK}"), format!("gpgsig {BLOCK}gpgsig-sha3 {BLOCK}")] {
            assert!(commit(commit_of(&twice).as_bytes()).is_err());
        }
    }

    #[test]
    fn a_tag_before_its_signature_is_what_was_signed() {
        let head = "object 1\ntype commit\ntag v1\ntagger T <t> 9 +0000\n\nmessage\n";
        let block = BLOCK.replace("\n ", "\n");
        let raw = format!("{head}{block}");
        let signed = tag(raw.as_bytes()).unwrap().unwrap();
        assert_eq!((text(&signed.payload), text(&signed.signature), signed.made), (head, &*block, Some(9)));
        let about = tag_is_about(raw.as_bytes()).unwrap();
        assert_eq!((text(about.name), about.commit), ("v1", "1"));
        assert_eq!(tag(head.as_bytes()), Ok(None));
        assert!(tag(format!("{raw}{block}").as_bytes()).is_err());
        assert!(tag_is_about(b"type commit\n").is_none());
    }

    proptest! {
        #[test]
        fn reads_any_bytes_without_panic(bytes: Vec<u8>, lines in "(gpgsig[ a-z-]{0,10}| x|tree|\n){0,20}") {
            for raw in [&bytes[..], lines.as_bytes()] {
                let _ = (commit(raw), tag(raw), tag_is_about(raw));
            }
        }
    }
}
