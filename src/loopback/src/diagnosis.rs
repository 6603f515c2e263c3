//! Asks the kernel for one TCP socket by its two addresses (`sock_diag(7)`).
//!
//! The cost does not depend on the number of sockets. Reading the table in parts may miss a row, but this request
//! cannot.
//!
//! Not here: the fallback if the kernel does not respond, for example in a sandbox without this protocol.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// `SOCK_DIAG_BY_FAMILY`, the message type of request and response.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST` without `NLM_F_DUMP`: requests one socket.
const ONE: u16 = 1;
const TCP: u8 = 6;
/// Sizes in bytes: the message header, a request and a response.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
const ANSWER: usize = HEADER + 72;
/// Offsets of the user and the inode in a response.
const USER: usize = HEADER + 64;
const INODE: usize = HEADER + 68;

/// Returns the user of the socket at `local` that is connected to `remote`; `None` if no process holds such a socket.
///
/// # Errors
/// The kernel does not support this protocol, or denies it to this process.
pub(crate) fn user(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    send(&socket, &request(local, remote), SendFlags::empty())?;
    let mut answer = [0; 512];
    let (read, _) = recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    Ok(answer.get(..read).and_then(read_answer))
}

fn request(local: SocketAddr, remote: SocketAddr) -> [u8; REQUEST] {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = Vec::with_capacity(REQUEST);
    // Length, type, flags, number and sender of the message.
    bytes.extend(u32::try_from(REQUEST).unwrap_or_default().to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(ONE.to_ne_bytes());
    bytes.extend([0; 8]);
    // Family, protocol, no extensions, a gap, and all states.
    bytes.extend([u8::try_from(family.as_raw()).unwrap_or_default(), TCP, 0, 0]);
    bytes.extend([0xff; 4]);
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    bytes.extend(octets(local.ip()));
    bytes.extend(octets(remote.ip()));
    // No interface, and no cookie.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes.try_into().unwrap_or([0; REQUEST])
}

fn octets(address: IpAddr) -> [u8; 16] {
    let mut all = [0; 16];
    match address {
        IpAddr::V4(address) => all[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => all = address.octets(),
    }
    all
}

/// Returns the user in a response; `None` for an error, or for a socket that no process holds.
fn read_answer(bytes: &[u8]) -> Option<u32> {
    let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    (kind == BY_FAMILY && bytes.len() >= ANSWER && word(INODE)? != 0).then(|| word(USER))?
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns the kernel's response. Without one, the production code reads the table.
    fn of(client: &TcpStream) -> io::Result<Option<u32>> {
        user(client.local_addr().unwrap(), client.peer_addr().unwrap())
    }

    #[test]
    fn a_connected_socket_has_its_user_and_a_closed_one_has_none() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            if !matches!(of(&client), Ok(Some(_))) {
                assert_eq!(super::super::peer::user(local, remote).unwrap(), Some(rustix::process::geteuid().as_raw()));
                continue;
            }
            assert_eq!(of(&client).unwrap(), Some(rustix::process::geteuid().as_raw()));
            drop(client);
            assert_eq!(user(local, remote).unwrap(), None);
            drop(server);
        }
    }

    /// The layout is a header, then `struct inet_diag_req_v2` of `linux/inet_diag.h`.
    #[test]
    fn a_request_names_both_ends_of_one_socket() {
        let bytes = request("127.0.0.1:4660".parse().unwrap(), "10.1.2.3:80".parse().unwrap());
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()), 72);
        assert_eq!([u16::from_ne_bytes([bytes[4], bytes[5]]), u16::from_ne_bytes([bytes[6], bytes[7]])], [20, 1]);
        assert_eq!(bytes[HEADER..HEADER + 4], [2, 6, 0, 0]);
        assert_eq!(bytes[HEADER + 8..HEADER + 12], [0x12, 0x34, 0, 80]);
        assert_eq!(
            (&bytes[HEADER + 12..HEADER + 16], &bytes[HEADER + 28..HEADER + 32]),
            (&[127, 0, 0, 1][..], &[10, 1, 2, 3][..])
        );
        assert_eq!(bytes[HEADER + 48..], [0xff; 8]);
    }

    #[test]
    fn broken_answers_say_nothing() {
        let mut whole = [0; ANSWER];
        whole[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        whole[USER] = 7;
        assert_eq!(read_answer(&whole), None, "no process holds it");
        whole[INODE] = 1;
        assert_eq!(read_answer(&whole).map(u32::to_ne_bytes).map(|bytes| bytes[0]), Some(7));
        assert_eq!(read_answer(&whole[..ANSWER - 1]), None);
        whole[4] = 2;
        assert_eq!(read_answer(&whole), None, "an error");
        assert_eq!(read_answer(&[]), None);
    }
}
