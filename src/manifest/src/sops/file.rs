//! Verifies and decrypts the documents of a file.
//!
//! SOPS treats consecutive documents with the same metadata, and documents without metadata after them, as one file.
//! Such a file has one data key, and one MAC over all of its documents in order.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use sha2::{Digest as _, Sha256, Sha512};

use super::data_key::data_key;
use super::keys::Keys;
use super::metadata::{Metadata, mac_of};
use super::rules::Rule;
use super::scalar::{Scalar, float_text};
use super::tree::{DEPTH, Node, Unreadable};
use super::value::{Cipher, Flawed, Plain};
use super::{MARKER, json, yaml};
use mainstay_object::{Flaw, Step, path_text};

/// Maximum size of an encrypted file, in bytes.
pub const MAX_BYTES: usize = 5 << 20;
/// Maximum number of reported errors of one file.
const MOST_FAULTS: usize = 50;
/// The error of a file whose values were changed.
const WRONG_MAC: &str = "its values are not those that SOPS encrypted: the MAC does not match";
const EDIT: &str = "restore the file, or edit it with `sops FILE`, which writes a new MAC";
const AT_ITS_PATH: &str = "leave encrypted values at their paths: SOPS authenticates the paths";
const DAMAGED: &str = "cannot be decrypted: it was changed, moved, or cut short since it was encrypted";

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON, with one document.
    Json,
}

/// An error in an encrypted file, with its location.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Number of the document.
    pub document: u32,
    /// The error, with its path in the document. It quotes no value.
    pub flaw: Flaw,
}

/// The decrypted content of a file.
#[derive(Default)]
pub struct Opened {
    /// The values of each document, by path.
    pub documents: HashMap<u32, Vec<(Vec<Step>, Plain)>>,
    /// The verified files, which decrypt values that a tool has moved.
    pub sealed: Vec<Sealed>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({} documents)", self.documents.len())
    }
}

/// A verified encrypted file.
#[derive(Clone)]
pub struct Sealed {
    mac: String,
    /// The apiVersion and kind of each document.
    kinds: Vec<(String, String)>,
    rule: Rule,
    cipher: Cipher,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealed(…)")
    }
}

/// Verifies and decrypts the numbered documents of a file. Returns `None` if the file is not encrypted or not valid
/// in its format.
///
/// # Errors
/// All errors. If there is an error, no document is decrypted.
pub fn open(documents: &[(u32, &str)], format: Format, keys: &Keys) -> Result<Option<Opened>, Vec<Fault>> {
    let mut trees = Vec::new();
    for (number, text) in documents {
        let tree = match format {
            Format::Yaml => yaml::parse(text),
            Format::Json => json::parse(text),
        };
        match tree {
            Ok(None) => {}
            Ok(Some(tree)) => trees.push((*number, Ok(tree))),
            Err(Unreadable::Syntax) => return Ok(None),
            Err(Unreadable::Foreign(flaw)) => trees.push((*number, Err(flaw))),
        }
    }
    let is_encrypted = trees.iter().any(|(_, tree)| tree.as_ref().is_ok_and(is_touched));
    let foreign = trees.iter().filter_map(|(document, tree)| {
        let flaw = tree.as_ref().err()?.clone();
        Some(Fault { document: *document, flaw })
    });
    let foreign: Vec<Fault> = foreign.collect();
    // Since the document is unreadable, its text decides whether it counts as encrypted.
    let is_marked = || documents.iter().any(|(_, text)| text.contains("\nsops:") || text.starts_with("sops:"));
    if !is_encrypted && (foreign.is_empty() || !is_marked()) {
        return Ok(None);
    }
    if !foreign.is_empty() {
        return Err(foreign);
    }
    let trees: Vec<(u32, &Node)> =
        trees.iter().filter_map(|(number, tree)| Some((*number, tree.as_ref().ok()?))).collect();
    let groups = grouped(&trees).map_err(|fault| vec![fault])?;
    let (mut opened, mut faults) = (Opened::default(), Vec::new());
    for group in groups {
        match group.open(format, keys) {
            Ok((documents, sealed)) => {
                opened.documents.extend(documents);
                opened.sealed.push(sealed);
            }
            Err(more) => faults.extend(more),
        }
    }
    faults.truncate(MOST_FAULTS);
    if faults.is_empty() { Ok(Some(opened)) } else { Err(faults) }
}

/// Returns whether a document has SOPS metadata or an encrypted value.
fn is_touched(tree: &Node) -> bool {
    mac_of(tree).is_some() || first_value(tree).is_some()
}

/// Returns the path of the first encrypted value, or of the remains of a truncated one.
fn first_value(node: &Node) -> Option<Vec<Step>> {
    let inside = |(at, member): (usize, &super::tree::Member), is_map: bool| {
        let step = if is_map { Step::Key(member.key.clone()) } else { Step::Item(at) };
        let mut path = first_value(&member.node)?;
        path.insert(0, step);
        Some(path)
    };
    match node {
        Node::Map(members) => {
            let mut own = members.iter().enumerate().filter(|(_, member)| member.key != "sops");
            own.find_map(|member| inside(member, true))
        }
        Node::List(items) => items.iter().enumerate().find_map(|item| inside(item, false)),
        Node::Leaf(Scalar::Text(text)) => text.starts_with(MARKER).then(Vec::new),
        Node::Leaf(_) => None,
    }
}

/// Groups the documents by the file to which they belong for SOPS.
fn grouped<'t>(trees: &[(u32, &'t Node)]) -> Result<Vec<Group<'t>>, Fault> {
    let mut groups: Vec<Group<'t>> = Vec::new();
    for (number, tree) in trees {
        // A truncated document may lack the MAC. The error is reported when the group is opened.
        let mac = mac_of(tree).or_else(|| matches!(tree.get("sops"), Some(Node::Map(_))).then_some(""));
        match (mac, groups.last_mut()) {
            (Some(mac), Some(group)) if group.mac == mac || mac.is_empty() => group.documents.push((*number, tree)),
            (None, Some(group)) => group.documents.push((*number, tree)),
            (Some(mac), _) => groups.push(Group { mac, documents: vec![(*number, tree)] }),
            (None, None) => {
                let (path, what) = match first_value(tree) {
                    Some(path) => (
                        path,
                        "it was encrypted by SOPS, and the metadata behind it are missing: the file is cut short",
                    ),
                    None => (vec![], "it precedes an encrypted document and has no metadata of SOPS"),
                };
                return Err(Fault { document: *number, flaw: Flaw::new(path, what, Some(EDIT)) });
            }
        }
    }
    Ok(groups)
}

/// Documents that were encrypted together.
struct Group<'t> {
    mac: &'t str,
    documents: Vec<(u32, &'t Node)>,
}

type Values = BTreeMap<u32, Vec<(Vec<Step>, Plain)>>;

impl Group<'_> {
    fn open(&self, format: Format, keys: &Keys) -> Result<(Values, Sealed), Vec<Fault>> {
        let Some((first, tree)) = self.documents.first() else { return Err(Vec::new()) };
        let fault = |what: &str, hint| {
            let path = vec![Step::Key("sops".to_owned())];
            vec![Fault { document: *first, flaw: Flaw::new(path, what, Some(hint)) }]
        };
        let sops = tree.get("sops").ok_or_else(Vec::new)?;
        let metadata = Metadata::of(sops).map_err(|what| fault(&what, "let `sops` write the file"))?;
        let key = data_key(&metadata, keys).map_err(|no_key| fault(&no_key.what, no_key.hint))?;
        let cipher = Cipher::new(&key).ok_or_else(|| fault("its data key is not of 32 bytes", EDIT))?;
        let mut walk = Walk::new(&cipher, &metadata, format);
        let (mut values, mut faults) = (Values::new(), Vec::new());
        for (number, tree) in &self.documents {
            walk.document(tree);
            faults.extend(walk.flaws.drain(..).map(|flaw| Fault { document: *number, flaw }));
            values.insert(*number, std::mem::take(&mut walk.values));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        if !walk.has_mac(&metadata) {
            return Err(fault(WRONG_MAC, EDIT));
        }
        let kind =
            |(_, tree): &(u32, &Node)| Some((tree.text("apiVersion")?.to_owned(), tree.text("kind")?.to_owned()));
        let kinds = self.documents.iter().filter_map(kind).collect();
        Ok((values, Sealed { mac: metadata.mac.clone(), kinds, rule: metadata.rule, cipher }))
    }
}

/// Visits the documents of a file in order.
struct Walk<'c> {
    cipher: &'c Cipher,
    rule: &'c Rule,
    mac_only_encrypted: bool,
    hash: Sha512,
    /// The hash in older versions of SOPS, which read all JSON numbers as floats.
    floats: Option<Sha512>,
    path: Vec<Step>,
    /// The keys on the path to the current value, each followed by a colon.
    authenticated: String,
    values: Vec<(Vec<Step>, Plain)>,
    flaws: Vec<Flaw>,
}

impl<'c> Walk<'c> {
    fn new(cipher: &'c Cipher, metadata: &'c Metadata, format: Format) -> Self {
        let mut hash = Sha512::new();
        if metadata.mac_only_encrypted {
            hash.update(Sha256::digest(b"sops"));
        }
        Self {
            cipher,
            rule: &metadata.rule,
            mac_only_encrypted: metadata.mac_only_encrypted,
            floats: (format == Format::Json).then(|| hash.clone()),
            hash,
            path: Vec::new(),
            authenticated: String::new(),
            values: Vec::new(),
            flaws: Vec::new(),
        }
    }

    fn document(&mut self, tree: &Node) {
        let Node::Map(members) = tree else {
            self.flaws.push(Flaw::new(vec![], "the document is not a map, and SOPS encrypts only maps", Some(EDIT)));
            return;
        };
        for member in members.iter().filter(|member| member.key != "sops") {
            let matched = self.rule.matches(Some(&member.key), &member.comments);
            self.keyed(&member.key, &member.node, matched);
        }
    }

    fn keyed(&mut self, key: &str, node: &Node, matched: bool) {
        let before = self.authenticated.len();
        self.authenticated.push_str(key);
        self.authenticated.push(':');
        self.path.push(Step::Key(key.to_owned()));
        self.node(node, matched);
        self.path.pop();
        self.authenticated.truncate(before);
    }

    fn node(&mut self, node: &Node, matched: bool) {
        match node {
            Node::Map(members) => {
                for member in members {
                    let matched = matched || self.rule.matches(Some(&member.key), &member.comments);
                    self.keyed(&member.key, &member.node, matched);
                }
            }
            Node::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    let matched = matched || self.rule.matches(None, &item.comments);
                    self.path.push(Step::Item(at));
                    self.node(&item.node, matched);
                    self.path.pop();
                }
            }
            Node::Leaf(Scalar::Null) => {}
            Node::Leaf(scalar) if self.rule.selects(matched) => self.encrypted(scalar),
            Node::Leaf(_) if self.mac_only_encrypted => {}
            Node::Leaf(scalar) => {
                let bytes = scalar.bytes();
                self.hash.update(&bytes);
                if let Some(floats) = &mut self.floats {
                    match scalar {
                        #[expect(clippy::cast_precision_loss, reason = "so it was read by SOPS")]
                        Scalar::Int(int) => floats.update(float_text(*int as f64)),
                        _ => floats.update(&bytes),
                    }
                }
            }
        }
    }

    fn encrypted(&mut self, scalar: &Scalar) {
        let flaw = |path: &[Step], what: &str| {
            let what = format!("{} {what}", path_text(path));
            Flaw::new(path.to_vec(), what, Some(EDIT))
        };
        let Scalar::Text(text) = scalar else {
            let what = format!("is {}, and should be encrypted", scalar.name());
            return self.flaws.push(flaw(&self.path, &what));
        };
        match self.cipher.decrypt(text, &self.authenticated) {
            Ok((plain, bytes)) => {
                self.hash.update(&*bytes);
                if let Some(floats) = &mut self.floats {
                    floats.update(&*bytes);
                }
                self.values.push((self.path.clone(), plain));
            }
            Err(flawed) => self.flaws.push(flaw(&self.path, said(flawed))),
        }
    }

    /// Returns whether the MAC matches the values.
    fn has_mac(&self, metadata: &Metadata) -> bool {
        let Ok((Plain::Text(mac), _)) = self.cipher.decrypt(&metadata.mac, &metadata.last_modified) else {
            return false;
        };
        let is = |hash: &Sha512| hex::encode_upper(hash.clone().finalize()) == mac;
        !mac.is_empty() && (is(&self.hash) || self.floats.as_ref().is_some_and(is))
    }
}

/// Returns the error of a value that cannot be decrypted. It follows the path in a message.
fn said(flawed: Flawed) -> &'static str {
    match flawed {
        Flawed::NotEncrypted => "is not encrypted, and should be",
        Flawed::Damaged => DAMAGED,
        Flawed::Type => "decrypts to a different type than it declares",
        Flawed::NotText => "decrypts to binary data; use `data` of a Secret with base64",
    }
}

impl Sealed {
    /// Returns the MAC, which identifies the file's objects.
    pub fn mac(&self) -> &str {
        &self.mac
    }

    /// Returns whether the file contains an object of this kind. A value of one kind must not be decrypted in another
    /// kind, which may have more readers.
    pub fn holds(&self, api_version: &str, kind: &str) -> bool {
        self.kinds.iter().any(|(own_version, own_kind)| own_version == api_version && own_kind == kind)
    }

    /// Returns whether the rule of the file encrypts the value at a path.
    fn encrypts(&self, path: &[Step]) -> bool {
        let mut keys = path.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key.as_str()),
            Step::Item(_) => None,
        });
        // A rule may refer to comments, which tools do not keep. Such a rule counts as encrypting every value.
        self.rule.is_by_comment() || self.rule.selects(keys.any(|key| self.rule.matches(Some(key), &[])))
    }

    /// Decrypts the values of an object that a tool has built from this file and from `others`. Patches can add values
    /// of the other files.
    ///
    /// # Errors
    /// The values that cannot be decrypted, with their paths.
    pub fn decrypt(&self, others: &[&Self], object: &mut Value) -> Result<(), Vec<Flaw>> {
        if let Value::Object(map) = object {
            map.remove("sops");
        }
        let mut opening = Opening { own: self, others, last: 0, is_hopeless: false, flaws: Vec::new() };
        opening.inside(object, &mut Vec::new(), &mut String::new());
        if opening.flaws.is_empty() { Ok(()) } else { Err(opening.flaws) }
    }
}

/// Decrypts the values of one object, each with the file that it comes from.
struct Opening<'s> {
    /// The file of the object's metadata.
    own: &'s Sealed,
    others: &'s [&'s Sealed],
    /// Index in `others` of the file that last decrypted a value.
    last: usize,
    /// Whether no other file could decrypt a value. After that, `others` are not tried again.
    is_hopeless: bool,
    flaws: Vec<Flaw>,
}

impl Opening<'_> {
    fn inside(&mut self, value: &mut Value, path: &mut Vec<Step>, authenticated: &mut String) {
        if path.len() > DEPTH + 10 {
            return;
        }
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let before = authenticated.len();
                    authenticated.push_str(key);
                    authenticated.push(':');
                    path.push(Step::Key(key.clone()));
                    self.inside(value, path, authenticated);
                    path.pop();
                    authenticated.truncate(before);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    path.push(Step::Item(at));
                    self.inside(item, path, authenticated);
                    path.pop();
                }
            }
            // Values that the tool added were never encrypted and have no marker.
            Value::String(text) if text.starts_with(MARKER) => match self.opened(text, path, authenticated) {
                Ok(plain) => *value = plain,
                Err(flaw) => self.flaws.push(flaw),
            },
            _ => {}
        }
    }

    /// Decrypts a value at a path. Decryption needs the data key of the value's file, and the original path of the
    /// value.
    fn opened(&mut self, text: &str, path: &[Step], authenticated: &str) -> Result<Value, Flaw> {
        let attempt = |file: &Sealed| {
            let opened = file.encrypts(path).then(|| file.cipher.decrypt(text, authenticated));
            opened.map(|opened| opened.map(|(plain, _)| plain))
        };
        let own = attempt(self.own);
        let plain = match own {
            Some(Ok(plain)) => Ok(plain),
            failed => self.by_others(&attempt).ok_or(failed),
        };
        match plain {
            Ok(plain) => {
                let no_number = || Flaw::new(path.to_vec(), format!("{} is not a number", path_text(path)), None);
                to_value(&plain).ok_or_else(no_number)
            }
            Err(failed) => {
                let said = match failed {
                    Some(Err(flawed)) => said(flawed),
                    _ => "is encrypted, but the rules of its file do not encrypt it",
                };
                Err(Flaw::new(path.to_vec(), format!("{} {said}", path_text(path)), Some(AT_ITS_PATH)))
            }
        }
    }

    /// Decrypts the value with one of `others`, beginning with the last successful one.
    fn by_others(&mut self, attempt: &impl Fn(&Sealed) -> Option<Result<Plain, Flawed>>) -> Option<Plain> {
        if self.is_hopeless {
            return None;
        }
        let count = self.others.len();
        for at in (0..count).map(|step| (self.last + step) % count) {
            if let Some(Ok(plain)) = attempt(self.others[at]) {
                self.last = at;
                return Some(plain);
            }
        }
        self.is_hopeless = true;
        None
    }
}

/// Converts a decrypted value to a value of a manifest; `None` if the value is infinite or not a number.
pub(super) fn to_value(plain: &Plain) -> Option<Value> {
    // Bound of the conversion to integers.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    Some(match plain {
        Plain::Text(text) => Value::from(text.as_str()),
        Plain::Int(int) => Value::from(*int),
        Plain::Bool(bool) => Value::from(*bool),
        #[expect(clippy::cast_possible_truncation, reason = "the float is whole and in range")]
        Plain::Float(float) if float.fract() == 0.0 && (-BEYOND..BEYOND).contains(float) => Value::from(*float as i64),
        Plain::Float(float) => Value::Number(serde_json::Number::from_f64(*float)?),
    })
}
