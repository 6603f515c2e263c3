//! Combines shares into a data key (Shamir's scheme, bytewise in GF(2^8)).
//!
//! A share consists of one value for each byte of the secret, followed by the point at which the values were computed.

use zeroize::Zeroizing;

/// The reduction polynomial of the field, without its highest term.
const POLYNOMIAL: u8 = 0x1b;

/// Returns the secret; `None` if the shares are inconsistent because their lengths differ or two have the same point.
pub(super) fn combine(shares: &[Zeroizing<Vec<u8>>]) -> Option<Zeroizing<Vec<u8>>> {
    let length = shares.first()?.len().checked_sub(1)?;
    if length == 0 || shares.iter().any(|share| share.len() != length + 1) {
        return None;
    }
    let points: Vec<u8> = shares.iter().map(|share| share[length]).collect();
    let is_sound = points.iter().enumerate().all(|(at, x)| *x != 0 && !points[..at].contains(x));
    if !is_sound {
        return None;
    }
    // The weight of each share is its Lagrange polynomial at 0. Subtraction equals addition in this field.
    let weight = |x: u8| {
        let others = points.iter().filter(|other| **other != x);
        others.fold(1, |product, other| multiply(product, multiply(*other, inverse(*other ^ x))))
    };
    let weights: Vec<u8> = points.iter().map(|x| weight(*x)).collect();
    let byte =
        |at: usize| shares.iter().zip(&weights).fold(0, |sum, (share, weight)| sum ^ multiply(share[at], *weight));
    Some(Zeroizing::new((0..length).map(byte).collect()))
}

/// Multiplies in constant time, because branches or tables would leak secrets through timing.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    for _ in 0..8 {
        product ^= a & 0u8.wrapping_sub(b & 1);
        let high = 0u8.wrapping_sub(a >> 7);
        a = a << 1 ^ (POLYNOMIAL & high);
        b >>= 1;
    }
    product
}

/// Returns the inverse of an element, which is its 254th power.
fn inverse(a: u8) -> u8 {
    let mut power = a;
    let mut result = 1;
    for _ in 0..7 {
        power = multiply(power, power);
        result = multiply(result, power);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_shares_of_a_line_are_its_value_at_zero() {
        let secret = *b"a data key of thirty-two bytes!!";
        let share = |x: u8| {
            let values = secret.iter().enumerate().map(|(at, s)| s ^ multiply(x, u8::try_from(at * 7 + 3).unwrap()));
            Zeroizing::new(values.chain([x]).collect::<Vec<u8>>())
        };
        for (a, b) in [(1, 2), (2, 1), (7, 255), (90, 13)] {
            assert_eq!(combine(&[share(a), share(b)]).unwrap().as_slice(), secret);
        }
        assert_ne!(combine(&[share(1)]).unwrap().as_slice(), secret);
        assert_eq!(combine(&[share(1), share(1)]), None, "one point twice");
        assert_eq!(combine(&[share(0), share(1)]), None, "the secret itself");
        assert_eq!(combine(&[share(1), Zeroizing::new(vec![1, 2])]), None);
        assert_eq!((combine(&[]), combine(&[Zeroizing::default()])), (None, None));
    }

    #[test]
    fn everything_but_zero_has_an_inverse() {
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1, "{a}");
        }
    }
}
