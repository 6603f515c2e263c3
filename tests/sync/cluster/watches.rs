//! Watches: their events, and their behaviour when the server or its event log is gone.

use super::*;

/// Formats the next watch event: `begin`, `initial a=1`, `synced`, `applied a=2`, `deleted a=2`, `failed 503`, ….
async fn word(events: &mut BoxStream<'static, WatchEvent>) -> String {
    let shown = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        format!("{name}={}", object["data"]["key"].as_str().unwrap_or_default())
    };
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("the watch speaks");
    match event.expect("a watch never ends") {
        WatchEvent::Begin => "begin".to_owned(),
        WatchEvent::Initial(object) => format!("initial {}", shown(&object)),
        WatchEvent::Synced(_) => "synced".to_owned(),
        WatchEvent::Applied(object) => format!("applied {}", shown(&object)),
        WatchEvent::Deleted(object) => format!("deleted {}", shown(&object)),
        WatchEvent::Unreadable(object, _) => format!("unreadable {}", shown(&object)),
        WatchEvent::Failed(error) => format!("failed {}", error.code().unwrap_or_default()),
        WatchEvent::Resumed => "resumed".to_owned(),
        WatchEvent::WentBack => "went back".to_owned(),
    }
}

/// Returns the next events, without failures and resumptions.
async fn words(events: &mut BoxStream<'static, WatchEvent>, count: usize) -> Vec<String> {
    let mut words = Vec::new();
    while words.len() < count {
        let word = word(events).await;
        if !word.starts_with("failed") && word != "resumed" {
            words.push(word);
        }
    }
    words
}

fn watch(cluster: &Cluster) -> BoxStream<'static, WatchEvent> {
    cluster.watch(&config_maps(), Selection::labelled("app", "web"))
}

#[tokio::test]
async fn a_watch_reports_existing_objects_and_changes() {
    let (_server, cluster) = server();
    apply(&cluster, "a", "1").await;
    let mut events = watch(&cluster);
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=1", "synced"]);
    apply(&cluster, "a", "2").await;
    apply(&cluster, "a", "2").await;
    apply(&cluster, "b", "1").await;
    cluster
        .delete(&config_maps(), Some("default"), "a", Guard::default(), Propagation::Background)
        .await
        .expect("gone");
    assert_eq!(words(&mut events, 3).await, ["applied a=2", "applied b=1", "deleted a=2"]);
    let unlabel = json!({ "metadata": { "labels": null } });
    cluster.patch_merge(&config_maps(), Some("default"), "b", Part::Main, &unlabel).await.expect("patched");
    assert_eq!(word(&mut events).await, "deleted b=1");
}

#[tokio::test]
async fn a_watch_of_metadata_leaves_out_the_rest() {
    let (_server, cluster) = server();
    apply(&cluster, "a", "1").await;
    let mut events = cluster.watch(&config_maps(), Selection::labelled("app", "web").metadata_only());
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=", "synced"]);
}

#[tokio::test]
async fn a_kubeconfig_gives_requests_and_watches_their_credentials() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (server, _) = server();
    let serving = server.serve(([127, 0, 0, 1], 0).into(), Some("right".to_owned())).await.expect("served");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config");
    let origin = Origin::of_file(&path);

    std::fs::write(&path, server.kubeconfig(serving.address(), Some("wrong"))).expect("written");
    let cluster = Cluster::from_origin(&origin).await.expect("a client");
    let error = cluster.get(&config_maps(), Some("default"), "a").await.expect_err("a wrong token");
    assert_eq!((error.code(), error.class()), (Some(401), Class::Denied));
    let mut events = watch(&cluster);
    assert_eq!(word(&mut events).await, "begin");
    assert_eq!(word(&mut events).await, "failed 401");

    std::fs::write(&path, server.kubeconfig(serving.address(), Some("right"))).expect("written");
    let cluster = Cluster::from_origin(&origin).await.expect("a client");
    apply(&cluster, "a", "1").await;
    let mut events = watch(&cluster);
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=1", "synced"]);

    let missing = Origin::of_file(&directory.path().join("nowhere"));
    let error = Cluster::from_origin(&missing).await.expect_err("no file");
    assert_eq!((error.to_string().as_str(), error.class()), ("could not connect to the cluster", Class::Invalid));
}

#[tokio::test]
async fn a_watch_that_is_cut_loses_nothing() {
    let (server, _) = server();
    let serving = server.serve(([127, 0, 0, 1], 0).into(), None).await.expect("served");
    let address = serving.address();
    let cluster = connect(address);
    apply(&cluster, "a", "1").await;
    let mut events = watch(&cluster);
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=1", "synced"]);
    drop(serving);
    // In process, while no client can connect.
    let client = kube::Client::new(server.client_service(), "default");
    apply(&Cluster::from_clients(client.clone(), client), "a", "2").await;
    assert_eq!(word(&mut events).await, "failed 0");
    let _serving = serve_again(&server, address).await;
    assert_eq!(words(&mut events, 1).await, ["applied a=2"]);
}

/// Serves at an address that was just in use.
async fn serve_again(server: &EmbeddedCluster, address: SocketAddr) -> devcluster::Serving {
    let bound = async {
        loop {
            match server.serve(address, None).await {
                Ok(serving) => return serving,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, bound).await.expect("the address is free again")
}

#[tokio::test]
async fn a_server_with_another_history_is_listed_again() {
    let (old, _) = server();
    let serving = old.serve(([127, 0, 0, 1], 0).into(), None).await.expect("served");
    let address = serving.address();
    let cluster = connect(address);
    for n in 0..300 {
        apply(&cluster, "a", &n.to_string()).await;
    }
    let mut events = watch(&cluster);
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=299", "synced"]);
    drop(serving);
    drop(old);
    assert_eq!(word(&mut events).await, "failed 0");
    let (new, _) = server();
    let _serving = serve_again(&new, address).await;
    assert_eq!(words(&mut events, 3).await, ["begin", "went back", "synced"]);
    apply(&cluster, "a", "new").await;
    assert_eq!(word(&mut events).await, "applied a=new");
}

#[tokio::test]
async fn expired_history_is_listed_again() {
    let (server, cluster) = server();
    apply(&cluster, "a", "1").await;
    let mut events = watch(&cluster);
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=1", "synced"]);
    let away = Fault { verb: "watch".to_owned(), code: 503, times: 2, ..Fault::default() };
    server.faults().fail_next(away);
    server.store().end_watches(None);
    assert_eq!(word(&mut events).await, "failed 503");
    apply(&cluster, "a", "2").await;
    server.store().compact();
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=2", "synced"]);
    // The server reports the expired history as an error response instead of an event.
    let gone = Fault { verb: "watch".to_owned(), code: 410, ..Fault::default() };
    server.faults().fail_next(gone);
    server.store().end_watches(None);
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=2", "synced"]);
}

/// Answers every streaming list of a kind (empty: any kind) with this fault.
fn no_streaming_lists(server: &EmbeddedCluster, resource: &str, how: Fault) {
    server.faults().fail_next(Fault {
        verb: "watch".to_owned(),
        resource: resource.to_owned(),
        query: "sendInitialEvents=true".to_owned(),
        times: 10_000,
        ..how
    });
}

#[tokio::test]
async fn a_server_without_streaming_lists_is_read_in_pages_and_watched() {
    for code in [500, 422, 400, 403] {
        let (server, _) = server();
        no_streaming_lists(&server, "", Fault { code, ..Fault::default() });
        let serving = server.serve(([127, 0, 0, 1], 0).into(), None).await.expect("served");
        let cluster = connect(serving.address());
        for n in 0..60 {
            apply(&cluster, &format!("c{n:02}"), "1").await;
        }
        let mut events = watch(&cluster);
        assert_eq!(word(&mut events).await, "begin");
        let told = words(&mut events, 61).await;
        assert_eq!((told[0].as_str(), told[60].as_str()), ("initial c00=1", "synced"), "{code}");
        assert_eq!(cluster.requests().total(|verb, _| verb == Verb::List), 2);
        apply(&cluster, "c00", "2").await;
        assert_eq!(word(&mut events).await, "applied c00=2");
        // Only the first watch tried a streaming list.
        let mut again = watch(&cluster);
        assert_eq!(words(&mut again, 62).await[61], "synced");
        assert_eq!(cluster.requests().total(|verb, _| verb == Verb::Watch), 2, "{code}");
    }
}

#[tokio::test]
async fn a_streaming_list_that_hangs_is_read_in_pages_and_watched() {
    let (server, _) = server();
    no_streaming_lists(&server, "configmaps", Fault { delay_millis: 600_000, ..Fault::default() });
    let serving = server.serve(([127, 0, 0, 1], 0).into(), None).await.expect("served");
    let cluster = connect(serving.address());
    apply(&cluster, "a", "1").await;
    let mut events = watch(&cluster);
    assert_eq!(words(&mut events, 3).await, ["begin", "initial a=1", "synced"]);
    apply(&cluster, "a", "2").await;
    assert_eq!(word(&mut events).await, "applied a=2");
}

#[tokio::test]
async fn a_watch_reports_that_it_has_recovered() {
    let (server, cluster) = server();
    let mut events = watch(&cluster);
    assert_eq!(words(&mut events, 2).await, ["begin", "synced"]);
    server.faults().fail_next(Fault { verb: "watch".to_owned(), code: 503, ..Fault::default() });
    server.store().end_watches(None);
    assert_eq!(word(&mut events).await, "failed 503");
    assert_eq!(word(&mut events).await, "resumed");
    apply(&cluster, "a", "1").await;
    assert_eq!(word(&mut events).await, "applied a=1");
}
