//! The pods of an object, and the log of a container.

use jiff::Timestamp;
use maud::{Markup, html};

use super::parts;
use crate::address;
use crate::facts::Containers;
use mainstay_object::Key;

/// A pod of a Function, of its build, or of another object.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) phase: String,
    /// The number of its containers, of those that are ready, and of their restarts.
    pub(crate) counts: Containers,
    pub(crate) created: Option<Timestamp>,
    /// The time at which the pod was read.
    pub(crate) read: Timestamp,
    pub(crate) containers: Vec<Container>,
    /// The container whose log is shown by default.
    pub(crate) default: String,
    pub(crate) is_build: bool,
}

/// A container of a pod.
pub(crate) struct Container {
    pub(crate) name: String,
    /// Number of restarts. A restarted container has a previous instance.
    pub(crate) restarts: i64,
}

/// The log that the page shows.
pub(crate) struct Log {
    pub(crate) pod: String,
    pub(crate) container: String,
    /// Whether it is the log of the previous instance of the container. It is not followed.
    pub(crate) is_previous: bool,
    /// The last lines of the log, or the reason why it cannot be read.
    pub(crate) lines: Result<String, String>,
}

/// Returns the table of pods with links to their logs, and with their health if it is known. `here` is the path of the
/// page.
pub(super) fn table(
    here: &str,
    namespace: Option<&str>,
    pods: &Result<Vec<Pod>, String>,
    health: Option<&dyn Fn(&str) -> Markup>,
) -> Markup {
    let of = |pod: &str| address::of_object(&Key::new("", "Pod", namespace, pod));
    html! {
        @match pods {
            Err(why) => p.note { (why) },
            Ok(pods) if pods.is_empty() => p.quiet { "There are no pods." },
            Ok(pods) => {
                @let has_builds = pods.iter().any(|pod| pod.is_build);
                table.cards {
                    thead { tr { th scope="col" { "Pod" } @if has_builds { th scope="col" { "For" } } th scope="col" { "Phase" } @if health.is_some() { th scope="col" { "Health" } } th scope="col" { "Ready" } th scope="col" { "Restarts" } th scope="col" { "Age" } th scope="col" { "Logs" } } }
                    tbody { @for pod in pods {
                        tr {
                            th scope="row" data-label="Pod" { a href=(of(&pod.name)) { (pod.name) } }
                            @if has_builds { td data-label="For" { (if pod.is_build { "build" } else { "function" }) } }
                            td data-label="Phase" { (pod.phase) }
                            @if let Some(health) = health { td data-label="Health" { (health(&pod.name)) } }
                            td data-label="Ready" { (pod.counts.ready) "/" (pod.counts.all) }
                            td data-label="Restarts" { (pod.counts.restarts) }
                            td data-label="Age" { (parts::age(pod.created, pod.read)) }
                            td data-label="Logs" { @for container in &pod.containers { (links(here, &pod.name, container)) " " } }
                        }
                    } }
                }
            }
        }
    }
}

/// Returns the link to the log of a container, and to the log of its previous instance.
fn links(here: &str, pod: &str, container: &Container) -> Markup {
    let link = |previous: &str| {
        let chosen = [("pod", pod), ("container", &container.name), ("previous", previous)];
        format!("{}#log", address::and_query(here, &chosen))
    };
    html! {
        a href=(link("")) { (container.name) }
        @if container.restarts > 0 {
            " (" (container.restarts) @if container.restarts == 1 { " restart, " } @else { " restarts, " }
            a href=(link("true")) { "log before it" span.unseen { " of " (container.name) } } ")"
        }
    }
}

/// Returns the log of a container.
pub(super) fn log(log: &Log) -> Markup {
    html! {
        section aria-labelledby="log" {
            h2 #log { "Log of " (log.pod) ", " (log.container) @if log.is_previous { ", previous instance" } }
            @match &log.lines {
                Err(why) => p.note { (why) },
                Ok(lines) if log.is_previous => {
                    p.quiet { "The last lines of the instance that ran before the last restart." }
                    pre.log tabindex="0" role="log" aria-label="Log" { (lines) }
                }
                Ok(lines) => {
                    p.quiet #following { "The last lines. Reload the page for later ones." }
                    pre.log tabindex="0" role="log" aria-label="Log" data-follow={ (log.pod) "/" (log.container) } { (lines) }
                }
            }
        }
    }
}
