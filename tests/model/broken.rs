//! Rules that an agent can be made to break, to prove that the checks detect the violation. The wire acts as such an
//! agent would; the product has no switch for it.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body::Frame;
use mainstay_engine::managed::inventory::Inventory;
use mainstay_testkit::server::TestServer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checks::{inventories, live};
use super::reference::label_of;
use super::schedule::OBJECTS;
use super::wire::Sent;

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rule {
    /// A deletion names the UID and the version that were examined.
    Preconditions,
    /// An object without Mainstay's label is not deleted.
    Proof,
    /// An object that moves to another owner is not deleted.
    Handover,
    /// A guard prevents the deletion of the objects that it protects.
    Guards,
    /// Waits between attempts grow.
    Backoff,
    /// Waits between reverts grow if another client keeps changing the object.
    Fights,
    /// The inventory lists an object before it is created.
    Intent,
    /// The inventory lists an object while it exists.
    Inventory,
    /// A stage waits for the stage before.
    Stages,
    /// At most one write of an object is in progress.
    Lock,
    /// A suspended owner writes nothing.
    Suspension,
    /// A paused object is not written.
    Pause,
    /// Each change is noticed.
    Watch,
}

/// Returns the frame of a response as the agent receives it.
pub(crate) fn seen(breaks: Option<Rule>, frame: Frame<Bytes>) -> Frame<Bytes> {
    let (text, other) = match breaks {
        Some(Rule::Suspension) => (r#""suspend":true"#, r#""suspend":false"#),
        Some(Rule::Pause) => (r#""mainstay.dev/reconcile":"disabled""#, r#""mainstay.dev/reconcile":"enabled""#),
        _ => return frame,
    };
    frame.map_data(|data| match std::str::from_utf8(&data) {
        Ok(whole) if whole.contains(text) => Bytes::from(whole.replace(text, other)),
        _ => data,
    })
}

/// Whether an event contains a hand edit.
pub(crate) fn is_edited(event: &[u8]) -> bool {
    event.windows(8).any(|some| some == b"\"edited\"" || some == b"ZWRpdGVk")
}

/// Whether an apply takes over an object from another owner.
pub(crate) fn moves(sent: &Sent, live: Option<&Value>) -> bool {
    let (to, from) = (label_of(&sent.body), live.and_then(label_of));
    sent.verb == "apply" && to.is_some() && from.is_some() && to != from
}

/// Returns the deletion of an object in its present state.
pub(crate) fn deletion(sent: &Sent, live: &Value) -> Sent {
    let meta = &live["metadata"];
    let conditions = json!({"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]});
    Sent { verb: "delete", subresource: String::new(), body: json!({"preconditions": conditions}), ..sent.clone() }
}

/// Returns the HTTP request of a deletion.
pub(crate) fn request(delete: &Sent, like: &http::request::Parts) -> http::request::Parts {
    let root = if delete.version.contains('/') { "apis" } else { "api" };
    let namespace =
        if delete.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", delete.namespace) };
    let mut parts = like.clone();
    parts.method = http::Method::DELETE;
    parts.uri = format!("/{root}/{}{namespace}/{}/{}", delete.version, delete.resource, delete.name).parse().unwrap();
    parts.headers.insert(http::header::CONTENT_TYPE, "application/json".parse().unwrap());
    parts.headers.remove(http::header::CONTENT_LENGTH);
    parts
}

/// Returns the deletions of existing objects without a label that an inventory no longer lists.
pub(crate) fn unlabelled(server: &TestServer, sent: &Sent) -> Vec<Sent> {
    let Some(inventory) = listed(&sent.body) else { return Vec::new() };
    let names: Vec<&str> = inventory.0.keys().map(|key| &*key.name).collect();
    let before = inventories(server);
    let mut all = Vec::new();
    for (object, one) in OBJECTS.iter().enumerate() {
        let Some(live) = live(server, object).filter(|live| label_of(live).is_none()) else { continue };
        if names.contains(&one.name) || !before.iter().any(|names| names.contains(one.name)) {
            continue;
        }
        let of = Sent {
            version: one.version.to_owned(),
            resource: one.resource.to_owned(),
            namespace: one.namespace.to_owned(),
            name: one.name.to_owned(),
            ..sent.clone()
        };
        all.push(deletion(&of, &live));
    }
    all
}

fn listed(map: &Value) -> Option<Inventory> {
    let content = STANDARD.decode(map["binaryData"]["inventory"].as_str()?).ok()?;
    Inventory::decode([content.as_slice()]).ok()
}

/// Returns an inventory without one of its entries.
pub(crate) fn forgetful(map: &Value) -> Option<Value> {
    let mut inventory = listed(map)?;
    let least = inventory.0.keys().map(|key| Arc::clone(&key.name)).min()?;
    inventory.0.retain(|key, _| key.name != least);
    let mut map = map.clone();
    let content = inventory.encode().into_iter().next()?.content;
    map["binaryData"]["inventory"] = STANDARD.encode(content).into();
    Some(map)
}

/// For each rule, a schedule that detects the violation, and a part of the message.
#[rustfmt::skip]
pub(crate) const FOUND: [(Rule, &str, &str); 13] = [
    (Rule::Preconditions, "names no uid", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]},{"Put":[1,0,1]}]},5000],[{"Commit":[{"Remove":0}]},30000]]}"#),
    (Rule::Proof, "does not carry our label", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]},{"Put":[1,0,1]}]},5000],[{"Spec":[0,{"Report":true}]},5000],[{"Hand":[0,"Unlabel"]},5000],[{"Commit":[{"Remove":0}]},30000]]}"#),
    (Rule::Handover, "every commit since all was applied wants it", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]},{"Put":[1,0,1]}]},5000],[{"Commit":[{"Move":[0,1]}]},30000]]}"#),
    (Rule::Guards, "a guard holds it", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[5,0,1]},{"Put":[0,0,1]}]},9000],[{"Commit":[{"Remove":5}]},30000]]}"#),
    (Rule::Backoff, "in a row", r#"{"seed":1,"noise":0,"steps":[[{"Refuse":[0,500,100]},0],[{"Commit":[{"Put":[0,0,1]}]},30000]]}"#),
    (Rule::Fights, "in a fight", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]}]},5000],[{"Fight":[0,20]},30000]]}"#),
    (Rule::Intent, "no inventory lists what it creates", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]}]},30000]]}"#),
    (Rule::Inventory, "no inventory lists", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]},{"Put":[1,0,1]}]},30000]]}"#),
    (Rule::Stages, "is created before c0", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]},{"Put":[2,0,1]}]},30000]]}"#),
    (Rule::Lock, "two writes at once", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]}]},30000]]}"#),
    (Rule::Suspension, "is suspended", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]}]},5000],[{"Spec":[0,{"Suspend":true}]},200000],[{"Hand":[0,"Edit"]},30000]]}"#),
    (Rule::Pause, "is paused", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]}]},5000],[{"Hand":[0,{"Pause":400}]},200000],[{"Hand":[0,"Edit"]},30000]]}"#),
    (Rule::Watch, "does not settle", r#"{"seed":1,"noise":0,"steps":[[{"Commit":[{"Put":[0,0,1]},{"Put":[1,0,1]},{"Put":[3,0,1]}]},5000],[{"Hand":[0,"Edit"]},5000],[{"Hand":[1,"Edit"]},5000],[{"Hand":[3,"Edit"]},5000]]}"#),
];
