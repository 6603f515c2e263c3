//! Tests which parts of a text are hidden as the login of a URL, and which are not.

use serde_json::json;

use super::*;

fn check(text: &str, expected: &str) {
    let shown = hide_logins(text);
    assert_eq!(shown, expected);
    assert_eq!(hide_logins(&shown), expected, "a second time");
    assert!(!shown.contains("hunter2"), "{text}");
}

#[test]
fn a_login_of_a_url_is_hidden_in_each_text() {
    for (text, expected) in [
        ("https://user:hunter2@host/shop?a=b", "https://(hidden)@host/shop?a=b"),
        ("HTTPS://hunter2@host", "HTTPS://(hidden)@host"),
        ("https://u:hun@ter2@host/shop", "https://(hidden)@host/shop"),
        ("https://u:hunter2 @host/shop", "https://(hidden)@host/shop"),
        ("https://u:hunter2\"@host/shop", "https://(hidden)@host/shop"),
        ("https:user:hunter2@host/shop", "https:(hidden)@host/shop"),
        ("https:\\/\\/u:hunter2@host", "https:\\/\\/(hidden)@host"),
        ("ssh://git:hunter2@host:22/shop", "ssh://(hidden)@host:22/shop"),
        ("ssh://git%3Ahunter2@host/shop", "ssh://(hidden)@host/shop"),
        ("jdbc:postgresql://u:hunter2@db/shop", "jdbc:postgresql://(hidden)@db/shop"),
        ("redis://:hunter2@redis:6379/0", "redis://(hidden)@redis:6379/0"),
        ("git+https://hunter2@host/a", "git+https://(hidden)@host/a"),
        (r#"{"url":"https://u:hunter2@host","b":"x@y"}"#, r#"{"url":"https://(hidden)@host","b":"x@y"}"#),
        ("a: http://u:hunter2@h\nb: amqp://u:hunter2@h", "a: http://(hidden)@h\nb: amqp://(hidden)@h"),
        ("of http://a.b and https://u:hunter2@h, 'c@d'", "of http://a.b and https://(hidden)@h, 'c@d'"),
        ("http://a.b,https://u:hunter2@h", "http://a.b,https://(hidden)@h"),
        ("größe https://ü:hunter2@h/ß", "größe https://(hidden)@h/ß"),
        ("--url=https://admin:hunter2<cret@db/x", "--url=https://(hidden)@db/x"),
        ("DB_URL=postgres://u:hunter2 ss@h", "DB_URL=postgres://(hidden)@h"),
        ("DB_URL=\"postgres://u:pa hunter2@h\"", "DB_URL=\"postgres://(hidden)@h\""),
        ("http://svc/a?u=https://u:hunter2@h", "http://svc/a?u=https://(hidden)@h"),
        (r#"[="https://u:hunter2@h"] [="https://u:hunter2@i"]"#, r#"[="https://(hidden)@h"] [="https://(hidden)@i"]"#),
        ("redis://hunter2@sha256:6379", "redis://(hidden)@sha256:6379"),
        ("\"https://u:pa hunter2@h\"", "\"https://(hidden)@h\""),
        ("'https://u:pa hunter2@h' of a@b", "'https://(hidden)@h' of a@b"),
        ("DB_URL=https://hunter2@svc MAIL=a@b.c", "DB_URL=https://(hidden)@svc MAIL=a@b.c"),
    ] {
        check(text, expected);
    }
}

#[test]
fn a_login_without_a_clear_end_is_hidden_with_the_rest() {
    for (text, expected) in [
        ("https://user:hunter2/x@host/shop", "https://(hidden)@host/shop"),
        ("https://user:pa@ss/hunter2@gitlab.com/shop", "https://(hidden)@gitlab.com/shop"),
        ("https://hunter2/x@host/shop", "https://(hidden)@host/shop"),
        ("https://hunter2?x@host/shop", "https://(hidden)@host/shop"),
        ("https://hunter2\\x@host/shop", "https://(hidden)@host/shop"),
        ("\"https://user:hunter2…", "\"https://(hidden)…"),
        ("http:https://u:hunter2@host", "http:(hidden)@host"),
        ("https://john.doe:Pa/hunter2@git.corp/x", "https://(hidden)@git.corp/x"),
        ("postgres://app.user:ab+c/hunter2==@db/shop", "postgres://(hidden)@db/shop"),
        ("https://x.y:a?hunter2@h", "https://(hidden)@h"),
        ("amqp://svc.a:p#hunter2@h", "amqp://(hidden)@h"),
        ("https://x.y:a\\hunter2@h", "https://(hidden)@h"),
        ("https://x.y:a/hunter2…", "https://(hidden)…"),
        ("https://Hunter.hunter2…", "https://(hidden)…"),
        ("(see https://u:hunter2…)", "(see https://(hidden)…)"),
        ("['https://u:hunter2…'],", "['https://(hidden)…'],"),
        ("see https://u:hunter2…;", "see https://(hidden)…;"),
        ("see https://u:hunter2….", "see https://(hidden)…."),
        ("see \"https://u:hunter2…\"", "see \"https://(hidden)…\""),
    ] {
        check(text, expected);
    }
}

#[test]
fn a_text_without_a_login_stays() {
    for text in [
        "",
        "https://host/team/shop.git",
        "https://git.example.com/@team/shop",
        "https://git.example.com?mail=a@example.com",
        "https://[::1]:8443/shop",
        "ssh://git@host:22/shop",
        "git@host:team/shop",
        "mail a@example.com: http: b@example.com",
        "docker-pullable://nginx@sha256:0123456789abcdef0123456789abcdef",
        "docker-pullable://nginx@sha256:0123…",
        "registry.example.com/http:1.0@sha256:0123456789abcdef0123456789abcdef",
        "http://svc/a?to=x@y.com",
        "http://svc:8080/notify mail a@b.com",
        "http://[::1]:8080/notify mail a@b.com",
        "fetch('http://svc/a',{from:'x@y'})",
        "git+ssh://git@github.com:a/b@v1",
        "see https://example.com…",
        "https://git.example.com:8443/@team/shop",
        "https://@host",
        "https://host/shop and more…",
        "DB_URL=https://svc MAIL=a@b.c",
        "DB_URL=\"https://svc MAIL=a@b.c\"",
        "https://git.corp unreachable, contact ops@corp",
        "(see https://example.com…).",
    ] {
        check(text, text);
        assert!(matches!(hide_logins(text), Cow::Borrowed(_)), "{text}");
    }
}

#[test]
fn a_change_of_a_login_is_visible_but_not_the_login() {
    let changed = |before: &str, after: &str| hide_changed_logins(before, after);
    let pair = |before: &str, after: &str| (before.to_owned(), after.to_owned());
    assert_eq!(
        changed("https://a:hunter2@h", "https://b:hunter2@h"),
        pair("https://(hidden-before)@h", "https://(hidden-after)@h")
    );
    assert_eq!(changed("https://a@h/1", "https://a@h/2"), pair("https://(hidden)@h/1", "https://(hidden)@h/2"));
    assert_eq!(changed("https://a@h", "https://a@h"), pair("https://(hidden)@h", "https://(hidden)@h"));
    assert_eq!(changed("1", "2"), pair("1", "2"));
}

#[test]
fn a_login_that_was_hidden_before_is_no_change() {
    let (hidden, url) = ("https://(hidden)@h", "https://u:hunter2@h");
    let both = (hidden.to_owned(), hidden.to_owned());
    assert_eq!(hide_changed_logins(hidden, url), both);
    assert_eq!(hide_changed_logins(url, hidden), both);
}

#[test]
fn each_string_of_an_object_is_shown_without_logins() {
    let url = "https://u:hunter2@h";
    let copy = json!({"spec": {"url": url}}).to_string();
    let mut object = json!({"metadata": {"annotations": {"copy": copy}}, "spec": {"all": [url, 1, null]}});
    assert!(hide_logins_in(&mut object));
    assert!(!object.to_string().contains("hunter2"), "{object}");
    assert_eq!(object["spec"]["all"], json!(["https://(hidden)@h", 1, null]));
    assert!(hide_logins_in(&mut object), "a second time");
    assert!(!hide_logins_in(&mut json!({"url": "https://h", "value": "(hidden)"})));
}

#[test]
fn keys_of_an_object_are_shown_without_logins_and_none_is_lost() {
    let mut object = json!({"a": [{"https://u:hunter2@h": 1, "https://u:pa hunter2@h": 2}]});
    assert!(hide_logins_in(&mut object));
    assert_eq!(object, json!({"a": [{"https://(hidden)@h": 1, "https://(hidden)@h (2)": 2}]}));
    assert!(hide_logins_in(&mut object), "a second time");
}

#[test]
fn a_text_with_a_login_or_its_mark_is_known() {
    for text in ["https://u:hunter2@h", "https://(hidden)@h", "a https://(hidden-after)…"] {
        assert!(has_login(text), "{text}");
    }
    for text in ["https://h", "(hidden)", "a@b"] {
        assert!(!has_login(text), "{text}");
    }
}

#[test]
fn a_long_text_of_urls_takes_little_time() {
    // A search from each scheme would take minutes.
    for unit in ["http:", "http://a.b:", "a://", "http://a.b/", "http:a.b:@x", "http://a/?", "http:a/'b", "=http:"] {
        let text = format!("{}/@", unit.repeat((1 << 20) / unit.len()));
        assert!(hide_logins(&text).len() <= 2 * text.len(), "{unit}");
    }
}
