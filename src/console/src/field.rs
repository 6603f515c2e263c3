//! Reads fields of objects of any kind, for pages.

use jiff::Timestamp;
use serde_json::Value;

use crate::text::{MESSAGE, plain};
use mainstay_object::hide_logins;

/// Returns the string at a JSON pointer, cut to a maximum length.
pub(crate) fn text_at(live: &Value, pointer: &str, most: usize) -> String {
    live.pointer(pointer).and_then(Value::as_str).map(|text| plain(text, most)).unwrap_or_default()
}

/// Returns the message at a JSON pointer without the logins of URLs. Statuses of earlier agents may contain them. The end of
/// a login may be behind the place at which a message is cut.
pub(crate) fn message_at(live: &Value, pointer: &str) -> String {
    let text = live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    plain(&hide_logins(text), MESSAGE)
}

/// Returns the time at a JSON pointer.
pub(crate) fn time_at(live: &Value, pointer: &str) -> Option<Timestamp> {
    live.pointer(pointer)?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_shows_no_login_of_a_url_also_if_it_is_cut() {
        let of = |login: &str| message_at(&json!({"message": format!("no https://{login}@host")}), "/message");
        assert_eq!(of("u:hunter2"), "no https://(hidden)@host");
        assert_eq!(of(&format!("u:{}", "x".repeat(3 * MESSAGE))), "no https://(hidden)@host");
        assert_eq!(message_at(&json!({}), "/message"), "");
    }
}
