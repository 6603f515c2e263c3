//! The common parts of requests about objects: write options, bodies, and admission of bodies that are not stored.

use super::{request::Asked, respond};
use crate::body::Body;
use crate::{
    admission::{consult, drive::admitted, hooks::Write},
    server::{Server, stamp},
    status::{Cause, Status},
    verbs::{FieldValidation, Settings, Target, decode, patch},
};
use http::{Response, header};
use serde_json::{Value, json};

/// Maximum length of a field manager's name.
const MAX_MANAGER: usize = 128;

/// Runs admission for a body that is not stored. Also returns the warnings for the client.
pub(super) async fn admit(
    server: &Server,
    target: &Target,
    settings: &Settings,
    operation: &'static str,
    object: Value,
) -> (Result<Value, Status>, Vec<String>) {
    admitted(server, settings, |settings| {
        let write = Write { target, operation, old: None };
        let mut object = object.clone();
        consult::mutate(server, settings, &write, Some(&mut object))?;
        consult::validate(server, settings, &write, Some(&object))?;
        Ok(object)
    })
    .await
}

/// Parses the body. Also returns its duplicate fields.
pub(super) fn body_of(kind: &str, asked: &Asked, form: Option<patch::Form>) -> Result<(Value, Vec<String>), Status> {
    match form {
        None => decode::body(asked.header(header::CONTENT_TYPE), &asked.body)
            .map_err(|status| decode::unrecognized(status, kind, &asked.body)),
        Some(patch::Form::Apply) => Ok((decode::yaml(&asked.body)?, Vec::new())),
        Some(_) => decode::patch(&asked.body),
    }
}

/// Returns the response with the warnings of webhooks, also after an error.
pub(super) fn answered(outcome: Result<Response<Body>, Status>, warnings: &[String]) -> Response<Body> {
    let mut response = outcome.unwrap_or_else(|status| respond::status(&status));
    respond::warn(&mut response, warnings);
    response
}

/// Formats a character as Go quotes it.
fn shown(c: char) -> String {
    if c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t') {
        return format!("\\x{:02x}", u32::from(c));
    }
    c.escape_debug().to_string()
}

/// Parses the options of a write; a 422 on `options` for unknown values.
pub(super) fn settings(server: &Server, asked: &Asked, options: &str) -> Result<Settings, Status> {
    let refuse = |cause| Err(Status::invalid("meta.k8s.io", options, "", vec![cause]));
    let mut dry_run = false;
    for value in asked.query.all("dryRun") {
        if value != "All" {
            return refuse(Cause::not_supported("dryRun", &json!([value]), &["All"]));
        }
        dry_run = true;
    }
    let validation = match asked.query.text("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Strict" => FieldValidation::Strict,
        "Ignore" => FieldValidation::Ignore,
        other => {
            let supported = ["", "Ignore", "Strict", "Warn"];
            return refuse(Cause::not_supported("fieldValidation", &other.into(), &supported));
        }
    };
    let manager = match asked.query.text("fieldManager") {
        "" => asked.user_agent().split('/').next().unwrap_or_default(),
        given => given,
    };
    if manager.len() > MAX_MANAGER {
        let text = format!("Too long: may not be more than {MAX_MANAGER} bytes");
        return refuse(Cause::new("FieldValueTooLong", "fieldManager", text));
    }
    if let Some((at, bad)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        let shown: String = manager.chars().map(shown).collect();
        let why = format!("Invalid value: \"{shown}\": invalid character U+{:04X} (at position {at})", u32::from(bad));
        return refuse(Cause::new("FieldValueInvalid", "fieldManager", why));
    }
    let manager = if manager.is_empty() { "unknown" } else { manager };
    let mut options = serde_json::Map::new();
    for name in ["fieldManager", "fieldValidation"] {
        if !asked.query.text(name).is_empty() {
            options.insert(name.to_owned(), asked.query.text(name).into());
        }
    }
    if dry_run {
        options.insert("dryRun".to_owned(), json!(["All"]));
    }
    Ok(Settings {
        dry_run,
        validation,
        options,
        manager: manager.to_owned(),
        now: stamp(server.now()),
        user: asked.user.clone(),
        ..Settings::default()
    })
}
