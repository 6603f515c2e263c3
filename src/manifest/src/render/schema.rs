//! Checks the schemas of values for external references. Helm would fetch them.
//!
//! Invariant: an unreadable schema is refused, because Helm may be able to read it.
//! Invariant: the values of a schema are not kept, because they can take 100 times the memory of their text.
//! Invariant: the total unpacked size of all packed charts, including nested ones, is limited. Only the paths of the
//! current file and one schema or packed chart of each level are in memory.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use tar::{EntryType, Header};

use mainstay_git::{EntryRole, entry_role};

/// Maximum size of a checked file in a packed chart, in bytes.
const FILE_BYTES: u64 = 4 << 20;
/// Maximum total unpacked size of all packed charts in a chart, in bytes.
const UNPACKED_BYTES: u64 = 64 << 20;
/// Maximum nesting depth of packed charts.
const DEPTH: usize = 5;
/// Maximum number of paths of a file: one in a header of GNU, one in a header of PAX, and its own.
const PATHS: usize = 3;
/// Keywords of JSON Schema that refer to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Addresses of meta-schemas that are built into Helm.
const KNOWN: [&str; 2] = ["http://json-schema.org/", "https://json-schema.org/"];

/// A problem and its remedy.
type Refused = Option<(&'static str, &'static str)>;

/// Returns the problem of a schema that has external references or is unreadable.
pub(super) fn refused(content: &[u8]) -> Refused {
    let Ok(Schema { leads_elsewhere }) = serde_json::from_slice(content) else {
        return Some(("the schema is not JSON, or is nested too deeply", "correct it"));
    };
    leads_elsewhere.then_some((
        "the schema refers to another schema, which is not fetched",
        "begin every $ref with `#`, and define its target in the same schema",
    ))
}

/// The part of a schema that is looked for.
struct Schema {
    /// Whether a reference of the schema leads to another schema. Both of two members with one name count.
    leads_elsewhere: bool,
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Under(Keyword::Other).deserialize(deserializer).map(|leads_elsewhere| Self { leads_elsewhere })
    }
}

/// The name of a member.
#[derive(Clone, Copy)]
enum Keyword {
    /// A member of [`REFERENCES`].
    Reference,
    /// `$schema`.
    Schema,
    Other,
}

impl<'de> Deserialize<'de> for Keyword {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Name)
    }
}

/// Reads the name of a member.
struct Name;

impl Visitor<'_> for Name {
    type Value = Keyword;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Keyword, E> {
        Ok(match name {
            "$schema" => Keyword::Schema,
            name if REFERENCES.contains(&name) => Keyword::Reference,
            _ => Keyword::Other,
        })
    }
}

/// Returns whether the value of a member with this name leads to another schema.
struct Under(Keyword);

impl<'de> DeserializeSeed<'de> for Under {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Under {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(match self.0 {
            Keyword::Reference => !text.starts_with('#'),
            Keyword::Schema => !KNOWN.iter().any(|known| text.starts_with(known)),
            Keyword::Other => false,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(leads_elsewhere) = items.next_element_seed(Self(Keyword::Other))? {
            found |= leads_elsewhere;
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(keyword) = members.next_key()? {
            found |= members.next_value_seed(Self(keyword))?;
        }
        Ok(found)
    }
}

/// The packed charts in a chart.
pub(super) struct Archives<'n> {
    /// File name of schemas.
    name: &'n str,
    /// Number of bytes that the packed charts may still unpack to.
    left: Cell<u64>,
}

const TOO_LARGE: (&str, &str) =
    ("the packed charts are larger than 64 MiB together", "unpack them, and commit what is needed");
const UNREADABLE: (&str, &str) = ("the packed chart cannot be read", "pack it again with `helm package`, or unpack it");

impl<'n> Archives<'n> {
    pub(super) fn new(name: &'n str) -> Self {
        Self { name, left: Cell::new(UNPACKED_BYTES) }
    }

    /// Returns the problem of a packed chart, including the schemas of nested packed charts.
    pub(super) fn refused(&self, content: &[u8]) -> Refused {
        self.within(content, 0)
    }

    fn within(&self, content: &[u8], depth: usize) -> Refused {
        let mut unpacked = Counted { from: MultiGzDecoder::new(content), left: &self.left };
        let found = self.look_through(&mut unpacked, depth);
        // The archive is read to its end, as by Helm.
        let rest = if found.is_none() { io::copy(&mut unpacked, &mut io::sink()).map(drop) } else { Ok(()) };
        match found.or_else(|| rest.is_err().then_some(UNREADABLE)) {
            Some(_) if self.left.get() == 0 => Some(TOO_LARGE),
            found => found,
        }
    }

    fn look_through(&self, unpacked: &mut impl Read, depth: usize) -> Refused {
        let mut archive = tar::Archive::new(unpacked);
        let Ok(entries) = archive.entries() else { return Some(UNREADABLE) };
        let mut paths = Vec::new();
        for entry in entries.raw(true) {
            let Ok(mut entry) = entry else { return Some(UNREADABLE) };
            match entry_role(&mut entry) {
                Ok(EntryRole::Header(path)) => paths.extend(path),
                Ok(EntryRole::Member) => {
                    paths.push(entry.path_bytes().into_owned());
                    if !has_clear_content(entry.header(), &paths) {
                        return Some(UNREADABLE);
                    }
                    if let Some(found) = self.member(&mut entry, &paths, depth) {
                        return Some(found);
                    }
                    paths.clear();
                }
                Err(_) => return Some(UNREADABLE),
            }
            if paths.len() >= PATHS {
                return Some(UNREADABLE);
            }
        }
        None
    }

    /// Returns the problem of a file with these paths. Readers differ in the path that takes precedence.
    fn member(&self, entry: &mut impl Read, paths: &[Vec<u8>], depth: usize) -> Refused {
        // Helm resolves `..` and may treat `\\` as `/`, so any part of the path may become the file name.
        let is_between = |byte: &u8| matches!(byte, b'/' | b'\\');
        let within = |path: &Vec<u8>, is_it: &dyn Fn(&[u8]) -> bool| path.split(is_between).any(is_it);
        let is_schema = paths.iter().any(|path| within(path, &|part| part == self.name.as_bytes()));
        let is_packed = paths
            .iter()
            .any(|path| within(path, &|part| part.ends_with(b".tgz")) && within(path, &|part| part == b"charts"));
        if !is_schema && !is_packed {
            return None;
        }
        let mut file = Vec::new();
        if entry.take(FILE_BYTES + 1).read_to_end(&mut file).is_err() {
            return Some(UNREADABLE);
        }
        if file.len() as u64 > FILE_BYTES {
            return Some(("a schema or a chart in the packed chart is larger than 4 MiB", "unpack the chart"));
        }
        if is_schema && let Some((_, hint)) = refused(&file) {
            return Some((
                "a schema in the packed chart is not JSON, or refers to another schema, which is not fetched",
                hint,
            ));
        }
        if is_packed && depth >= DEPTH {
            return Some(("packed charts are nested too deeply", "unpack them"));
        }
        if is_packed { self.within(&file, depth + 1) } else { None }
    }
}

/// Returns whether all readers find the same content. Go's reader takes a sparse file apart. It ignores the size of an
/// entry that is not a file, so that the next entry begins in its content. A path with `/` at its end can be a directory.
fn has_clear_content(header: &Header, paths: &[Vec<u8>]) -> bool {
    let is_empty = header.entry_size().is_ok_and(|size| size == 0);
    match header.entry_type() {
        EntryType::GNUSparse => false,
        EntryType::Link
        | EntryType::Symlink
        | EntryType::Char
        | EntryType::Block
        | EntryType::Directory
        | EntryType::Fifo => is_empty,
        _ => is_empty || !paths.iter().any(|path| path.ends_with(b"/")),
    }
}

/// A reader that subtracts the number of bytes read from `left`.
struct Counted<'l, R> {
    from: R,
    left: &'l Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        let left = self.left.get().saturating_sub(read as u64);
        self.left.set(left);
        if left == 0 { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(read) }
    }
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
            // Some versions of Helm can read these schemas.
            "{",
            &format!("{REMOTE} x"),
            &format!("{}{REMOTE}{}", "[".repeat(200), "]".repeat(200)),
            &REMOTE.replace(r#""a""#, r#""\ud800""#),
        ] {
            assert!(refused(bad.as_bytes()).is_some(), "{bad}");
        }
        assert!(refused(&[REMOTE.as_bytes(), b"\xff"].concat()).is_some());
    }

    #[test]
    fn each_reference_counts_if_several_have_one_name() {
        for references in [r##""$ref": "file:///x", "$ref": "#/a""##, r##""$ref": "#/a", "$ref": "file:///x""##] {
            assert!(refused(format!("{{{references}}}").as_bytes()).is_some(), "{references}");
        }
    }

    #[test]
    fn a_schema_of_many_values_is_checked() {
        let schema = |end: &str| format!(r#"{{"enum": [{}{{}}], "properties": {end}}}"#, r#"{"":0},"#.repeat(1 << 20));
        assert_eq!(refused(schema("{}").as_bytes()), None);
        assert!(refused(schema(REMOTE).as_bytes()).is_some());
    }

    fn packed(files: &[(&str, &[u8])], more: u64) -> Vec<u8> {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            // The name is written directly, past the checks of the library, as in a malicious archive.
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_size(content.len() as u64);
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(more);
        builder.append_data(&mut header, "db/zeros", io::repeat(0).take(more)).unwrap();
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn said(content: &[u8]) -> &'static str {
        Archives::new("values.schema.json").refused(content).map_or("", |(what, _)| what)
    }

    #[test]
    fn packed_charts_are_looked_into_wherever_the_schema_is() {
        assert_eq!(said(&packed(&[("db/values.schema.json", b"{}"), ("db/files/x.tgz", b"x")], 10)), "");
        let elsewhere = "a schema in the packed chart is not JSON, or refers to another schema, which is not fetched";
        for path in [
            "db/values.schema.json",
            "db\\values.schema.json",
            "db/values.schema.json/x/..",
            "db/values.schema.json/.",
            "db/charts/a/values.schema.json",
            "/values.schema.json",
            "../../values.schema.json",
        ] {
            assert_eq!(said(&packed(&[(path, REMOTE.as_bytes())], 10)), elsewhere, "{path}");
        }
        let mut nested = packed(&[("a/values.schema.json", REMOTE.as_bytes())], 10);
        for depth in 0..8 {
            let expected = if depth < DEPTH { elsewhere } else { "packed charts are nested too deeply" };
            nested = packed(&[(["db/charts/a.tgz", "db\\charts\\a.tgz"][depth % 2], &nested)], 10);
            assert_eq!(said(&nested), expected, "{depth}");
        }
        let mut damaged = packed(&[("db/values.schema.json", REMOTE.as_bytes())], 10);
        damaged.truncate(damaged.len() / 2);
        for unreadable in [&damaged[..], b"nothing"] {
            assert_eq!(said(unreadable), UNREADABLE.0);
        }
        // Go's reader also accepts a checksum of signed bytes.
        let mut header = tar::Header::new_gnu();
        header.set_path("db/values.schema.json").unwrap();
        header.set_size(0);
        header.set_username("\u{e9}").unwrap();
        header.set_cksum();
        let sum = header.cksum().unwrap() - 512;
        header.as_mut_bytes()[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
        archive.write_all(&[header.as_bytes().as_slice(), &[0; 1024]].concat()).unwrap();
        assert_eq!(said(&archive.finish().unwrap()), UNREADABLE.0);
    }

    /// Returns an entry of an archive.
    fn entry(kind: EntryType, path: &str, content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        let padding = vec![0; content.len().next_multiple_of(512) - content.len()];
        [header.as_bytes().as_slice(), content, &padding].concat()
    }

    fn said_of(entries: &[Vec<u8>]) -> &'static str {
        let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
        archive.write_all(&entries.concat()).unwrap();
        archive.write_all(&[0; 1024]).unwrap();
        said(&archive.finish().unwrap())
    }

    #[test]
    fn headers_of_packed_charts_are_bounded_and_each_path_in_them_counts() {
        let file = |path: &str| entry(EntryType::Regular, path, REMOTE.as_bytes());
        let elsewhere = "a schema in the packed chart is not JSON, or refers to another schema, which is not fetched";
        let headers = [
            (EntryType::GNULongName, "db/values.schema.json\0", "db/x\0"),
            (EntryType::XHeader, "30 path=db/values.schema.json\n", "13 path=db/x\n"),
        ];
        for (kind, schema, other) in headers {
            let header = |content: &[u8]| entry(kind, "", content);
            assert_eq!(said_of(&[header(schema.as_bytes()), file("db/y")]), elsewhere);
            assert_eq!(said_of(&[header(other.as_bytes()), file("db/values.schema.json")]), elsewhere);
            assert_eq!(said_of(&[header(other.as_bytes()), file("db/y")]), "");
            assert_eq!(said_of(&[header(&vec![b'x'; 8 << 20]), file("db/y")]), UNREADABLE.0, "{kind:?}");
            let many = vec![header(other.as_bytes()); 1_000];
            assert_eq!(said_of(&[many.concat(), file("db/y")]), UNREADABLE.0, "{kind:?}");
        }
    }

    #[test]
    fn entries_whose_content_can_hide_a_schema_are_refused() {
        let hidden = entry(EntryType::Regular, "db/values.schema.json", REMOTE.as_bytes());
        for (kind, path) in [
            (EntryType::Directory, "db/x"),
            (EntryType::Symlink, "db/x"),
            (EntryType::Link, "db/x"),
            (EntryType::Regular, "db/x/"),
        ] {
            assert_eq!(said_of(&[entry(kind, path, &hidden)]), UNREADABLE.0, "{kind:?} {path}");
            assert_eq!(said_of(&[entry(kind, path, b"")]), "", "{kind:?} {path}");
        }
        assert_eq!(said_of(&[entry(EntryType::GNUSparse, "db/x", b"")]), UNREADABLE.0);
    }

    #[test]
    fn packed_charts_are_bounded_together() {
        assert_eq!(said(&packed(&[], 70 << 20)), TOO_LARGE.0);
        let mut not_an_archive = GzEncoder::new(Vec::new(), Compression::fast());
        not_an_archive.write_all(&vec![b'x'; 70 << 20]).unwrap();
        assert!(!said(&not_an_archive.finish().unwrap()).is_empty());
        let archives = Archives::new("values.schema.json");
        let small = packed(&[], 20 << 20);
        let said = (0..4).map(|_| archives.refused(&small).map(|(what, _)| what)).collect::<Vec<_>>();
        assert_eq!(said, [None, None, None, Some(TOO_LARGE.0)]);
        let nested =
            packed(&[("db/charts/a.tgz", &packed(&[], 40 << 20)), ("db/charts/b.tgz", &packed(&[], 40 << 20))], 0);
        assert_eq!(super::tests::said(&nested), TOO_LARGE.0);
    }
}
