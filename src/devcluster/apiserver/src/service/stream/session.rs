//! A SPDY/3.1 connection with any number of streams, all opened by the client.
//!
//! Invariant: unread data fills a bounded queue. A full queue makes the client wait.

use std::collections::HashMap;
use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::spdy::frame::{self, Control, HEAD, Head, LONGEST_DATA, REFUSED};
use crate::spdy::headers::{Headers, Reader as Blocks, Writer as BlockWriter};

/// Maximum number of open streams.
const MOST_STREAMS: usize = 512;
/// Maximum number of queued chunks of a stream, and of queued frames of a connection.
const QUEUE: usize = 16;

/// A stream opened by a client.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) number: u32,
    pub(super) headers: Headers,
    /// Input from the client. Ends when the client closes its side of the stream.
    pub(super) input: mpsc::Receiver<Bytes>,
    pub(super) output: Output,
}

impl Stream {
    /// Returns a header; empty if missing.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// The writing side of a stream.
#[derive(Clone, Debug)]
pub(super) struct Output {
    stream: u32,
    frames: mpsc::Sender<Out>,
}

/// The queued output.
#[derive(Debug)]
enum Out {
    Frame(Vec<u8>),
    /// Accepts a stream.
    Reply(u32),
    /// Closes the connection. Always last.
    Close,
}

/// The connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

impl Output {
    async fn send(&self, out: Out) -> Result<(), Gone> {
        self.frames.send(out).await.map_err(|_| Gone)
    }

    pub(super) async fn write(&self, bytes: &[u8]) -> Result<(), Gone> {
        for piece in bytes.chunks(LONGEST_DATA) {
            self.send(Out::Frame(frame::data(self.stream, false, piece))).await?;
        }
        Ok(())
    }

    /// Closes the writing side of the stream.
    pub(super) async fn finish(&self) {
        // The connection may already be gone.
        let _ = self.send(Out::Frame(frame::data(self.stream, true, &[]))).await;
    }

    /// Ends the stream in both directions.
    pub(super) async fn reset(&self) {
        // The connection may already be gone.
        let _ = self.send(Out::Frame(frame::reset(self.stream, frame::CANCELLED))).await;
    }

    /// Closes the connection after all queued data is written.
    pub(super) async fn close(&self) {
        // The connection may already be gone.
        let _ = self.send(Out::Close).await;
    }
}

/// Serves a connection until one side ends it. Every opened stream is sent to `streams`.
pub(super) async fn run<T>(io: T, streams: mpsc::Sender<Stream>) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite,
{
    let (reader, writer) = tokio::io::split(io);
    let (frames, queue) = mpsc::channel(QUEUE);
    tokio::select! {
        ended = read(reader, frames, streams) => ended,
        ended = write(writer, queue) => ended,
    }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Out>) -> io::Result<()> {
    let mut blocks = BlockWriter::default();
    while let Some(out) = queue.recv().await {
        match out {
            Out::Frame(frame) => writer.write_all(&frame).await?,
            Out::Reply(stream) => writer.write_all(&frame::reply(stream, &blocks.write(&[]))).await?,
            Out::Close => break,
        }
        writer.flush().await?;
    }
    writer.shutdown().await
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    frames: mpsc::Sender<Out>,
    streams: mpsc::Sender<Stream>,
) -> io::Result<()> {
    let mut connection = Connection { blocks: Blocks::default(), inputs: HashMap::new(), newest: 0, frames, streams };
    loop {
        let mut head = [0; HEAD];
        match reader.read_exact(&mut head).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        match frame::head(head).map_err(malformed)? {
            Head::Data { stream, last, length } => {
                let input = connection.inputs.get(&stream).cloned();
                let mut left = length;
                while left > 0 {
                    let mut piece = vec![0; left.min(LONGEST_DATA)];
                    reader.read_exact(&mut piece).await?;
                    left -= piece.len();
                    if let Some(input) = &input {
                        // The reader of the stream may be gone; its input is then discarded.
                        let _ = input.send(piece.into()).await;
                    }
                }
                if last {
                    connection.inputs.remove(&stream);
                }
            }
            Head::Control { kind, last, length } => {
                let mut payload = vec![0; length];
                reader.read_exact(&mut payload).await?;
                connection.control(frame::control(kind, &payload).map_err(malformed)?, last).await?;
            }
        }
    }
}

struct Connection {
    blocks: Blocks,
    inputs: HashMap<u32, mpsc::Sender<Bytes>>,
    /// Number of the newest stream. The number of the next stream must be higher.
    newest: u32,
    frames: mpsc::Sender<Out>,
    streams: mpsc::Sender<Stream>,
}

impl Connection {
    async fn control(&mut self, control: Control<'_>, last: bool) -> io::Result<()> {
        match control {
            Control::Open { stream, block } => {
                let headers = self.blocks.read(block).map_err(malformed)?;
                if stream <= self.newest {
                    return Err(malformed(crate::spdy::Error::Number(stream)));
                }
                self.newest = stream;
                return self.open(stream, headers, last).await;
            }
            Control::Headers { block, .. } | Control::Reply { block } => {
                self.blocks.read(block).map_err(malformed)?;
                if let (Control::Headers { stream, .. }, true) = (control, last) {
                    self.inputs.remove(&stream);
                }
            }
            Control::Reset { stream } => {
                self.inputs.remove(&stream);
            }
            Control::Ping(id) => return self.send(Out::Frame(frame::ping(id))).await,
            Control::GoAway | Control::Other => {}
        }
        Ok(())
    }

    async fn open(&mut self, number: u32, headers: Headers, last: bool) -> io::Result<()> {
        self.inputs.retain(|_, input| !input.is_closed());
        if self.inputs.len() >= MOST_STREAMS {
            return self.send(Out::Frame(frame::reset(number, REFUSED))).await;
        }
        let (send, input) = mpsc::channel(QUEUE);
        if !last {
            self.inputs.insert(number, send);
        }
        self.send(Out::Reply(number)).await?;
        let output = Output { stream: number, frames: self.frames.clone() };
        let stream = Stream { number, headers, input, output };
        self.streams.send(stream).await.map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }

    async fn send(&self, out: Out) -> io::Result<()> {
        self.frames.send(out).await.map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }
}

fn malformed(error: crate::spdy::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes bytes as a client. Returns the server's bytes and the number of opened streams after the connection has
    /// ended.
    async fn say(bytes: Vec<u8>) -> (Vec<u8>, usize) {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (streams, mut opened) = mpsc::channel(1024);
        let serving = tokio::spawn(run(server, streams));
        let (mut reader, mut writer) = tokio::io::split(client);
        writer.write_all(&bytes).await.unwrap();
        writer.shutdown().await.unwrap();
        // The session may end with an error.
        let _ = serving.await.unwrap();
        let mut answer = Vec::new();
        reader.read_to_end(&mut answer).await.unwrap();
        let mut count = 0;
        while opened.recv().await.is_some() {
            count += 1;
        }
        (answer, count)
    }

    #[tokio::test]
    async fn hands_over_streams_and_what_is_written_to_them() {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (streams, mut opened) = mpsc::channel(8);
        let serving = tokio::spawn(run(server, streams));
        let mut blocks = BlockWriter::default();
        let (mut reader, mut writer) = tokio::io::split(client);
        writer.write_all(&frame::open(1, &blocks.write(&[("port", "80")]))).await.unwrap();
        writer.write_all(&frame::data(1, true, b"hello")).await.unwrap();
        let mut stream = opened.recv().await.unwrap();
        assert_eq!((stream.number, stream.header("port"), stream.header("none")), (1, "80", ""));
        assert_eq!(stream.input.recv().await.unwrap(), "hello");
        assert_eq!(stream.input.recv().await, None);
        stream.output.write(b"answer").await.unwrap();
        stream.output.close().await;
        serving.await.unwrap().unwrap();
        let mut answer = Vec::new();
        reader.read_to_end(&mut answer).await.unwrap();
        assert!(answer.ends_with(&frame::data(1, false, b"answer")));
    }

    #[tokio::test]
    async fn answers_pings_and_survives_nonsense() {
        let (answer, _) = say(frame::ping(9)).await;
        assert!(answer.is_empty() || answer == frame::ping(9));
        for seed in 0..200_u8 {
            let bytes: Vec<u8> = (0_u8..64).map(|n| n.wrapping_mul(seed) ^ seed.rotate_left(3)).collect();
            say(bytes).await;
        }
        let mut blocks = BlockWriter::default();
        let twice = [frame::open(3, &blocks.write(&[])), frame::open(3, &blocks.write(&[]))].concat();
        assert_eq!(say(twice).await.1, 1);
    }

    #[tokio::test]
    async fn refuses_more_streams_than_anybody_needs() {
        let (client, server) = tokio::io::duplex(1 << 20);
        let (streams, mut opened) = mpsc::channel(1024);
        let serving = tokio::spawn(run(server, streams));
        let mut blocks = BlockWriter::default();
        let (mut reader, mut writer) = tokio::io::split(client);
        let most = u32::try_from(MOST_STREAMS).unwrap();
        for number in 0..=most {
            writer.write_all(&frame::open(2 * number + 1, &blocks.write(&[]))).await.unwrap();
        }
        let refused = frame::reset(2 * most + 1, REFUSED);
        let mut answer = vec![0; 1 << 20];
        let mut length = 0;
        while !answer[..length].ends_with(&refused) {
            length += reader.read(&mut answer[length..]).await.unwrap();
        }
        let mut kept = Vec::new();
        while let Ok(stream) = opened.try_recv() {
            kept.push(stream);
        }
        assert_eq!(kept.len(), MOST_STREAMS);
        serving.abort();
    }
}
