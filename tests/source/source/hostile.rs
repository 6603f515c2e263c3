//! Servers that send invalid responses, lie, stall, or send too much.

use super::*;

#[tokio::test]
async fn every_bad_answer_is_a_named_failure() {
    let bench = Bench::new(small()).await;
    let cases = [
        (On::Everything, Fault::Status(401), Class::Denied, "401"),
        (On::Everything, Fault::Status(403), Class::Denied, "403"),
        (On::Everything, Fault::Status(404), Class::Invalid, "no repository there (404)"),
        (On::Everything, Fault::Status(500), Class::Unavailable, "the server answered 500"),
        (On::Everything, Fault::Status(503), Class::Unavailable, "the server answered 503"),
        (On::Everything, Fault::Html, Class::Denied, "web page"),
        (On::Everything, Fault::Answer(b"zzzz".to_vec()), Class::Unavailable, "no length"),
        (On::Everything, Fault::Answer(b"0000".to_vec()), Class::Unavailable, "empty"),
        (On::Everything, Fault::Answer(Vec::new()), Class::Unavailable, "too early"),
        (On::Everything, Fault::Answer(b"fff0garbage".to_vec()), Class::Unavailable, "middle of a packet"),
        (On::Advertisement, Fault::Truncate(20), Class::Unavailable, "violates the Git protocol"),
        (On::References, Fault::Answer(b"0009what!0000".to_vec()), Class::Unavailable, "not a reference"),
        (On::References, Fault::Truncate(30), Class::Unavailable, "middle of a packet"),
        (On::Packs, Fault::Status(500), Class::Unavailable, "the server answered 500"),
        (On::Packs, Fault::Truncate(80), Class::Unavailable, "violates the Git protocol"),
        (On::Packs, Fault::Answer(b"0012ERR no \x1b[1mway0000".to_vec()), Class::Unavailable, "refused: no  [1mway"),
        (On::Packs, Fault::Answer(b"000dpackfile\n0009\x01junk0000".to_vec()), Class::Unavailable, "damaged pack"),
        (On::Packs, Fault::Answer(b"000dpackfile\n0000".to_vec()), Class::Unavailable, "without the commit"),
        (On::Packs, Fault::Html, Class::Denied, "web page"),
        (On::Packs, Fault::Redirect("http://127.0.0.1:1".into()), Class::Invalid, "only the first request"),
    ];
    for (on, fault, class, words) in cases {
        bench.server.heal();
        bench.server.fail(on, fault.clone());
        let (got, text) = bench.failure("main").await;
        assert!(got == class && text.contains(words), "{on:?} {fault:?}: {got:?} {text}");
        assert!(text.contains("main") || text.contains("commit"), "names the attempt: {text}");
    }
    bench.server.heal();
    assert_eq!(files(&bench.sync("main").await.unwrap(), "/").await.len(), 2, "and recovers");
}

/// Returns a side-band packet with this content.
pub(super) fn band(number: u8, content: &[u8]) -> Vec<u8> {
    [format!("{:04x}", content.len() + 5).as_bytes(), &[number], content].concat()
}

#[tokio::test]
async fn text_beside_a_pack_is_bounded() {
    let bench = Bench::with(small(), |settings| settings.limits.pack_bytes = 16 << 20).await;
    let packfile = b"000dpackfile\n".to_vec();
    let shallow = format!("0034shallow {}", "1".repeat(40)).into_bytes();
    let cases = [
        ("progress", packfile.clone(), band(2, &[b'.'; 4000]).repeat(10)),
        ("empty progress", packfile.clone(), band(2, b"").repeat(10_000)),
        ("progress in the middle of a pack", [packfile, band(1, b"PACK")].concat(), band(2, &[b'.'; 4000]).repeat(10)),
        ("boundaries of the history", b"0010shallow-info".to_vec(), shallow.repeat(1000)),
        ("ends of sections", Vec::new(), b"0001".repeat(10_000)),
    ];
    for (what, first, again) in cases {
        bench.server.heal();
        bench.server.fail(On::Packs, Fault::Endless(first, again));
        bench.server.take_counts();
        let (class, text) = bench.failure("main").await;
        let expected = "the server violates the Git protocol: it sends more than 1 MiB of text beside the pack";
        assert!(class == Class::Unavailable && text.ends_with(expected), "{what}: {class:?} {text}");
        // Bytes in socket buffers count as sent too.
        let sent = bench.server.take_counts().bytes_out;
        assert!(sent < 12 << 20, "{what}: {sent} bytes");
    }
    bench.server.heal();
    assert!(bench.sync("main").await.is_ok());
}

#[tokio::test]
async fn wrong_references_of_a_server_are_detected() {
    let mut origin = small();
    origin.tag_file("file", "a.yaml");
    let bench = Bench::new(origin).await;
    let (class, text) = bench.failure("file").await;
    assert!(class == Class::Invalid && text.contains("does not point to a commit"), "{text}");

    let line = |id: &str| format!("003d{id} refs/heads/main\n0000").into_bytes();
    bench.server.fail(On::References, Fault::Answer(line(&"1".repeat(40))));
    let (class, text) = bench.failure("main").await;
    assert!(class == Class::Unavailable && text.contains("refused"), "{text}");

    let mut elsewhere = Origin::new();
    let pack = elsewhere.file("x", "x").pack();
    let band = [format!("000dpackfile\n{:04x}\x01", pack.len() + 5).as_bytes(), &pack, b"0000"].concat();
    bench.server.fail(On::Packs, Fault::Answer(band));
    let (class, text) = bench.failure("main").await;
    assert!(class == Class::Unavailable && text.contains("without the commit"), "{text}");
    bench.server.heal();
    assert!(bench.sync("main").await.is_ok());
}

#[tokio::test]
async fn a_scrambled_answer_is_an_error_or_makes_no_difference() {
    let bench = Bench::with(small(), |settings| settings.deadlines.silence = Duration::from_secs(2)).await;
    let truth = files(&bench.sync("main").await.unwrap(), "/").await;
    let mut errors = 0;
    for seed in 0..10 {
        for on in [On::Advertisement, On::References, On::Packs] {
            forget(&bench.source, &bench.remote());
            bench.server.heal();
            bench.server.fail(on, Fault::Scramble(seed));
            match bench.sync("main").await {
                Ok(snapshot) => assert_eq!(files(&snapshot, "/").await, truth, "{on:?} {seed}"),
                Err(error) => {
                    errors += 1;
                    assert_ne!(error.class(), Class::Bug, "{on:?} {seed}: {}", chain(&error));
                }
            }
        }
    }
    assert!(errors > 10, "{errors}");
}

#[tokio::test]
async fn a_server_that_repeats_credentials_is_not_quoted() {
    let bench = Bench::new(small()).await;
    let remote = basic(&bench.server.url(NAME), "robot", "s3cret-token");
    for on in [On::Advertisement, On::References, On::Packs] {
        for echo in ["s3cret-token", "cm9ib3Q6czNjcmV0LXRva2Vu"] {
            bench.server.heal();
            let words = format!("ERR who is {echo}?");
            bench.server.fail(on, Fault::Answer(format!("{:04x}{words}", words.len() + 4).into_bytes()));
            let text = chain(&sync(&bench.source, &remote, "main").await.unwrap_err());
            assert!(text.contains("refused") && !text.contains(echo), "{text}");
            bench.server.fail(on, Fault::Status(500));
            let text = chain(&sync(&bench.source, &remote, "main").await.unwrap_err());
            assert!(text.contains("500") && !text.contains(echo), "{text}");
        }
    }
}

#[tokio::test]
async fn a_server_that_stalls_or_drips_meets_the_deadline() {
    let bench = Bench::with(small(), |settings| {
        settings.deadlines.silence = Duration::from_millis(700);
        settings.deadlines.lookup = Duration::from_millis(800);
        settings.deadlines.fetch = Duration::from_millis(1500);
    })
    .await;
    let drip = Fault::Drip(Duration::from_millis(50));
    for (on, fault, most) in [
        (On::Everything, Fault::Stall, 800),
        (On::Everything, drip.clone(), 900),
        (On::Packs, Fault::Stall, 1500),
        (On::Packs, drip, 2500),
    ] {
        bench.server.heal();
        bench.server.fail(on, fault.clone());
        let began = Instant::now();
        let (class, text) = bench.failure("main").await;
        assert!(class == Class::Unavailable && text.contains("timed out after"), "{fault:?}: {text}");
        let took = began.elapsed();
        assert!(took < Duration::from_millis(most + 4000), "{on:?} {fault:?} took {took:?}");
    }
}

#[tokio::test]
async fn a_stuck_remote_does_not_delay_another() {
    let stuck = Bench::with(small(), |settings| {
        settings.permits = 1;
        settings.deadlines.lookup = Duration::from_secs(10);
    })
    .await;
    let good = Bench::new(small()).await;
    stuck.server.fail(On::Everything, Fault::Stall);
    let remote = stuck.remote();
    let waiting = (0..20).map(|_| {
        let (source, remote) = (stuck.source.clone(), remote.clone());
        tokio::spawn(async move { source.lookup(&remote, &Reference::head(), NOW).await })
    });
    let waiting: Vec<_> = waiting.collect();
    sync(&stuck.source, &good.remote(), "main").await.unwrap();
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()), "those who wait for the stuck one wait on");
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().unwrap_err().class(), Class::Unavailable);
    }
    assert!(stuck.server.take_counts().requests <= 2, "waiters share an attempt");
}

#[tokio::test]
async fn limits_hold() {
    let mut origin = small();
    origin.file("large.bin", vec![b'x'; 3 << 20]).commit("large");
    for number in 0..200 {
        origin.file(&format!("many/{number}"), "");
    }
    let commit = origin.commit("many");
    let bench = Bench::with(origin, |settings| {
        settings.limits.file_bytes = 1 << 20;
        settings.limits.entries = 100;
    })
    .await;
    let snapshot = bench.sync("main").await.unwrap();
    let error = snapshot.entries(&BaseDir::root()).unwrap_err();
    assert!(chain(&error).contains("number of files") && error.class() == Class::Invalid);
    drop(error);
    let at = |adjust: fn(&mut Settings)| {
        let root = bench.origin.root().to_owned();
        let commit = commit.clone();
        async move {
            let server = GitServer::start(&root).await;
            let mirrors = tempfile::tempdir().unwrap();
            let mut settings = settings(mirrors.path());
            adjust(&mut settings);
            let error = sync(&Source::new(settings), &anonymous(&server.url(NAME)), &commit).await.unwrap_err();
            assert_eq!(error.class(), Class::Invalid);
            chain(&error)
        }
    };
    assert!(at(|settings| settings.limits.pack_bytes = 2000).await.contains("pack in bytes"));
    assert!(at(|settings| settings.limits.object_bytes = 1 << 20).await.contains("object of the pack"));
    assert!(at(|settings| settings.limits.unpacked_bytes = 2 << 20).await.contains("unpacked pack"));
    assert!(at(|settings| settings.limits.pack_objects = 3).await.contains("number of objects"));
    assert!(at(|settings| settings.limits.mirror_bytes = 3000).await.contains("mirror in bytes"));
}

#[tokio::test]
async fn a_file_larger_than_the_limit_is_not_read() {
    let mut origin = Origin::new();
    origin.file("large.yaml", vec![b'x'; 2000]).commit("large");
    let bench = Bench::with(origin, |settings| settings.limits.file_bytes = 1000).await;
    let snapshot = bench.sync("main").await.unwrap();
    let entries = snapshot.entries(&BaseDir::root()).unwrap();
    assert_eq!(entries[0].size, 2000);
    let error = snapshot.read(&entries[0]).unwrap_err();
    assert_eq!(
        chain(&error),
        format!("read large.yaml of commit {}: the file in bytes is larger than the limit of 1000", snapshot.commit)
    );
}
