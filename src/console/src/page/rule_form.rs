//! The fields of a new APIRule in its form.

use maud::{Markup, html};

use super::form::{FormFields, FormPage, name_field, text_field};
use crate::rule_form::{ACCESS, METHODS, RuleFields};

impl FormFields for RuleFields {
    const TITLE: &'static str = "Expose a Service";
    const WRITTEN: &'static str = "The page of the APIRule shows whether its host is served.";

    fn fields(page: &FormPage<'_, Self>) -> Markup {
        let fields = page.fields;
        html! {
            div.filter {
                (name_field(page))
                (text_field("Service", "service", &fields.service))
                (text_field("Port", "port", &fields.port))
                (text_field("Gateway", "gateway", &fields.gateway))
            }
            div.filter {
                (text_field("Host; a name without a dot is below the domain of the agent", "host", &fields.host))
                (text_field("Path, a regular expression", "path", &fields.path))
            }
            fieldset {
                legend { "Access" }
                div.filter {
                    @for (word, label) in ACCESS {
                        label.choice { input type="radio" name="access" value=(word) checked[fields.access == word]; span { (label) } }
                    }
                }
                div.filter {
                    (text_field("Issuer of the tokens", "issuer", &fields.issuer))
                    (text_field("URL of its keys; empty if the issuer names it", "keys", &fields.keys))
                }
            }
            fieldset {
                legend { "Methods" }
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
