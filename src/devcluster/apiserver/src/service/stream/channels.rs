//! Streams in a WebSocket: as numbered channels, or as the bytes of another protocol.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use super::connection::Io;

/// Maximum size of a client's message, in bytes.
const LARGEST_MESSAGE: usize = 4 << 20;
/// Buffer size of a tunnel in each direction, in bytes.
const TUNNEL: usize = 64 << 10;

/// Delay after the handshake until clients have created their channels: `kubectl` drops earlier messages.
const OPENING: Duration = Duration::from_millis(20);

/// Channel numbers.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// The message type by which a client closes its writing side of the channel that follows.
const CLOSE: u8 = 255;

/// A message from a command to its client.
#[derive(Debug)]
pub(super) enum Output {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// The final status; always last.
    Status(Value),
}

async fn socket(io: Io) -> WebSocketStream<Io> {
    let config =
        WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE)).max_frame_size(Some(LARGEST_MESSAGE));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// Forwards the streams of a command until its status is sent or the client disconnects.
pub(super) async fn carry(io: Io, stdin: mpsc::Sender<Bytes>, mut output: mpsc::Receiver<Output>) {
    let (mut sink, mut stream) = socket(io).await.split();
    let incoming = async {
        let mut stdin = Some(stdin);
        while let Some(Ok(message)) = stream.next().await {
            match message {
                Message::Binary(bytes) => match (bytes.first().copied(), &stdin) {
                    (Some(STDIN), Some(to)) => {
                        // A command that no longer reads does not need the input.
                        let _ = to.send(bytes.slice(1..)).await;
                    }
                    (Some(CLOSE), _) if bytes.get(1) == Some(&STDIN) => stdin = None,
                    _ => {}
                },
                Message::Close(_) => break,
                _ => {}
            }
        }
    };
    let outgoing = async {
        tokio::time::sleep(OPENING).await;
        // The empty message tells the client that the command has started.
        let begun = sink.send(message(STDOUT, &[])).await;
        while begun.is_ok()
            && let Some(output) = output.recv().await
        {
            let sent = match output {
                Output::Stdout(bytes) => sink.send(message(STDOUT, &bytes)).await,
                Output::Stderr(bytes) => sink.send(message(STDERR, &bytes)).await,
                Output::Status(status) => {
                    let _ = sink.send(message(ERROR, status.to_string().as_bytes())).await;
                    break;
                }
            };
            if sent.is_err() {
                break;
            }
        }
        // The client may already be gone.
        let _ = sink.send(goodbye()).await;
    };
    tokio::select! {
        () = incoming => {}
        () = outgoing => {}
    }
}

/// Returns the message that closes a completed connection normally. Clients treat any other closing as an error.
fn goodbye() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

fn message(channel: u8, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(channel);
    message.put_slice(bytes);
    Message::Binary(message.freeze())
}

/// Returns a stream of the bytes in a WebSocket, and the future that forwards them.
pub(super) fn tunnel(io: Io) -> (DuplexStream, impl Future<Output = ()> + Send) {
    let (inner, outer) = tokio::io::duplex(TUNNEL);
    let work = async move {
        let (mut sink, mut stream) = socket(io).await.split();
        let (mut reader, mut writer) = tokio::io::split(outer);
        let incoming = async {
            while let Some(Ok(message)) = stream.next().await {
                match message {
                    Message::Binary(bytes) if writer.write_all(&bytes).await.is_ok() => {}
                    Message::Ping(_) | Message::Pong(_) => {}
                    _ => break,
                }
            }
        };
        let outgoing = async {
            let mut buffer = vec![0; TUNNEL];
            while let Ok(read @ 1..) = reader.read(&mut buffer).await {
                if sink.send(Message::Binary(Bytes::copy_from_slice(&buffer[..read]))).await.is_err() {
                    break;
                }
            }
            let _ = sink.send(goodbye()).await;
        };
        tokio::select! {
            () = incoming => {}
            () = outgoing => {}
        }
    };
    (inner, work)
}
