//! Tests with `fixtures/` written by the official `sops` (3.11). The keys below are only for these tests.

use super::value::Plain;
use super::*;
use mainstay_object::path_text;

const KEYS: [&str; 3] = [
    "AGE-SECRET-KEY-1VJ8FSJRQU3QGLWZ6USVC7YYUK5F07QF7DAUZF5WWXRDGTLKK86KSM6DVM0",
    "AGE-SECRET-KEY-1KZ47MGYRQEKZRLAK3NR3CHZ8U5VN392VJ9RTFT36F2ECZ7L4480Q9V7Q3V",
    "AGE-SECRET-KEY-10757DWY9UNEADGTG4YRC938VM0GNL0V7WYKKHYTJLEN3EDQYRTJQADWHU9",
];
const TYPES: &str = include_str!("fixtures/types.yaml");
const GROUPS: &str = include_str!("fixtures/groups.yaml");
const COMMENTS: &str = include_str!("fixtures/comments.yaml");
const JSON: &str = include_str!("fixtures/plain.json");

fn keys(which: &[usize]) -> Keys {
    let text = which.iter().map(|at| KEYS[*at]).collect::<Vec<_>>().join("\n");
    Keys::of([("a.agekey", text.as_bytes())].into_iter()).unwrap()
}

/// Returns the decrypted values with their documents and paths, or the errors.
fn check(text: &str, format: Format, keys: &Keys) -> String {
    let documents: Vec<(u32, &str)> = match format {
        Format::Json => vec![(1, text)],
        Format::Yaml => (1..).zip(text.split("\n---\n")).collect(),
    };
    match open(&documents, format, keys) {
        Ok(None) => "plain".to_owned(),
        Ok(Some(opened)) => {
            let mut all: Vec<_> = opened.documents.into_iter().collect();
            all.sort_by_key(|(number, _)| *number);
            let shown = |number: u32, (path, plain): (Vec<_>, Plain)| {
                let value = match plain {
                    Plain::Text(text) => format!("{text:?}"),
                    Plain::Int(int) => int.to_string(),
                    Plain::Float(float) => format!("{float:?}"),
                    Plain::Bool(bool) => bool.to_string(),
                };
                format!("{number}:{}={value}", path_text(&path))
            };
            let lines = all.into_iter().flat_map(|(number, values)| values.into_iter().map(move |v| shown(number, v)));
            lines.collect::<Vec<_>>().join(" ")
        }
        Err(faults) => {
            let shown = |fault: &Fault| format!("{}:{}: {}", fault.document, path_text(&fault.flaw.path), fault.flaw);
            faults.iter().map(shown).collect::<Vec<_>>().join("; ")
        }
    }
}

fn yaml(text: &str) -> String {
    check(text, Format::Yaml, &keys(&[0]))
}

#[test]
fn every_kind_of_value_comes_back_and_the_mac_is_over_all_documents() {
    assert_eq!(
        yaml(TYPES),
        "1:stringData.text=\"hunter2\" 1:stringData.empty=\"\" 1:stringData.lines=\"one\\ntwo\\n\" 1:stringData.int=5 \
         1:stringData.float=1.5 1:stringData.whole=2.0 1:stringData.big=1e21 1:stringData.yes=true \
         1:stringData.when=\"2024-01-02T03:04:05+02:00\" 1:stringData.list[0]=\"a\" 1:stringData.list[1]=1 \
         1:stringData.list[2].deep=\"x\" 2:data.k=\"v\""
    );
    assert_eq!(
        check(JSON, Format::Json, &keys(&[0])),
        "1:stringData.a=\"x/y\" 1:stringData.n=5.0 1:stringData.f=1.5 1:stringData.b=true"
    );
    let wrong = "its values are not those that SOPS encrypted: the MAC does not match";
    for changed in [
        TYPES.replace("name: types", "name: other"),
        TYPES.replace("hex: 31", "hex: 32"),
        TYPES.replace("plain: \"yes\"", "plain: no"),
        TYPES.split("\n---\n").next().unwrap().to_owned(),
        TYPES.replace("\n    empty: \"\"", "\n    empty: x"),
    ] {
        let said = yaml(&changed);
        assert!(said.contains(wrong) || said.contains("is not encrypted"), "{said}");
        assert!(!said.contains("hunter2"));
    }
    assert_eq!(yaml(&TYPES.replace("plain: \"yes\"", "plain: yes")), yaml(TYPES), "to SOPS that is the same text");
}

#[test]
fn comments_select_what_follows_them() {
    assert_eq!(yaml(COMMENTS), "1:a=\"one\" 1:b=\"two\" 1:c.d.e=1 1:g[0]=1 1:g[1].h=\"x\" 1:j[1]=2");
}

#[test]
fn two_of_three_groups_of_keys_suffice_and_one_says_what_is_missing() {
    let expected = "1:a_secret=\"one\" 1:c.d_secret[0]=1 1:c.d_secret[1].e=\"three\"";
    for two in [[0, 1], [1, 2], [2, 0]] {
        assert_eq!(check(GROUPS, Format::Yaml, &keys(&two)), expected, "{two:?}");
    }
    // The MAC covers encrypted values only.
    assert_eq!(check(&GROUPS.replace("b: two", "b: other"), Format::Yaml, &keys(&[0, 1])), expected);
    let said = check(GROUPS, Format::Yaml, &keys(&[1]));
    assert!(
        said.starts_with("1:sops: no key decrypts it; it is encrypted to age1dt7g47")
            && said.contains("(decrypted key groups: 1; needed: 2 of 3)"),
        "{said}"
    );
    let none = check(TYPES, Format::Yaml, &keys(&[1, 2]));
    assert_eq!(
        none,
        "1:sops: no key decrypts it; it is encrypted to age1dt7g47vfc3jnh4tsyg0qxupanmp38w272denf4l5hknmlc405e5sv0zt9k"
    );
}

#[test]
fn a_file_that_was_tampered_with_is_not_used() {
    let intact = yaml(TYPES);
    // A byte is changed in each encrypted value, in the MAC, and in the key. (The metadata of later documents are not
    // used.)
    let values = TYPES.match_indices(MARKER).map(|(at, _)| at);
    let key = TYPES.find("BEGIN AGE").unwrap();
    for (number, begin) in values.chain((20..400).step_by(40).map(|more| key + more)).enumerate() {
        let at = begin + MARKER.len() + 6 + number % 12;
        let mut changed = TYPES.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let said = yaml(std::str::from_utf8(&changed).unwrap());
        assert!(said != intact && !said.contains("hunter2"), "{at}: {said}");
    }
    let (text, lines) = (line(TYPES, "    text: "), line(TYPES, "    lines: "));
    let swapped = TYPES.replace(&text, "@@").replace(&lines, &text).replace("@@", &lines);
    let said = yaml(&swapped);
    assert!(said.contains("stringData.lines cannot be decrypted"), "{said}");
    // Only the metadata of the first document are used.
    let rest = TYPES.rfind("\nsops:").unwrap();
    for length in (0..rest).step_by(97) {
        let said = yaml(&TYPES[..length]);
        assert!(said != intact && !said.contains("hunter2"), "{length}: {said}");
    }
}

/// Returns the encrypted value on the line with this prefix.
fn line(text: &str, begin: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(begin)).unwrap();
    line[begin.len()..].to_owned()
}

#[test]
fn an_unusable_key_says_why_and_what_to_do() {
    let kms = TYPES.replace("    age:\n", "    kms:\n").replace("- recipient:", "- arn:");
    assert!(yaml(&kms).contains("its data key is encrypted by AWS KMS, which is not supported"), "{}", yaml(&kms));
    let cases = [
        ("encrypted_regex: ^(data|stringData)$", "encrypted_regex: (", "is not a valid pattern"),
        ("encrypted_regex: ^(data|stringData)$", "encrypted_regex: x\n    encrypted_suffix: y", "it has two rules"),
        ("lastmodified:", "modified:", "it has no MAC"),
        ("    - 1", "    - &a 1", ""),
        ("    age:\n", "    nobody:\n", "it names no key that decrypts it"),
    ];
    for (from, to, expected) in cases {
        let said = yaml(&TYPES.replace(from, to));
        assert!(said.contains(expected), "{said}");
    }
    let plugin = TYPES.replace("recipient: age1dt7", "recipient: age1yubikey1dt7");
    let said = check(&plugin, Format::Yaml, &keys(&[1]));
    assert!(said.contains("(for an age plug-in, not supported)"), "{said}");
    let named = TYPES.replace("recipient: age1dt7", "recipient: hunter2; age1dt7");
    assert!(!check(&named, Format::Yaml, &keys(&[1])).contains("hunter2"));
    let cut = "1:a.b[0]: it was encrypted by SOPS, and the metadata behind it are missing: the file is cut short";
    assert_eq!(yaml("a: {b: [\"ENC[AES256_GCM,data:x\"]}\n"), cut);
    assert_eq!(yaml("sops: {version: 1}\n"), "plain");
}
