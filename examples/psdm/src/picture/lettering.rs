//! The lettering of the axes: the few characters that their numbers and names need, as dots.

/// The width of a character and the gap behind it, in dots.
pub(super) const ADVANCE: usize = 6;
/// The height of a character with its descender, in dots.
pub(super) const HEIGHT: usize = 8;
const WIDTH: usize = 5;

/// The dots of a text, as columns and rows from its upper left corner. A character without a shape is a gap.
pub(super) fn dots(text: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    text.chars().enumerate().flat_map(|(index, character)| {
        let shape = SHAPES.iter().find(|(known, _)| *known == character);
        let rows = shape.map_or([0; HEIGHT], |(_, rows)| *rows);
        rows.into_iter().enumerate().flat_map(move |(y, row)| {
            let columns = (0..WIDTH).filter(move |x| row >> (WIDTH - 1 - x) & 1 == 1);
            columns.map(move |x| (index * ADVANCE + x, y))
        })
    })
}

/// A row of dots is a number, whose highest bit is on the left. The last row is below the line.
#[rustfmt::skip]
const SHAPES: [(char, [u8; HEIGHT]); 25] = [
    ('(', [0b00010, 0b00100, 0b01000, 0b01000, 0b01000, 0b00100, 0b00010, 0]),
    (')', [0b01000, 0b00100, 0b00010, 0b00010, 0b00010, 0b00100, 0b01000, 0]),
    ('.', [0, 0, 0, 0, 0, 0b00110, 0b00110, 0]),
    ('0', [0b01110, 0b10001, 0b10001, 0b10001, 0b10001, 0b10001, 0b01110, 0]),
    ('1', [0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110, 0]),
    ('2', [0b01110, 0b10001, 0b00001, 0b00010, 0b00100, 0b01000, 0b11111, 0]),
    ('3', [0b11111, 0b00010, 0b00100, 0b00010, 0b00001, 0b10001, 0b01110, 0]),
    ('4', [0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010, 0]),
    ('5', [0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110, 0]),
    ('6', [0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110, 0]),
    ('7', [0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000, 0]),
    ('8', [0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110, 0]),
    ('9', [0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100, 0]),
    ('a', [0, 0, 0b01110, 0b00001, 0b01111, 0b10001, 0b01111, 0]),
    ('c', [0, 0, 0b01110, 0b10001, 0b10000, 0b10001, 0b01110, 0]),
    ('d', [0b00001, 0b00001, 0b01101, 0b10011, 0b10001, 0b10001, 0b01111, 0]),
    ('e', [0, 0, 0b01110, 0b10001, 0b11111, 0b10000, 0b01110, 0]),
    ('h', [0b10000, 0b10000, 0b10110, 0b11001, 0b10001, 0b10001, 0b10001, 0]),
    ('i', [0b00100, 0, 0b01100, 0b00100, 0b00100, 0b00100, 0b01110, 0]),
    ('k', [0b10000, 0b10000, 0b10010, 0b10100, 0b11000, 0b10100, 0b10010, 0]),
    ('m', [0, 0, 0b11010, 0b10101, 0b10101, 0b10101, 0b10101, 0]),
    ('n', [0, 0, 0b10110, 0b11001, 0b10001, 0b10001, 0b10001, 0]),
    ('p', [0, 0, 0b11110, 0b10001, 0b10001, 0b11110, 0b10000, 0b10000]),
    ('s', [0, 0, 0b01111, 0b10000, 0b01110, 0b00001, 0b11110, 0]),
    ('t', [0b01000, 0b01000, 0b11100, 0b01000, 0b01000, 0b01001, 0b00110, 0]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters have shapes of their own, one behind the other.
    #[test]
    fn characters_are_told_apart() {
        let width = |text: &str| dots(text).map(|(x, _)| x).max().map_or(0, |x| x + 1);
        assert_eq!((width("0.5"), width(" ")), (2 * ADVANCE + WIDTH, 0));
        for (index, (one, shape)) in SHAPES.iter().enumerate() {
            assert!(
                SHAPES[index + 1..].iter().all(|(_, other)| other != shape),
                "{one}"
            );
        }
    }
}
