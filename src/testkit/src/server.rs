//! The cluster of a world: embedded in this process, or the external cluster of `MAINSTAY_TEST_KUBECONFIG`. Both have
//! the same interface.

use std::sync::Arc;

use devcluster::{
    Action, Call, Caller, Cluster as EmbeddedCluster, Simulation, Subscription, history::Event, status::Status,
    verbs::patch::Form,
};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use super::external::External;

/// Maximum number of attempts of a write that meets conflicts.
const TRIES: usize = 100;

/// A cluster. Clones refer to the same cluster.
#[derive(Clone)]
pub enum TestServer {
    /// Embedded in this process.
    Embedded(EmbeddedCluster),
    /// A real API server.
    External(External),
}

impl TestServer {
    /// Returns the embedded cluster, for its special features: forgetting its history, ending watches, running
    /// processes.
    ///
    /// A test that calls this belongs to a module that `.ci/real` does not run.
    #[track_caller]
    pub fn embedded(&self) -> &EmbeddedCluster {
        match self {
            Self::Embedded(server) => server,
            Self::External(_) => {
                panic!("this test needs the embedded cluster: run it without MAINSTAY_TEST_KUBECONFIG")
            }
        }
    }

    /// Returns a client for an agent: with all permissions on the embedded cluster, and with the permissions in
    /// `manifests/` on an external cluster.
    pub fn agent_client(&self, namespace: &str) -> kube::Client {
        match self {
            Self::Embedded(server) => kube::Client::new(server.client_service(), namespace),
            Self::External(external) => external.agent_client(),
        }
    }

    /// Simulates how containers of an image end. On an external cluster, this applies only to the tests' namespace.
    pub fn simulate(&self, image: &str, container: &str, simulation: Simulation) {
        match self {
            Self::Embedded(server) => server.simulate_container(image, container, simulation),
            Self::External(external) => external.simulate(image, container, &simulation),
        }
    }

    /// Sends a request as a field manager. Retries after a conflict with another write, unless the call contains a
    /// resource version.
    pub fn call(&self, who: &Caller, call: Call) -> Result<Value, Status> {
        retried(call, |call| match self {
            Self::Embedded(server) => server.call(who, call),
            Self::External(external) => external.call(&who.manager, call),
        })
    }

    /// Sends a request as a user with all permissions who is not the agent.
    pub fn call_as(&self, user: &str, manager: &str, call: Call) -> Result<Value, Status> {
        retried(call, |call| match self {
            Self::Embedded(server) => {
                let mut who = Caller::new(manager);
                user.clone_into(&mut who.user.name);
                server.call(&who, call)
            }
            Self::External(external) => external.call_as(user, manager, call),
        })
    }

    /// Sends a request as a field manager. The request must succeed.
    #[track_caller]
    pub fn must_call(&self, manager: &str, call: Call) -> Value {
        let what = described(&call);
        self.call(&Caller::new(manager), call).unwrap_or_else(|status| panic!("{what}: {}", answered(&status)))
    }

    /// Reads an object, changes it and replaces it. Repeats all steps after a conflict.
    #[track_caller]
    pub fn rewrite(
        &self,
        manager: &str,
        (api_version, resource): (&str, &str),
        namespace: &str,
        name: &str,
        change: impl Fn(&mut Value),
    ) -> Value {
        let call = |action| Call::new(api_version, resource, namespace, name, action);
        for _ in 0..TRIES {
            let mut object = self.must_call(manager, call(Action::Get));
            change(&mut object);
            match self.call(&Caller::new(manager), call(Action::Update(object))) {
                Ok(written) => return written,
                Err(status) if is_conflict(&status) => {}
                Err(status) => panic!("replace {resource} {namespace}/{name}: {}", answered(&status)),
            }
        }
        panic!("replace {resource} {namespace}/{name}: {TRIES} conflicts with other writes");
    }

    /// Returns an object.
    pub fn object(&self, api_version: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        match self {
            Self::Embedded(server) => server.object(api_version, resource, namespace, name),
            Self::External(external) => {
                let found = external.call("test", Call::new(api_version, resource, namespace, name, Action::Get));
                match found {
                    Ok(object) => Some(Arc::new(object)),
                    Err(status) if status.code == 404 => None,
                    Err(status) => panic!("{resource} {namespace}/{name}: {status:?}"),
                }
            }
        }
    }

    /// Returns the objects of a kind in one or all namespaces, by namespace and name; empty if the kind is not served.
    pub fn objects(&self, api_version: &str, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        match self {
            Self::Embedded(server) => server.objects(api_version, resource, namespace),
            Self::External(external) => external.objects(api_version, resource, namespace),
        }
    }
}

/// Whether a request failed because another write came first.
fn is_conflict(status: &Status) -> bool {
    status.code == 409 && status.reason == "Conflict"
}

/// Sends a call until there is no conflict. A call with a resource version, and an apply, are sent only once, and a
/// conflict is returned.
fn retried(call: Call, send: impl Fn(Call) -> Result<Value, Status>) -> Result<Value, Status> {
    let names_a_version = match &call.action {
        Action::Get | Action::Patch(Form::Apply, _) => true,
        Action::Create(object) | Action::Update(object) | Action::Patch(_, object) => {
            !object["metadata"]["resourceVersion"].is_null()
        }
        Action::Delete(options) => options.uid.is_some() || options.version.is_some(),
    };
    let tries = if names_a_version { 1 } else { TRIES };
    for _ in 1..tries {
        match send(call.clone()) {
            Err(status) if is_conflict(&status) => {}
            answer => return answer,
        }
    }
    send(call)
}

/// Describes a call, for example `patch configmaps mainstay-tests/a`.
fn described(call: &Call) -> String {
    let (verb, name) = match &call.action {
        Action::Get => ("get", &*call.name),
        Action::Create(object) => ("create", object["metadata"]["name"].as_str().unwrap_or(&call.name)),
        Action::Update(_) => ("replace", &*call.name),
        Action::Patch(..) => ("patch", &*call.name),
        Action::Delete(_) => ("delete", &*call.name),
    };
    let slash = if call.subresource.is_empty() { "" } else { "/" };
    format!("{verb} {}{slash}{} {}/{name}", call.resource, call.subresource, call.namespace)
}

/// Describes an error response, such as `409 Conflict: <message>`.
fn answered(status: &Status) -> String {
    format!("{} {}: {}", status.code, status.reason, status.message)
}

impl TestServer {
    /// Subscribes to every later state of the objects of a kind, in all namespaces.
    pub fn changes(&self, api_version: &str, resource: &str) -> Changes {
        match self {
            Self::Embedded(server) => {
                let group = api_version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
                Changes::Embedded { events: server.subscribe(), storage: format!("{resource}{group}") }
            }
            Self::External(external) => Changes::External(external.changes(api_version, resource)),
        }
    }
}

/// The later states of the objects of a kind. A deleted object is represented by its last state.
pub enum Changes {
    /// The states come from the event log.
    Embedded { events: Subscription, storage: String },
    /// The states come from a watch.
    External(UnboundedReceiver<Value>),
}

impl Changes {
    /// Waits for the next states.
    pub async fn next(&mut self) -> Vec<Value> {
        match self {
            Self::Embedded { events, storage } => {
                let batch = events.next().await;
                assert!(!batch.missed, "events were forgotten before they were read");
                let of_kind = batch.events.iter().filter(|event| *event.storage == **storage);
                let state = |event: &Arc<Event>| event.new.as_ref().or(event.old.as_ref()).map(|state| state.value());
                of_kind.filter_map(state).map(Arc::unwrap_or_clone).collect()
            }
            Self::External(changes) => {
                let first = changes.recv().await.expect("the watch goes on for as long as a test");
                let rest = std::iter::from_fn(|| changes.try_recv().ok());
                std::iter::once(first).chain(rest).collect()
            }
        }
    }
}
