//! Splits the text of an expression into tokens.

use super::error::Fault;
use super::limits::LONGEST;
use super::token::{Placed, Token};

/// Ordered so that no sign is a prefix of a later one.
const SIGNS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ",", ".", "(", ")", "[", "]",
    "{", "}", "=",
];

/// Returns all tokens, with the end as the last one.
pub(super) fn scan(source: &str) -> Result<Vec<Placed<'_>>, Fault> {
    if source.len() > LONGEST {
        return Err(Fault::new(
            LONGEST,
            format!("the expression has {} bytes; at most {LONGEST} are allowed", source.len()),
        ));
    }
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(first) = source[at..].chars().next() {
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let rest = &source[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (token, length) = word(rest).map_err(|fault| Fault::new(at + fault.at, fault.what))?;
        tokens.push(Placed { at, token });
        at += length;
    }
    tokens.push(Placed { at, token: Token::End });
    Ok(tokens)
}

/// Reads the token at the beginning of a non-empty text. Returns it with its length in bytes.
fn word(rest: &str) -> Result<(Token<'_>, usize), Fault> {
    let first = rest.as_bytes()[0];
    if let Some(found) = literal(rest) {
        return found;
    }
    if first.is_ascii_digit() {
        return number(rest);
    }
    if first == b'`' {
        let length = rest[1..].find('`').ok_or_else(|| Fault::new(0, "the name in backquotes does not end"))?;
        return Ok((Token::Quoted(&rest[1..=length]), length + 2));
    }
    let part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if part(first) {
        let length = rest.bytes().position(|byte| !part(byte)).unwrap_or(rest.len());
        return Ok((Token::Name(&rest[..length]), length));
    }
    let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
    match sign {
        Some("=") => Err(Fault::new(0, "`=` is not an operator; `==` compares")),
        Some(sign) => Ok((Token::Sign(sign), sign.len())),
        None => Err(Fault::new(0, "this character has no meaning outside a string")),
    }
}

fn number(rest: &str) -> Result<(Token<'_>, usize), Fault> {
    let digits = |from: usize, is_digit: fn(&u8) -> bool| from + rest[from..].bytes().take_while(is_digit).count();
    let range = || Fault::new(0, "the number is out of range");
    let decimal: fn(&u8) -> bool = u8::is_ascii_digit;
    let (whole, end) = if rest.starts_with("0x") || rest.starts_with("0X") {
        let end = digits(2, u8::is_ascii_hexdigit);
        (u64::from_str_radix(&rest[2..end], 16), end)
    } else {
        let mut end = digits(0, decimal);
        let whole = end;
        if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            end = digits(end + 1, decimal);
        }
        if rest[end..].starts_with(['e', 'E']) {
            let signed = end + 1 + usize::from(rest[end + 1..].starts_with(['+', '-']));
            if digits(signed, decimal) > signed {
                end = digits(signed, decimal);
            }
        }
        if end > whole {
            let double = rest[..end].parse::<f64>().ok().filter(|double| double.is_finite());
            return Ok((Token::Double(double.ok_or_else(range)?), end));
        }
        (rest[..whole].parse::<u64>(), whole)
    };
    let whole = whole.map_err(|_| range())?;
    if rest[end..].starts_with(['u', 'U']) {
        return Ok((Token::Uint(whole), end + 1));
    }
    Ok((Token::Int(whole), end))
}

/// Reads a string literal, if one begins here.
fn literal(rest: &str) -> Option<Result<(Token<'_>, usize), Fault>> {
    let prefix = rest.bytes().take(2).take_while(u8::is_ascii_alphabetic).count();
    let letters = &rest[..prefix];
    if !rest[prefix..].starts_with(['"', '\'']) || !letters.bytes().all(|byte| b"rRbB".contains(&byte)) {
        return None;
    }
    if letters.contains(['b', 'B']) {
        return Some(Err(Fault::new(0, "bytes are not supported here; write a string")));
    }
    Some(text(rest, prefix, prefix > 0).map(|(text, length)| (Token::Text(text), length)))
}

/// Reads the string whose opening quote is at `from`.
fn text(rest: &str, from: usize, is_raw: bool) -> Result<(String, usize), Fault> {
    let quote = &rest[from..=from];
    let triple = quote.repeat(3);
    let is_long = rest[from..].starts_with(&triple);
    let end = if is_long { &*triple } else { quote };
    let (mut read, mut at) = (String::new(), from + end.len());
    loop {
        let ahead = &rest[at..];
        let Some(next) = ahead.chars().next().filter(|next| is_long || *next != '\n') else {
            return Err(Fault::new(0, "the string does not end: a quote is missing"));
        };
        if ahead.starts_with(end) {
            return Ok((read, at + end.len()));
        }
        if next == '\\' && !is_raw {
            let (escaped, length) = escape(&ahead[1..]).ok_or_else(|| Fault::new(at, "no such escape in a string"))?;
            read.push(escaped);
            at += 1 + length;
        } else {
            // In a raw string, a backslash keeps the next quote from ending the string.
            read.push(next);
            at += next.len_utf8();
        }
    }
}

/// Decodes an escape after its backslash. Returns the character and the length in bytes.
fn escape(after: &str) -> Option<(char, usize)> {
    let kind = after.chars().next()?;
    let code = |from: usize, length: usize, radix: u32| {
        let digits = after.get(from..from + length)?;
        let all_digits = digits.chars().all(|digit| digit.is_digit(radix));
        let code = all_digits.then(|| u32::from_str_radix(digits, radix).ok()).flatten()?;
        Some((char::from_u32(code)?, from + length))
    };
    match kind {
        'a' => Some(('\u{7}', 1)),
        'b' => Some(('\u{8}', 1)),
        'f' => Some(('\u{c}', 1)),
        'n' => Some(('\n', 1)),
        'r' => Some(('\r', 1)),
        't' => Some(('\t', 1)),
        'v' => Some(('\u{b}', 1)),
        '\\' | '?' | '"' | '\'' | '`' => Some((kind, 1)),
        'x' | 'X' => code(1, 2, 16),
        'u' => code(1, 4, 16),
        'U' => code(1, 8, 16),
        '0'..='3' => code(0, 3, 8),
        _ => None,
    }
}
