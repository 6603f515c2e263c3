//! Tests of valid and invalid expressions, as in Flux.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn reported(text: &str, values: &BTreeMap<String, String>, undefined: Undefined) -> String {
    match substitute(text, &|name| values.get(name).map(String::as_str), undefined) {
        Ok(substituted) => format!("={}", substituted.text),
        Err(faults) => {
            let reported = faults.iter().map(|fault| format!("!{}: {}", fault.expression, fault.what));
            reported.collect::<Vec<_>>().join("; ")
        }
    }
}

fn check(text: &str) -> String {
    let values =
        [("v", "X"), ("d", "foo"), ("empty", ""), ("p", "/data/ideas/x"), ("f", "path/to/file"), ("name", "${v}")];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    reported(text, &values, Undefined::Refused)
}

/// Results of `envsubst` in Flux 1.7.0 with the values in the first line. Each further line has an expression, the
/// result in strict mode, and the result in the other mode if that differs. `=` precedes a result, and `!` precedes an
/// error.
const ENVSUBST: &str = include_str!("envsubst.jsonl");

/// Returns whether the result differs deliberately from that of Flux: for characters that Flux splits, for lengths that
/// make Flux panic, and for texts to replace that end, in Flux, inside of another expression or after it.
fn differs_on_purpose(expression: &str, expected: &str) -> bool {
    expected == "!panic"
        || expected.contains('\u{fffd}')
        || ["${u#?}", "${u##?}"].contains(&expression)
        || expression.ends_with("/a\\/}") && expected == "x"
}

#[test]
fn every_expression_is_what_flux_makes_of_it() {
    let mut lines = ENVSUBST.lines();
    let values: BTreeMap<String, String> = serde_json::from_str(lines.next().unwrap()).unwrap();
    let (mut same, mut others) = (0, Vec::new());
    for line in lines {
        let row: Vec<String> = serde_json::from_str(line).unwrap();
        let modes = [(Undefined::Refused, &row[1]), (Undefined::Empty, row.get(2).unwrap_or(&row[1]))];
        for (undefined, expected) in modes {
            let found = reported(&row[0], &values, undefined);
            let is_same = if expected.starts_with('=') { found == *expected } else { found.starts_with('!') };
            let is_unset = (expected == "!unset") == found.contains(NOT_DEFINED) || !expected.starts_with('!');
            if is_same && is_unset {
                same += 1;
            } else if !differs_on_purpose(&row[0], expected) {
                others.push(format!("{} {undefined:?}: {expected} but {found}", row[0]));
            }
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    assert!(same > 1500, "{same} are the same");
}

#[test]
fn an_expression_becomes_its_value() {
    assert_eq!(check("${v}$${w$${v}$v${v}"), "=X${w${v}$vX");
    assert_eq!(check("${none=pre${d}-suf}"), "=prefoo-suf");
    assert_eq!(check("${p:6:5}"), "=ideas");
    assert_eq!(check("${f##*/}"), "=file");
    assert_eq!(check("${empty}"), "=", "set, but empty");
    assert_eq!(check("${name}"), "=${v}", "one pass");
}

#[test]
fn a_fault_names_the_expression_and_no_default() {
    assert_eq!(
        check("a ${none} ${other^^} ${none}"),
        format!("!${{none}}: {NOT_DEFINED}; !${{other^…}}: {NOT_DEFINED}")
    );
    assert_eq!(check("a\n  ${v:-hunter2\nb"), format!("!${{v:…}}: {NO_OPERAND}"));
    assert_eq!(check("${a.b}"), format!("!${{a.b}}: {NOT_CLOSED}"));
    assert_eq!(check("${ v }"), format!("!${{ v }}: {NO_NAME}"));
    assert_eq!(check("${v/a}b}"), format!("!${{v/…}}: {NO_SECOND_SLASH}"));
    assert_eq!(check("${p:2:-1}"), format!("!${{p:…}}: {OUT_OF_BOUNDS}"));
    assert_eq!(check("${v:-${!x}}"), format!("!${{!x}}: {NO_NAME}"));
}

#[test]
fn the_result_is_bounded() {
    let long = "a".repeat(1 << 20);
    let values = BTreeMap::from([("v".to_owned(), long.clone()), ("b".to_owned(), long)]);
    let bounded = |text: &str| reported(text, &values, Undefined::Refused);
    assert_eq!(bounded("${v}${v}${v}${v}"), format!("!${{v}}: {TOO_LARGE}"));
    assert_eq!(bounded("${v//a/${b}}"), format!("!${{v/…}}: {TOO_LARGE}"));
    assert_eq!(bounded("${v##*a*a*a*b}"), format!("!${{v#…}}: {TOO_LONG}"));
    let deep = format!("{}x{}", "${a:-".repeat(1000), "}".repeat(1000));
    assert!(bounded(&deep).ends_with(TOO_DEEP));
}

proptest! {
    #[test]
    fn no_text_and_no_value_makes_it_panic(
        parts in proptest::collection::vec(prop_oneof![
            "\\$\\{[a-c]?", "[:#%/^,=?+\\-]{1,3}", "\\}", "[*?\\[\\]\\\\a-cä]{1,3}", "\\$", "-?[0-9]{1,20}", "\n ?", "\\PC"
        ], 0..30),
        values in proptest::collection::btree_map("[a-c]", "\\PC{0,6}", 0..3),
    ) {
        for undefined in [Undefined::Refused, Undefined::Empty] {
            let text = parts.concat();
            if let Ok(found) = substitute(&text, &|name| values.get(name).map(String::as_str), undefined) {
                prop_assert!(found.used.iter().all(|name| values.contains_key(name)));
            }
        }
    }

    #[test]
    fn a_text_without_dollars_stays(text in "[^$]*") {
        let found = substitute(&text, &|_| None, Undefined::Refused);
        prop_assert_eq!(found.unwrap().text, text);
    }
}
