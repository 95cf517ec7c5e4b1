//! Array files on disk.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use thiserror::Error;

use super::{Header, HeaderError};

/// An array file, any part of which can be read.
#[derive(Debug)]
pub struct ArrayFile {
    file: File,
    header: Header,
    /// Where the elements begin, in bytes.
    begin: u64,
}

impl ArrayFile {
    /// Opens a file and checks all but the values of its elements: its header, and that its length is what the
    /// header says.
    ///
    /// # Errors
    /// If the file cannot be read or is not such an array.
    pub fn open(path: &Path) -> Result<Self, ArrayFileError> {
        // Asked for before it is opened: opening a pipe would wait for its writer.
        if !fs::metadata(path)?.is_file() {
            return Err(ArrayFileError::NotAFile);
        }
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        // Nearly all headers are shorter than that.
        let mut start = read_start(&file, 512)?;
        let parsed = match Header::parse(&start) {
            Err(HeaderError::Truncated) => {
                start = read_start(&file, Header::SIZE_MAX)?;
                Header::parse(&start)
            }
            parsed => parsed,
        };
        let (header, begin) = parsed?;
        let found = length.saturating_sub(begin as u64);
        let expected = header.data_size();
        if found < expected {
            return Err(ArrayFileError::Truncated { expected, found });
        }
        if found > expected {
            return Err(ArrayFileError::Trailing {
                excess: found - expected,
            });
        }
        Ok(Self {
            file,
            header,
            begin: begin as u64,
        })
    }

    /// The header, which describes the elements.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where the elements begin in it, in bytes.
    pub fn begin(&self) -> u64 {
        self.begin
    }
}

/// The first bytes of a file, at most so many.
fn read_start(file: &File, length_max: usize) -> io::Result<Vec<u8>> {
    let mut start = vec![0; length_max];
    let mut length = 0;
    while length < length_max {
        match file.read_at(&mut start[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    start.truncate(length);
    Ok(start)
}

/// Writes a header and the elements that belong to it.
///
/// # Errors
/// If `writer` fails.
///
/// # Panics
/// If `elements` has not the size that the header says, or another byte order than this machine's.
pub fn write_array(mut writer: impl Write, header: &Header, elements: &[u8]) -> io::Result<()> {
    assert_eq!(
        elements.len() as u64,
        header.data_size(),
        "bytes given and bytes announced differ"
    );
    assert!(
        header.is_native(),
        "elements are written in this machine's byte order"
    );
    writer.write_all(&header.encode())?;
    writer.write_all(elements)
}

/// Why an array file cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArrayFileError {
    /// The header at the beginning of the file is not understood.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The system does not let us.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is a folder, a pipe or a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// There is more than one array in it, or something else at its end.
    #[error("{excess} bytes follow the array that its header describes")]
    Trailing {
        /// How many bytes there are too many.
        excess: u64,
    },
    /// It ends early.
    #[error("it is truncated: it has {found} of the {expected} bytes that its header promises")]
    Truncated {
        /// How many bytes the elements take.
        expected: u64,
        /// How many there are.
        found: u64,
    },
}

impl ArrayFileError {
    /// The reason of the system, if this process cannot open the file; another one, on another host, perhaps can.
    pub(crate) fn not_there(self) -> Result<io::Error, Self> {
        match self {
            Self::Io(error) => Ok(error),
            error => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npy::ElementType;

    /// Files that are too short or too long, folders and missing files are refused when they are opened.
    #[test]
    fn refuses_other_lengths_than_promised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("array.npy");
        let header = Header::new(ElementType::F64, vec![2]).encode();
        for (length, problem) in [
            (15, "it is truncated: it has 15 of the 16 bytes"),
            (17, "1 bytes follow"),
        ] {
            fs::write(&path, [&header[..], &vec![0; length]].concat()).unwrap();
            let error = ArrayFile::open(&path).unwrap_err().to_string();
            assert!(error.starts_with(problem), "{error}");
        }
        assert!(matches!(
            ArrayFile::open(folder.path()),
            Err(ArrayFileError::NotAFile)
        ));
        let missing = ArrayFile::open(&folder.path().join("missing.npy"));
        assert!(matches!(missing, Err(ArrayFileError::Io(_))));
    }
}
