//! Counts the agent's requests by verb and resource.
//!
//! The embedded server counts them by user agent. For another cluster the agent's metrics are read.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

use super::{Error, embedded::Embedded};

/// Source of the counts.
pub(super) enum Counters {
    /// `/devcluster/counters` of this embedded cluster.
    Server(Embedded),
    /// `/metrics` of the agent.
    Agent(String),
}

/// Requests by verb and resource. A difference counts watches apart from the other requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    counts: BTreeMap<(String, String), u64>,
    watches: u64,
}

/// The response of the embedded server.
#[derive(Deserialize)]
struct Counted {
    requests: Vec<Count>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Count {
    verb: String,
    resource: String,
    user_agent: String,
    #[serde(rename = "count")]
    number: u64,
}

impl Counters {
    /// Returns the counts so far.
    pub(super) async fn read(&self) -> Result<Requests, Error> {
        let asked = match self {
            Self::Server(Embedded { url, token }) => {
                reqwest::Client::new().get(format!("{url}/devcluster/counters")).bearer_auth(token)
            }
            Self::Agent(url) => reqwest::Client::new().get(url),
        };
        let answer = asked.send().await.and_then(reqwest::Response::error_for_status).map_err(Error::Count)?;
        let text = answer.text().await.map_err(Error::Count)?;
        match self {
            Self::Server(_) => from_server(&text),
            Self::Agent(_) => Ok(from_metrics(&text)),
        }
    }
}

fn from_server(text: &str) -> Result<Requests, Error> {
    let counted: Counted = serde_json::from_str(text).map_err(Error::Counts)?;
    // The agent sends no requests to an image registry, but builds do under the same user agent.
    let ours = |count: &Count| count.user_agent == "mainstay" && !count.resource.starts_with("registry/");
    let ours = counted.requests.into_iter().filter(ours);
    Ok(Requests::new(ours.map(|count| ((count.verb, count.resource), count.number))))
}

fn from_metrics(text: &str) -> Requests {
    let rows = text.lines().filter_map(|line| {
        let (verb, rest) = line.strip_prefix("mainstay_api_requests_total{verb=\"")?.split_once("\",resource=\"")?;
        let (resource, count) = rest.split_once("\"} ")?;
        Some(((verb.to_owned(), resource.to_owned()), count.parse().ok()?))
    });
    Requests::new(rows)
}

impl Requests {
    fn new(counts: impl Iterator<Item = ((String, String), u64)>) -> Self {
        Self { counts: counts.collect(), watches: 0 }
    }

    /// Returns the difference to `earlier`, without the Lease.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let rows = self.counts.iter().filter(|((_, resource), _)| !resource.starts_with("leases"));
        let rows = rows.map(|(what, count)| {
            let before = earlier.counts.get(what).copied().unwrap_or_default();
            (what.clone(), count.saturating_sub(before))
        });
        let (watches, others): (Vec<_>, Vec<_>) =
            rows.filter(|(_, count)| *count > 0).partition(|((verb, _), _)| verb == "watch");
        Self { counts: others.into_iter().collect(), watches: watches.into_iter().map(|(_, count)| count).sum() }
    }

    /// Adds the requests of another agent.
    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
        self.watches += other.watches;
    }

    /// Returns the number of watches that were opened, those for a single list among them.
    pub(super) fn watches(&self) -> u64 {
        self.watches
    }

    /// Splits off the Events. Returns the other requests and the number of Event writes.
    pub(super) fn without_events(&self) -> (Self, u64) {
        let is_event = |resource: &str| resource == "events" || resource.starts_with("events.");
        let (events, others): (Vec<_>, Vec<_>) = self
            .counts
            .iter()
            .map(|(what, count)| (what.clone(), *count))
            .partition(|((_, resource), _)| is_event(resource));
        let others = Self { counts: others.into_iter().collect(), watches: self.watches };
        (others, events.into_iter().map(|(_, count)| count).sum())
    }

    /// Returns the number of all requests besides watches.
    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the number of requests with a verb for a resource; an empty resource means any.
    pub(super) fn of(&self, verb: &str, resource: &str) -> u64 {
        let wanted = |(v, r): &(String, String)| v == verb && (resource.is_empty() || r == resource);
        self.counts.iter().filter(|(what, _)| wanted(what)).map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut verbs: BTreeMap<&str, u64> = BTreeMap::new();
        for ((verb, _), count) in &self.counts {
            *verbs.entry(verb).or_default() += count;
        }
        if verbs.is_empty() {
            return f.write_str("none");
        }
        let texts: Vec<_> = verbs.iter().map(|(verb, count)| format!("{count} {verb}")).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_the_agent_asked_besides_watches_and_the_lease() {
        let row = |verb: &str, resource: &str, agent: &str, count: u64| {
            format!(r#"{{"verb":"{verb}","resource":"{resource}","userAgent":"{agent}","count":{count}}}"#)
        };
        let read = |rows: &[String]| from_server(&format!(r#"{{"requests":[{}]}}"#, rows.join(","))).unwrap();
        let before = read(&[row("apply", "configmaps", "mainstay", 5), row("apply", "configmaps", "kubectl", 9)]);
        let after = read(&[
            row("apply", "configmaps", "mainstay", 7),
            row("apply", "secrets", "mainstay", 1),
            row("watch", "configmaps", "mainstay", 4),
            row("update", "leases.coordination.k8s.io", "mainstay", 30),
            row("get", "configmaps", "kubectl", 3),
            row("put", "registry/manifest", "mainstay", 2),
        ]);
        let since = after.since(&before);
        assert_eq!((since.to_string(), since.total(), since.watches()), ("3 apply".into(), 3, 4));
        assert_eq!((since.of("apply", "configmaps"), since.of("apply", "")), (2, 3));
        assert_eq!(before.since(&before).to_string(), "none");
        let mut both = since.clone();
        both.add(&since);
        assert_eq!((both.of("apply", "configmaps"), both.total(), both.watches()), (4, 6, 8));
    }

    #[test]
    fn tells_events_from_everything_else() {
        let rows =
            [("create", "events", 5), ("patch", "events", 2), ("create", "jobs.batch", 1), ("patch", "secrets", 3)];
        let all = Requests::new(rows.into_iter().map(|(v, r, count)| ((v.into(), r.into()), count)));
        let (others, events) = all.without_events();
        assert_eq!((others.to_string(), others.total(), events), ("1 create, 3 patch".into(), 4, 7));
    }

    #[test]
    fn reads_the_agents_metrics() {
        let text = "# TYPE x counter\nmainstay_api_requests_total{verb=\"list\",resource=\"secrets\"} 4\n\
                    mainstay_leader 1\n";
        assert_eq!((from_metrics(text).of("list", "secrets"), from_metrics(text).total()), (4, 4));
    }
}
