//! The objects that belong to a Function, on its page.

use maud::{Markup, html};

use super::facts::{addresses, in_line};
use super::parts;
use crate::address;
use crate::belonging::{Belonging, Binding, Member, Referrer};
use mainstay_object::Key;

/// Returns the sections about children, bindings, events and APIRules. Sections without objects are left out, except
/// for the children.
pub(super) fn belonging(namespace: &str, belonging: &Belonging) -> Markup {
    html! {
        section aria-labelledby="children" {
            h2 #children { "Children" }
            @for note in &belonging.notes { (parts::note(note)) }
            @if belonging.children.is_empty() {
                p.quiet { @if belonging.notes.is_empty() { "There are none yet." } @else { "There are none of the other kinds yet." } }
            }
            @else { ul.tree { @for child in &belonging.children { li { (parts::mark(child.mark)) " " (link(&child.key)) " " span.quiet.text { (child.why) } (in_line(&child.facts)) } } } }
        }
        @if !belonging.bindings.is_empty() {
            section aria-labelledby="bindings" { h2 #bindings { "Bound Secrets" } (bindings(namespace, &belonging.bindings)) }
        }
        @if !belonging.subscriptions.is_empty() {
            section aria-labelledby="subscriptions" { h2 #subscriptions { "Triggers and Subscriptions" } (subscriptions(&belonging.subscriptions)) }
        }
        @if !belonging.rules.is_empty() {
            section aria-labelledby="rules" { h2 #rules { "APIRules" } (rules(&belonging.rules)) }
        }
    }
}

fn link(key: &Key) -> Markup {
    html! { a href=(address::of_object(key)) { (key.kind) " " (key.name) } }
}

/// Returns the health of an object: the word for a healthy one, or the reason.
fn state(member: &Member, healthy: &str) -> Markup {
    html! {
        (parts::mark(member.mark)) " "
        @if member.why.is_empty() { (healthy) } @else { span.text { (member.why) } }
    }
}

fn bindings(namespace: &str, all: &[Binding]) -> Markup {
    html! {
        p.quiet { "Each key of the Secret is a variable with the prefix. Values are not shown." }
        table.cards {
            thead { tr { th scope="col" { "ServiceBindingUsage" } th scope="col" { "Secret" } th scope="col" { "Prefix" } th scope="col" { "In use" } } }
            tbody { @for one in all { tr {
                th scope="row" data-label="Usage" { (link(&one.usage.key)) }
                td data-label="Secret" {
                    @match &one.secret {
                        Some(secret) => a href=(address::of_object(&Key::new("", "Secret", Some(namespace), secret.as_str()))) { (secret) },
                        None => { "that of the ServiceBinding " (one.bound_by) },
                    }
                }
                td data-label="Prefix" { @if one.prefix.is_empty() { "none" } @else { code { (one.prefix) } } }
                td data-label="In use" { (state(&one.usage, "yes")) }
            } } }
        }
    }
}

fn lines(one: &Referrer) -> Markup {
    html! {
        @for line in &one.lines { div { code { (line) } } }
        @if one.more > 0 { div { "and " (one.more) " more" } }
    }
}

fn subscriptions(all: &[Referrer]) -> Markup {
    html! {
        table.cards {
            thead { tr { th scope="col" { "Object" } th scope="col" { "Filter" } th scope="col" { "Delivers" } } }
            tbody { @for one in all { tr {
                th scope="row" data-label="Object" { (link(&one.member.key)) }
                td data-label="Filter" { (lines(one)) }
                td data-label="Delivers" { (state(&one.member, "yes")) }
            } } }
        }
    }
}

fn rules(all: &[Referrer]) -> Markup {
    html! {
        table.cards {
            thead { tr { th scope="col" { "APIRule" } th scope="col" { "Host" } th scope="col" { "Rules" } th scope="col" { "Served" } } }
            tbody { @for one in all { tr {
                th scope="row" data-label="APIRule" { (link(&one.member.key)) }
                td data-label="Host" {
                    @if one.member.facts.addresses.is_empty() { (one.host) } @else { (addresses(&one.member.facts)) }
                }
                td data-label="Rules" { (lines(one)) }
                td data-label="Served" { (state(&one.member, "yes")) }
            } } }
        }
    }
}
