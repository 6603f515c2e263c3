//! Sets images at markers in YAML files: `image: nginx:1.0 # {"$imagepolicy": "team:web"}`.
//!
//! Invariant: only the scalar before a marker changes. Comments, order and layout of the file stay as they are, and the
//! new file has the same values but for these scalars; otherwise the file is refused.
//! Invariant: each text is parsed at most three times, however many markers it has.

use std::collections::BTreeSet;

use serde_json::Value;

use super::chunks::chunks;
use super::limits::Limits;
use super::single::{TextFault, read_documents};

/// The beginning of a marker.
const MARKER: &str = "{\"$imagepolicy\":";
/// The key of a marker.
const KEY: &str = "$imagepolicy";
/// Maximum number of reported faults of a file.
const FAULTS: usize = 10;
/// Maximum length of a value before a marker, in bytes. Names of images, tags and digests are shorter.
const LONGEST: usize = 1 << 10;

/// An image at a marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedImage {
    /// The image without a tag.
    pub name: String,
    /// The tag.
    pub tag: String,
    /// The digest, if it is known.
    pub digest: Option<String>,
}

/// A changed scalar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedChange {
    /// Line of the scalar, from 1.
    pub line: u32,
    /// The marker, such as `team:web:tag`.
    pub marker: String,
    /// The value before.
    pub old: String,
    /// The value now.
    pub new: String,
    /// Kind, namespace and name of the object; empty if the document has none.
    pub object: [String; 3],
}

/// A file with other images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedFile {
    /// The new text.
    pub text: String,
    /// The changed scalars in the order of their lines.
    pub changes: Vec<MarkedChange>,
}

/// Returns whether a text may have a marker.
pub fn holds_marker(text: &str) -> bool {
    text.contains(KEY)
}

/// Returns the file with the images of its markers; `None` if it has them already. `image` returns the image of an
/// ImagePolicy, given by namespace and name, or `None` if the marker is to be left alone.
///
/// # Errors
/// The faults of the markers with their lines, from 1. More than `most` changes are a fault.
pub fn set_images(
    text: &str,
    limits: &Limits,
    most: usize,
    image: impl Fn(&str, &str) -> Option<MarkedImage>,
) -> Result<Option<MarkedFile>, Vec<TextFault>> {
    let (mut new, mut changes, mut faults) = (String::with_capacity(text.len()), Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        match changed(line, &image) {
            Ok(None) => new.push_str(line),
            Ok(Some(_)) if changes.len() == most => {
                return Err(vec![(number, "too many values change; set spec.update.path".to_owned())]);
            }
            Ok(Some(Changed { before, scalar, after, marker, old, value })) => {
                new.push_str(before);
                new.push_str(&scalar);
                new.push_str(after);
                changes.push(MarkedChange { line: number, marker, old, new: value, object: Default::default() });
            }
            Err(why) => faults.push((number, why)),
        }
    }
    if !faults.is_empty() {
        faults.truncate(FAULTS);
        return Err(faults);
    }
    let Some(first) = changes.first().map(|change| change.line) else { return Ok(None) };
    let read = |text: &str| read_documents(text, limits).map_err(|fault| vec![fault]);
    let expected: BTreeSet<&str> = changes.iter().map(|change| &*change.new).collect();
    if !differ_only_in(&Value::Array(read(text)?), &Value::Array(read(&new)?), &expected) {
        let why = "the marker is not behind the whole value of a field; write the value and the marker on one line";
        return Err(vec![(first, why.to_owned())]);
    }
    name_objects(&new, &mut changes, limits);
    Ok(Some(MarkedFile { text: new, changes }))
}

/// A line with a changed scalar.
struct Changed<'l> {
    before: &'l str,
    /// The new scalar with its quotes.
    scalar: String,
    after: &'l str,
    marker: String,
    old: String,
    value: String,
}

fn changed<'l>(
    line: &'l str,
    image: &impl Fn(&str, &str) -> Option<MarkedImage>,
) -> Result<Option<Changed<'l>>, String> {
    if !line.contains(KEY) {
        return Ok(None);
    }
    let Some(at) = line.find(MARKER) else {
        // Another text with this word.
        return if line.contains(&format!("\"{KEY}\"")) { Err(form()) } else { Ok(None) };
    };
    let (before, comment) = line.split_at(at);
    let Some(before) = before.trim_end_matches(' ').strip_suffix('#') else { return Err(form()) };
    if before.trim().starts_with('#') {
        // The line is commented out.
        return Ok(None);
    }
    let marker = marker(comment).ok_or_else(form)?;
    let mut parts = marker.splitn(3, ':');
    let (namespace, name, part) = (parts.next(), parts.next(), parts.next());
    let (Some(namespace), Some(name)) = (namespace, name) else { return Err(form()) };
    let Some(image) = image(namespace, name) else { return Ok(None) };
    let value = match part {
        None => {
            let digest = image.digest.as_ref().map(|digest| format!("@{digest}")).unwrap_or_default();
            format!("{}:{}{digest}", image.name, image.tag)
        }
        Some("name") => image.name,
        Some("tag") => image.tag,
        Some("digest") => image.digest.ok_or_else(|| {
            format!("the ImagePolicy {namespace}/{name} has no digest; set its spec.digestReflectionPolicy")
        })?,
        Some(_) => return Err(form()),
    };
    let unclear = || "the marker is not behind a value in plain style or in quotes on the same line".to_owned();
    let (start, end, quote) = scalar(before).ok_or_else(unclear)?;
    let old = before[start..end].trim_matches(|c| quote == Some(c)).to_owned();
    if old == value {
        return Ok(None);
    }
    if old.len() > LONGEST {
        return Err(format!("the value before the marker has more than {LONGEST} bytes, so it cannot be an image"));
    }
    let quote = quote.or_else(|| (!is_plain_text(&value)).then_some('"')).map(String::from).unwrap_or_default();
    let scalar = format!("{quote}{value}{quote}");
    Ok(Some(Changed { before: &line[..start], scalar, after: &line[end..], marker, old, value }))
}

fn form() -> String {
    r#"the marker must have the form # {"$imagepolicy": "NAMESPACE:NAME"}, with :name, :tag or :digest after NAME"#
        .to_owned()
}

/// Returns the text in a marker.
fn marker(comment: &str) -> Option<String> {
    let end = comment.find('}')?;
    let value: Value = serde_json::from_str(&comment[..=end]).ok()?;
    value.get(KEY)?.as_str().map(str::to_owned)
}

/// Returns begin and end of the scalar that ends a line, with its quotes, and the kind of quotes.
fn scalar(before: &str) -> Option<(usize, usize, Option<char>)> {
    let end = before.trim_end().len();
    // A comment begins after white space.
    if end == before.len() {
        return None;
    }
    let text = &before[..end];
    let skip = |at: usize| at + text[at..].len() - text[at..].trim_start().len();
    let mut at = skip(0);
    while text[at..].starts_with("- ") {
        at = skip(at + 2);
    }
    at = match key(&text[at..]) {
        Some(length) => skip(at + length),
        None => at,
    };
    while text[at..].starts_with(['&', '!']) {
        at = skip(at + text[at..].find(' ')?);
    }
    let value = &text[at..];
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let is_clear = if let Some(quote) = quote {
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        !inner.contains([quote, '\\'])
    } else {
        let is_other = value.starts_with(['{', '[', '|', '>', '*', '%', '@', '`', '?', ',']);
        !value.is_empty() && !is_other && !value.ends_with(':') && value != "-"
    };
    is_clear.then_some((at, end, quote))
}

/// Returns the length of a key with its colon.
fn key(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else { return text.find(": ").map(|at| at + 2) };
    let close = 1 + text[1..].find(quote)?;
    let rest = &text[close + 1..];
    rest.trim_start().starts_with(": ").then(|| close + 1 + (rest.len() - rest.trim_start().len()) + 2)
}

/// Whether YAML reads the value as a string without quotes.
fn is_plain_text(value: &str) -> bool {
    let limits = Limits::new(|| std::time::Duration::ZERO);
    let read = read_documents(&format!("a: {value}\n"), &limits);
    read.is_ok_and(|documents| documents.iter().all(|document| document["a"].as_str() == Some(value)))
}

/// Whether two values are the same, but for scalars that are one of `expected` in the new one.
fn differ_only_in(old: &Value, new: &Value, expected: &BTreeSet<&str>) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let is_same = |(key, old)| new.get(key).is_some_and(|new| differ_only_in(old, new, expected));
            old.len() == new.len() && old.iter().all(is_same)
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| differ_only_in(old, new, expected))
        }
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => false,
        (old, new) => old == new || new.as_str().is_some_and(|text| expected.contains(text)),
    }
}

/// Sets kind, namespace and name of the object of each change. The changes are in the order of their lines.
fn name_objects(text: &str, changes: &mut [MarkedChange], limits: &Limits) {
    let (mut rest, mut all) = (changes, chunks(text).peekable());
    while let Some(chunk) = all.next() {
        let end = all.peek().map_or(u32::MAX, |next| next.lines_before);
        let count = rest.partition_point(|change| change.line <= end);
        let (of_chunk, others) = std::mem::take(&mut rest).split_at_mut(count);
        rest = others;
        if of_chunk.is_empty() {
            continue;
        }
        let document = read_documents(chunk.text, limits).ok().and_then(|all| all.into_iter().next());
        let document = document.unwrap_or_default();
        let object = ["/kind", "/metadata/namespace", "/metadata/name"].map(|path| {
            let text = document.pointer(path).and_then(Value::as_str).unwrap_or_default();
            text.chars().filter(|c| !c.is_control()).take(253).collect::<String>()
        });
        for change in of_chunk {
            change.object.clone_from(&object);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn set(text: &str) -> Result<Option<MarkedFile>, Vec<TextFault>> {
        let image = |namespace: &str, name: &str| {
            let tag = match (namespace, name) {
                ("team", "web") => "1.1.0",
                ("team", "number") => "1.10",
                _ => return None,
            };
            let digest = (name == "web").then(|| "sha256:aa".to_owned());
            Some(MarkedImage { name: "ghcr.io/team/web".to_owned(), tag: tag.to_owned(), digest })
        };
        set_images(text, &Limits::new(|| Duration::ZERO), 3, image)
    }

    #[track_caller]
    fn check(old: &str, new: &str) {
        let file = set(old).unwrap().unwrap();
        assert_eq!(file.text, new);
        assert_eq!(set(&file.text).unwrap(), None, "a second time changes nothing");
    }

    #[test]
    fn changes_the_scalar_and_keeps_the_rest_of_the_file() {
        check(
            "# a comment\nkind: Deployment\nmetadata: {name: web,   namespace: shop}\nspec:\n  containers:\n  - image:   ghcr.io/team/web:1.0.0   # {\"$imagepolicy\": \"team:number\"} and more\n    name: 'a'  # other\n",
            "# a comment\nkind: Deployment\nmetadata: {name: web,   namespace: shop}\nspec:\n  containers:\n  - image:   ghcr.io/team/web:1.10   # {\"$imagepolicy\": \"team:number\"} and more\n    name: 'a'  # other\n",
        );
        check(
            "a: x # {\"$imagepolicy\": \"team:web\"}",
            "a: ghcr.io/team/web:1.1.0@sha256:aa # {\"$imagepolicy\": \"team:web\"}",
        );
        check(
            "a: x # {\"$imagepolicy\":\"team:web:name\"}\r\n",
            "a: ghcr.io/team/web # {\"$imagepolicy\":\"team:web:name\"}\r\n",
        );
        check(
            "\"a b\": \"x\" # {\"$imagepolicy\": \"team:web:digest\"}\n",
            "\"a b\": \"sha256:aa\" # {\"$imagepolicy\": \"team:web:digest\"}\n",
        );
        check(
            "- - 'x' # {\"$imagepolicy\": \"team:web:tag\"}\n",
            "- - '1.1.0' # {\"$imagepolicy\": \"team:web:tag\"}\n",
        );
        check(
            "- &a !!str x # {\"$imagepolicy\": \"team:web:tag\"}\n- *a\n",
            "- &a !!str 1.1.0 # {\"$imagepolicy\": \"team:web:tag\"}\n- *a\n",
        );
    }

    #[test]
    fn a_tag_that_looks_like_a_number_gets_quotes() {
        check(
            "tag: 1.9 # {\"$imagepolicy\": \"team:number:tag\"}\n",
            "tag: \"1.10\" # {\"$imagepolicy\": \"team:number:tag\"}\n",
        );
    }

    #[test]
    fn names_the_object_and_the_line_of_a_change() {
        let file =
            set("kind: A\n---\nkind: B\nmetadata: {name: web}\nimage: x # {\"$imagepolicy\": \"team:web:tag\"}\n");
        let change = file.unwrap().unwrap().changes.pop().unwrap();
        assert_eq!((change.line, &*change.marker, &*change.old, &*change.new), (5, "team:web:tag", "x", "1.1.0"));
        assert_eq!(change.object, ["B", "", "web"].map(str::to_owned));
        let marked = "image: x # {\"$imagepolicy\": \"team:web:tag\"}\n";
        let text =
            format!("kind: A\n{marked}---\n---\nkind: B\n{marked}other: y # {{\"$imagepolicy\": \"team:web:tag\"}}\n");
        let changes = set(&text).unwrap().unwrap().changes;
        let named: Vec<_> = changes.iter().map(|change| (change.line, &*change.object[0])).collect();
        assert_eq!(named, [(2, "A"), (6, "B"), (7, "B")]);
    }

    #[test]
    fn refuses_values_that_are_no_image_and_too_many_changes() {
        let marked = |value: &str| format!("- {value} # {{\"$imagepolicy\": \"team:web:tag\"}}\n");
        assert_eq!(set(&marked("x").repeat(3)).unwrap().unwrap().changes.len(), 3);
        let faults = set(&marked("x").repeat(4)).unwrap_err();
        assert_eq!(faults, [(4, "too many values change; set spec.update.path".to_owned())]);
        let faults = set(&marked(&"x".repeat(LONGEST + 1))).unwrap_err();
        assert!(faults[0].1.contains("more than 1024 bytes"), "{faults:?}");
    }

    #[test]
    fn parses_a_document_once_for_all_of_its_markers() {
        // The parser reads the clock at each of some steps.
        let steps = |markers: usize| {
            let reads = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&reads);
            let limits = Limits::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                Duration::ZERO
            });
            let marked = "- x # {\"$imagepolicy\": \"team:web:tag\"}\n".repeat(markers);
            let text = format!("{marked}{}", "- y\n".repeat(5_000 - markers));
            let image = |_: &str, _: &str| Some(MarkedImage { name: "a".into(), tag: "1.1.0".into(), digest: None });
            assert_eq!(set_images(&text, &limits, markers, image).unwrap().unwrap().changes.len(), markers);
            reads.load(Ordering::Relaxed)
        };
        let (few, many) = (steps(1), steps(500));
        assert!(few > 0 && many <= 2 * few, "{few} steps with one marker, {many} with 500");
    }

    #[test]
    fn leaves_markers_of_other_policies_and_comments_alone() {
        for text in [
            "a: x # {\"$imagepolicy\": \"other:web\"}\n",
            "# a: x # {\"$imagepolicy\": \"team:web\"}\n",
            "a: ghcr.io/team/web:1.1.0@sha256:aa # {\"$imagepolicy\": \"team:web\"}\n",
            "a: $imagepolicy\n",
            "{{ not yaml # {\"$imagepolicy\": \"other:web\"}\n",
        ] {
            assert_eq!(set(text).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn names_the_line_of_each_faulty_marker() {
        for (text, part) in [
            ("a: x # {\"$imagepolicy\": \"team\"}\n", "must have the form"),
            ("a: x # {\"$imagepolicy\": \"team:web:all\"}\n", "must have the form"),
            ("a: x # {\"$imagepolicy\": 1}\n", "must have the form"),
            ("a: x {\"$imagepolicy\": \"team:web\"}\n", "must have the form"),
            ("a: # {\"$imagepolicy\": \"team:web\"}\n", "is not behind a value"),
            ("a: {b: x} # {\"$imagepolicy\": \"team:web\"}\n", "is not behind a value"),
            ("a: [x] # {\"$imagepolicy\": \"team:web\"}\n", "is not behind a value"),
            ("a: \"x\\n\" # {\"$imagepolicy\": \"team:web\"}\n", "is not behind a value"),
            ("a: x # {\"$imagepolicy\": \"team:number:digest\"}\n", "has no digest"),
            ("a: |\n  x # {\"$imagepolicy\": \"team:web\"}\n", "is not behind the whole value"),
        ] {
            let faults = set(&format!("b: y\n{text}")).unwrap_err();
            assert!(faults[0].1.contains(part) && faults[0].0 >= 2, "{text}: {faults:?}");
        }
        let faults = set("a: x # {\"$imagepolicy\": \"team:web\"}\n{{ template }}\n").unwrap_err();
        assert_eq!(faults[0].0, 2, "{faults:?}");
    }
}
