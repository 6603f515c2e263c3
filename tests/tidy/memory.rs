//! The memory of a task: the fields that a GitSync keeps between attempts.

use std::fs;

use super::functions::tokens;

/// The structs that a GitSync's task keeps, with their files.
const KEPT: [(&str, &str); 2] = [("SyncState", "src/gitsync/src/attempt.rs"), ("Task", "src/gitsync/src/reconcile.rs")];

/// Maximum number of fields of such a struct.
const MOST_FIELDS: usize = 10;

/// Fields that belong together contradict each other if each can be set alone.
#[test]
fn a_git_sync_keeps_at_most_ten_fields_between_attempts() {
    for (name, path) in KEPT {
        let code = fs::read_to_string(path).unwrap();
        let fields = fields(&code, name);
        assert!(!fields.is_empty(), "{path} has no struct {name} with named fields");
        assert!(
            fields.len() <= MOST_FIELDS,
            "{path}: {name} has {} fields, and {MOST_FIELDS} are the most: put fields that belong together into a type \
             with methods: {fields:?}",
            fields.len()
        );
    }
}

/// Returns the names of the fields of a struct; empty if the code has no such struct with named fields.
fn fields<'c>(code: &'c str, name: &str) -> Vec<&'c str> {
    let tokens: Vec<&str> = tokens(code).into_iter().map(|(token, _)| token).collect();
    let Some(found) = tokens.windows(2).position(|pair| pair == ["struct", name]) else { return Vec::new() };
    let mut rest = tokens[found + 2..].iter().copied().skip_while(|token| !matches!(*token, "{" | ";" | "("));
    if rest.next() != Some("{") {
        return Vec::new();
    }
    let (mut fields, mut nested, mut last) = (Vec::new(), 0_usize, "");
    // The first `:` of a field follows its name. The paths in its type have more of them.
    let mut is_named = false;
    for token in rest {
        match token {
            "}" if nested == 0 => break,
            "(" | "[" | "{" | "<" => nested += 1,
            // `->` closes nothing.
            ">" if last == "-" => {}
            ")" | "]" | "}" | ">" => nested = nested.saturating_sub(1),
            "," if nested == 0 => is_named = false,
            ":" if nested == 0 && !is_named => {
                is_named = true;
                fields.push(last);
            }
            _ => {}
        }
        last = token;
    }
    fields
}

#[test]
fn fields_are_counted_without_those_of_their_types() {
    let code = "
        struct Other { no: u8 }
        struct Unit;
        struct Tuple(u8, String);
        /// struct Kept { comment: u8 }
        #[derive(Default)]
        pub(super) struct Kept<'a, T: Clone = fmt::Error> {
            /// Its first: a map, { of pairs.
            pub(super) first: BTreeMap<usize, (Digest, Option<u8>)>,
            #[serde(default, rename = \"a: b\")]
            second: std::collections::HashMap<String, [u8; 4]>,
            pub third: Box<dyn Fn(&str, key: u8) -> Vec<T>>, r#type: &'a str,
            last: Option<(Commit, mainstay_git::TreeId)>
        }
        impl Kept { fn other(&self, no: u8) {} }
    ";
    assert_eq!(fields(code, "Kept"), ["first", "second", "third", "type", "last"]);
    assert_eq!(fields(code, "Other"), ["no"]);
    for none in ["Unit", "Tuple", "Missing"] {
        assert_eq!(fields(code, none), [] as [&str; 0], "{none}");
    }
}
