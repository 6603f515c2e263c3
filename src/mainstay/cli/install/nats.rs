//! Events on NATS: the values, and the objects of publishers and dispatchers.

use serde::Deserialize;
use serde_json::{Value, json};

use super::label::{RULE, is_label};
use crate::Component;
use mainstay_api::names::{EVENTING_NAMESPACE, NATS};

/// The objects of an installation with NATS.
pub(super) const MANIFEST: &str = include_str!("../../../../manifests/eventing/nats.yaml");
/// The objects of the installed NATS.
pub(super) const SERVER: &str = include_str!("../../../../manifests/eventing/nats-server.yaml");
/// The objects that deliver the events of a journal.
pub(super) const DRAIN: &str = include_str!("../../../../manifests/eventing/drain.yaml");
/// The Deployments.
const DRAINING: &str = "mainstay-eventing";
const PUBLISHER: &str = "mainstay-eventing-publisher";
const DISPATCHER: &str = "mainstay-eventing-dispatcher";
/// Keys of the Secret of the installed NATS, and the files for clients.
const ITEMS: [(&str, &str); 3] = [("username", "username"), ("password", "password"), ("authorities.crt", "ca.crt")];
/// The volume of the Secret, which is the first one.
const VOLUME: &str = "credentials";
/// The container of a Deployment.
const CONTAINER: &str = "/spec/template/spec/containers/0";

/// The values for events on NATS.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Nats {
    server: String,
    image: String,
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
        !self.url.is_empty() || self.is_embedded()
    }

    /// Returns whether that NATS is installed, too.
    pub(super) fn is_embedded(&self) -> bool {
        self.server == "embedded"
    }

    /// Returns the addresses for publishers and dispatchers.
    fn address(&self) -> String {
        if !self.is_embedded() {
            return self.url.clone();
        }
        let server = |number| format!("tls://{NATS}-{number}.{NATS}.{EVENTING_NAMESPACE}.svc:4222");
        (0..self.replicas).map(server).collect::<Vec<_>>().join(",")
    }

    /// Returns the Secret with the login; empty without a login.
    fn secret(&self) -> &str {
        if self.is_embedded() { NATS } else { &self.credentials }
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
        problems.extend(self.problems_of_server(components));
        if self.is_embedded() {
            return problems;
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
            ("--nats-image", "image"),
            ("--nats-credentials", "credentials"),
            ("--nats-share", "share"),
            ("--nats-replicas", "replicas"),
            ("--event-publishers", "publishers"),
            ("--event-dispatchers", "dispatchers"),
            ("--drain-journal", "drainJournal"),
        ];
        let useless = others.into_iter().filter(|(_, name)| is_given(name));
        problems.extend(useless.map(|(flag, _)| {
            format!("{flag} needs events on NATS; set --nats embedded or --nats-url, or remove the flag")
        }));
        problems
    }

    /// Returns the problems with the NATS to install.
    fn problems_of_server(&self, components: &[Component]) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.is_embedded() {
            if !self.image.is_empty() && !self.url.is_empty() {
                problems.push("--nats-image is the image of --nats embedded; remove it, or --nats-url".to_owned());
            }
            return problems;
        }
        if !components.contains(&Component::Eventing) {
            problems.push(
                "--nats needs the component eventing; add eventing to --components, or remove the flag".to_owned(),
            );
        }
        if !self.url.is_empty() {
            problems.push("--nats-url is the address of an existing NATS; remove it, or --nats embedded".to_owned());
        }
        if !self.credentials.is_empty() {
            problems.push(
                "--nats-credentials is for an existing NATS; remove it, because the agent makes the login of --nats \
                 embedded"
                    .to_owned(),
            );
        }
        if ![1, 3].contains(&self.replicas) {
            problems.push(format!(
                "--nats-replicas {} is also the number of servers of --nats embedded, which must be 1 or 3",
                self.replicas
            ));
        }
        problems
    }

    /// Returns notes for the administrator.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.is_chosen() {
            return notes;
        }
        if self.is_embedded() {
            notes.push(format!(
                "each server of NATS has a volume of 10 GiB of the default StorageClass, and the agent stores its login in \
                 Secret {EVENTING_NAMESPACE}/{NATS}; a later change of --nats-replicas loses the events that are stored then"
            ));
        } else if self.credentials.is_empty() {
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
        if !self.is_embedded() && self.url.split(',').any(|url| !url.trim().starts_with("tls://")) {
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
            if self.secret().is_empty() {
                without_secret(object);
            } else if let Some(volume) = object.pointer_mut("/spec/template/spec/volumes/0/secret") {
                volume["secretName"] = json!(self.secret());
                if self.is_embedded() {
                    // The key of the servers is not for clients.
                    volume["items"] = ITEMS.map(|(key, path)| json!({"key": key, "path": path})).into();
                }
            }
            let Some(container) = object.pointer_mut(CONTAINER) else { continue };
            for argument in container["args"].as_array_mut().into_iter().flatten() {
                match argument.as_str().and_then(|text| text.split_once('=')) {
                    Some((flag @ "--nats-url", _)) => *argument = json!(format!("{flag}={}", self.address())),
                    Some((flag @ "--nats-share", _)) => *argument = json!(format!("{flag}={}", self.share)),
                    Some((flag @ "--nats-replicas", _)) => *argument = json!(format!("{flag}={}", self.replicas)),
                    _ => {}
                }
            }
            let variables = container["env"].as_array_mut().into_iter().flatten();
            variables
                .filter(|variable| variable["name"] == "MAINSTAY_NATS_URL")
                .for_each(|variable| variable["value"] = json!(self.address()));
        }
    }

    /// Sets the values in the objects of [`SERVER`].
    pub(super) fn choose_server(&self, objects: &mut [Value]) {
        for object in objects {
            match object["kind"].as_str() {
                Some("ConfigMap") if self.replicas == 1 => {
                    if let Some(text) = object["data"]["nats.conf"].as_str() {
                        object["data"]["nats.conf"] = json!(of_one_server(text));
                    }
                }
                Some("StatefulSet") => {
                    object["spec"]["replicas"] = json!(self.replicas);
                    if let (Some(container), false) = (object.pointer_mut(CONTAINER), self.image.is_empty()) {
                        container["image"] = json!(self.image);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the configuration without the cluster, which is its last part. The only server writes events to its disk before
/// it confirms them.
fn of_one_server(text: &str) -> String {
    let alone = text.split_once("\ncluster {").map_or(text, |(alone, _)| alone);
    format!("{}\n", alone.replace("sync_interval: \"2m\"", "sync_interval: always"))
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
