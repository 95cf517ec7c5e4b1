//! Common-image gathers: for each class of offsets an image of its own.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use crate::{Grid, Section};

/// Images by offset class. With the right velocity a reflector lies at the same depth in all of them, which is
/// what common-image gathers are looked at for; their sum is the section.
#[derive(Clone, Debug, PartialEq)]
pub struct Gathers {
    /// Where the image points are.
    pub grid: Grid,
    /// The number of offset classes.
    pub classes: usize,
    /// The values: class after class, in it column after column, each from the surface down.
    pub values: Vec<f32>,
}

impl Gathers {
    /// Empty images.
    pub fn new(grid: Grid, classes: usize) -> Self {
        Self {
            grid,
            classes,
            values: vec![0.0; classes * grid.nodes()],
        }
    }

    /// The image of one class.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn class(&mut self, class: usize) -> &mut [f32] {
        let nodes = self.grid.nodes();
        &mut self.values[class * nodes..][..nodes]
    }

    /// The sum over the classes, in their order.
    pub fn stack(&self) -> Section {
        let mut values = vec![0.0; self.grid.nodes()];
        for class in self.values.chunks_exact(self.grid.nodes()) {
            for (sum, value) in values.iter_mut().zip(class) {
                *sum += value;
            }
        }
        Section {
            grid: self.grid,
            values,
        }
    }

    /// The BLAKE3 digest of the values, as little-endian bytes.
    pub fn digest(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for class in self.values.chunks(self.grid.nodes().max(1)) {
            hasher.update(&little_endian(class));
        }
        hasher.finalize()
    }

    /// Writes a NumPy file of the shape (classes, columns, rows).
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_npy(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&npy_header(&[self.classes, self.grid.columns, self.grid.rows])?)?;
        for class in self.values.chunks(self.grid.nodes().max(1)) {
            file.write_all(&little_endian(class))?;
        }
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()
    }
}

/// NumPy's format 1.0: magic, version, and the description padded so that the values begin at a multiple of 64.
fn npy_header(shape: &[usize]) -> io::Result<Vec<u8>> {
    let shape: String = shape.iter().map(|length| format!("{length}, ")).collect();
    let shape = shape.trim_end();
    let mut description = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
    let before = NPY_MAGIC.len() + size_of::<u16>();
    let padded = (before + description.len() + 1).next_multiple_of(64) - before;
    let length = u16::try_from(padded).map_err(io::Error::other)?;
    description.extend(std::iter::repeat_n(' ', padded - 1 - description.len()));
    description.push('\n');
    Ok([NPY_MAGIC, &length.to_le_bytes(), description.as_bytes()].concat())
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

const NPY_MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid {
        columns: 3,
        rows: 2,
        spacing_m: 1.0,
    };

    /// The stack adds the classes node by node.
    #[test]
    fn stack_is_the_sum_over_classes() {
        let mut gathers = Gathers::new(GRID, 2);
        gathers.class(0)[3] = 1.0;
        gathers.class(1)[3] = 2.0;
        gathers.class(1)[0] = 4.0;
        assert_eq!(gathers.stack().values, [4.0, 0.0, 0.0, 3.0, 0.0, 0.0]);
    }

    /// The file has NumPy's magic, a header of a multiple of 64 bytes that names the shape, and then the values.
    #[test]
    fn npy_is_as_numpy_wants_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gathers.npy");
        let mut gathers = Gathers::new(GRID, 2);
        gathers.class(1)[5] = 1.5;
        gathers.write_npy(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
        assert_eq!(header % 64, 0);
        let text = std::str::from_utf8(&bytes[10..header]).unwrap();
        assert!(
            text.contains("'shape': (2, 3, 2,)") && text.ends_with('\n'),
            "{text}"
        );
        assert_eq!(bytes[header..], little_endian(&gathers.values));
    }
}
