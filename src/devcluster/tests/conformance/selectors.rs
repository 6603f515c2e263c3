//! Messages for invalid selectors in all requests that accept a selector.

use crate::world::claim;
use reqwest::Method;
use serde_json::json;
use std::fmt::Write as _;

/// Percent-encodes a string for a query.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02X}");
        out
    })
}

const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

#[test]
fn a_label_selector_that_makes_no_sense_is_refused_with_what_was_expected() {
    let operators = "in, notin, =, ==, !=, gt, lt";
    let cases = [
        ("i in (1", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
        ("a notin (1,", "unable to parse requirement: found '', expected: ',', or identifier".to_owned()),
        ("a in ((b))", "unable to parse requirement: found '(', expected: ',', ')' or identifier".to_owned()),
        ("a in b", "unable to parse requirement: found 'b' expected: '('".to_owned()),
        ("a in (b) c", "found 'c', expected: ',' or 'end of string'".to_owned()),
        ("a=b=c", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("a==b==c", "found '==', expected: ',' or 'end of string'".to_owned()),
        ("a===b", "unable to parse requirement: found '=', expected: identifier".to_owned()),
        ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("!", "unable to parse requirement: found '', expected: identifier".to_owned()),
        ("!!a", "unable to parse requirement: found '!', expected: identifier".to_owned()),
        ("a!b", format!("unable to parse requirement: found '!', expected: {operators}")),
        ("a b", format!("unable to parse requirement: found 'b', expected: {operators}")),
        ("a,in (b)", format!("unable to parse requirement: found '(', expected: {operators}")),
        (",", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
        ("=x", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        ("a=b,", "found '', expected: identifier after ','".to_owned()),
        ("a,,b", "found ',', expected: identifier after ','".to_owned()),
        ("a>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer".to_owned()),
        ("-a=b", format!("unable to parse requirement: <nil>: Invalid value: \"-a\": {NAME}")),
        ("/a", "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty".to_owned()),
        ("a=-b", format!("unable to parse requirement: values[0][a]: Invalid value: \"-b\": {VALUE}")),
    ];
    claim(async |w| {
        for (selector, message) in &cases {
            let path = w.maps(&format!("?labelSelector={}", encoded(selector)));
            w.get(&path).await.refused(400, "BadRequest", message);
            w.get(&format!("{path}&watch=true&timeoutSeconds=1")).await.refused(400, "BadRequest", message);
            w.send(Method::DELETE, &path, &[], "").await.refused(400, "BadRequest", message);
        }
    });
}

#[test]
fn a_label_selector_may_use_the_names_of_operators_and_leave_values_empty() {
    claim(async |w| {
        for selector in ["in in (notin,in)", "notin", "a in ()", "a in (,)", "a=", "a==", "a!=", " a , !b "] {
            w.get(&w.maps(&format!("?labelSelector={}", encoded(selector)))).await.code(200);
        }
    });
}

#[test]
fn a_field_selector_that_makes_no_sense_is_refused_with_what_is_wrong() {
    let cases = [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("metadata.name=a,b", "invalid selector: 'metadata.name=a,b'; can't understand 'b'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name===a", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name=\\a", "invalid field selector: invalid escape sequence: \\a"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
    ];
    claim(async |w| {
        for (selector, message) in cases {
            let path = w.maps(&format!("?fieldSelector={}", encoded(selector)));
            w.get(&path).await.refused(400, "BadRequest", message);
            w.get(&format!("{path}&watch=true&timeoutSeconds=1")).await.refused(400, "BadRequest", message);
            w.send(Method::DELETE, &path, &[], "").await.refused(400, "BadRequest", message);
        }
        for selector in [",", "!=", "metadata.name=a\\,b", "metadata.name!=a,,metadata.name=b"] {
            w.get(&w.maps(&format!("?fieldSelector={}", encoded(selector)))).await.code(200);
        }
    });
}

#[test]
fn an_escaped_name_selects_the_object_with_it_in_lists_and_watches() {
    claim(async |w| {
        let (roles, name) = (w.path("rbac.authorization.k8s.io/v1", "roles"), r"cn=admins,ou=x\y");
        for name in [name, "cn=admins"] {
            w.post(&roles, json!({"metadata": {"name": name}})).await.code(201);
        }
        let selector = encoded(r"metadata.name=cn\=admins\,ou\=x\\y");
        let listed = w.get(&format!("{roles}?fieldSelector={selector}")).await.ok();
        let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|role| &role["metadata"]["name"]).collect();
        assert_eq!(names, [name]);
        let others = encoded(r"metadata.name!=cn\=admins\,ou\=x\\y");
        let listed = w.get(&format!("{roles}?fieldSelector={others}")).await.ok();
        assert_eq!(listed["items"].as_array().unwrap().len(), 1);
        let mut watch = w.watch(&format!("{roles}?watch=true&fieldSelector={selector}")).await;
        watch.expect(&[("ADDED", name)]).await;
    });
}
