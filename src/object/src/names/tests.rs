//! Properties of all names: a parsed string adds nothing to a URL besides its own part.

use std::num::NonZeroU16;

use proptest::prelude::*;
use reqwest::Url;

use super::*;

/// Generates hostile strings: parts of names, addresses and URLs in any order.
fn hostile() -> impl Strategy<Value = String> {
    let parts = [
        "a",
        "web",
        "shop",
        "svc",
        "cluster",
        "local",
        "cluster.local",
        "svc.cluster.local",
        "mesh",
        "MESH",
        "Web",
        "1",
        "0x7f",
        "127",
        "127.0.0.1",
        "127.0.0.1:19999",
        "169.254.169.254",
        "[::1]",
        "::1",
        "0",
        ".",
        "..",
        "-",
        "_",
        "/",
        "//",
        "/admin",
        "?",
        "x=1",
        "#",
        "@",
        "user:pw@",
        ":",
        ":80",
        ":0",
        "%",
        "%2f",
        "%00",
        "\\",
        "\n",
        "\r\n",
        "\t",
        " ",
        "\0",
        "*",
        "é",
        "ſ",
        "K",
        "。",
        "．",
        "http://",
        "localhost",
        "example.com",
    ];
    let text = prop::collection::vec(prop::sample::select(parts.to_vec()), 0..8).prop_map(|parts| parts.concat());
    prop_oneof![text, "\\PC{0,80}", "[a-z0-9.-]{0,270}", "[a-z]([-a-z0-9]{0,70})"]
}

fn namespace() -> DnsLabel {
    DnsLabel::parse("shop").unwrap()
}

fn address(service: ServiceName, port: u16) -> ServiceAddress {
    let host = ServiceHost::new(service, namespace());
    ServiceAddress { scheme: Scheme::Http, host, port: NonZeroU16::new(port).unwrap() }
}

proptest! {
    #[test]
    fn a_service_name_becomes_one_label_of_a_url(text in hostile(), port in 1..=u16::MAX) {
        if let Ok(name) = ServiceName::parse(&text) {
            let Ok(url) = Url::parse(&address(name, port).origin()) else {
                prop_assert!(text.starts_with("xn--"), "{text} is no label of a URL");
                return Ok(());
            };
            let expected = format!("{text}.shop.svc.cluster.local");
            prop_assert_eq!((url.host_str(), url.port_or_known_default()), (Some(expected.as_str()), Some(port)));
            prop_assert_eq!((url.username(), url.password(), url.path(), url.query()), ("", None, "/", None));
            prop_assert!(crate::syntax::dns_label(&text).is_empty());
        } else {
            prop_assert!(!crate::syntax::dns_label(&text).is_empty());
        }
    }

    #[test]
    fn a_label_is_one_label(text in hostile()) {
        if let Ok(label) = DnsLabel::parse(&text) {
            prop_assert_eq!(label.as_str(), &text);
            prop_assert!(crate::syntax::subdomain(&text).is_none() && !text.contains('.') && text.len() <= 63);
        }
    }

    #[test]
    fn a_host_name_is_the_whole_host_of_a_url(text in hostile()) {
        if let Ok(host) = HostName::parse(&text) {
            let Ok(url) = Url::parse(&format!("http://{host}/")) else {
                prop_assert!(host.as_str().contains("xn--"), "{text} is no host of a URL");
                return Ok(());
            };
            prop_assert_eq!(url.domain(), Some(host.as_str()), "an address is no name");
            prop_assert_eq!((url.username(), url.port(), url.path()), ("", None, "/"));
            prop_assert_eq!(text.trim_end_matches('.').to_ascii_lowercase(), host.as_str());
            prop_assert!(host.as_str().contains('.'));
            prop_assert_eq!(HostName::parse(host.as_str()), Ok(host));
        }
    }

    #[test]
    fn a_path_stays_behind_host_and_port(text in hostile()) {
        if let Ok(path) = UrlPath::parse(&format!("/{text}")) {
            let url = Url::parse(&address(ServiceName::parse("web").unwrap(), 8080).url(&path)).unwrap();
            prop_assert_eq!((url.host_str(), url.port()), (Some("web.shop.svc.cluster.local"), Some(8080)));
            prop_assert_eq!((url.username(), url.password(), url.fragment()), ("", None, None));
        }
    }

    #[test]
    fn a_service_host_and_a_gateway_are_read_as_they_are_shown(text in hostile()) {
        if let Ok(host) = ServiceHost::parse(&text) {
            prop_assert_eq!(ServiceHost::parse(&host.to_string()), Ok(host.clone()));
            prop_assert!(HostName::parse(&host.to_string()).is_ok_and(|host| host.is_of_cluster()));
        }
        if let Ok(gateway) = GatewayRef::parse(&text) {
            let shown = gateway.to_string();
            prop_assert!(shown.contains(['/', '.']) && !shown.eq_ignore_ascii_case("mesh"));
            prop_assert_eq!(GatewayRef::parse(&shown), Ok(gateway));
        }
    }
}

#[test]
fn hosts_that_are_no_names_are_refused() {
    for (text, why) in [
        ("", InvalidName::Host),
        ("web", InvalidName::SingleLabel),
        ("web.", InvalidName::SingleLabel),
        ("web.example.com..", InvalidName::Host),
        ("*.example.com", InvalidName::Host),
        ("web.example.com:80", InvalidName::Host),
        ("we_b.example.com", InvalidName::Host),
        ("-a.example.com", InvalidName::Host),
        (&format!("{}.com", "a".repeat(64)), InvalidName::Host),
        (&"a.".repeat(130), InvalidName::Host),
        ("127.0.0.1", InvalidName::IpAddress),
        ("127.1", InvalidName::IpAddress),
        ("a.0x7f", InvalidName::IpAddress),
        ("[::1]", InvalidName::IpAddress),
        ("::ffff:10.0.0.1", InvalidName::IpAddress),
    ] {
        assert_eq!(HostName::parse(text), Err(why), "{text}");
    }
}

#[test]
fn a_host_is_below_a_domain_after_a_dot() {
    let domain = DomainName::parse("Kyma.Local.").unwrap();
    for (host, expected) in
        [("web.kyma.local", true), ("a.B.kyma.LOCAL.", true), ("evilkyma.local", false), ("kyma.local", false)]
    {
        assert_eq!(HostName::parse(host).unwrap().is_below(&domain), expected, "{host}");
    }
    assert_eq!(HostName::within("Web", &domain).unwrap().as_str(), "web.kyma.local");
    assert_eq!(HostName::within("a.b", &domain), Err(InvalidName::Label));
    assert!(DomainName::parse("localhost").is_ok() && DomainName::parse("10.0.0.1").is_err());
}

#[test]
fn hosts_of_the_cluster_are_known_in_every_form() {
    for host in [
        "web.shop.svc",
        "web.shop.svc.cluster.local",
        "Web.Shop.SVC.",
        "a.svc.example.com",
        "x.cluster.local",
        "cluster.local",
    ] {
        assert!(HostName::parse(host).unwrap().is_of_cluster(), "{host}");
    }
    for host in ["svc.example.com", "web.example.com", "mycluster.local", "hello.localhost"] {
        assert!(!HostName::parse(host).unwrap().is_of_cluster(), "{host}");
    }
}

#[test]
fn a_gateway_is_a_namespace_and_a_name() {
    let service = "kyma-gateway.kyma-system.svc.cluster.local";
    for (text, shown) in [
        ("kyma-system/kyma-gateway", "kyma-system/kyma-gateway"),
        (service, service),
        ("kyma-gateway.kyma-system.svc", service),
        ("kyma-gateway.kyma-system", service),
    ] {
        let gateway = GatewayRef::parse(text).unwrap();
        assert_eq!(gateway.to_string(), shown);
        assert!(gateway.is_same(&GatewayRef::parse("kyma-system/kyma-gateway").unwrap()), "{text}");
    }
    for text in ["mesh", "Mesh", "mesh.", ".mesh"] {
        assert_eq!(GatewayRef::parse(text), Err(InvalidName::Mesh), "{text}");
    }
    for text in
        ["", "gateway", "/a", "a/", "a/b/c", "a/*", "*/a", "a.b.c", "a.b.svc.example.com", "A/b", "a_b/c", "a b/c"]
    {
        assert_eq!(GatewayRef::parse(text), Err(InvalidName::Gateway), "{text}");
    }
}

#[test]
fn a_service_is_addressed_by_its_host() {
    let web = || ServiceName::parse("web").unwrap();
    let path = UrlPath::parse("/a?b").unwrap();
    assert_eq!(address(web(), 80).url(&path), "http://web.shop.svc.cluster.local/a?b");
    assert_eq!(address(web(), 80).origin(), "http://web.shop.svc.cluster.local:80");
    assert_eq!(address(web(), 81).authority(), "web.shop.svc.cluster.local:81");
    let secure = ServiceAddress { scheme: Scheme::Https, ..address(web(), 443) };
    assert_eq!(secure.url(&UrlPath::root()), "https://web.shop.svc.cluster.local/");
    for text in [
        "127.0.0.1:19999/admin/delete?all=yes&x=",
        "payments.prod.svc.cluster.local:80/?x=",
        "a.b",
        "1a",
        "A",
        "a-",
        "",
    ] {
        assert_eq!(ServiceName::parse(text), Err(InvalidName::Service), "{text}");
    }
}
