//! State that the remotes of one host share.

use super::*;

#[tokio::test]
async fn retry_after_holds_for_all_repositories_of_a_host() {
    let bench = Bench::new(small()).await;
    let (main, other) = (Reference::parse("main").unwrap(), anonymous(&bench.server.url("other.git")));
    bench.server.fail(On::Everything, Fault::RetryAfter(3000));
    let error = bench.source.lookup(&bench.remote(), &main, NOW).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3000)));
    bench.server.heal();
    bench.server.take_counts();
    let error = bench.source.lookup(&other, &main, NOW).await.unwrap_err();
    assert_eq!((error.class(), bench.server.take_counts().requests), (Class::Unavailable, 0), "{}", chain(&error));
    let after = error.retry_after().unwrap();
    assert!(after <= Duration::from_secs(300), "one answer does not close a host for long: {after:?}");
    bench.source.lookup(&bench.remote(), &main, NOW).await.expect("who asks again for a person is not kept from it");
}

#[tokio::test]
async fn repositories_of_a_host_that_is_stuck_do_not_hold_up_those_of_another() {
    let (stuck, origin) = (Bench::new(small()).await, small());
    let good = GitServer::start(origin.root()).await;
    stuck.server.fail(On::Everything, Fault::Stall);
    let main = Reference::parse("main").unwrap();
    let waiting = (0..100).map(|number| {
        let (source, main) = (stuck.source.clone(), main.clone());
        let remote = anonymous(&stuck.server.url(&format!("{number}.git")));
        tokio::spawn(async move { source.lookup(&remote, &main, NOW).await.map(drop) })
    });
    let waiting: Vec<_> = waiting.collect();
    while stuck.server.arrivals().is_empty() {
        tokio::task::yield_now().await;
    }
    let error = stuck.source.lookup(&anonymous(&good.url("none.git")), &main, NOW).await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid, "it was asked: {}", chain(&error));
    assert!(waiting.iter().all(|lookup| !lookup.is_finished()), "the others wait all along");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
