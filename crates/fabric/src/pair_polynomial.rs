//! Secrets that any two ranks of a job share, although each was given a secret of its own only.
//!
//! This is Blom's scheme (R. Blom, "An optimal class of symmetric key generation systems", EUROCRYPT 1984) in the words
//! of C. Blundo et al., "Perfectly-secure key distribution for dynamic conferences", CRYPTO 1992: whoever holds the
//! job's key holds a symmetric polynomial f(x, y); the member at the point `a` is given the polynomial f(a, y) of one
//! variable, and shares f(a, b) with the member at `b`. Members who put together what they have learn nothing of what
//! two others share, as long as there are not more than the polynomial's degree.

use hmac::Mac;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{
    JobKey,
    member_key::{KeyedHash, keyed},
};

/// As many ranks may put together what they were given without learning what two others share. Twice as many would cost
/// a handshake 0.2 us more, and each start of an agent four times the 0.1 ms.
const COLLUDING_MAX: usize = 31;

/// Of each variable.
const COEFFICIENTS: usize = COLLUDING_MAX + 1;

/// What the job's key stands for: the whole polynomial, of which no rank is told.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct PairPolynomial {
    /// By the powers of both variables; the same if they are exchanged.
    coefficients: Box<[[Element; COEFFICIENTS]; COEFFICIENTS]>,
}

/// What one rank is given of it: the polynomial of the other's point.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub(crate) struct PairShare([Element; COEFFICIENTS]);

/// Where in the polynomial a rank stands; each incarnation of each rank at another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point(pub(crate) u64);

/// A number modulo 2^127 - 1, which is a prime.
#[derive(Clone, Copy, Default, PartialEq, Eq, Zeroize, Serialize, Deserialize)]
#[serde(from = "u128", into = "u128")]
struct Element(u128);

impl PairPolynomial {
    /// The polynomial of a job.
    pub(crate) fn of(key: &JobKey) -> Self {
        let hash = keyed(key.as_bytes(), b"ropewalk pairs of ranks");
        let mut coefficients = Box::new([[Element::default(); COEFFICIENTS]; COEFFICIENTS]);
        for x in 0..COEFFICIENTS {
            for y in 0..=x {
                let coefficient = Element::drawn(&hash, [x as u8, y as u8]);
                coefficients[x][y] = coefficient;
                coefficients[y][x] = coefficient;
            }
        }
        Self { coefficients }
    }

    /// What the rank at this point is given.
    pub(crate) fn share(&self, point: Point) -> PairShare {
        PairShare(self.coefficients.each_ref().map(|row| evaluate(row, point)))
    }
}

impl PairShare {
    /// What its owner shares with the rank at this point.
    pub(crate) fn with(&self, point: Point) -> [u8; 16] {
        evaluate(&self.0, point).0.to_le_bytes()
    }
}

/// The value of a polynomial, by Horner's rule.
fn evaluate(coefficients: &[Element; COEFFICIENTS], Point(point): Point) -> Element {
    let point = Element::from(u128::from(point));
    let mut value = Element::default();
    for coefficient in coefficients.iter().rev() {
        value = value.times_plus(point, *coefficient);
    }
    value
}

impl Element {
    const MODULUS: u128 = (1 << 127) - 1;

    fn drawn(hash: &KeyedHash, place: [u8; 2]) -> Self {
        let mut hash = hash.clone();
        hash.update(&place);
        let bytes = hash.finalize().into_bytes();
        let mut low = [0; 16];
        low.copy_from_slice(&bytes[..16]);
        Self::from(u128::from_le_bytes(low))
    }

    /// `self * factor + summand`, without a branch that depends on them.
    fn times_plus(self, Self(factor): Self, Self(summand): Self) -> Self {
        const LOW: u128 = u64::MAX as u128;
        let (a1, a0) = (self.0 >> 64, self.0 & LOW);
        let (b1, b0) = (factor >> 64, factor & LOW);
        // All are below 2^127, so that the upper halves are below 2^63, and no sum here reaches 2^128. Modulo
        // 2^127 - 1 is 2^127 the same as 1, and so 2^128 as 2.
        let middle = a1 * b0 + a0 * b1;
        let low = fold(a0 * b0);
        let shifted = ((middle & (LOW >> 1)) << 64) + 2 * a1 * b1;
        Self::from(fold(fold(fold(shifted) + (middle >> 63)) + low) + summand)
    }
}

/// The same modulo 2^127 - 1, and at most 2^127.
fn fold(number: u128) -> u128 {
    (number & Element::MODULUS) + (number >> 127)
}

impl From<u128> for Element {
    fn from(number: u128) -> Self {
        let folded = fold(number);
        // What is left of 2^127 - 1 and 2^127 are 0 and 1.
        Self((folded + ((folded + 1) >> 127)) & Self::MODULUS)
    }
}

impl From<Element> for u128 {
    fn from(Element(number): Element) -> Self {
        number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit by bit, as it is defined.
    fn slow_product(mut a: u128, b: u128) -> u128 {
        let mut product = 0;
        for bit in 0..127 {
            if b >> bit & 1 == 1 {
                product = (product + a) % Element::MODULUS;
            }
            a = a * 2 % Element::MODULUS;
        }
        product
    }

    fn element() -> impl Strategy<Value = u128> {
        let edges = prop_oneof![
            Just(0),
            Just(1),
            Just(Element::MODULUS - 1),
            Just((1 << 64) - 1),
            Just(1 << 64),
            Just(Element::MODULUS - (1 << 64)),
        ];
        prop_oneof![edges, 0..Element::MODULUS]
    }

    proptest! {
        /// Products and sums are those of the numbers modulo 2^127 - 1, also at the edges.
        #[test]
        fn arithmetic_is_exact(a in element(), b in element(), c in element()) {
            let result = Element(a).times_plus(Element(b), Element(c));
            prop_assert_eq!(result.0, (slow_product(a, b) + c) % Element::MODULUS);
        }

        /// Every number stands for what is left of it.
        #[test]
        fn numbers_are_reduced(number in any::<u128>()) {
            prop_assert_eq!(Element::from(number).0, number % Element::MODULUS);
        }

        /// Two ranks find the same secret, each with its own share.
        #[test]
        fn both_of_a_pair_find_its_secret(key in any::<[u8; 32]>(), a in any::<u64>(), b in any::<u64>()) {
            let polynomial = PairPolynomial::of(&JobKey::from_bytes(key));
            let (a, b) = (Point(a), Point(b));
            prop_assert_eq!(polynomial.share(a).with(b), polynomial.share(b).with(a));
        }
    }

    /// The largest number, and those around the modulus, are reduced too.
    #[test]
    fn numbers_at_the_edge_are_reduced() {
        for number in [
            u128::MAX,
            u128::MAX - 1,
            1 << 127,
            Element::MODULUS,
            Element::MODULUS + 2,
        ] {
            assert_eq!(Element::from(number).0, number % Element::MODULUS, "{number}");
        }
    }

    /// Interpolates what a polynomial of the lowest possible degree through these values has at `at`.
    fn interpolate(values: &[(Point, Element)], at: Point) -> Element {
        let number = |Point(point): Point| u128::from(point);
        let minus = |a: u128, b: u128| Element::from(a + Element::MODULUS - b);
        let zero = Element::default();
        let mut sum = zero;
        for &(point, value) in values {
            let (mut above, mut below) = (value, Element(1));
            for &(other, _) in values.iter().filter(|(other, _)| *other != point) {
                above = above.times_plus(minus(number(at), number(other)), zero);
                below = below.times_plus(minus(number(point), number(other)), zero);
            }
            sum = above.times_plus(inverse(below), sum);
        }
        sum
    }

    /// By Fermat's little theorem.
    fn inverse(element: Element) -> Element {
        let mut power = Element(1);
        for bit in (0..127).rev() {
            power = power.times_plus(power, Element::default());
            if (Element::MODULUS - 2) >> bit & 1 == 1 {
                power = power.times_plus(element, Element::default());
            }
        }
        power
    }

    /// What two ranks share is not to be had from the shares of others by interpolation, as long as there are not too
    /// many; with one more it is, which shows that the attack is one.
    #[test]
    fn few_that_collude_learn_nothing() {
        let polynomial = PairPolynomial::of(&JobKey::from_bytes([5; 32]));
        let (a, b) = (Point(1000), Point(2000));
        let secret = polynomial.share(a).with(b);
        let attack = |number: usize| {
            // Each knows what it shares with `b`, and all of that lies on the polynomial that `b` has.
            let known: Vec<_> = (0..number as u64)
                .map(|rank| {
                    let shared = polynomial.share(Point(rank)).with(b);
                    (Point(rank), Element(u128::from_le_bytes(shared)))
                })
                .collect();
            interpolate(&known, a).0.to_le_bytes()
        };
        assert_ne!(attack(COLLUDING_MAX), secret);
        assert_eq!(attack(COLLUDING_MAX + 1), secret);
    }

    /// Another job key, another rank and another incarnation have other secrets.
    #[test]
    fn secrets_differ() {
        let with = |key: u8, a: u64, b: u64| {
            PairPolynomial::of(&JobKey::from_bytes([key; 32]))
                .share(Point(a))
                .with(Point(b))
        };
        let secrets = [
            with(1, 7, 8),
            with(2, 7, 8),
            with(1, 7, 9),
            with(1, 7 << 32, 8),
            with(1, 7, 7),
        ];
        for (index, secret) in secrets.iter().enumerate() {
            assert!(!secrets[..index].contains(secret));
        }
    }
}
