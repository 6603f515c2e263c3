//! Determines the kind of an armored signature, and checks that the input contains only one.
//!
//! Invariant: the whole input is checked, because parsers differ in what they skip around a block.

use super::fault::SignatureFault;

/// Maximum length of a signature, in bytes. An OpenPGP signature by a 16 384 bit key has about 3 000.
pub(super) const LONGEST: usize = 64 << 10;

/// The armored signature, by kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind<'s> {
    OpenPgp(&'s str),
    Ssh(&'s str),
}

/// Returns the kind of a signature.
pub(super) fn kind(signature: &[u8]) -> Result<Kind<'_>, SignatureFault> {
    let unreadable = |why| SignatureFault::Unreadable { why };
    if signature.len() > LONGEST {
        return Err(unreadable("it has more than 64 KiB"));
    }
    let text = std::str::from_utf8(signature).map_err(|_| unreadable("it is not UTF-8"))?;
    if text.contains('\r') {
        return Err(unreadable("its lines end in carriage returns"));
    }
    if text.starts_with("-----BEGIN SIGNED MESSAGE-----") {
        return Err(unreadable("S/MIME (X.509) is not supported; sign with OpenPGP or SSH"));
    }
    for (label, made) in
        [("SSH SIGNATURE", Kind::Ssh as fn(_) -> _), ("PGP SIGNATURE", Kind::OpenPgp), ("PGP MESSAGE", Kind::OpenPgp)]
    {
        if text.starts_with(&format!("-----BEGIN {label}-----\n")) {
            let ends = text.trim_end_matches('\n').ends_with(&format!("\n-----END {label}-----"));
            let markers = text.lines().filter(|line| line.starts_with("-----")).count();
            if !ends || markers != 2 {
                return Err(unreadable("it is not one block with nothing before, in or behind it"));
            }
            return Ok(made(text));
        }
    }
    Err(unreadable("it is neither OpenPGP's nor SSH's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_is_all_there_may_be() {
        let block = "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n";
        assert_eq!(kind(block.as_bytes()), Ok(Kind::Ssh(block)));
        assert!(matches!(kind(block.replace("SSH", "PGP").as_bytes()), Ok(Kind::OpenPgp(_))));
        let bad = [
            String::new(),
            format!("{block}{block}"),
            format!("{block}x"),
            format!("x\n{block}"),
            block.replace("AAAA", &format!("AAAA\n{block}")),
            block.replace('\n', "\r\n"),
            block.replace("END SSH", "END PGP"),
            block.replace("AAAA", &"A".repeat(LONGEST)),
            block.replace("SSH SIGNATURE", "SIGNED MESSAGE"),
            "-----BEGIN SSH SIGNATURE-----".to_owned(),
        ];
        for text in bad {
            assert!(kind(text.as_bytes()).is_err(), "{text:.80}");
        }
        assert!(kind(b"\xff\xfe").is_err());
    }
}
