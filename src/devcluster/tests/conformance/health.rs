//! `/healthz`, `/readyz`, `/livez`.

use crate::world::claim;
use reqwest::Method;

const GROUPS: [&str; 3] = ["healthz", "livez", "readyz"];

#[test]
fn a_single_check_is_asked_by_its_name() {
    claim(async |w| {
        for group in GROUPS {
            for check in ["ping", "log", "etcd", "poststarthook/rbac/bootstrap-roles"] {
                let answer = w.get(&format!("/{group}/{check}")).await.code(200);
                assert_eq!(answer.text, "ok");
                assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
            }
            assert_eq!(w.get(&format!("/{group}/nope")).await.code(404).text, "404 page not found\n");
            assert_eq!(w.get(&format!("/{group}/")).await.code(404).text, "404 page not found\n");
        }
        w.get("/readyz/shutdown").await.code(200);
        w.get("/livez/shutdown").await.code(404);
    });
}

#[test]
fn all_checks_are_listed_on_request() {
    claim(async |w| {
        for group in GROUPS {
            let answer = w.get(&format!("/{group}?verbose")).await.code(200);
            assert!(answer.text.starts_with("[+]ping ok\n[+]log ok\n"), "{}", answer.text);
            assert!(answer.text.contains("\n[+]etcd ok\n"), "{}", answer.text);
            assert!(answer.text.contains("\n[+]poststarthook/bootstrap-controller ok\n"), "{}", answer.text);
            assert!(answer.text.ends_with(&format!(" ok\n{group} check passed\n")), "{}", answer.text);
            assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        }
    });
}

#[test]
fn checks_are_left_out_when_that_is_asked_for() {
    claim(async |w| {
        for group in GROUPS {
            let answer = w.get(&format!("/{group}?verbose&exclude=etcd&exclude=nope&exclude=a,b")).await.code(200);
            assert!(answer.text.contains("\n[+]etcd excluded: ok\n"), "{}", answer.text);
            let end = format!(
                "\nwarn: some health checks cannot be excluded: no matches for \"a,b\",\"nope\"\n{group} check passed\n"
            );
            assert!(answer.text.ends_with(&end), "{}", answer.text);
            assert_eq!(w.get(&format!("/{group}?exclude=etcd")).await.code(200).text, "ok");
        }
    });
}

#[test]
fn health_is_answered_for_any_method() {
    claim(async |w| {
        assert_eq!(w.send(Method::POST, "/healthz", &[], "{}").await.code(200).text, "ok");
    });
}
