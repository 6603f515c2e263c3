//! A TCP listener that decides who may connect.
//!
//! Invariant: a connection of another user is closed before any byte of it is read.
//! Invariant: the user is looked up once per connection, not once per request.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpStream};

use super::peer::{Stranger, is_ours};

/// The users who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Root and the user of this process.
    SameUser,
    /// Every client. The server that uses the listener checks a token, or is public.
    Anyone,
}

impl Reach {
    /// Returns `SameUser` for a loopback address and `Anyone` for other addresses, which are bound in order to be
    /// reachable.
    pub fn of(address: SocketAddr) -> Self {
        if address.ip().is_loopback() { Self::SameUser } else { Self::Anyone }
    }
}

/// A bound port.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
    reach: Reach,
    /// Whether a rejected connection was already logged.
    is_reported: AtomicBool,
}

impl Listener {
    /// Binds a port; port 0 selects a free one. Needs a Tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(address: SocketAddr, reach: Reach) -> io::Result<Self> {
        Reserved::bind(address, reach)?.listen()
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// The system does not return the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Returns who may connect.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Returns the next allowed connection.
    ///
    /// # Errors
    /// The system cannot accept, for example because no file descriptor is free.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let (stream, client) = self.inner.accept().await?;
            if self.reach == Reach::Anyone {
                return Ok((stream, client));
            }
            let server = stream.local_addr()?;
            let asked = tokio::task::spawn_blocking(move || is_ours(client, server)).await;
            match asked.map_err(io::Error::other)? {
                Ok(()) => return Ok((stream, client)),
                Err(stranger) => self.report(server, &stranger),
            }
        }
    }

    /// Logs a rejected connection. Only the first one is a warning, so that other users cannot fill the log.
    fn report(&self, at: SocketAddr, stranger: &Stranger) {
        match stranger {
            Stranger::Gone => tracing::debug!("a connection to {at} was closed before its user was known"),
            _ if self.is_reported.swap(true, Ordering::Relaxed) => {
                tracing::debug!("{at} refused a connection: {stranger:?}");
            }
            Stranger::User(user) => tracing::warn!(
                "{at} refused a connection of user {user}: only the user who started this process may connect; further \
                 refusals are not reported"
            ),
            Stranger::Unknown(cause) => tracing::warn!(
                "{at} refused a connection: its user is unknown, because /proc/self/net/tcp cannot be read: {cause}; mount /proc"
            ),
        }
    }
}

/// A bound port that does not accept yet. Connections wait until [`listen`](Self::listen) is called.
#[derive(Debug)]
pub struct Reserved {
    inner: std::net::TcpListener,
    reach: Reach,
}

impl Reserved {
    /// Binds a port; port 0 selects a free one.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn bind(address: SocketAddr, reach: Reach) -> io::Result<Self> {
        let inner = std::net::TcpListener::bind(address)?;
        inner.set_nonblocking(true)?;
        Ok(Self { inner, reach })
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// The system does not return the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Accepts connections while the returned listener exists. Needs a Tokio runtime.
    ///
    /// # Errors
    /// If no file descriptor is free.
    pub fn listen(&self) -> io::Result<Listener> {
        let inner = TcpListener::from_std(self.inner.try_clone()?)?;
        Ok(Listener { inner, reach: self.reach, is_reported: AtomicBool::new(false) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_of_the_same_user_is_accepted_over_both_families() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = Listener::bind(address.parse().unwrap(), Reach::SameUser) else { continue };
            let at = listener.local_addr().unwrap();
            let client = TcpStream::connect(at).await.unwrap();
            let (_, seen) = listener.accept().await.unwrap();
            assert_eq!(seen, client.local_addr().unwrap());
        }
    }

    #[tokio::test]
    async fn a_client_that_has_gone_is_passed_over() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::SameUser).unwrap();
        let at = listener.local_addr().unwrap();
        drop(TcpStream::connect(at).await.unwrap());
        let client = TcpStream::connect(at).await.unwrap();
        let (_, seen) = listener.accept().await.unwrap();
        assert_eq!(seen, client.local_addr().unwrap());
    }

    #[test]
    fn an_address_of_this_machine_is_for_the_same_user() {
        let of = |address: &str| Reach::of(address.parse().unwrap());
        assert_eq!(["127.0.0.1:1", "127.3.0.1:1", "[::1]:1"].map(of), [Reach::SameUser; 3]);
        assert_eq!(["0.0.0.0:1", "192.168.0.1:1", "[::]:1"].map(of), [Reach::Anyone; 3]);
    }
}
