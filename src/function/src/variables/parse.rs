//! Values of variables: each parser sets a field, or says why the value is invalid.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::quantity::Quantity;
use crate::settings::SecretKey;
use crate::{BaseImage, runtimes};
use mainstay_api::{Amount, Span};
use mainstay_object::syntax;

pub(super) fn text(field: &mut String, value: &str) -> Result<(), String> {
    if value.is_empty() || value.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("it must be one word".to_owned());
    }
    value.clone_into(field);
    Ok(())
}

/// Parses a key of a Secret, written as `SECRET/KEY`, or as `SECRET` for the usual key.
pub(super) fn secret_key(value: &str, usual: &str) -> Result<SecretKey, String> {
    let (secret, key) = value.split_once('/').unwrap_or((value, usual));
    if let Some(words) = syntax::subdomain(secret) {
        return Err(format!("\"{secret}\" is not the name of a Secret: {words}"));
    }
    let is_key = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if key.is_empty() || key.len() > 253 || !key.chars().all(is_key) || key.starts_with("..") || key == "." {
        return Err(format!("\"{key}\" is not a key of a Secret: write SECRET or SECRET/KEY"));
    }
    Ok(SecretKey { secret: secret.to_owned(), key: key.to_owned() })
}

pub(super) fn list(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

pub(super) fn parsed<T: std::str::FromStr>(field: &mut T, value: &str, expected: &str) -> Result<(), String> {
    *field = value.parse().map_err(|_| format!("\"{value}\" is not {expected}"))?;
    Ok(())
}

pub(super) fn at_least_one<T: std::str::FromStr + PartialOrd + From<u8>>(
    field: &mut T,
    value: &str,
) -> Result<(), String> {
    let expected = "an integer of at least 1";
    parsed(field, value, expected)?;
    if *field < T::from(1) { Err(format!("\"{value}\" is not {expected}")) } else { Ok(()) }
}

pub(super) fn duration(field: &mut Duration, value: &str) -> Result<(), String> {
    let span: Span = value.parse().map_err(|error: mainstay_api::duration::NotADuration| error.to_string())?;
    if span.0.is_zero() {
        return Err("it must be longer than 0s".to_owned());
    }
    *field = span.0;
    Ok(())
}

pub(super) fn long_enough(field: &mut Duration, value: &str, least: Duration) -> Result<(), String> {
    let mut given = *field;
    duration(&mut given, value)?;
    if given < least {
        return Err(format!("it must be at least {}", Span(least)));
    }
    *field = given;
    Ok(())
}

pub(super) fn amount(field: &mut Amount, value: &str) -> Result<(), String> {
    Quantity::parse(value).ok_or_else(|| format!("\"{value}\" is not a quantity"))?;
    *field = value.into();
    Ok(())
}

/// Parses a URL without credentials. Credentials are refused because every reader of a Function's pods sees the URL.
pub(super) fn address(field: &mut String, value: &str) -> Result<(), String> {
    let is_http = value.starts_with("http://") || value.starts_with("https://");
    if !is_http || value.contains('@') || value.contains(char::is_whitespace) || value.len() > 2048 {
        return Err("it must be an address that begins with http:// or https://, without credentials".to_owned());
    }
    text(field, value)
}

pub(super) fn platform(field: &mut String, value: &str) -> Result<(), String> {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    match value.split('/').collect::<Vec<_>>()[..] {
        [os, architecture] if part(os) && part(architecture) => text(field, value),
        _ => Err(format!("\"{value}\" is not a platform such as linux/amd64")),
    }
}

pub(super) fn map<T: DeserializeOwned>(field: &mut BTreeMap<String, T>, value: &str) -> Result<(), String> {
    *field = serde_json::from_str(value).map_err(|error| format!("it is not the expected JSON object: {error}"))?;
    Ok(())
}

pub(super) fn base_images(field: &mut BTreeMap<String, BaseImage>, value: &str) -> Result<(), String> {
    let mut named = BTreeMap::<String, String>::new();
    map(&mut named, value)?;
    field.clear();
    for (runtime, image) in named {
        if runtime != "*" && runtimes::find(&runtime).is_none() {
            return Err(format!("there is no runtime \"{runtime}\""));
        }
        let base = BaseImage::parse(&image).map_err(|error| format!("{runtime}: \"{image}\": {error}"))?;
        field.insert(runtime, base);
    }
    Ok(())
}
