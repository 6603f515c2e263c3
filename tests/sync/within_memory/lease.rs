//! CPU-bound work beside the Lease, with the agent's CPU limit in a pod.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Envelope, HOSTILE, follow, inputs::answer, packs, ready};
use mainstay_testkit::{
    git_server::{Fault, GitServer, On},
    remote::{NAME, Remote},
    world::{NAMESPACE, World},
};

/// The agent's CPU limit in `manifests/deployment.yaml`, in thousandths of a core.
const POD_MILLICORES: u64 = 500;
const LARGE: usize = 4;
/// Unpacked size of each large pack, in MiB.
const MIB: usize = 300;
const AT_LEAST: Duration = Duration::from_secs(15);
/// The Lease is renewed every 2 s and lost after 10 s.
const RENEWED: Duration = Duration::from_secs(5);

/// The number of renewals of the Lease, and the longest time between two.
struct Renewals {
    last: Value,
    at: Instant,
    number: usize,
    longest: Duration,
}

impl Renewals {
    fn look(&mut self, world: &World) {
        let now = lease(world)["renewTime"].clone();
        self.longest = self.longest.max(self.at.elapsed());
        if self.last != now {
            (self.last, self.at, self.number) = (now, Instant::now(), self.number + 1);
        }
    }
}

fn lease(world: &World) -> Value {
    world.server.object("coordination.k8s.io/v1", "leases", NAMESPACE, "mainstay").unwrap()["spec"].clone()
}

#[expect(clippy::print_stdout, reason = "figures, for those who look at them")]
pub(super) async fn packs_beside_the_lease() {
    let mut envelope = Envelope::new().await;
    let is_limited = envelope.agent.limit_cpu(POD_MILLICORES);
    let before = lease(&envelope.world);
    let mut remote = Remote::new();
    remote.file("a.yaml", "").commit("one");
    let packs = [answer(&packs::large(MIB)), answer(&packs::expanding(3))];
    let mut servers = Vec::new();
    for number in 0..2 * LARGE {
        let server = GitServer::start(remote.root()).await;
        server.fail(On::Packs, Fault::Answer(packs[number / LARGE].clone()));
        follow(&envelope.world, HOSTILE, &format!("pack-{number}"), &server.url(NAME), json!({}));
        servers.push(server);
    }
    // Starts here, because generating the packs takes a while.
    let last = lease(&envelope.world)["renewTime"].clone();
    let renewals = RefCell::new(Renewals { last, at: Instant::now(), number: 0, longest: Duration::ZERO });
    let (begin, busy) = (Instant::now(), envelope.agent.cpu_time());
    let refused = |world: &World, _: &_| {
        renewals.borrow_mut().look(world);
        (0..2 * LARGE).all(|number| ready(world, HOSTILE, &format!("pack-{number}")).starts_with("False"))
    };
    envelope.during("packs beside the Lease", AT_LEAST, refused).await;
    let share = envelope.agent.cpu_time().saturating_sub(busy).as_secs_f64() / begin.elapsed().as_secs_f64();
    let Renewals { number, longest, .. } = renewals.into_inner();
    let place = if is_limited { "in a cgroup" } else { "NOT in a cgroup: none can be made here" };
    println!(
        "{share:.2} of a processor in {:?}, {place}: the Lease was renewed {number} times, at most {longest:?} apart",
        begin.elapsed()
    );
    for field in ["holderIdentity", "acquireTime", "leaseTransitions"] {
        assert_eq!(lease(&envelope.world)[field], before[field], "{field}");
    }
    assert!(longest < RENEWED, "the Lease was not renewed for {longest:?}");
    envelope.judge("large and hostile packs with half a processor");
}
