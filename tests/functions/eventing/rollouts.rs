//! Rollouts, which end processes while they hold events.

use super::*;

impl Events {
    /// Ends the processes as a rollout does, and starts them again.
    async fn roll_out(&mut self) {
        for mut process in self.processes.drain(..) {
            assert!(mainstay_testkit::isolated("kill").arg(process.id().to_string()).status().unwrap().success());
            until("the process has ended", || process.try_wait().unwrap().is_some()).await;
        }
        self.start().await;
    }

    /// Waits until a running process has found that the subscriber is unreachable.
    async fn waits_for_the_subscriber(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let addresses = self.scraped.lock().clone();
            for address in &addresses[addresses.len() - self.roles().len()..] {
                let answer = self.client.get(format!("http://{address}/metrics")).send().await;
                let text = match answer {
                    Ok(answer) => answer.text().await.unwrap_or_default(),
                    Err(_) => String::new(),
                };
                if text.contains("response_code=\"0\"") {
                    return;
                }
            }
            assert!(Instant::now() < end, "no process tries to deliver the event");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_do_not_count_as_deliveries_and_failed_deliveries_count_after_them() {
    let mut events = Events::stopped().await;
    events.start().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    assert_eq!(events.publish("one", TYPE, "data").await, 204);
    // The sink has not started, so each process takes the event and cannot deliver it.
    for _ in 0..3 {
        events.waits_for_the_subscriber().await;
        events.roll_out().await;
    }
    events.sink.seen.failing.lock().insert("one".to_owned(), 500);
    events.sink.start().await;
    events.seen(2).await;
    events.roll_out().await;
    events.seen(3).await;
    events.sink.seen.failing.lock().insert("one".to_owned(), 400);
    let letters = || {
        let output = events.command(&["dead-letters", "--output", "json"]);
        serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
    };
    until("the event is a dead letter", || !letters().is_empty()).await;
    let (attempts, count) = (letters()[0]["attempts"].as_u64().unwrap(), events.sink.count() as u64);
    // The delivery that was in progress at the last rollout may not be counted.
    assert!(attempts == count || attempts + 1 == count, "{attempts} of {count} deliveries are counted");
}
