//! The ring under every order in which two threads can meet, and every value that their processor may show them.

use std::sync::Arc;

use loom::{
    cell::UnsafeCell,
    model::Builder,
    sync::{
        atomic::{AtomicU64, fence},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use super::*;

/// Memory that finds every read or write of bytes that could meet a write of them.
///
/// Each line's bytes are one cell, as a processor moves them.
#[derive(Clone)]
struct Watched {
    words: Arc<Vec<AtomicU64>>,
    lines: Arc<Lines>,
}

struct Lines(Vec<UnsafeCell<[u8; LINE_SIZE]>>);

// SAFETY: the cells are loom's, which fail the test at any access that is not ordered.
unsafe impl Send for Lines {}
// SAFETY: as above.
unsafe impl Sync for Lines {}

impl Watched {
    fn new(layout: Layout) -> Self {
        // Loom has room for few atomics: only the words that a ring has get one.
        let control = 3;
        Self {
            words: Arc::new(
                (0..control + 2 * layout.slots())
                    .map(|_| AtomicU64::new(0))
                    .collect(),
            ),
            lines: Arc::new(Lines(
                (0..layout.slots() + layout.lines())
                    .map(|_| UnsafeCell::new([0; LINE_SIZE]))
                    .collect(),
            )),
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let slots = Layout::new(4, 4).unwrap().slot(0);
        let index = match offset.checked_sub(slots) {
            None => offset / 128,
            Some(in_slots) => 3 + in_slots / LINE_SIZE * 2 + in_slots % LINE_SIZE / 8,
        };
        &self.words[index]
    }

    fn line(&self, offset: usize) -> (&UnsafeCell<[u8; LINE_SIZE]>, usize) {
        let from_slots = offset - Layout::new(4, 4).unwrap().slot(0);
        (&self.lines.0[from_slots / LINE_SIZE], from_slots % LINE_SIZE)
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        for (index, piece) in into.chunks_mut(LINE_SIZE).enumerate() {
            let (line, at) = self.line(offset + index * LINE_SIZE);
            // SAFETY: loom has just checked that nobody writes it.
            line.with(|line| piece.copy_from_slice(unsafe { &(&*line)[at..at + piece.len()] }));
        }
    }
}

impl RingMemory for Watched {
    fn size(&self) -> usize {
        usize::MAX
    }

    fn load(&self, offset: usize, ordering: Ordering) -> u64 {
        self.word(offset).load(ordering)
    }

    fn store(&self, offset: usize, value: u64, ordering: Ordering) {
        self.word(offset).store(value, ordering);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn read_slot(&self, slot: usize, into: &mut [u8; INLINE_MAX]) -> u64 {
        self.read(slot + PAYLOAD, into);
        self.load(slot + TAG, Ordering::Relaxed)
    }

    fn write_slot(&self, slot: usize, header: u64, tag: u64, payload: &[u8]) {
        self.write(slot + PAYLOAD, payload);
        self.store(slot + TAG, tag, Ordering::Relaxed);
        self.store(slot, header, Ordering::Release);
    }

    fn append(&self, offset: usize, length: usize, into: &mut Vec<u8>) {
        let before = into.len();
        into.resize(before + length, 0);
        self.read(offset, &mut into[before..]);
    }

    fn write(&self, offset: usize, from: &[u8]) {
        for (index, piece) in from.chunks(LINE_SIZE).enumerate() {
            let (line, at) = self.line(offset + index * LINE_SIZE);
            // SAFETY: loom has just checked that nobody reads or writes it.
            line.with_mut(|line| unsafe { (&mut *line)[at..at + piece.len()].copy_from_slice(piece) });
        }
    }
}

/// Sends these messages from one thread to another, both of which sleep whenever they have nothing to do; a wake-up
/// that is lost is a deadlock, which loom reports.
fn pass(bodies: &'static [&'static [u8]], preemptions: usize) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let layout = Layout::new(4, 4).unwrap();
        let memory = Watched::new(layout);
        let mut producer = Producer::new(memory.clone(), layout);
        let mut consumer = Consumer::new(memory, layout, 1 << 20);
        let (to_consumer, consumer_bell): (Sender<()>, Receiver<()>) = channel();
        let (to_producer, producer_bell): (Sender<()>, Receiver<()>) = channel();
        let sender = thread::spawn(move || {
            for (number, body) in (0..).zip(bodies) {
                let mut sent = 0;
                while !producer.push(1, number, body, &mut sent).unwrap() {
                    if producer.announce() {
                        to_consumer.send(()).unwrap();
                    }
                    if producer.await_space().unwrap() {
                        producer_bell.recv().unwrap();
                    }
                }
                if producer.announce() {
                    to_consumer.send(()).unwrap();
                }
            }
            (to_consumer, producer_bell)
        });
        for (number, body) in (0..).zip(bodies) {
            let (tag, received) = loop {
                let mut body = Body::new();
                if let Some((_, tag)) = consumer.receive(&mut body).unwrap() {
                    break (tag, body);
                }
                if consumer.take_space_awaited() {
                    to_producer.send(()).unwrap();
                }
                if consumer.sleep() {
                    consumer_bell.recv().unwrap();
                    consumer.wake();
                }
            };
            assert_eq!((tag, &received[..]), (number, *body));
            if consumer.take_space_awaited() {
                to_producer.send(()).unwrap();
            }
        }
        sender.join().unwrap();
    });
}

/// No message and no wake-up is lost when the consumer falls asleep between two messages.
#[test]
fn a_sleeping_consumer_is_woken() {
    pass(&[b"one", b"two"], 3);
}

/// No message and no wake-up is lost when the producer has to wait for slots, all of which are used more than once.
#[test]
fn a_producer_that_waits_for_slots_is_woken() {
    pass(&[b"0", b"1", b"2", b"3", b"4", b"5"], 2);
}

/// No message and no wake-up is lost when the producer has to wait for lines, all of which are used more than once.
#[test]
fn a_producer_that_waits_for_lines_is_woken() {
    const LARGE: &[u8] = &[7; 300];
    pass(&[LARGE, b"small"], 2);
}
