//! The body of a request while it arrives: it has a maximum time, and its client gives way to a new one.
//!
//! Invariant: a client whose body does not arrive keeps a connection from no other client. Invariant: a client whose handler
//! waits for something else, such as memory for the body, does not give way. The handler limits this wait.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::connection::Connection;

/// The connection that carries a request.
#[derive(Clone)]
pub(super) struct Carrier(pub(super) Arc<Connection>);

/// The body of a request that has a maximum time.
pub struct Receiving<B> {
    body: B,
    /// `None` after the last byte.
    arrival: Option<Arrival>,
}

struct Arrival {
    late: Pin<Box<Sleep>>,
    /// `None` for a request without a listener.
    connection: Option<Arc<Connection>>,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.received();
        }
    }
}

/// Limits the time in which the body of a request may arrive. While the handler waits for its client, a new client may
/// replace its connection if all are taken.
pub fn receive<B: Body>(mut request: Request<B>, within: Duration) -> Request<Receiving<B>> {
    let carrier: Option<Carrier> = request.extensions_mut().remove();
    request.map(|body| {
        let arrival = (!body.is_end_stream()).then(|| {
            let connection = carrier.map(|Carrier(connection)| connection);
            if let Some(connection) = &connection {
                connection.receives();
            }
            Arrival { late: Box::pin(sleep(within)), connection }
        });
        Receiving { body, arrival }
    })
}

impl<B> Body for Receiving<B>
where
    B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    type Data = B::Data;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, io::Error>>> {
        let this = &mut *self;
        let Some(arrival) = &mut this.arrival else { return Poll::Ready(None) };
        if arrival.late.as_mut().poll(cx).is_ready() {
            this.arrival = None;
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        let has_ended = match &polled {
            Poll::Ready(Some(Ok(_))) => this.body.is_end_stream(),
            Poll::Ready(_) => true,
            Poll::Pending => false,
        };
        if has_ended {
            this.arrival = None;
        } else if let Some(connection) = &arrival.connection {
            if polled.is_pending() {
                connection.receives_more();
            } else {
                connection.pauses();
            }
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.arrival.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::{StreamExt as _, stream};
    use http::Response;
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use hyper::body::Incoming;
    use loopback::{Listener, Reach};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio::sync::{Semaphore, mpsc};
    use tokio_util::sync::CancellationToken;

    use super::super::{Limits, serve};
    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_body_that_arrives_byte_by_byte_has_a_maximum_time() {
        let pieces = stream::repeat(()).then(|()| async {
            sleep(WITHIN / 4).await;
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
        });
        let mut body = receive(Request::new(StreamBody::new(Box::pin(pieces))), WITHIN).into_body();
        let mut arrived = 0;
        let error = loop {
            match body.frame().await.unwrap() {
                Ok(_) => arrived += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((arrived, error.kind()), (3, io::ErrorKind::TimedOut));
        assert!(body.is_end_stream() && body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_arrives_in_time_is_complete() {
        for text in ["", "abc"] {
            let body = receive(Request::new(Full::new(Bytes::from_static(text.as_bytes()))), WITHIN).into_body();
            assert_eq!(body.collect().await.unwrap().to_bytes(), text);
        }
    }

    async fn is_answered(stream: &mut TcpStream) -> bool {
        let mut status = [0; 15];
        stream.read_exact(&mut status).await.is_ok_and(|_| status == *b"HTTP/1.1 200 OK")
    }

    #[tokio::test]
    async fn a_client_whose_body_does_not_arrive_gives_way_to_a_new_one() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let limits = Limits { connections: 2, kept: Some(WITHIN), ..Limits::default() };
        let (begun, mut begins) = mpsc::unbounded_channel();
        let answer = move |request: Request<Incoming>| {
            let (request, begun) = (receive(request, Duration::from_secs(600)), begun.clone());
            async move {
                let _ = begun.send(());
                let _ = request.into_body().collect().await;
                Response::new(Full::<Bytes>::default())
            }
        };
        let serving = tokio::spawn(serve(listener, limits, answer, stop.clone()));
        let mut slow = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx").await.unwrap();
            begins.recv().await.unwrap();
            slow.push(stream);
        }
        let mut new = TcpStream::connect(address).await.unwrap();
        new.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(is_answered(&mut new).await);
        assert!(!is_answered(&mut slow[0]).await, "it was the oldest");
        slow[1].write_all(b"x").await.unwrap();
        assert!(is_answered(&mut slow[1]).await);
        stop.cancel();
        assert!(serving.await.is_ok());
    }

    #[tokio::test]
    async fn a_client_whose_handler_waits_for_memory_does_not_give_way() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let limits = Limits { connections: 2, kept: Some(WITHIN), ..Limits::default() };
        let memory = Arc::new(Semaphore::new(0));
        let (step, mut steps) = mpsc::unbounded_channel();
        let free = Arc::clone(&memory);
        let answer = move |request: Request<Incoming>| {
            let request = receive(request, Duration::from_secs(600));
            let (step, memory) = (step.clone(), Arc::clone(&free));
            async move {
                let mut body = request.into_body();
                let _ = step.send("begun");
                if body.frame().await.is_some() {
                    let _ = step.send("waits for memory");
                    let _permit = memory.acquire().await;
                    let _ = body.collect().await;
                }
                Response::new(Full::<Bytes>::default())
            }
        };
        let serving = tokio::spawn(serve(listener, limits, answer, stop.clone()));
        let mut waiting = TcpStream::connect(address).await.unwrap();
        waiting.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx").await.unwrap();
        assert_eq!([steps.recv().await, steps.recv().await], [Some("begun"), Some("waits for memory")]);
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n").await.unwrap();
        assert_eq!(steps.recv().await, Some("begun"));
        let mut new = TcpStream::connect(address).await.unwrap();
        new.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(is_answered(&mut new).await);
        assert!(!is_answered(&mut slow).await, "its body does not arrive");
        memory.add_permits(1);
        waiting.write_all(b"x").await.unwrap();
        assert!(is_answered(&mut waiting).await);
        stop.cancel();
        assert!(serving.await.is_ok());
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_response_is_disconnected() {
        const SIZE: usize = 64 << 20;
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let whole = Duration::from_secs(24 * 3600);
        let limits = Limits { kept: Some(WITHIN), whole, ..Limits::default() };
        let answer = |_: Request<Incoming>| async { Response::new(Full::new(Bytes::from(vec![b'x'; SIZE]))) };
        let serving = tokio::spawn(serve(listener, limits, answer, stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        assert!(is_answered(&mut stream).await);
        tokio::time::pause();
        sleep(WITHIN * 2).await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.len() < SIZE, "{} bytes", rest.len());
        stop.cancel();
        assert!(serving.await.is_ok());
    }

    #[tokio::test]
    async fn the_first_request_of_a_connection_has_the_limit_of_idle_ones() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Reach::Anyone).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let day = Duration::from_secs(24 * 3600);
        let limits = Limits { kept: Some(WITHIN), whole: day, idle: Some(WITHIN), ..Limits::default() };
        let (begin, mut begins) = mpsc::unbounded_channel();
        let answer = move |_: Request<Incoming>| {
            let _ = begin.send(());
            std::future::pending::<Response<Full<Bytes>>>()
        };
        let serving = tokio::spawn(serve(listener, limits, answer, stop.clone()));
        let begun = tokio::time::Instant::now();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        begins.recv().await.unwrap();
        tokio::time::pause();
        assert!(!is_answered(&mut stream).await);
        assert!(begun.elapsed() < day, "{:?}", begun.elapsed());
        stop.cancel();
        assert!(serving.await.is_ok());
    }
}
