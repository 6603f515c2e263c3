//! The Lease: leadership and its end. Time is paused while tasks run, so that a busy machine has no effect.

use super::*;

fn quick() -> Timing {
    Timing { lease: Duration::from_secs(1), deadline: Duration::from_millis(600), retry: Duration::from_millis(50) }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_the_other_follows() {
    let (_server, cluster) = server();
    let shutdown = CancellationToken::new();
    let (first, mut first_leads) = Elector::new(cluster.clone(), "default", "mainstay", "first", quick());
    let first = tokio::spawn(first.run(shutdown.clone()));
    let term = tokio::time::timeout(PATIENCE, first_leads.term()).await.expect("it leads").expect("a term");
    let (second, mut second_leads) = Elector::new(cluster.clone(), "default", "mainstay", "second", quick());
    let second = tokio::spawn(second.run(CancellationToken::new()));
    let leases = Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced);
    let renewed = async {
        let mut times = std::collections::BTreeSet::new();
        while times.len() < 30 {
            let lease = cluster.get(&leases, Some("default"), "mainstay").await.expect("an answer").expect("there");
            assert_eq!(lease["spec"]["holderIdentity"], "first");
            times.insert(lease["spec"]["renewTime"].to_string());
            tokio::time::sleep(quick().retry).await;
        }
    };
    // Thirty renewals take longer than the duration of the Lease.
    tokio::time::timeout(PATIENCE, renewed).await.expect("it is renewed");
    assert!(first_leads.is_leading() && !second_leads.is_leading() && !term.ended().is_cancelled());
    shutdown.cancel();
    tokio::time::timeout(PATIENCE, first).await.expect("it ends").expect("it ends");
    assert!(term.ended().is_cancelled());
    assert!(tokio::time::timeout(PATIENCE, second_leads.term()).await.expect("it leads").is_some());
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_judged_by_our_own_clock() {
    let leases = Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced);
    for renewed in ["1999-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"] {
        let (_server, cluster) = server();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": "mainstay", "namespace": "default" },
            "spec": { "holderIdentity": "other", "leaseDurationSeconds": 1, "renewTime": renewed, "acquireTime": renewed },
        });
        cluster.create(&leases, Some("default"), "mainstay", &lease, Persistence::Kept).await.expect("created");
        let started = tokio::time::Instant::now();
        let (elector, mut leadership) = Elector::new(cluster.clone(), "default", "mainstay", "me", quick());
        let electing = tokio::spawn(elector.run(CancellationToken::new()));
        assert!(tokio::time::timeout(PATIENCE, leadership.term()).await.expect("it leads").is_some());
        assert!(started.elapsed() >= Duration::from_secs(1), "{renewed}: {:?}", started.elapsed());
        electing.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_steps_down() {
    let (server, cluster) = server();
    let (elector, mut leadership) = Elector::new(cluster, "default", "mainstay", "me", quick());
    let electing = tokio::spawn(elector.run(CancellationToken::new()));
    let term = tokio::time::timeout(PATIENCE, leadership.term()).await.expect("it leads").expect("a term");
    let away =
        Fault { verb: "update".to_owned(), resource: "leases".to_owned(), code: 500, times: 1000, ..Fault::default() };
    server.faults().fail_next(away);
    tokio::time::timeout(PATIENCE, term.ended().cancelled()).await.expect("it steps down");
    assert!(!leadership.is_leading());
    server.faults().clear_faults();
    assert!(tokio::time::timeout(PATIENCE, leadership.term()).await.expect("it leads again").is_some());
    electing.abort();
}
