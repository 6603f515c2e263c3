//! The fields of a new APIRule in its form.

use maud::{Markup, html};

use super::field::{Need, text_field};
use super::form::{FormFields, FormPage, name_field};
use crate::rule_form::{ACCESS, METHODS, RuleFields};

impl FormFields for RuleFields {
    const TITLE: &'static str = "Expose a Service";
    const WRITTEN: &'static str = "The page of the APIRule shows whether its host is served.";

    fn fields(page: &FormPage<'_, Self>) -> Markup {
        let fields = page.fields;
        html! {
            div.filter {
                (name_field(page))
                (text_field("Service", "service", &fields.service, Need::Always))
                (text_field("Port", "port", &fields.port, Need::Always))
                (text_field("Gateway", "gateway", &fields.gateway, Need::Always))
            }
            div.filter {
                (text_field("Host, below the domain of the agent if it has no dot", "host", &fields.host, Need::Always))
                (text_field("Path, a regular expression", "path", &fields.path, Need::Always))
            }
            fieldset {
                legend { "Access" (Need::Always.mark()) }
                div.filter {
                    @for (word, label) in ACCESS {
                        label.choice { input type="radio" name="access" value=(word) checked[fields.access == word] required; span { (label) } }
                    }
                }
                // The style sheet hides empty fields that the access has not, and the methods that it does not check.
                div.filter.of-token {
                    (text_field("Issuer of the tokens", "issuer", &fields.issuer, Need::Case("for requests with a token")))
                    (text_field("URL of its keys; empty if the issuer names it", "keys", &fields.keys, Need::Optional))
                }
            }
            fieldset.of-methods {
                legend { "Methods (required, at least one)" }
                div.filter {
                    @for method in METHODS {
                        label.choice { input type="checkbox" name="method" value=(method) checked[fields.methods.iter().any(|one| one == method)]; span { (method) } }
                    }
                }
            }
            p.quiet { "An APIRule is changed by its manifest: copy it from the page of the APIRule." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Query;
    use crate::form::ObjectForm as _;
    use crate::page::form::form;

    #[test]
    fn the_browser_checks_only_fields_that_each_access_needs() {
        let (fields, right) = (RuleFields::blank(&Query::default()), Ok(()));
        let page = FormPage {
            key: None,
            live: None,
            namespace: "shop",
            keeper: None,
            right: &right,
            csrf: "t",
            fields: &fields,
            generation: "",
            runtimes: &[],
            suggestions: &[],
            problem: "",
            review: None,
        };
        let html = form(&page).into_string();
        let inputs = |name: &str| {
            let all = html.split("<input ").skip(1).filter_map(|rest| rest.split('>').next());
            all.filter(|one| one.contains(&format!("name=\"{name}\""))).collect::<Vec<_>>()
        };
        for name in ["name", "service", "port", "gateway", "host", "path", "access"] {
            let all = inputs(name);
            assert!(!all.is_empty() && all.iter().all(|one| one.contains(" required")), "{name}: {html}");
        }
        for name in ["issuer", "keys", "method"] {
            let all = inputs(name);
            assert!(!all.is_empty() && all.iter().all(|one| !one.contains(" required")), "{name}: {html}");
        }
        for text in [
            "Name (required)<",
            "<legend>Access (required)</legend>",
            "Issuer of the tokens (required for requests with a token)<",
            "<legend>Methods (required, at least one)</legend>",
            "of-token",
            "of-methods",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
    }
}
