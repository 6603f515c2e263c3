//! Mutates seeds, because mostly valid input reaches further than random bytes.
//!
//! Not here: coverage. `cargo fuzz` measures it, and its findings are among the seeds.

use fastrand::Rng;

/// Maximum size of an input in bytes.
const LONGEST: usize = 16 << 10;
/// Maximum length of a word that is copied to other positions, in bytes.
const WORD: usize = 32;

/// Tokens that are special in any format.
const TOKENS: [&[u8]; 36] = [
    b"",
    b"\0",
    b"\n",
    b"\r\n",
    b"\n\n",
    b" ",
    b"\t",
    b"-",
    b"- ",
    b"---\n",
    b":",
    b": ",
    b",",
    b"=",
    b"\"",
    b"'",
    b"\\",
    b"/",
    b"../",
    b"*",
    b"**/",
    b"[",
    b"]",
    b"{",
    b"}",
    b"{}",
    b"[]",
    b"&a ",
    b"*a",
    b"%",
    b"null",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc3",
    "\u{202e}".as_bytes(),
    "\u{85}".as_bytes(),
];

/// Numbers at the limits of arithmetic.
const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "127",
    "256",
    "65535",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775808",
    "18446744073709551616",
    "1e999",
];

/// Generates inputs from seeds.
pub(super) struct Mutator {
    random: Rng,
    kept: Vec<Vec<u8>>,
    /// Words of the seeds: field names, types, prefixes.
    words: Vec<Vec<u8>>,
}

impl Mutator {
    /// Creates a mutator of at least one seed.
    pub(super) fn new(kept: Vec<Vec<u8>>, random: Rng) -> Self {
        let is_in_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let words = kept.iter().flat_map(|input| input.split(|byte| !is_in_word(byte)));
        let mut words: Vec<_> = words.filter(|word| (2..=WORD).contains(&word.len())).map(<[u8]>::to_vec).collect();
        words.sort();
        words.dedup();
        Self { random, kept, words }
    }

    /// Returns the next input.
    pub(super) fn next(&mut self) -> Vec<u8> {
        let mut input = self.one_kept();
        // Mostly few changes: each one makes an early rejection more likely.
        for _ in 0..1 << self.random.u32(0..5) {
            input = self.changed(input);
            input.truncate(LONGEST);
            if self.random.bool() {
                break;
            }
        }
        input
    }

    fn one_kept(&mut self) -> Vec<u8> {
        let at = self.random.usize(0..self.kept.len());
        self.kept[at].clone()
    }

    fn changed(&mut self, mut input: Vec<u8>) -> Vec<u8> {
        let (from, to) = self.range(input.len());
        match self.random.u8(0..10) {
            0 => input.iter_mut().skip(from).take(1).for_each(|byte| *byte ^= 1 << self.random.u8(0..8)),
            1 => input.iter_mut().skip(from).take(1).for_each(|byte| *byte = self.random.u8(..)),
            2 => replace(&mut input, from, from, &self.token()),
            3 => replace(&mut input, from, to, &self.token()),
            4 => replace(&mut input, from, to, &[]),
            5 => {
                // Repetition yields deep and long inputs.
                let repeated = input[from..to].repeat(1 << self.random.u32(0..9));
                replace(&mut input, to, to, &repeated[..repeated.len().min(LONGEST)]);
            }
            6 => {
                let other = self.one_kept();
                let (begin, end) = self.range(other.len());
                replace(&mut input, from, to, &other[begin..end]);
            }
            7 => {
                let other = self.one_kept();
                let (_, begin) = self.range(other.len());
                replace(&mut input, from, usize::MAX, &other[begin..]);
            }
            8 => self.renumber(&mut input, from),
            _ => self.resize(&mut input, from),
        }
        input
    }

    /// Returns a range within `length` bytes, mostly a short one.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.random.usize(0..=length);
        let most = if self.random.bool() { 8 } else { length };
        (from, (from + self.random.usize(0..=most)).min(length))
    }

    fn token(&mut self) -> Vec<u8> {
        match self.random.u8(0..4) {
            0 => NUMBERS[self.random.usize(0..NUMBERS.len())].into(),
            1 | 2 if !self.words.is_empty() => self.words[self.random.usize(0..self.words.len())].clone(),
            _ => TOKENS[self.random.usize(0..TOKENS.len())].to_vec(),
        }
    }

    /// Replaces the first number after a position.
    fn renumber(&mut self, input: &mut Vec<u8>, after: usize) {
        let Some(from) = (after..input.len()).find(|at| input[*at].is_ascii_digit()) else { return };
        let digits = input[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = NUMBERS[self.random.usize(0..NUMBERS.len())];
        replace(input, from, from + digits, number.as_bytes());
    }

    /// Writes a limit of a binary number at a position, in either byte order.
    fn resize(&mut self, input: &mut Vec<u8>, at: usize) {
        let edge = 1_u64 << self.random.u32(0..64);
        let number = if self.random.bool() { edge } else { edge.wrapping_sub(1) };
        let (low, high, size) = (number.to_le_bytes(), number.to_be_bytes(), 1 << self.random.usize(0..4));
        let bytes = if self.random.bool() { &low[..size] } else { &high[8 - size..] };
        replace(input, at, at + size, bytes);
    }
}

fn replace(input: &mut Vec<u8>, from: usize, to: usize, with: &[u8]) {
    let end = to.min(input.len());
    input.splice(from..end.max(from), with.iter().copied());
}
