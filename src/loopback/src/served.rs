//! The end of a served connection.

use std::io;
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Response};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Maximum number of bytes that are read and dropped, and the time for it.
const UNREAD_BYTES: u64 = 16 << 20;
const LINGER: Duration = Duration::from_secs(2);

/// Ends the response of a served connection. Reads and drops up to 16 MiB that the client still sends, for at most 2 s:
/// a socket that closes with unread bytes resets the connection, and a client that is still sending loses the response.
pub async fn finish<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let dropped = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut (&mut stream).take(UNREAD_BYTES), &mut tokio::io::sink()).await
    };
    // The result does not matter: the connection is closed.
    let _: Result<io::Result<u64>, _> = tokio::time::timeout(LINGER, dropped).await;
}

/// Announces the end of the connection in an error response to a request with a body, which may not have been read.
/// hyper closes such a connection without an announcement, and a client that uses it again would lose its next request.
#[must_use]
pub fn last_of_connection<B>(has_body: bool, mut response: Response<B>) -> Response<B> {
    if has_body && (response.status().is_client_error() || response.status().is_server_error()) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn a_client_that_is_still_sending_reads_the_response() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"413").await.unwrap();
            finish(stream).await;
        });
        let mut client = TcpStream::connect(address).await.unwrap();
        let mut answer = [0; 3];
        client.read_exact(&mut answer).await.unwrap();
        for _ in 0..8 {
            client.write_all(&vec![b'x'; 1 << 20]).await.unwrap();
        }
        client.shutdown().await.unwrap();
        assert_eq!(&answer, b"413");
        assert_eq!(client.read(&mut answer).await.unwrap(), 0);
        server.await.unwrap();
    }
}
