use std::sync::Arc;

use super::*;
use crate::{memfd::SharedMapping, provider::shm::ring_memory::Window};

const SIZE_MAX: usize = 4096;

/// Receives and sends over a ring into which the other end has written `bytes`. In each slot that is looked
/// at, the number by which it is seen to be full is put right: bytes that are not looked at find nothing.
pub(crate) fn fuzz_ring(bytes: &[u8]) {
    let layout = Layout::new(8, 16).expect("these are possible sizes");
    let Ok((_, mapping)) = SharedMapping::create("ropewalk-fuzz", layout.size()) else {
        return;
    };
    let mapping = Arc::new(mapping);
    let window = || Window::new(mapping.clone(), 0, layout.size()).expect("it is as large as the layout");
    let memory = window();
    memory.write(0, &bytes[..bytes.len().min(layout.size())]);
    for position in 0..layout.slots() {
        let slot = layout.slot(position);
        let header = memory.load(slot, Ordering::Relaxed) & !u64::from(u32::MAX);
        memory.store(slot, header | u64::from(position + 1), Ordering::Relaxed);
    }
    let mut consumer = Consumer::new(window(), layout, SIZE_MAX);
    let mut body = Body::new();
    while let Ok(Some(_)) = consumer.receive(&mut body) {
        let size = body.len();
        assert!(size <= SIZE_MAX, "a message of {size} bytes is too large");
    }
    let mut producer = Producer::new(window(), layout);
    let mut sent = 0;
    while producer.push(1, 2, &[7; 200], &mut sent) == Ok(true) {
        sent = 0;
    }
    let _ = producer.await_space();
}
