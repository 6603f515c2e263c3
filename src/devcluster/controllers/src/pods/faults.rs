//! Finds faults that keep containers from running or being ready on any node.
//!
//! If the pod's containers declare ports, the containers listen on those ports only, and a probe of another port fails.
//! A container without declared ports may listen on any port.
//!
//! Not here: probes that run a command or use another host. Their outcome is unknown, so they succeed.

use serde_json::Value;

use super::image;
use devcluster_apiserver::object::text;

/// Why a container does not run or is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The image name is invalid.
    InvalidName(String),
    /// The image cannot be pulled.
    NoImage(String),
    /// The container runs, but its readiness probe never succeeds.
    Unready(String),
    /// The container is restarted repeatedly because a probe fails.
    Killed(String),
}

impl Fault {
    /// Whether the container never runs.
    pub(super) fn lacks_image(&self) -> bool {
        matches!(self, Self::InvalidName(_) | Self::NoImage(_))
    }

    /// Returns the reason in a kubelet's words.
    pub(super) fn why(&self) -> &str {
        match self {
            Self::InvalidName(why) | Self::NoImage(why) | Self::Unready(why) | Self::Killed(why) => why,
        }
    }
}

/// The faults of a pod by container; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Faults(Vec<(String, Fault)>);

impl Faults {
    /// Finds the faults of a pod; `None` if there is none.
    pub(super) fn of(pod: &Value) -> Option<Self> {
        let named = |container: &Value, fault: Fault| (text(container, "/name").to_owned(), fault);
        let mut faults = Vec::new();
        for container in list(pod, "initContainers") {
            faults.extend(of_image(container).map(|fault| named(container, fault)));
        }
        // Probes of pods that end are ignored.
        let is_probed = text(pod, "/spec/restartPolicy") == "Always";
        for container in list(pod, "containers") {
            let of_probe = || if is_probed { of_probes(pod, container) } else { None };
            faults.extend(of_image(container).or_else(of_probe).map(|fault| named(container, fault)));
        }
        (!faults.is_empty()).then_some(Self(faults))
    }

    /// Returns the fault of a container.
    pub(super) fn at(&self, container: &str) -> Option<&Fault> {
        self.0.iter().find(|(name, _)| name == container).map(|(_, fault)| fault)
    }

    /// Whether an image of the pod is unavailable.
    pub(super) fn lack_images(&self) -> bool {
        self.0.iter().any(|(_, fault)| fault.lacks_image())
    }

    /// Whether a failed init container blocks the containers after it.
    pub(super) fn hold_up_init(&self, pod: &Value) -> bool {
        list(pod, "initContainers").any(|container| self.at(text(container, "/name")).is_some())
    }

    /// Whether a failed init container blocks this container.
    pub(super) fn hold_up(&self, pod: &Value, container: &str) -> bool {
        let before = list(pod, "initContainers").map(|init| text(init, "/name")).take_while(|name| *name != container);
        before.into_iter().any(|name| self.at(name).is_some())
    }

    /// Reasons and messages of the Events.
    pub(super) fn events(&self, pod: &Value) -> Vec<(&'static str, String)> {
        let begun = self.0.iter().filter(|(name, _)| !self.hold_up(pod, name));
        let events = begun.flat_map(|(name, fault)| match fault {
            Fault::InvalidName(why) => {
                vec![("InspectFailed", why.clone()), ("Failed", "Error: InvalidImageName".into())]
            }
            Fault::NoImage(why) => {
                let image = list(pod, "initContainers").chain(list(pod, "containers"));
                let image =
                    image.filter(|container| text(container, "/name") == name).map(|c| text(c, "/image")).next();
                let pull = format!("Failed to pull image \"{}\": {why}", image.unwrap_or_default());
                vec![("Failed", pull), ("Failed", "Error: ErrImagePull".into())]
            }
            Fault::Unready(why) | Fault::Killed(why) => vec![("Unhealthy", why.clone())],
        });
        events.collect()
    }
}

fn list<'a>(pod: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    pod["spec"][field].as_array().into_iter().flatten()
}

fn of_image(container: &Value) -> Option<Fault> {
    let name = text(container, "/image");
    Some(match image::fault(name)? {
        image::Fault::InvalidName(why) => Fault::InvalidName(format!(
            "Failed to apply default image tag {name:?}: couldn't parse image name {name:?}: {why}"
        )),
        image::Fault::NoHost(host) => Fault::NoImage(format!("lookup {host}: no such host")),
    })
}

/// The result of a probe that cannot succeed.
enum Probed {
    /// Connection refused: no container listens on the port.
    Refused(i64),
    /// The named port does not exist, so the probe has no result.
    Unknown(String),
}

fn of_probes(pod: &Value, container: &Value) -> Option<Fault> {
    // Startup and liveness probes kill a container before its readiness matters.
    for (field, name) in [("startupProbe", "Startup"), ("livenessProbe", "Liveness"), ("readinessProbe", "Readiness")] {
        let container_name = text(container, "/name");
        let failed = |why: String| format!("{name} probe of container {container_name} failed: {why}");
        let refused = |port| failed(format!("port {port}: no container of the pod declares it in `ports`"));
        match probed(pod, container, &container[field]) {
            Some(Probed::Refused(port)) if field == "readinessProbe" => {
                return Some(Fault::Unready(refused(port)));
            }
            Some(Probed::Refused(port)) => return Some(Fault::Killed(refused(port))),
            // Without a result a container is alive, but neither started nor ready.
            Some(Probed::Unknown(port)) if field != "livenessProbe" => {
                return Some(Fault::Unready(failed(format!("port {port:?}: the container has no port of this name"))));
            }
            _ => {}
        }
    }
    None
}

/// Returns the result of a probe; `None` if it may succeed.
fn probed(pod: &Value, container: &Value, probe: &Value) -> Option<Probed> {
    let action =
        ["httpGet", "tcpSocket", "grpc"].into_iter().map(|kind| &probe[kind]).find(|action| !action.is_null())?;
    if !text(action, "/host").is_empty() {
        return None;
    }
    let declared = |container: &Value| -> Vec<Value> { container["ports"].as_array().cloned().unwrap_or_default() };
    let own = declared(container);
    let number = |port: &Value| port["containerPort"].as_i64();
    let port = match &action["port"] {
        Value::String(name) => match own.iter().find(|port| port["name"] == **name).and_then(number) {
            Some(_) => return None,
            None => match name.parse() {
                Ok(port) => port,
                Err(_) => return Some(Probed::Unknown(name.clone())),
            },
        },
        port => port.as_i64()?,
    };
    let all = list(pod, "containers").chain(list(pod, "initContainers")).flat_map(declared);
    let is_declared = all.into_iter().any(|declared| number(&declared) == Some(port));
    (!own.is_empty() && !is_declared && port > 0).then_some(Probed::Refused(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(containers: Value) -> Value {
        json!({"spec": {"restartPolicy": "Always", "containers": containers}})
    }

    fn probed(kind: &str, action: Value) -> Option<Fault> {
        let container =
            json!({"name": "a", "image": "nginx", "ports": [{"name": "web", "containerPort": 80}], kind: action});
        Faults::of(&pod(json!([container]))).and_then(|faults| faults.at("a").cloned())
    }

    #[test]
    fn probes_of_declared_ports_and_of_unknown_outcome_succeed() {
        for action in [
            json!({"httpGet": {"port": 80}}),
            json!({"httpGet": {"port": "web"}}),
            json!({"tcpSocket": {"port": "80"}}),
            json!({"grpc": {"port": 80}}),
            json!({"httpGet": {"port": 81, "host": "example.com"}}),
            json!({"exec": {"command": ["false"]}}),
            json!({"tcpSocket": {"port": 0}}),
            Value::Null,
        ] {
            for kind in ["readinessProbe", "livenessProbe", "startupProbe"] {
                assert_eq!(probed(kind, action.clone()), None, "{kind} {action}");
            }
        }
    }

    #[test]
    fn a_probe_of_a_port_that_nothing_declares_fails_as_on_a_node() {
        for action in
            [json!({"httpGet": {"port": 81}}), json!({"tcpSocket": {"port": "81"}}), json!({"grpc": {"port": 81}})]
        {
            assert!(matches!(probed("readinessProbe", action.clone()), Some(Fault::Unready(_))), "{action}");
            assert!(matches!(probed("livenessProbe", action.clone()), Some(Fault::Killed(_))), "{action}");
            assert!(matches!(probed("startupProbe", action.clone()), Some(Fault::Killed(_))), "{action}");
        }
        let named = json!({"httpGet": {"port": "metrics"}});
        assert!(matches!(probed("readinessProbe", named.clone()), Some(Fault::Unready(_))));
        assert!(matches!(probed("startupProbe", named.clone()), Some(Fault::Unready(_))));
        assert_eq!(probed("livenessProbe", named), None, "a node discards a probe that it cannot make");
    }

    #[test]
    fn containers_of_a_pod_share_their_ports_and_one_without_any_may_listen_on_each() {
        let sidecar = json!({"name": "b", "image": "envoy", "ports": [{"containerPort": 15020}]});
        let probe = json!({"httpGet": {"port": 15020}});
        let with_ports = json!({"name": "a", "image": "x", "ports": [{"containerPort": 80}], "readinessProbe": probe});
        assert_eq!(Faults::of(&pod(json!([with_ports, sidecar]))), None);
        let without = json!({"name": "a", "image": "x", "readinessProbe": {"httpGet": {"port": 9}}});
        assert_eq!(Faults::of(&pod(json!([without, sidecar]))), None);
        let mut job = pod(json!([with_ports]));
        assert!(Faults::of(&job).is_some());
        job["spec"]["restartPolicy"] = "Never".into();
        assert_eq!(Faults::of(&job), None, "what ends need not be ready");
    }

    #[test]
    fn containers_wait_for_an_init_container_without_an_image() {
        let mut pod = pod(json!([{"name": "a", "image": "x"}, {"name": "b", "image": "Bad"}]));
        pod["spec"]["initContainers"] =
            json!([{"name": "i", "image": "x"}, {"name": "j", "image": "registry.invalid/x"}]);
        let faults = Faults::of(&pod).unwrap();
        assert!(faults.hold_up_init(&pod) && faults.lack_images());
        assert_eq!(["i", "j", "a", "b"].map(|name| faults.hold_up(&pod, name)), [false, false, true, true]);
        let events = faults.events(&pod);
        assert_eq!(
            events,
            [
                (
                    "Failed",
                    "Failed to pull image \"registry.invalid/x\": lookup registry.invalid: no such host".to_owned()
                ),
                ("Failed", "Error: ErrImagePull".to_owned()),
            ],
            "a container that waits has not tried"
        );
    }
}
