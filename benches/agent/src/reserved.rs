//! A port of loopback for a server that is killed and started again.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

use super::Error;

/// A free port, which is reserved until this is dropped.
///
/// The socket does not listen, and both it and the server set `SO_REUSEADDR`, so the server can listen there. No other
/// socket gets the port as a free one, also while the server is away.
#[derive(Debug)]
pub(super) struct Reserved {
    pub port: u16,
    _socket: TcpSocket,
}

impl Reserved {
    pub(super) fn new() -> Result<Self, Error> {
        let socket = TcpSocket::new_v4().map_err(Error::Start)?;
        socket.set_reuseaddr(true).map_err(Error::Start)?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).map_err(Error::Start)?;
        let port = socket.local_addr().map_err(Error::Start)?.port();
        Ok(Self { port, _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_can_listen_at_a_reserved_port_again() {
        let reserved = Reserved::new().unwrap();
        for _ in 0..2 {
            let server = TcpListener::bind(("127.0.0.1", reserved.port)).unwrap();
            assert_eq!(server.local_addr().unwrap().port(), reserved.port);
        }
    }
}
