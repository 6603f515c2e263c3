//! Prepares messages of servers for display.

use mainstay_object::is_unprintable;

/// Returns a server's message as one short line.
pub(super) fn clean(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text: String = text.chars().map(|c| if is_unprintable(c) { ' ' } else { c }).take(200).collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_server_messages_as_one_short_line() {
        assert_eq!(clean(b" a\nb\x1b[31m\r\n"), "a b [31m");
        assert_eq!(clean(&[b'x'; 5000]).len(), 200);
    }
}
