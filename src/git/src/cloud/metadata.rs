//! The address of the server with the pod's credentials at AWS, from the environment of the agent.
//!
//! Invariant: without TLS, only the addresses of loopback and of the servers of ECS and EKS are used, as in the SDK.

use std::net::IpAddr;

use reqwest::Url;

use super::CloudSettings;
use super::settings::AWS_CONTAINER_CREDENTIALS_FULL_URI;

/// The addresses of ECS and EKS, in IPv4 and IPv6.
const SERVERS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// Returns the address of the server; `None` if the pod has none.
pub(super) fn pod_server(settings: &CloudSettings) -> Result<Option<Url>, String> {
    let Some(text) = settings.variable(AWS_CONTAINER_CREDENTIALS_FULL_URI) else { return Ok(None) };
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" || url.scheme() == "http" && is_near(url));
    url.map(Some).ok_or_else(|| {
        format!("the variable {AWS_CONTAINER_CREDENTIALS_FULL_URI} of the agent is not an address of EKS or ECS")
    })
}

fn is_near(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_server = |address: IpAddr| SERVERS.iter().any(|server| server.parse() == Ok(address));
    host.parse().is_ok_and(|address: IpAddr| address.is_loopback() || is_server(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tls_only_the_servers_of_pods_are_used() {
        let of = |uri: &str| {
            let mut settings = CloudSettings::default();
            settings.environment.insert(AWS_CONTAINER_CREDENTIALS_FULL_URI.to_owned(), uri.to_owned());
            pod_server(&settings)
        };
        for good in
            ["http://169.254.170.23/v1/credentials", "http://[fd00:ec2::23]/v1/credentials", "https://a.example/"]
        {
            assert_eq!(of(good).unwrap().unwrap().as_str(), good);
        }
        for bad in ["http://evil.example/v1", "http://169.254.169.254/v1", "file:///etc/passwd", "x"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert_eq!(of(""), Ok(None));
    }
}
