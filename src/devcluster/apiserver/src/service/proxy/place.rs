//! Finds the pod of a proxy request.

use crate::{
    server::Server,
    status::{GroupResource, Status},
    verbs::{Target, text},
};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// `http` or `https`; empty for the default.
    pub(super) scheme: String,
    /// Address and port as shown to clients.
    pub(super) host: String,
    /// Port; empty for the default of the scheme.
    pub(super) port: String,
    /// The address that the node assigned to the pod; `None` if the node runs no such pod.
    pub(super) pod: Option<Ipv4Addr>,
}

/// Finds the pod of a target, directly or through a service.
pub(super) fn find(server: &Server, target: &Target) -> Result<Place, Status> {
    let what = target.kind.singular.as_str();
    let (scheme, name, port) =
        split(&target.name).ok_or_else(|| Status::bad_request(format!("invalid {what} request {:?}", target.name)))?;
    match what {
        "pod" => of_pod(server, target, scheme, name, port),
        "service" => of_service(server, target, scheme, name, port),
        _ => of_node(server, target, name),
    }
}

/// Splits `name`, `name:port` or `scheme:name:port`.
fn split(id: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => return None,
    };
    (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some((scheme, name, port))
}

fn not_found(target: &Target, name: &str) -> Status {
    Status::not_found(&target.kind.group_resource(), name)
}

fn of_pod(server: &Server, target: &Target, scheme: &str, name: &str, port: &str) -> Result<Place, Status> {
    let pod = server.object("v1", "pods", &target.namespace, name).ok_or_else(|| not_found(target, name))?;
    let declared = || {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        containers.into_iter().find_map(|container| container["ports"][0]["containerPort"].as_u64())
    };
    let port =
        if port.is_empty() { declared().map(|port| port.to_string()).unwrap_or_default() } else { port.to_owned() };
    let ip: Option<IpAddr> = text(&pod, "/status/podIPs/0/ip").parse().ok();
    let place = place(server, &pod, text(&pod, "/status/podIPs/0/ip"), scheme, port);
    if place.pod.is_none() && !ip.is_some_and(is_global) {
        return Err(Status::bad_request("address not allowed"));
    }
    Ok(place)
}

fn place(server: &Server, pod: &Value, ip: &str, scheme: &str, port: String) -> Place {
    let own = server.options().kubelet.as_ref().and_then(|kubelet| kubelet.address_of(text(pod, "/metadata/uid")));
    let host = match (ip.contains(':'), port.is_empty()) {
        (true, true) => format!("[{ip}]"),
        (true, false) => format!("[{ip}]:{port}"),
        (false, true) => ip.to_owned(),
        (false, false) => format!("{ip}:{port}"),
    };
    Place { scheme: scheme.to_owned(), host, port, pod: own.filter(|own| own.to_string() == ip) }
}

/// Returns whether an address is a global unicast address.
fn is_global(ip: IpAddr) -> bool {
    let local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(local || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast())
}

fn of_service(server: &Server, target: &Target, scheme: &str, name: &str, port: &str) -> Result<Place, Status> {
    let unavailable = |why: String| Status::new(503, "ServiceUnavailable", why);
    let mut port = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let service =
            server.object("v1", "services", &target.namespace, name).ok_or_else(|| not_found(target, name))?;
        let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let found = ports.find(|port| port["port"].as_i64() == Some(number));
        let found = found.ok_or_else(|| unavailable(format!("no service port {port} found for service {name:?}")))?;
        text(found, "/name").clone_into(&mut port);
    }
    let endpoints = server.object("v1", "endpoints", &target.namespace, name).ok_or_else(|| not_found(target, name))?;
    let none = |what: &str| unavailable(format!("no endpoints available for service {what:?}"));
    let subsets = endpoints["subsets"].as_array().filter(|subsets| !subsets.is_empty()).ok_or_else(|| none(name))?;
    let mut found = Vec::new();
    for subset in subsets {
        let ports = subset["ports"].as_array().into_iter().flatten();
        let ports: Vec<u64> = ports.filter(|p| text(p, "/name") == port).filter_map(|p| p["port"].as_u64()).collect();
        for address in subset["addresses"].as_array().into_iter().flatten() {
            if let (Some(number), Some(pod)) = (ports.first(), pod_at(server, target, address)) {
                found.push(place(server, &pod, text(address, "/ip"), scheme, number.to_string()));
            }
        }
    }
    if found.is_empty() {
        return Err(none(&target.name));
    }
    Ok(found.swap_remove(fastrand::usize(..found.len())))
}

/// Returns the pod of an endpoint, if it is in the namespace and has the endpoint's address.
fn pod_at(server: &Server, target: &Target, address: &Value) -> Option<std::sync::Arc<Value>> {
    if text(address, "/targetRef/namespace") != target.namespace {
        return None;
    }
    let pod = server.object("v1", "pods", &target.namespace, text(address, "/targetRef/name"))?;
    let mut own = pod["status"]["podIPs"].as_array().into_iter().flatten();
    let has = own.any(|ip| !ip["ip"].is_null() && ip["ip"] == address["ip"]);
    has.then_some(pod)
}

/// Refuses a node: its address is local to this machine, and a real server does not connect to such addresses.
fn of_node(server: &Server, target: &Target, name: &str) -> Result<Place, Status> {
    let nodes = GroupResource { group: String::new(), resource: target.kind.plural.clone() };
    server.object("v1", "nodes", "", name).ok_or_else(|| Status::not_found(&nodes, name))?;
    Err(Status::bad_request("address not allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_proxy_is_of() {
        assert_eq!(split("a"), Some(("", "a", "")));
        assert_eq!(split("a:80"), Some(("", "a", "80")));
        assert_eq!(split("http:a:"), Some(("http", "a", "")));
        assert_eq!(split(":a:web"), Some(("", "a", "web")));
        for nonsense in ["", ":80", "ftp:a:80", "http::80", "a:80:", "a:b:c:d"] {
            assert_eq!(split(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn knows_addresses_of_other_machines() {
        for (ip, global) in [
            ("10.244.0.2", true),
            ("8.8.8.8", true),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::1", false),
            ("fe80::1", false),
            ("2001:db8::1", true),
        ] {
            assert_eq!(is_global(ip.parse().unwrap()), global, "{ip}");
        }
    }
}
