//! The addresses of an object, and the containers of a pod.

use maud::{Markup, html};

use crate::facts::{Address, Facts};
use mainstay_object::counted;

/// Maximum number of addresses in the tree. The page of the object has all.
const NAMED: usize = 3;

/// Returns an address: a link to a web host, or a text to copy.
pub(super) fn address(address: &Address) -> Markup {
    html! {
        @match address {
            Address::InCluster(text) => code data-copy="the address" { (text) },
            Address::Web { host, url } => a href=(url) rel="noopener noreferrer" { (host) },
            Address::Text(text) => (text),
        }
    }
}

/// Returns the addresses of an object, each in a line.
pub(super) fn addresses(facts: &Facts) -> Markup {
    html! { @for one in &facts.addresses { div { (address(one)) } } }
}

/// Returns the facts of an object within a line of the tree.
pub(super) fn in_line(facts: &Facts) -> Markup {
    html! {
        @if let Some(containers) = facts.containers {
            " " span.quiet {
                (containers.ready) "/" (containers.all) " ready"
                @if containers.restarts > 0 { ", " (counted(containers.restarts, "restart")) }
            }
        }
        @for one in facts.addresses.iter().take(NAMED) { " " span.quiet { (address(one)) } }
        @if facts.addresses.len() > NAMED { " " span.quiet { "and " (facts.addresses.len() - NAMED) " more" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Containers;

    #[test]
    fn a_line_has_the_first_addresses_and_escapes_them() {
        let web = Address::Web { host: "a.example".to_owned(), url: "https://a.example/".to_owned() };
        let addresses = vec![Address::Text("<b>".to_owned()), web, Address::InCluster("web.shop:80".to_owned())];
        let mut facts = Facts { addresses, ..Facts::default() };
        let line = in_line(&facts).into_string();
        assert!(line.contains("&lt;b&gt;") && !line.contains("more"), "{line}");
        assert!(line.contains("<a href=\"https://a.example/\" rel=\"noopener noreferrer\">a.example</a>"), "{line}");
        assert!(line.contains("<code data-copy=\"the address\">web.shop:80</code>"), "{line}");
        facts.addresses.push(Address::Text("last".to_owned()));
        let line = in_line(&facts).into_string();
        assert!(line.contains("and 1 more") && !line.contains("last"), "{line}");
        let containers = Some(Containers { ready: 1, all: 2, restarts: 1 });
        let line = in_line(&Facts { containers, ..Facts::default() }).into_string();
        assert!(line.contains("1/2 ready, 1 restart"), "{line}");
    }
}
