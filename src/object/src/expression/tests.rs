//! Tests of results, errors and limits of expressions.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::{Budget, Expression, LONGEST, STEPS};

fn object() -> Json {
    json!({
        "metadata": {"name": "db", "generation": 3, "labels": {"app/version": "1.2"}},
        "spec": {"size": 3, "ratio": 0.5, "big": 1e3},
        "status": {
            "phase": "Running", "observedGeneration": 3, "nothing": null, "tags": ["a", "b", "a"],
            "conditions": [
                {"type": "Ready", "status": "True", "observedGeneration": 3},
                {"type": "Synced", "status": "False"},
            ],
        },
    })
}

/// Returns the result of an expression for the object, or its error.
fn answer(source: &str, object: &Json) -> String {
    let expression = match Expression::parse(source, None) {
        Ok(expression) => expression,
        Err(error) => return format!("refused: {error}"),
    };
    match expression.holds(&|name| object.get(name)) {
        Ok(answer) => answer.to_string(),
        Err(error) => format!("no answer: {error}"),
    }
}

const TRUE: &[&str] = &[
    "status.phase == 'Running'",
    "status['phase'] == \"Running\" && metadata.generation == status.observedGeneration",
    "status.conditions.filter(e, e.type == 'Ready').all(e, e.status == 'True' && e.observedGeneration == metadata.generation)",
    "status.conditions.exists(e, e.type == 'Synced' && e.status == 'False')",
    "status.conditions.exists_one(e, e.status == 'True')",
    "status.conditions.map(e, e.type) == ['Ready', 'Synced']",
    "status.conditions.map(e, e.status == 'True', e.type) == ['Ready']",
    "has(status.phase) && !has(status.absent)",
    "has(status.nothing) && status.nothing == null",
    "status.?phase.orValue('none') == 'Running' && status.?absent.?deeper.orValue('none') == 'none'",
    "status[?'absent'].hasValue() == false && status.?phase.hasValue()",
    "optional.of(1).value() == 1 && optional.none().or(optional.of(2)).value() == 2",
    "[1, ?optional.none(), 2] == [1, 2] && {?'a': optional.none()} == {}",
    "metadata.labels['app/version'].startsWith('1.')",
    "'a' in status.tags && !('z' in status.tags) && 'phase' in status",
    "size(status.tags) == 3 && status.phase.size() == 7 && size({'a': 1}) == 1",
    "status.phase.matches('^Run.*g$') && matches('abc', 'b') && 'a_1-2'.matches('^\\\\w+-?\\\\d{1,20}$')",
    "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 7 / 2 == 3 && 7 % 4 == 3 && -7 / 2 == -3",
    "1 == 1.0 && 1u == 1 && 2 > 1.5 && spec.ratio < 1 && spec.ratio * 2.0 == 1.0",
    "'ab' + 'c' == 'abc' && [1] + [2] == [1, 2] && 'a' < 'b'",
    "true ? 1 == 1 : 1 / 0 == 1",
    "false || true && !false",
    "status.absent == 1 || true",
    "!(status.absent == 1 && false)",
    "[1, 2].exists(x, x / (x - 1) == 2)",
    "!['a', 1].all(x, x > 1 && false)",
    "int('7') == 7 && string(7) == '7' && double('1.5') == 1.5 && bool('true') && uint(7) == 7u",
    "-9223372036854775808 < 0 && 0x10 == 16 && 1e3 == 1000.0",
    "'it\\'s' == \"it's\" && r'\\d' == '\\\\d' && '''a\nb''' == 'a\\nb' && '\\u00e9' == 'é'",
    "--1 == 1 && !!true",
    "// a comment\nstatus.phase // another\n == 'Running'",
    "{'a': 1, 'b': [2]}.b[0] == 2 && {'a': 1}.exists(k, k == 'a')",
    "size('é') == 1",
];

const FALSE: &[&str] = &[
    "status.phase == 'Pending'",
    "status.phase == 1",
    "[1, 2] == [1, 3]",
    "{'a': 1} == {'a': 1, 'b': 2}",
    "status.conditions.all(e, e.status == 'True')",
    "[].exists(x, x == 1)",
];

#[test]
fn true_is_what_cel_calls_true_and_false_likewise() {
    let object = object();
    for (sources, expected) in [(TRUE, "true"), (FALSE, "false")] {
        for source in sources {
            assert_eq!(answer(source, &object), expected, "{source}");
        }
    }
}

/// Compares the results with those of an independent engine.
#[test]
fn another_engine_says_the_same() {
    let mut env = cel::Env::stdlib();
    env.add_extension(cel::extensions::strings).unwrap();
    let env = Arc::new(env);
    let object = object();
    let mut asked = 0;
    for source in TRUE.iter().chain(FALSE) {
        let mut context = cel::Context::with_env(Arc::clone(&env));
        for (name, value) in object.as_object().unwrap() {
            context.add_variable(name.as_str(), value).unwrap();
        }
        // The other engine treats non-negative JSON numbers as unsigned, and lacks these functions.
        let differs = ["optional.none().or(", "[1, ?optional.none()"].iter().any(|part| source.contains(part));
        let theirs = env.compile(source).map(|program| program.execute(&context));
        let Ok(Ok(cel::Value::Bool(theirs))) = theirs else {
            assert!(differs, "{source}: {theirs:?}");
            continue;
        };
        assert_eq!(answer(source, &object), theirs.to_string(), "{source}");
        asked += 1;
    }
    assert!(asked >= TRUE.len() + FALSE.len() - 2, "{asked}");
}

#[test]
fn without_an_answer_the_place_and_the_reason_are_given_and_no_value() {
    let object = json!({"status": {"password": "hunter2", "list": ["hunter2"], "count": 1}});
    for (source, expected) in [
        ("status.phase == 'a'", "line 1, column 8: there is no field `phase`"),
        ("statu.phase == 'a'", "line 1, column 1: the object has no field `statu`"),
        ("true &&\n  status.a.b", "line 2, column 10: there is no field `a`"),
        ("status.password", "line 1, column 8: the expression must be true or false, but is a string"),
        ("status.password.x", "line 1, column 17: a string has no field `x`"),
        ("status.password + 1 == 2", "line 1, column 17: this operator does not take a string and an integer"),
        ("status.list[3] == ''", "line 1, column 12: the list has 1 elements, so the index is out of range"),
        ("status['x'] == ''", "line 1, column 7: the map has no such key"),
        ("int(status.password) == 1", "line 1, column 1: this string cannot be converted to an integer"),
        ("status.count / 0 == 1", "line 1, column 14: the result is out of range, or the divisor is 0"),
        ("status.password < 1", "line 1, column 17: a string and an integer cannot be compared"),
        ("status.count.all(x, true)", "line 1, column 14: an integer has no elements"),
        ("status.count ? true : false", "line 1, column 8: this must be true or false, but is an integer"),
    ] {
        assert_eq!(answer(source, &object), format!("no answer: {expected}"), "{source}");
    }
}

#[test]
fn a_result_is_json_of_any_type() {
    let object = object();
    let result = |source: &str| {
        let expression = Expression::parse(source, None).unwrap();
        expression.result(&|name| object.get(name)).map_err(|error| error.to_string())
    };
    for (source, expected) in [
        ("status.tags", json!(["a", "b", "a"])),
        ("['x', spec.size, 1.5, 7u, null, true]", json!(["x", 3, 1.5, 7, null, true])),
        ("{'a': [1], 'b': {}}", json!({"a": [1], "b": {}})),
        ("metadata", object["metadata"].clone()),
        ("metadata.name + '-1'", json!("db-1")),
        ("status.?absent.orValue('none')", json!("none")),
    ] {
        assert_eq!(result(source), Ok(expected), "{source}");
    }
    for (source, expected) in [
        ("status.?phase", "line 1, column 9: the result is an optional value"),
        ("{1: 2}", "line 1, column 1: the result has a map with an integer as a key"),
        ("1.0 / 0.0", "line 1, column 5: the result is a number that is not finite"),
    ] {
        assert_eq!(result(source), Err(expected.to_owned()), "{source}");
    }
    // A result that is a variable of the next expression becomes no deeper and deeper.
    let mut chained = Ok(json!(1));
    for _ in 0..20 {
        let wrapped = Expression::parse(&format!("{}last{}", "[".repeat(50), "]".repeat(50)), None).unwrap();
        chained = chained.and_then(|last| wrapped.result(&|_| Some(&last)).map_err(|error| error.to_string()));
    }
    assert_eq!(chained, Err("line 1, column 1: the result is nested deeper than 60 levels".to_owned()));
    let large = json!({"text": "x".repeat(1 << 20), "list": vec![0; 30_000]});
    for source in ["text", "list", "[text.size() > 0, list]"] {
        let error = Expression::parse(source, None).unwrap().result(&|name| large.get(name)).unwrap_err().to_string();
        assert!(error.ends_with(&format!("the expression takes more than {STEPS} steps with this object")), "{error}");
    }
}

#[test]
fn the_first_and_the_last_element_are_optional_values() {
    let object = json!({
        "req": {"tag": "registry.example/shop/web:1.2"},
        "res": {"metadata": {"name": "web", "annotations": {"image": "web"}}},
        "l": [1, 2],
    });
    for source in [
        "l.first() == optional.of(1) && l.last().value() == 2 && [3].first() == [3].last()",
        "![].first().hasValue() && [].last().orValue(7) == 7 && [1, ?[].first()] == [1]",
        "req.tag.contains(res.metadata.name)",
        "has(res.metadata.annotations) && req.tag.split('/').last().value().split(\":\").first().value() == \
         res.metadata.annotations['image']",
    ] {
        assert_eq!(answer(source, &object), "true", "{source}");
    }
    for (source, expected) in [
        ("[].last().value() == 1", "no answer: line 1, column 11: the optional value is missing"),
        ("req.tag.first() == optional.none()", "no answer: line 1, column 9: this function does not take a string"),
        ("l.first(1) == 1", "refused: line 1, column 3: `first` takes 0 arguments"),
    ] {
        assert_eq!(answer(source, &object), expected, "{source}");
    }
}

#[test]
fn evaluations_with_one_budget_share_its_steps() {
    let object = json!({"l": vec![0; 100]});
    let cheap = Expression::parse("l.all(x, x == 0)", None).unwrap();
    let mut budget = Budget::new(2 * STEPS);
    let mut held = 0;
    assert!(!budget.is_spent());
    let error = loop {
        match cheap.holds_within(&mut budget, &|name| object.get(name)) {
            Ok(answer) => held += usize::from(answer),
            Err(error) => break error.to_string(),
        }
    };
    assert!((20..400).contains(&held), "{held}");
    assert!(error.ends_with(&format!("the expressions take more than {} steps together", 2 * STEPS)), "{error}");
    // Later evaluations have no steps left.
    assert!(budget.is_spent());
    let error = cheap.result_within(&mut budget, &|name| object.get(name)).unwrap_err().to_string();
    assert!(error.ends_with("steps together"), "{error}");
    // One evaluation does not take all of a large budget.
    let costly = Expression::parse("l.all(a, l.all(b, l.all(c, true)))", None).unwrap();
    let mut budget = Budget::new(2 * STEPS);
    let error = costly.holds_within(&mut budget, &|name| object.get(name)).unwrap_err().to_string();
    assert!(error.ends_with(&format!("the expression takes more than {STEPS} steps with this object")), "{error}");
    assert_eq!(cheap.holds_within(&mut budget, &|name| object.get(name)), Ok(true));
}

#[test]
fn an_invalid_expression_is_refused_with_its_position() {
    for (source, expected) in [
        ("", "line 1, column 1: the expression is empty"),
        ("status.", "line 1, column 8: expected the name of a field after `.`"),
        ("status.phase = 'a'", "line 1, column 14: `=` is not an operator; `==` compares"),
        ("a ==\n== b", "line 2, column 1: expected a value, found `==`"),
        ("(a", "line 1, column 3: expected `)`, found the end"),
        ("a b", "line 1, column 3: expected an operator or the end, found `b`"),
        ("a == 'x", "line 1, column 6: the string does not end: a quote is missing"),
        ("a == '\\q'", "line 1, column 7: no such escape in a string"),
        ("lengthOf(a)", "line 1, column 1: there is no function `lengthOf`"),
        (
            "timestamp(a) > timestamp(b)",
            "line 1, column 1: there is no function `timestamp`: times, durations, types and bytes are not supported here",
        ),
        ("a.contains()", "line 1, column 3: `contains` takes 1 arguments"),
        ("has(a)", "line 1, column 1: `has` takes a field, such as `has(status.phase)`"),
        ("a.?.b", "line 1, column 4: expected the name of a field after `.`"),
        ("a.all(1, true)", "line 1, column 7: the first argument of `all` must be a name for the element"),
        ("a.all(x, true, false, true)", "line 1, column 3: `all` does not take so many arguments"),
        ("a.matches(b)", "line 1, column 11: the pattern of `matches` must be a string literal"),
        (
            "a.matches('b(')",
            "line 1, column 11: this is not a regular expression: in it, line 1, column 2: unclosed group",
        ),
        ("a.matches('((a{100}){100}){100}')", "line 1, column 11: the pattern is too large"),
        ("9223372036854775808 == 1", "line 1, column 1: the number is out of range"),
        ("b'x' == b'x'", "line 1, column 1: bytes are not supported here; write a string"),
        ("a == é", "line 1, column 6: this character has no meaning outside a string"),
    ] {
        assert_eq!(answer(source, &json!({})), format!("refused: {expected}"), "{source}");
    }
    let known = Expression::parse("dep.x == other.x", Some(&["self", "dep"])).unwrap_err().to_string();
    assert_eq!(known, "line 1, column 10: there is no variable `other`; there is `self` and `dep`");
    assert!(Expression::parse("dep.l.all(x, x == self.y)", Some(&["self", "dep"])).is_ok());
}

#[test]
fn no_text_is_too_deep_or_too_long_for_the_stack() {
    for deep in [
        "(".repeat(100_000),
        "[".repeat(4000),
        "(".repeat(2000) + &")".repeat(2000),
        "!".repeat(4000) + "true",
        "-".repeat(4001) + "1 == 1",
        format!("a{}", ".a".repeat(2000)),
        format!("a{}", "[0]".repeat(1300)),
        "1+".repeat(2000) + "1",
        "a?b:".repeat(1000) + "c",
        "{1:".repeat(1300),
        "size(".repeat(800),
        format!("x{}", ".map(x,x)".repeat(400)),
        "true||".repeat(600) + "true",
        "'".repeat(4001),
        "\\".repeat(4001),
    ] {
        let on_a_small_stack = std::thread::Builder::new().stack_size(1 << 20);
        let parsed = on_a_small_stack.spawn(move || drop(Expression::parse(&deep, None))).unwrap().join();
        assert!(parsed.is_ok());
    }
    let long = format!("'{}' == ''", "a".repeat(LONGEST));
    assert!(answer(&long, &json!({})).contains("at most 4096 are allowed"));
    assert!(answer(&"(".repeat(4000), &json!({})).ends_with("the expression is nested deeper than 60 levels"));
    let many = vec!["a.b == 'c'"; 240].join(" || ");
    assert_eq!(answer(&many, &json!({"a": {"b": "c"}})), "true");
}

#[test]
fn exploding_expressions_end_after_a_fixed_number_of_steps() {
    let list: Vec<_> = (0..1000).collect();
    let object = json!({"l": list, "s": "a".repeat(50_000), "o": {"l": list}});
    for source in [
        "l.all(a, l.all(b, l.all(c, a + b + c >= 0)))",
        "l.map(a, l.map(b, l.map(c, c))) == []",
        "l.all(a, l == l)",
        "l.all(a, o == o)",
        "l.all(a, 5000 in l || true)",
        "l.all(a, s + s != s)",
        "l.all(a, s.replace('a', s) != s)",
        "l.all(a, s.split('').size() > 1)",
        "l.all(a, s.matches('(a|aa)+b') || true)",
        &format!("[s]{} == []", ".map(x, x + x)".repeat(40)),
        &format!("[l]{} == []", ".map(x, x + x)".repeat(40)),
        "l.exists(a, l.exists(b, l.exists(c, false)))",
        "l.all(a, sets.equivalent(l, l))",
    ] {
        let said = answer(source, &object);
        let expected = format!("takes more than {STEPS} steps with this object");
        assert!(said.ends_with(&expected), "{source}: {said}");
    }
}
