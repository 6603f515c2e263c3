//! Parses the PEM encoding of a private key into one [`Block`]: its label, headers and bytes.
//!
//! Invariant: the input is one block surrounded only by white space. PEM parsers differ in what they skip, but the
//! validated key must be the key that the next parser reads.

use base64::prelude::{BASE64_STANDARD, Engine as _};

/// A PEM block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'t> {
    /// The label, such as `RSA PRIVATE KEY`.
    pub(super) label: &'t str,
    /// Headers, such as `Proc-Type: 4,ENCRYPTED`.
    pub(super) headers: Vec<(&'t str, &'t str)>,
    /// The decoded bytes.
    pub(super) der: Vec<u8>,
}

/// Why the input is not one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBlock {
    /// No line begins a block.
    Absent,
    /// The input contains more than the block.
    NotAlone,
    /// The block has no end, or an invalid line.
    Damaged,
}

impl<'t> Block<'t> {
    /// Parses one block. Blanks around lines are ignored, because indented YAML causes them.
    pub(super) fn read(text: &'t str) -> Result<Self, NoBlock> {
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let begin = lines.iter().position(|line| line.starts_with("-----BEGIN ")).ok_or(NoBlock::Absent)?;
        let label = marker(lines[begin], "-----BEGIN ").ok_or(NoBlock::Damaged)?;
        let rest = &lines[begin + 1..];
        let end = rest.iter().position(|line| line.starts_with("-----")).ok_or(NoBlock::Damaged)?;
        if marker(rest[end], "-----END ") != Some(label) {
            return Err(NoBlock::Damaged);
        }
        if begin > 0 || end + 1 < rest.len() {
            return Err(NoBlock::NotAlone);
        }
        let content = &rest[..end];
        let headers: Vec<_> = content.iter().map_while(|line| line.split_once(": ")).collect();
        // Headers are not valid base64, and base64 lines are not headers.
        let der = BASE64_STANDARD.decode(content[headers.len()..].concat()).map_err(|_| NoBlock::Damaged)?;
        Ok(Self { label, headers, der })
    }

    /// Returns the block as PEM, without its headers.
    pub(super) fn bare(&self) -> String {
        let label = self.label;
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(&self.der))
    }
}

fn marker<'l>(line: &'l str, start: &str) -> Option<&'l str> {
    line.strip_prefix(start)?.strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(&str, usize, &[u8]), NoBlock>) {
        let block = Block::read(text);
        let read = block.as_ref().map(|block| (block.label, block.headers.len(), &*block.der)).map_err(|why| *why);
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn a_block_is_read_alone() {
        check("-----BEGIN X-----\nYQ==\n-----END X-----", Ok(("X", 0, b"a")));
        check(" \n\t-----BEGIN X Y-----\r\n  YW\n Jj \n\n-----END X Y-----\n\n", Ok(("X Y", 0, b"abc")));
        check("-----BEGIN X-----\nA: b\nC: d\n\nYQ==\n-----END X-----", Ok(("X", 2, b"a")));
        check("", Err(NoBlock::Absent));
        check("-----END X-----", Err(NoBlock::Absent));
        check("a\n-----BEGIN X-----\nYQ==\n-----END X-----", Err(NoBlock::NotAlone));
        check("-----BEGIN X-----\nYQ==\n-----END X-----\n-----BEGIN X-----", Err(NoBlock::NotAlone));
    }

    #[test]
    fn a_block_that_is_not_whole_is_damaged() {
        for text in [
            "-----BEGIN X-----",
            "-----BEGIN X-----\nYQ==",
            "-----BEGIN X\nYQ==\n-----END X-----",
            "-----BEGIN X-----\nYQ==\n-----END Y-----",
            "-----BEGIN X-----\nYQ==\n-----END X----",
            "-----BEGIN X-----\n-----BEGIN X-----\nYQ==\n-----END X-----",
            "-----BEGIN X-----\nYQ==\nA: b\n-----END X-----",
            "-----BEGIN X-----\nYQ\n-----END X-----",
        ] {
            check(text, Err(NoBlock::Damaged));
        }
    }

    #[test]
    fn the_bare_block_is_the_block() {
        let block = Block::read("-----BEGIN X-----\nA: b\n\nYW\nJj\n-----END X-----").unwrap();
        let bare = block.bare();
        assert_eq!(Block::read(&bare), Ok(Block { label: "X", headers: Vec::new(), der: b"abc".to_vec() }));
    }
}
