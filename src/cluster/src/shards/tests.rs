//! Members in a model of the API server, whose watches are late and whose members die at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::board::{Board, Known};
use super::member::Member;
use super::ownership::{Ownership, Pins};
use super::seen::Seen;
use super::view::{PushNote, Shown};
use mainstay_api::names::{LEASE as LEASE_NAME, SHARD_LEASE, SHARD_VIEW};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(5);
const SYNCS: usize = 12;

/// An agent that holds a shard, with the GitSyncs on which it acts.
struct Agent {
    board: Board,
    /// The view in its Lease. The view of an earlier board stays until there is a new one.
    note: Option<String>,
    running: BTreeSet<usize>,
    /// The number of writes that its watch has shown.
    shown: usize,
    renewed: Instant,
}

struct Model {
    now: Instant,
    /// All writes of Leases, in their order.
    writes: Vec<(Member, Value)>,
    agents: Vec<Option<Agent>>,
    generation: u64,
}

#[derive(Clone, Debug)]
enum Action {
    /// The agent starts, unless it runs.
    Start(usize),
    /// The agent dies. Its Lease expires.
    Die(usize),
    /// The work of the agent begins again, such as when it ends to lead.
    Restart(usize),
    /// The agent stops, and releases its Lease.
    Stop(usize),
    /// The watch of the agent shows this number of writes.
    Show(usize, usize),
    /// The agent stops the work for lost GitSyncs.
    Drop(usize),
    /// The agent writes its Lease.
    Renew(usize),
    /// Time passes.
    Wait(u64),
}

fn member(agent: usize) -> Member {
    Member::new(agent).unwrap()
}

fn name(sync: usize) -> String {
    format!("app-{sync}")
}

fn is_of(keeps: impl Fn(&str, &str, Option<Member>) -> bool) -> impl Fn(usize) -> bool {
    move |sync| keeps("shop", &name(sync), (sync == 0).then(|| member(1)))
}

/// Returns the board of an agent whose work begins, and that knows these Leases.
fn begun(agent: usize, generation: u64, leases: BTreeMap<Member, Known>) -> Board {
    let mut board = Board::new(member(agent), &agent.to_string(), generation, (LEASE, GRACE), leases);
    let leader = json!({"metadata": {"labels": {SHARD_LEASE: "leader"}}, "spec": {"holderIdentity": ""}});
    board.see_leader(Shown::of(&leader).as_ref());
    board.set_complete(true);
    board
}

impl Model {
    fn new(agents: usize) -> Self {
        let (agents, now) = ((0..agents).map(|_| None).collect(), Instant::now());
        Self { now, writes: Vec::new(), agents, generation: 0 }
    }

    fn write(&mut self, agent: usize, holder: &str) {
        let now = self.now;
        let note = self.agents[agent].as_mut().and_then(|one| {
            one.note = one.board.note(&PushNote::default(), now).or(one.note.take());
            one.note.clone()
        });
        let lease = json!({
            "metadata": {
                "name": format!("{LEASE_NAME}-{}", member(agent)),
                "labels": {SHARD_LEASE: "member"},
                "annotations": {SHARD_VIEW: note},
                "resourceVersion": self.writes.len().to_string(),
            },
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": self.writes.len()},
        });
        self.writes.push((member(agent), lease));
        if let Some(one) = &mut self.agents[agent] {
            one.renewed = self.now;
        }
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Start(agent) if self.agents[agent].is_none() => {
                self.generation += 1000;
                let (board, running) = (begun(agent, self.generation, BTreeMap::new()), BTreeSet::new());
                self.agents[agent] = Some(Agent { board, note: None, running, shown: 0, renewed: self.now });
                self.write(agent, &agent.to_string());
            }
            Action::Die(agent) => self.agents[agent] = None,
            Action::Restart(agent) => {
                self.generation += 1000;
                if let Some(one) = &mut self.agents[agent] {
                    one.board = begun(agent, self.generation, one.board.leases().clone());
                    one.running.clear();
                }
            }
            Action::Stop(agent) => {
                if self.agents[agent].take().is_some() {
                    self.write(agent, "");
                }
            }
            Action::Show(agent, count) => self.show(agent, count),
            Action::Drop(agent) => {
                if let Some(one) = &mut self.agents[agent] {
                    let ownership = one.board.ownership(&Arc::default(), self.now);
                    one.running.retain(|sync| is_of(|a, b, pin| ownership.keeps(a, b, pin))(*sync));
                    one.board.dropped(ownership.number());
                }
            }
            Action::Renew(agent) if self.agents[agent].is_some() => self.write(agent, &agent.to_string()),
            Action::Wait(seconds) => {
                self.now += SECOND * u32::try_from(seconds).unwrap();
                for agent in &mut self.agents {
                    // The term of an agent that does not renew its Lease ends.
                    if agent.as_ref().is_some_and(|one| self.now >= one.renewed + DEADLINE) {
                        *agent = None;
                    }
                }
            }
            Action::Start(_) | Action::Renew(_) => {}
        }
        for agent in 0..self.agents.len() {
            self.gain(agent);
        }
    }

    fn show(&mut self, agent: usize, count: usize) {
        let Some(one) = &mut self.agents[agent] else { return };
        for (member, lease) in self.writes.iter().skip(one.shown).take(count) {
            one.board.see(*member, Shown::of(lease).unwrap(), self.now);
            one.board.turn(self.now);
            one.shown += 1;
        }
    }

    fn gain(&mut self, agent: usize) {
        let now = self.now;
        let Some(one) = &mut self.agents[agent] else { return };
        one.board.turn(now);
        let pins: Arc<Pins> = Arc::default();
        let ownership: Ownership = one.board.ownership(&pins, now);
        one.running.extend((0..SYNCS).filter(|sync| is_of(|a, b, pin| ownership.may_gain(a, b, pin))(*sync)));
    }

    /// Returns how many agents act on each GitSync.
    fn acting(&self) -> Vec<usize> {
        let acts = |sync: &usize| self.agents.iter().flatten().filter(|one| one.running.contains(sync)).count();
        (0..SYNCS).map(|sync| acts(&sync)).collect()
    }

    /// Lets everything arrive, with renewals in time.
    fn settle(&mut self) {
        for _ in 0..20 {
            for agent in 0..self.agents.len() {
                self.act(&Action::Renew(agent));
                for other in 0..self.agents.len() {
                    self.act(&Action::Show(other, usize::MAX));
                    self.act(&Action::Drop(other));
                }
            }
            self.act(&Action::Wait(2));
        }
    }
}

const AGENTS: usize = 3;

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let agent = 0..AGENTS;
    let one = prop_oneof![
        3 => agent.clone().prop_map(Action::Start),
        1 => agent.clone().prop_map(Action::Die),
        1 => agent.clone().prop_map(Action::Stop),
        1 => agent.clone().prop_map(Action::Restart),
        8 => (agent.clone(), 1..4_usize).prop_map(|(agent, count)| Action::Show(agent, count)),
        6 => agent.clone().prop_map(Action::Drop),
        6 => agent.prop_map(Action::Renew),
        2 => (1..6_u64).prop_map(Action::Wait),
    ];
    proptest::collection::vec(one, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn two_members_never_act_on_one_git_sync_and_each_has_an_owner_in_the_end(actions in actions()) {
        let mut model = Model::new(AGENTS);
        for action in &actions {
            model.act(action);
            let acting = model.acting();
            prop_assert!(acting.iter().all(|count| *count <= 1), "{acting:?} after {action:?}");
        }
        model.act(&Action::Start(0));
        model.settle();
        prop_assert_eq!(model.acting(), vec![1; SYNCS]);
    }
}

#[test]
fn an_agent_that_joins_takes_only_its_share() {
    let mut model = Model::new(AGENTS);
    model.act(&Action::Start(0));
    model.act(&Action::Start(1));
    model.settle();
    let before = [0, 1].map(|agent| model.agents[agent].as_ref().unwrap().running.clone());
    model.act(&Action::Start(2));
    model.settle();
    let joined = &model.agents[2].as_ref().unwrap().running;
    for (agent, before) in before.iter().enumerate() {
        let after = &model.agents[agent].as_ref().unwrap().running;
        assert!(after.is_subset(before) && before.difference(after).all(|sync| joined.contains(sync)));
    }
    assert!(!joined.is_empty());
}

#[test]
fn a_member_whose_work_begins_again_does_not_wait_again_for_a_dead_one() {
    let mut model = Model::new(2);
    model.act(&Action::Start(0));
    model.act(&Action::Start(1));
    model.settle();
    model.act(&Action::Die(1));
    let renew = |model: &mut Model| {
        for action in [Action::Wait(1), Action::Drop(0), Action::Renew(0), Action::Show(0, usize::MAX)] {
            model.act(&action);
        }
    };
    // The last renewal of the dead member was shown two seconds before its death.
    for _ in 0..12 {
        renew(&mut model);
    }
    assert!(model.acting().contains(&0));
    model.act(&Action::Restart(0));
    // The Lease counts 1.5 s longer, for a successor.
    for _ in 0..3 {
        renew(&mut model);
    }
    assert_eq!(model.acting(), vec![1; SYNCS]);
}

#[test]
fn a_successor_takes_an_expired_lease_that_a_member_shows_and_the_share_does_not_move() {
    let mut model = Model::new(2);
    model.act(&Action::Start(0));
    model.act(&Action::Start(1));
    model.settle();
    let (before, seen) = (model.agents[0].as_ref().unwrap().running.clone(), Seen::default());
    model.act(&Action::Die(1));
    let dead = model.writes.iter().rfind(|(of, _)| *of == member(1)).unwrap().1.clone();
    let renew = |model: &mut Model| {
        for action in [Action::Wait(1), Action::Drop(0), Action::Renew(0), Action::Show(0, usize::MAX)] {
            model.act(&action);
        }
        seen.see_expired(&model.writes.last().unwrap().1);
        assert_eq!(model.agents[0].as_ref().unwrap().running, before, "the share stays with its shard");
    };
    // The last renewal of the dead member was shown two seconds before its death.
    for _ in 0..12 {
        renew(&mut model);
        assert!(!seen.has_expired(member(1), &dead));
    }
    renew(&mut model);
    assert!(seen.has_expired(member(1), &dead));
    model.act(&Action::Start(1));
    model.act(&Action::Show(0, usize::MAX));
    for _ in 0..5 {
        renew(&mut model);
        model.act(&Action::Show(1, usize::MAX));
        model.act(&Action::Drop(1));
        model.act(&Action::Renew(1));
    }
    assert_eq!(model.acting(), vec![1; SYNCS]);
    let new = model.writes.iter().rfind(|(of, _)| *of == member(1)).unwrap().1.clone();
    assert!(!seen.has_expired(member(1), &new), "the successor renews it");
}

#[test]
fn a_member_whose_watch_is_silent_keeps_its_share_and_gains_nothing() {
    let mut model = Model::new(2);
    model.act(&Action::Start(0));
    model.act(&Action::Start(1));
    model.settle();
    let running = |model: &Model, agent: usize| model.agents[agent].as_ref().unwrap().running.clone();
    let before = [0, 1].map(|agent| running(&model, agent));
    assert!(before.iter().all(|share| !share.is_empty()));
    let number = |model: &Model| {
        let board = &model.agents[0].as_ref().unwrap().board;
        board.ownership(&Arc::default(), model.now).number()
    };
    let known = number(&model);
    // The connection of the first member's watch is dead for a minute, and both Leases are renewed.
    for _ in 0..30 {
        for agent in [0, 1] {
            model.act(&Action::Renew(agent));
            model.act(&Action::Drop(agent));
        }
        model.act(&Action::Show(1, usize::MAX));
        model.act(&Action::Wait(2));
        assert_eq!([0, 1].map(|agent| running(&model, agent)), before);
        assert_eq!(number(&model), known, "no view is published");
    }
    let board = |model: &Model| model.agents[0].as_ref().unwrap().board.clone();
    assert!(board(&model).silent_since(model.now).is_some_and(|since| since + LEASE < model.now));
    // The second member dies while the watch is still silent, which is not known until it is not silent.
    model.act(&Action::Die(1));
    model.act(&Action::Renew(0));
    model.act(&Action::Wait(2));
    assert_eq!(running(&model, 0), before[0]);
    for _ in 0..16 {
        for action in [Action::Renew(0), Action::Show(0, usize::MAX), Action::Drop(0), Action::Wait(2)] {
            model.act(&action);
        }
    }
    assert_eq!(model.acting(), vec![1; SYNCS]);
}

#[test]
fn a_member_gains_nothing_while_a_list_of_a_new_watch_is_not_complete() {
    let mut model = Model::new(2);
    model.act(&Action::Start(0));
    model.act(&Action::Start(1));
    model.settle();
    let one = model.agents[0].as_mut().unwrap();
    let (own, syncs) = (model.writes.iter().rfind(|(of, _)| *of == member(0)).unwrap(), 0..SYNCS);
    let may_gain = |board: &Board, now: Instant| {
        let ownership = board.ownership(&Arc::default(), now);
        syncs.clone().filter(|sync| is_of(|a, b, pin| ownership.may_gain(a, b, pin))(*sync)).count()
    };
    assert!(may_gain(&one.board, model.now) > 0);
    // The watch was silent, and the new one lists the own Lease first.
    let later = model.now + LEASE * 2;
    one.board.set_complete(false);
    let mut renewed = own.1.clone();
    renewed["spec"]["renewTime"] = json!(1_000_000);
    one.board.see(member(0), Shown::of(&renewed).unwrap(), later);
    one.board.turn(later);
    assert_eq!(may_gain(&one.board, later), 0);
    let ownership = one.board.ownership(&Arc::default(), later);
    assert!(one.running.iter().all(|sync| is_of(|a, b, pin| ownership.keeps(a, b, pin))(*sync)), "it keeps its share");
}
