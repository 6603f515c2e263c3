//! Credentials: where they are used, and where they are never sent.

use super::*;

#[tokio::test]
async fn a_corrected_password_works_at_once() {
    let bench = Bench::new(small()).await;
    bench.server.require("robot", "s3cret-token");
    let url = bench.server.url(NAME);
    let denied = async |remote: &Remote| {
        let error = sync(&bench.source, remote, "main").await.unwrap_err();
        assert_eq!(error.class(), Class::Denied);
        chain(&error)
    };
    assert!(denied(&anonymous(&url)).await.contains("it asks for credentials"));
    let text = denied(&basic(&url, "robot", "wr0ng-token")).await;
    assert!(text.contains("401") && text.contains("correct them") && !text.contains("wr0ng"), "{text}");
    assert!(sync(&bench.source, &basic(&url, "robot", "s3cret-token"), "main").await.is_ok());
    let embedded = url.replace("http://", "http://robot:s3cret-token@");
    assert!(sync(&bench.source, &anonymous(&embedded), "main").await.is_ok());

    bench.server.require("robot", "changed-token");
    assert!(denied(&basic(&url, "robot", "s3cret-token")).await.contains("401"));
    bench.server.let_everyone_in();
    assert!(sync(&bench.source, &basic(&url, "robot", "s3cret-token"), "main").await.is_ok());
}

#[tokio::test]
async fn credentials_are_in_no_file_of_a_mirror() {
    let bench = Bench::new(small()).await;
    bench.server.require("robot", "s3cret-token");
    let url = bench.server.url(NAME).replace("http://", "http://robot:s3cret-token@");
    sync(&bench.source, &anonymous(&url), "main").await.unwrap();
    let mut open = vec![bench.mirrors.path().to_owned()];
    let mut seen = 0;
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            assert!(!path.to_str().unwrap().contains("s3cret"));
            if path.is_dir() {
                open.push(path);
            } else {
                seen += 1;
                let bytes = std::fs::read(&path).unwrap();
                for secret in ["s3cret-token", "robot", "cm9ib3Q6czNjcmV0LXRva2Vu"] {
                    assert!(!String::from_utf8_lossy(&bytes).contains(secret), "{}", path.display());
                }
            }
        }
    }
    assert!(seen > 3);
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_host() {
    let bench = Bench::new(small()).await;
    let other = GitServer::start(bench.origin.root()).await;
    bench.server.fail(On::Advertisement, Fault::Redirect(other.base()));
    let remote = basic(&bench.server.url(NAME), "robot", "s3cret-token");
    let snapshot = sync(&bench.source, &remote, "main").await.unwrap();
    assert_eq!(files(&snapshot, "apps").await.len(), 1, "an open host serves without them");
    let counts = other.take_counts();
    assert!(counts.requests >= 2 && counts.with_credentials == 0, "{counts:?}");

    other.require("robot", "s3cret-token");
    let error = sync(&bench.source, &remote, "main").await.unwrap_err();
    let (class, text) = (error.class(), chain(&error));
    assert_eq!((class, other.take_counts().with_credentials), (Class::Denied, 0));
    assert!(text.contains(&other.base()["http://".len()..]) && text.contains("are not sent"), "{text}");
}

#[tokio::test]
async fn credentials_follow_a_redirect_on_their_own_host() {
    let bench = Bench::new(small()).await;
    bench.server.require("robot", "s3cret-token");
    let moved = bench.server.url(NAME);
    let alias = bench.origin.root().join("moved");
    std::os::unix::fs::symlink(bench.origin.root(), &alias).unwrap();
    let remote = basic(&moved, "robot", "s3cret-token");
    bench.server.fail(On::Advertisement, Fault::Redirect(format!("{}/moved", bench.server.base())));
    assert_eq!(files(&sync(&bench.source, &remote, "main").await.unwrap(), "/").await.len(), 2);
    bench.server.take_counts();
    assert!(sync(&bench.source, &remote, "main").await.is_ok());
    assert_eq!(bench.server.take_counts().requests, 1, "where it moved to is remembered");

    forget(&bench.source, &remote);
    bench.server.fail(On::Advertisement, Fault::Redirect(bench.server.base()));
    bench.server.take_counts();
    let error = sync(&bench.source, &remote, "main").await.unwrap_err();
    assert!(chain(&error).contains("more than five redirects"), "{}", chain(&error));
    assert_eq!(bench.server.take_counts().with_credentials, 6);
}
