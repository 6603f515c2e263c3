//! The page that signs users in, and the pages that lead to the issuer and reopen a page.

use maud::{DOCTYPE, html};

use super::frame::{Page, head, render};

/// Returns the page that signs users in with an issuer or asks for a token, and redirects to `next` afterwards. `better`
/// is a URL of this server that does not share its cookie with other ports of the machine.
pub(crate) fn sign_in(issuer: Option<&str>, next: &str, problem: &str, better: Option<&str>) -> String {
    let body = html! {
        h1 { "Sign in" }
        @if issuer.is_some() {
            p { "Sign in with your account. You see and change what your permissions in this cluster allow." }
        } @else {
            p { "Sign in with a token of this cluster. You see and change what its permissions allow. The token stays in \
                 the memory of this server until you sign out, or until it expires." }
            p { "A ServiceAccount gets one by this command: " code data-copy="the command" { "kubectl create token NAME --namespace NAMESPACE --duration 8h" } }
        }
        @if let Some(better) = better {
            p.note { "Browsers send the cookie of this address to all ports of the machine. Use " a href=(better) { (better) } }
        }
        @if !problem.is_empty() { p.note role="alert" { (problem) } }
        form.confirm method="post" action="/sign-in" {
            input type="hidden" name="next" value=(next);
            @if let Some(issuer) = issuer {
                button.primary type="submit" { "Sign in with " (issuer) }
            } @else {
                label {
                    "Token"
                    input type="password" name="token" required autocomplete="off" spellcheck="false" autofocus;
                }
                button.primary type="submit" { "Sign in" }
            }
        }
    };
    render(Page { title: "Sign in", visitor: None, live: None, body })
}

/// Returns the page that leads to the issuer.
pub(crate) fn leaving(issuer: &str, url: &str) -> String {
    let body = html! { h1 { "Sign in" } p { a href=(url) { "Continue at " (issuer) } } };
    render(Page { title: "Sign in", visitor: None, live: None, body })
}

/// Returns a page without content that opens its own URL again. A browser sends no cookie with a request from another
/// site, but sends the cookie with this second request.
pub(crate) fn opened_again() -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head("Open again", &["/open.js"]))
            body { main { p { a #again href="" { "Open this page of Mainstay" } } } }
        }
    };
    document.into_string()
}
