//! Verifies a SOPS-encrypted file, so that its documents can be decrypted.
//!
//! Invariant: no part of a changed file is decrypted.

use std::sync::Arc;

use super::Problem;
use super::chunks::chunks;
use super::encrypted::may_be_encrypted;
use super::json::{Json, is_json};
use super::limits::{Limits, larger_than};
use super::load::locate;
use super::tokens::{Mark, Yaml};
use crate::sops::{self, Fault, Format, Keys, Sealed};
use mainstay_object::{Place, Step};

/// Verifies a file. The result is empty if the file is not encrypted.
///
/// # Errors
/// The problems with their locations.
pub fn verified(
    path: &Arc<str>,
    content: &[u8],
    keys: &Keys,
    limits: &Limits,
) -> Result<Vec<Arc<Sealed>>, Vec<Problem>> {
    let Ok(text) = std::str::from_utf8(content) else { return Ok(Vec::new()) };
    if !may_be_encrypted(content) {
        return Ok(Vec::new());
    }
    if text.len() > sops::MAX_BYTES {
        let what = format!("the encrypted file is {}", larger_than(sops::MAX_BYTES));
        return Err(vec![Problem::new(Place::file(Arc::clone(path)), what, Some("split it"))]);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let format = if is_json(path) { Format::Json } else { Format::Yaml };
    let documents: Vec<(u32, &str, u32)> = match format {
        Format::Json => vec![(1, text, 0)],
        Format::Yaml => chunks(text)
            .map(|chunk| (u32::try_from(chunk.number).unwrap_or(u32::MAX), chunk.text, chunk.lines_before))
            .collect(),
    };
    let texts: Vec<(u32, &str)> = documents.iter().map(|(number, text, _)| (*number, *text)).collect();
    match sops::open(&texts, format, keys) {
        Ok(opened) => Ok(opened.into_iter().flat_map(|opened| opened.sealed).map(Arc::new).collect()),
        Err(faults) => {
            let problem = |Fault { document, flaw }| {
                let mut all = documents.iter();
                let (_, text, lines_before) = all.find(|(number, ..)| *number == document).copied().unwrap_or_default();
                let mark = position(text, format, &flaw.path, limits).unwrap_or_default();
                let line = if mark.line == 0 { 0 } else { mark.line.saturating_add(lines_before) };
                let place = Place { file: Arc::clone(path), document, line, column: mark.column, built_by: None };
                Problem::new(place, flaw.what, flaw.hint)
            };
            Err(faults.into_iter().map(problem).collect())
        }
    }
}

fn position(text: &str, format: Format, path: &[Step], limits: &Limits) -> Option<Mark> {
    match format {
        Format::Yaml => locate(&mut Yaml::new(text, limits.depth), path),
        Format::Json => {
            let mut tokens = Json::new(text, limits.document);
            tokens.next_document().then(|| locate(&mut tokens, path)).flatten()
        }
    }
}
