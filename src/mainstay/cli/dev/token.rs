//! The token of the administrator of the embedded cluster.

use ring::rand::{SecureRandom as _, SystemRandom};

const BYTES: usize = 32;

/// Returns a new token; `None` if the system has no random bytes.
pub(super) fn random() -> Option<String> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_long_and_never_the_same() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_eq!((one.len(), one == other), (64, false));
    }
}
