//! Header blocks: names and values, compressed with a shared dictionary.
//!
//! All blocks of one direction form one zlib stream, so every block must be decompressed, even an unused one.

use zlib_rs::{Deflate, DeflateFlush, Inflate, InflateError, InflateFlush};

use super::{Error, LARGEST_BLOCK, MOST_HEADERS};

/// The dictionary of SPDY/3.
const DICTIONARY: &[u8] = include_bytes!("../data/spdy-dictionary.bin");
/// Size of the zlib window, as a power of two.
const WINDOW: u8 = 15;

/// Names and values.
pub(crate) type Headers = Vec<(String, String)>;

/// Decompresses the blocks of one direction.
pub(crate) struct Reader(Inflate);

/// Compresses the blocks of one direction.
pub(crate) struct Writer(Deflate);

impl Default for Reader {
    fn default() -> Self {
        Self(Inflate::new(true, WINDOW))
    }
}

impl Default for Writer {
    fn default() -> Self {
        let mut deflate = Deflate::new(6, true, WINDOW);
        deflate.set_dictionary(DICTIONARY).expect("a fresh stream takes a dictionary");
        Self(deflate)
    }
}

impl Reader {
    /// Decompresses and parses the next block.
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<Headers, Error> {
        parse(&self.inflate(block)?)
    }

    fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, Error> {
        let (mut out, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let (read, written) = (self.0.total_in(), self.0.total_out());
            let outcome = self.0.decompress(block, &mut buffer, InflateFlush::SyncFlush);
            let advance = |from: u64, to: u64| usize::try_from(to - from).map_err(|_| Error::Headers);
            let (read, written) = (advance(read, self.0.total_in())?, advance(written, self.0.total_out())?);
            block = block.get(read..).ok_or(Error::Headers)?;
            out.extend_from_slice(&buffer[..written]);
            if out.len() > LARGEST_BLOCK {
                return Err(Error::Headers);
            }
            match outcome {
                Err(InflateError::NeedDict { .. }) => {
                    self.0.set_dictionary(DICTIONARY).map_err(|_| Error::Headers)?;
                }
                Err(_) => return Err(Error::Headers),
                Ok(_) if read == 0 && written == 0 => break,
                Ok(_) => {}
            }
        }
        if block.is_empty() { Ok(out) } else { Err(Error::Headers) }
    }
}

impl Writer {
    /// Compresses a block.
    pub(crate) fn write(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = length(headers.len()).to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&length(text.len()));
            plain.extend_from_slice(text.as_bytes());
        }
        let (mut out, mut buffer, mut rest) = (Vec::new(), [0; 4096], &plain[..]);
        loop {
            let (read, written) = (self.0.total_in(), self.0.total_out());
            self.0.compress(rest, &mut buffer, DeflateFlush::SyncFlush).expect("a stream that is not finished goes on");
            let read = usize::try_from(self.0.total_in() - read).unwrap_or_default();
            let written = usize::try_from(self.0.total_out() - written).unwrap_or_default();
            rest = &rest[read..];
            out.extend_from_slice(&buffer[..written]);
            if rest.is_empty() && written < buffer.len() {
                return out;
            }
        }
    }
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("what is written here is short").to_be_bytes()
}

fn parse(plain: &[u8]) -> Result<Headers, Error> {
    let (count, mut rest) = number(plain)?;
    if count > MOST_HEADERS {
        return Err(Error::Headers);
    }
    let mut headers = Headers::new();
    for _ in 0..count {
        let (name, after) = text(rest)?;
        let (value, after) = text(after)?;
        headers.push((name.to_ascii_lowercase(), value));
        rest = after;
    }
    Ok(headers)
}

fn number(plain: &[u8]) -> Result<(u32, &[u8]), Error> {
    let (number, rest) = plain.split_first_chunk().ok_or(Error::Headers)?;
    Ok((u32::from_be_bytes(*number), rest))
}

fn text(plain: &[u8]) -> Result<(String, &[u8]), Error> {
    let (length, rest) = number(plain)?;
    let length = usize::try_from(length).map_err(|_| Error::Headers)?;
    let (text, rest) = rest.split_at_checked(length).ok_or(Error::Headers)?;
    Ok((String::from_utf8(text.to_vec()).map_err(|_| Error::Headers)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_blocks_build_on_earlier_ones() {
        let (mut writer, mut reader) = (Writer::default(), Reader::default());
        for port in ["80", "8080"] {
            let block = writer.write(&[("streamType", "data"), ("port", port)]);
            let expected = [("streamtype", "data"), ("port", port)].map(|(n, v)| (n.to_owned(), v.to_owned()));
            assert_eq!(reader.read(&block), Ok(expected.to_vec()));
        }
        assert_eq!(reader.read(&writer.write(&[])), Ok(Vec::new()));
    }

    #[test]
    fn a_long_block_is_written_whole() {
        let value = "x".repeat(20_000) + &(0..9000).map(|n| n.to_string()).collect::<String>();
        let block = Writer::default().write(&[("a", &value)]);
        assert_eq!(Reader::default().read(&block), Ok(vec![("a".to_owned(), value)]));
    }

    #[test]
    fn refuses_what_is_no_block() {
        assert_eq!(Reader::default().read(b""), Err(Error::Headers));
        assert_eq!(Reader::default().read(b"no zlib stream"), Err(Error::Headers));
        let block = Writer::default().write(&[("a", "b")]);
        for cut in 0..block.len() - 5 {
            assert_eq!(Reader::default().read(&block[..cut]), Err(Error::Headers), "{cut}");
        }
        for at in 0..block.len() {
            let mut broken = block.clone();
            broken[at] ^= 0x55;
            // The call must return, with any result.
            let _ = Reader::default().read(&broken);
        }
    }

    #[test]
    fn a_small_block_cannot_become_a_large_one() {
        let bomb = Writer::default().write(&[("a", &"x".repeat(LARGEST_BLOCK))]);
        assert!(bomb.len() < 1000);
        assert_eq!(Reader::default().read(&bomb), Err(Error::Headers));
        assert_eq!(parse(&[0xff, 0xff, 0xff, 0xff]), Err(Error::Headers));
        assert_eq!(parse(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]), Err(Error::Headers));
    }
}
