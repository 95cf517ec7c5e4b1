//! The mistake that a buffer's memory is protected from.

/// Writes where a pointer from before points to.
pub(super) fn write(place: *mut u64) {
    // SAFETY: this is not sound. The memory is mapped, and read-only: the write must kill this process.
    unsafe { place.write_volatile(0) };
}
