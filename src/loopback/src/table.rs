//! Finds a socket in the kernel's tables of TCP sockets, `/proc/net/tcp` and `/proc/net/tcp6`.
//!
//! Invariant: a socket that no process holds has no user. The kernel writes user 0 for such a socket, which is not
//! root.

use std::net::{IpAddr, SocketAddr};

/// Returns the user of the socket at `local` that is connected to `remote`; `None` if no process holds the socket.
pub(crate) fn user(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let forms = [forms(local), forms(remote)];
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (here, there) = (fields.next()?, fields.next()?);
        let is_it = |form: &[Option<String>; 2], field: &str| form.iter().flatten().any(|form| form == field);
        if !is_it(&forms[0], here) || !is_it(&forms[1], there) {
            return None;
        }
        // After the state come queues, timer and retransmissions, then the user. After the user come the timeout and
        // the inode.
        let user = fields.nth(4)?.parse().ok()?;
        let inode = fields.nth(1)?;
        (inode != "0").then_some(user)
    })
}

/// Returns an address in the notation of each table: 32-bit words in host byte order, in hexadecimal.
fn forms(address: SocketAddr) -> [Option<String>; 2] {
    let words = |octets: &[u8]| -> String {
        let words = octets.chunks_exact(4).filter_map(|word| <[u8; 4]>::try_from(word).ok());
        words.fold(String::new(), |text, word| text + &format!("{:08X}", u32::from_ne_bytes(word)))
    };
    let with_port = |text: String| format!("{text}:{:04X}", address.port());
    match address.ip() {
        // A dual-stack socket has an IPv4-mapped IPv6 address.
        IpAddr::V4(ip) => [Some(with_port(words(&ip.octets()))), Some(with_port(words(&ip.to_ipv6_mapped().octets())))],
        IpAddr::V6(ip) => [Some(with_port(words(&ip.octets()))), None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";

    fn row(local: &str, remote: &str, rest: &str) -> String {
        let at = |text: &str| forms(text.parse().unwrap())[0].clone().unwrap();
        format!(
            "   1: {} {} 01 00000000:00000000 00:00000000 00000000  {rest} 1 0000000000000000 20 4 30 10 -1",
            at(local),
            at(remote)
        )
    }

    fn of(rows: &[String]) -> Option<u32> {
        let table = format!("{HEAD}\n{}\n", rows.join("\n"));
        user(&table, "127.0.0.1:5000".parse().unwrap(), "127.0.0.1:8080".parse().unwrap())
    }

    #[test]
    fn the_end_of_the_client_says_the_user() {
        let client = row("127.0.0.1:5000", "127.0.0.1:8080", "1000 0 77");
        let server = row("127.0.0.1:8080", "127.0.0.1:5000", "0 0 78");
        let other = row("127.0.0.1:5001", "127.0.0.1:8080", "0 0 79");
        assert_eq!(of(&[server.clone(), other.clone(), client]), Some(1000));
        assert_eq!(of(&[server, other]), None);
        let mapped = row("[::ffff:127.0.0.1]:5000", "[::ffff:127.0.0.1]:8080", "1001 0 77");
        assert_eq!(of(&[mapped]), Some(1001), "the socket of a client may be of both families");
    }

    #[test]
    fn a_socket_that_its_process_has_closed_is_not_of_root() {
        assert_eq!(of(&[row("127.0.0.1:5000", "127.0.0.1:8080", "0 0 0")]), None);
    }

    #[test]
    fn broken_lines_say_nothing() {
        let cut = row("127.0.0.1:5000", "127.0.0.1:8080", "").replace(" 1 0000000000000000 20 4 30 10 -1", "");
        for line in [String::new(), "x".into(), cut, row("127.0.0.1:5000", "127.0.0.1:8080", "-1 0 7")] {
            assert_eq!(of(&[line]), None);
        }
    }
}
