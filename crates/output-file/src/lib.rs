//! Files that a command writes: whole or not at all, and nothing else stays behind.

mod output_file;

pub use output_file::{OutputFile, OutputFileError};
