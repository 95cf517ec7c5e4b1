//! Arrays and values of a program, by name.

use std::borrow::Cow;

use bytemuck::Pod;
use ropewalk_checkpoint_core::{StateEntry, StateHeader, StateHeaderError};

use super::buffer::{Buffer, copy};

/// A type of numbers whose arrays can be saved by name.
pub trait StateElement: Pod {
    /// The name of the type in the file, as NumPy calls it.
    const NAME: &'static str;
}

macro_rules! elements {
    ($($type:ty => $name:literal,)*) => { $(
        impl StateElement for $type {
            const NAME: &'static str = $name;
        }
    )* };
}

elements! {
    u8 => "uint8",
    u16 => "uint16",
    u32 => "uint32",
    u64 => "uint64",
    i8 => "int8",
    i16 => "int16",
    i32 => "int32",
    i64 => "int64",
    f32 => "float32",
    f64 => "float64",
}

/// A value that may have another type and length in each save, as a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedValue {
    /// The name of its type: ASCII without blanks.
    pub kind: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A part of a program's state with its name: memory to save from, and to restore into.
#[derive(Debug)]
pub struct Named<'a> {
    name: &'a str,
    content: Content<'a>,
}

#[derive(Debug)]
enum Content<'a> {
    Array {
        element: &'a str,
        item: u32,
        shape: Cow<'a, [u64]>,
        is_partitioned: bool,
        bytes: &'a mut [u8],
    },
    /// A value that is marked as partitioned is refused.
    Value(&'a mut SavedValue, bool),
}

impl<'a> Named<'a> {
    /// An array of one axis.
    pub fn array<T: StateElement>(name: &'a str, data: &'a mut [T]) -> Self {
        let shape = Cow::Owned(vec![data.len() as u64]);
        Self::shaped(name, data, shape)
    }

    /// An array of several axes, whose lengths have the length of the data as their product.
    pub fn array_of_shape<T: StateElement>(name: &'a str, data: &'a mut [T], shape: &'a [u64]) -> Self {
        Self::shaped(name, data, Cow::Borrowed(shape))
    }

    /// A number.
    pub fn number<T: StateElement>(name: &'a str, number: &'a mut T) -> Self {
        Self::shaped(name, std::slice::from_mut(number), Cow::Borrowed(&[]))
    }

    /// A value of any type and length.
    pub fn value(name: &'a str, value: &'a mut SavedValue) -> Self {
        Self {
            name,
            content: Content::Value(value, false),
        }
    }

    /// The memory of an array whose elements have a type of any name.
    pub fn memory(name: &'a str, element: &'a str, item: u32, shape: &'a [u64], bytes: &'a mut [u8]) -> Self {
        Self {
            name,
            content: Content::Array {
                element,
                item,
                shape: Cow::Borrowed(shape),
                is_partitioned: false,
                bytes,
            },
        }
    }

    /// Marks an array whose rows, along the first axis, are distributed over the ranks: rank 0 has the first ones.
    /// It can be restored on any number of ranks and with any distribution, if the numbers of rows of all ranks
    /// have the same sum and the other axes are the same. All ranks have to mark it.
    ///
    /// Numbers, values and arrays without a mark are restored on another number of ranks only if all ranks saved
    /// the same content. A value, or an array without an axis, that is marked is an error when it is restored or
    /// saved.
    #[must_use]
    pub fn partitioned(mut self) -> Self {
        let (Content::Array { is_partitioned, .. } | Content::Value(_, is_partitioned)) = &mut self.content;
        *is_partitioned = true;
        self
    }

    fn shaped<T: StateElement>(name: &'a str, data: &'a mut [T], shape: Cow<'a, [u64]>) -> Self {
        Self {
            name,
            content: Content::Array {
                element: T::NAME,
                item: size_of::<T>() as u32,
                shape,
                is_partitioned: false,
                bytes: bytemuck::cast_slice_mut(data),
            },
        }
    }

    fn entry(&self) -> Result<StateEntry, StateHeaderError> {
        match &self.content {
            Content::Array {
                element,
                item,
                shape,
                is_partitioned,
                bytes,
            } => {
                let entry = StateEntry::array(self.name, element, *item, shape)?;
                match entry.bytes() == bytes.len() as u64 {
                    true if *is_partitioned => entry.partitioned(),
                    true => Ok(entry),
                    false => Err(StateHeaderError::Shape {
                        name: self.name.into(),
                    }),
                }
            }
            Content::Value(value, is_partitioned) => {
                let entry = StateEntry::value(self.name, &value.kind, value.bytes.len() as u64)?;
                if *is_partitioned {
                    entry.partitioned()
                } else {
                    Ok(entry)
                }
            }
        }
    }

    /// The bytes to save.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Array { bytes, .. } => bytes,
            Content::Value(value, _) => &value.bytes,
        }
    }

    /// The room for the bytes of a saved entry that matches.
    pub(super) fn room(&mut self, saved: &StateEntry) -> &mut [u8] {
        match &mut self.content {
            Content::Array { bytes, .. } => bytes,
            Content::Value(value, _) => {
                saved.element().clone_into(&mut value.kind);
                value.bytes = vec![0; saved.bytes() as usize];
                &mut value.bytes
            }
        }
    }
}

/// The header that describes a state.
pub(super) fn header_of(state: &[Named<'_>]) -> Result<StateHeader, StateHeaderError> {
    StateHeader::new(state.iter().map(Named::entry).collect::<Result<_, _>>()?)
}

/// Copies a state to a buffer as it stands in the file.
pub(super) fn copy_out(state: &[Named<'_>], buffer: &mut Buffer) -> Result<(), StateHeaderError> {
    let header = header_of(state)?;
    let (text, offsets) = (header.encode(), header.offsets());
    let length = offsets.last().map_or(0, |&end| end as usize);
    // Placed for the copy that takes longest.
    let largest = state
        .iter()
        .zip(&offsets)
        .max_by_key(|(named, _)| named.bytes().len());
    let (offset, source) = largest.map_or((0, std::ptr::null()), |(named, &start)| {
        (start as usize, named.bytes().as_ptr())
    });
    let room = buffer.room(length, offset, source);
    room[..text.len()].copy_from_slice(text.as_bytes());
    let mut end = text.len();
    for (named, &start) in state.iter().zip(&offsets) {
        let (start, bytes) = (start as usize, named.bytes());
        room[end..start].fill(0);
        end = start + bytes.len();
        copy(&mut room[start..end], bytes);
    }
    Ok(())
}
