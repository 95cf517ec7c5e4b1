//! Memory of contributions that is used again.

use std::{
    any::{Any, TypeId},
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use bytemuck::Pod;
use ropewalk_reduce::Buffer;

/// Buffers of calls that have ended: a loop that reduces vectors of the same lengths allocates once.
#[derive(Default)]
pub(crate) struct SpareBuffers {
    buffers: Mutex<Buffers>,
}

#[derive(Default)]
struct Buffers {
    kept: VecDeque<Spare>,
    bytes: usize,
}

struct Spare {
    key: (TypeId, usize),
    bytes: usize,
    buffer: Box<dyn Any + Send>,
}

/// The most bytes that are kept, unless one buffer alone is larger.
const BYTES_MAX: usize = 256 << 20;

impl SpareBuffers {
    /// A buffer of so many elements, if one is here. Its elements are those of its last call.
    pub(crate) fn take<T: Pod + Send>(&self, length: usize) -> Option<Buffer<T>> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (TypeId::of::<T>(), length);
        let place = buffers.kept.iter().position(|spare| spare.key == key)?;
        let spare = buffers.kept.remove(place)?;
        buffers.bytes -= spare.bytes;
        spare.buffer.downcast().ok().map(|buffer| *buffer)
    }

    /// Keeps a buffer for later, and frees the oldest ones if these are too many.
    pub(crate) fn put<T: Pod + Send>(&self, buffer: Buffer<T>) {
        let (length, bytes) = (buffer.len(), size_of_val(&*buffer));
        let spare = Spare {
            key: (TypeId::of::<T>(), length),
            bytes,
            buffer: Box::new(buffer),
        };
        let mut freed = Vec::new();
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.bytes += bytes;
        buffers.kept.push_back(spare);
        while buffers.bytes > BYTES_MAX && buffers.kept.len() > 1 {
            if let Some(oldest) = buffers.kept.pop_front() {
                buffers.bytes -= oldest.bytes;
                freed.push(oldest);
            }
        }
        drop(buffers);
        // Unmapping takes its time.
        drop(freed);
    }
}
