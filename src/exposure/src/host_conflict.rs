//! Assigns hosts to APIRules.
//!
//! The holder of a host keeps it. If there are several candidates for a free host, the oldest APIRule gets it. Among
//! APIRules of the same age, the one whose namespace and name come first gets it. If holders did not keep their hosts,
//! an old APIRule could take over a host that another APIRule uses.
//!
//! Invariant: a host has at most one holder.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use mainstay_object::Owner;

/// A candidate for a host. Candidates are ordered by priority.
type Candidate = (Option<Timestamp>, Owner);

/// The holders and candidates of hosts. Hosts are in lower case.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    holders: HashMap<String, Owner>,
    candidates: HashMap<String, BTreeSet<Candidate>>,
    wanted: HashMap<Owner, (String, Option<Timestamp>)>,
}

impl Hosts {
    /// Registers a candidate for this host only. Returns the candidates of its previous host, which may be free now.
    pub(super) fn want(&mut self, owner: &Owner, created: Option<Timestamp>, host: &str) -> Vec<Owner> {
        if self.wanted.get(owner).is_some_and(|(known, _)| known == host) {
            return Vec::new();
        }
        let woken = self.withdraw(owner);
        self.candidates.entry(host.to_owned()).or_default().insert((created, owner.clone()));
        self.wanted.insert(owner.clone(), (host.to_owned(), created));
        woken
    }

    /// Removes a candidate. Returns the remaining candidates of its host.
    pub(super) fn withdraw(&mut self, owner: &Owner) -> Vec<Owner> {
        let Some((host, created)) = self.wanted.remove(owner) else { return Vec::new() };
        if let Some(all) = self.candidates.get_mut(&host) {
            all.remove(&(created, owner.clone()));
            if all.is_empty() {
                self.candidates.remove(&host);
            }
        }
        self.candidates(&host)
    }

    /// Whether another APIRule holds a host or has priority for it.
    pub(super) fn is_others(&self, owner: &Owner, host: &str) -> bool {
        let next = || self.candidates.get(host).and_then(BTreeSet::first).map(|(_, next)| next);
        self.holders.get(host).or_else(next).is_some_and(|other| other != owner)
    }

    /// Takes a host that no other APIRule holds. Returns whether this succeeded.
    pub(super) fn take(&mut self, owner: &Owner, host: &str) -> bool {
        if self.is_others(owner, host) {
            return false;
        }
        self.holders.insert(host.to_owned(), owner.clone());
        true
    }

    /// Releases all hosts except one. Returns the candidates of the released hosts.
    pub(super) fn keep_only(&mut self, owner: &Owner, host: Option<&str>) -> Vec<Owner> {
        let gives_up = |(held, holder): &(&String, &Owner)| *holder == owner && Some(held.as_str()) != host;
        let free: Vec<String> = self.holders.iter().filter(gives_up).map(|(held, _)| held.clone()).collect();
        for host in &free {
            self.holders.remove(host);
        }
        free.iter().flat_map(|host| self.candidates(host)).collect()
    }

    /// Returns the candidates of a host.
    pub(super) fn candidates(&self, host: &str) -> Vec<Owner> {
        self.candidates.get(host).into_iter().flatten().map(|(_, owner)| owner.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str) -> Owner {
        Owner::api_rule("shop", name)
    }

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    #[test]
    fn the_first_gets_a_host_and_keeps_it_from_an_older_one() {
        let (mut hosts, host) = (Hosts::default(), "a.b");
        hosts.want(&rule("young"), at(9), host);
        hosts.want(&rule("old"), at(1), host);
        assert!(!hosts.take(&rule("young"), host) && hosts.take(&rule("old"), host));
        hosts.want(&rule("ancient"), at(0), host);
        assert!(!hosts.take(&rule("ancient"), host), "who has it keeps it");
        hosts.withdraw(&rule("old"));
        let woken = hosts.keep_only(&rule("old"), None);
        assert_eq!(woken, [rule("ancient"), rule("young")]);
        assert!(hosts.is_others(&rule("young"), host) && hosts.take(&rule("ancient"), host));
    }

    #[test]
    fn the_name_decides_between_rules_of_one_age_and_a_withdrawn_rule_frees_the_host() {
        let (mut hosts, host) = (Hosts::default(), "a.b");
        hosts.want(&rule("b"), at(1), host);
        hosts.want(&rule("a"), at(1), host);
        assert!(!hosts.take(&rule("b"), host));
        assert_eq!(hosts.want(&rule("a"), at(1), "other"), [rule("b")]);
        assert!(hosts.take(&rule("b"), host));
        assert!(hosts.take(&rule("a"), "other"));
        assert_eq!(hosts.keep_only(&rule("a"), Some("other")), []);
        assert!(hosts.is_others(&rule("b"), "other"));
    }
}
