//! Events on NATS: the values, and the objects of publishers and dispatchers.

use serde::Deserialize;
use serde_json::{Value, json};

use super::label::{RULE, is_label};
use crate::Component;
use mainstay_api::names::EVENTING_NAMESPACE;

/// The objects of an installation with NATS.
pub(super) const MANIFEST: &str = include_str!("../../../../manifests/eventing/nats.yaml");
/// The objects that deliver the events of a journal.
pub(super) const DRAIN: &str = include_str!("../../../../manifests/eventing/drain.yaml");
/// The Deployments.
const DRAINING: &str = "mainstay-eventing";
const PUBLISHER: &str = "mainstay-eventing-publisher";
const DISPATCHER: &str = "mainstay-eventing-dispatcher";
/// The volume of the Secret, which is the first one.
const VOLUME: &str = "credentials";
/// The container of a Deployment.
const CONTAINER: &str = "/spec/template/spec/containers/0";

/// The values for events on NATS.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Nats {
    url: String,
    credentials: String,
    share: String,
    replicas: u32,
    publishers: u32,
    dispatchers: u32,
    drain_journal: bool,
}

impl Nats {
    /// Returns whether NATS stores the events.
    pub(super) fn is_chosen(&self) -> bool {
        !self.url.is_empty()
    }

    /// Returns whether the events of an earlier journal are delivered, too.
    pub(super) fn drains(&self) -> bool {
        self.is_chosen() && self.drain_journal
    }

    /// Returns the problems with the chosen components. `is_given` says whether a flag or a file sets a value of NATS.
    pub(super) fn problems(&self, components: &[Component], is_given: impl Fn(&str) -> bool) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.credentials.is_empty() && !is_label(&self.credentials) {
            problems.push(format!("--nats-credentials {:?} is not a valid name of a Secret: {RULE}", self.credentials));
        }
        if self.is_chosen() {
            problems.extend(mainstay_eventing::Nats::check(&self.url).err().map(|error| error.to_string()));
            if !components.contains(&Component::Eventing) {
                problems.push(
                    "--nats-url needs the component eventing; add eventing to --components, or remove the flag"
                        .to_owned(),
                );
            }
            return problems;
        }
        let others = [
            ("--nats-credentials", "credentials"),
            ("--nats-share", "share"),
            ("--nats-replicas", "replicas"),
            ("--event-publishers", "publishers"),
            ("--event-dispatchers", "dispatchers"),
            ("--drain-journal", "drainJournal"),
        ];
        let useless = others.into_iter().filter(|(_, name)| is_given(name));
        problems.extend(useless.map(|(flag, _)| {
            format!("{flag} needs events on NATS; set the address with --nats-url, or remove the flag")
        }));
        problems
    }

    /// Returns notes for the administrator.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.is_chosen() {
            return notes;
        }
        if self.credentials.is_empty() {
            notes.push(
                "--nats-credentials is not set: NATS must accept clients without a login, and each of them can read and \
                 remove events"
                    .to_owned(),
            );
        } else {
            notes.push(format!(
                "store the login for NATS in a Secret with the key nats.creds, or token, or username and password; add the key \
                 ca.crt if a private CA has signed the certificate of NATS:\n  kubectl create secret generic {} -n \
                 {EVENTING_NAMESPACE} --from-file=nats.creds=FILE --from-file=ca.crt=FILE",
                self.credentials
            ));
        }
        if self.drains() {
            notes.push(format!(
                "Deployment {EVENTING_NAMESPACE}/{DRAINING} delivers the events of its journal. When its log says that the \
                 journal is empty, install again without --drain-journal, and remove it and its dead letters:\n  kubectl \
                 -n {EVENTING_NAMESPACE} delete deployment,networkpolicy,pvc {DRAINING}"
            ));
        }
        if self.url.split(',').any(|url| !url.trim().starts_with("tls://")) {
            notes.push("--nats-url is not a tls:// address: events and the login may be sent unencrypted".to_owned());
        }
        notes
    }

    /// Sets the values in the objects of [`MANIFEST`].
    pub(super) fn choose(&self, objects: &mut [Value]) {
        for object in objects.iter_mut().filter(|object| object["kind"] == "Deployment") {
            let replicas = match object["metadata"]["name"].as_str() {
                Some(PUBLISHER) => self.publishers,
                Some(DISPATCHER) => self.dispatchers,
                Some(DRAINING) if self.drains() => 1,
                _ => continue,
            };
            object["spec"]["replicas"] = json!(replicas);
            if self.credentials.is_empty() {
                without_secret(object);
            } else if let Some(volume) = object.pointer_mut("/spec/template/spec/volumes/0/secret") {
                volume["secretName"] = json!(self.credentials);
            }
            let Some(container) = object.pointer_mut(CONTAINER) else { continue };
            for argument in container["args"].as_array_mut().into_iter().flatten() {
                match argument.as_str().and_then(|text| text.split_once('=')) {
                    Some((flag @ "--nats-url", _)) => *argument = json!(format!("{flag}={}", self.url)),
                    Some((flag @ "--nats-share", _)) => *argument = json!(format!("{flag}={}", self.share)),
                    Some((flag @ "--nats-replicas", _)) => *argument = json!(format!("{flag}={}", self.replicas)),
                    _ => {}
                }
            }
            let variables = container["env"].as_array_mut().into_iter().flatten();
            variables
                .filter(|variable| variable["name"] == "MAINSTAY_NATS_URL")
                .for_each(|variable| variable["value"] = json!(self.url));
        }
    }
}

/// Removes the mounted Secret.
fn without_secret(deployment: &mut Value) {
    let pod = &mut deployment["spec"]["template"]["spec"];
    let unless = |list: &mut Value, field: &str, name: &str| {
        let items = list[field].as_array_mut();
        let is_empty = items.is_some_and(|items| {
            items.retain(|item| item["name"] != name);
            items.is_empty()
        });
        if let (true, Some(object)) = (is_empty, list.as_object_mut()) {
            object.remove(field);
        }
    };
    unless(pod, "volumes", VOLUME);
    unless(&mut pod["containers"][0], "volumeMounts", VOLUME);
    unless(&mut pod["containers"][0], "env", "MAINSTAY_NATS_CREDENTIALS");
    if let Some(arguments) = pod["containers"][0]["args"].as_array_mut() {
        arguments.retain(|argument| argument != "--nats-credentials=/etc/nats");
    }
}
