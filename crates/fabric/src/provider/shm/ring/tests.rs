use std::{collections::VecDeque, sync::Arc};

use proptest::prelude::*;

use super::*;
use crate::{memfd::SharedMapping, provider::shm::ring_memory::Window};

const SIZE_MAX: usize = 1 << 20;

/// Both ends of a ring, as two processes would have them, and the memory itself.
fn ring(layout: Layout) -> (Producer<Window>, Consumer<Window>, Window) {
    let (_, mapping) = SharedMapping::create("test", layout.size().next_multiple_of(4096)).unwrap();
    let mapping = Arc::new(mapping);
    let window = || Window::new(mapping.clone(), 0, layout.size()).unwrap();
    (
        Producer::new(window(), layout),
        Consumer::new(window(), layout, SIZE_MAX),
        window(),
    )
}

fn small() -> Layout {
    Layout::new(8, 16).unwrap()
}

fn push(producer: &mut Producer<Window>, body: &[u8]) -> bool {
    let mut sent = 0;
    producer.push(1, 2, body, &mut sent).unwrap()
}

/// A message that came out of the ring.
#[derive(Debug, PartialEq, Eq)]
struct Message {
    kind: u8,
    tag: u64,
    body: Vec<u8>,
}

fn receive_message(consumer: &mut Consumer<Window>) -> Result<Option<Message>, FrameError> {
    let mut body = Body::new();
    let received = consumer.receive(&mut body)?;
    Ok(received.map(|(kind, tag)| Message {
        kind,
        tag,
        body: body.to_vec(),
    }))
}

fn receive(consumer: &mut Consumer<Window>) -> Option<Vec<u8>> {
    receive_message(consumer).unwrap().map(|message| message.body)
}

#[derive(Clone, Debug)]
enum Step {
    Push { kind: u8, tag: u64, body: Vec<u8> },
    Receive,
    Sleep,
    AwaitSpace,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![0..=100usize, 200..=300usize, 900..=5000usize];
    let body = size.prop_flat_map(|size| prop::collection::vec(any::<u8>(), size));
    let push =
        (0..=KIND_MAX, any::<u64>(), body).prop_map(|(kind, tag, body)| Step::Push { kind, tag, body });
    let step =
        prop_oneof![4 => push, 6 => Just(Step::Receive), 1 => Just(Step::Sleep), 1 => Just(Step::AwaitSpace)];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever is pushed comes out once, unchanged and in order, at any position of the counters; and whoever asked
    /// for the doorbell is told.
    #[test]
    fn is_a_queue(steps in steps(), slots in 2u32..5, lines in 2u32..7, laps in 1u32..4) {
        let layout = Layout::new(1 << slots, 1 << lines).unwrap();
        let (mut producer, mut consumer, memory) = ring(layout);
        // Near the counters' overflow, but not in the last lap before it: its last slot is full when it holds zeros, as
        // it does only at the very beginning.
        let start = Counters {
            slots: (laps * layout.slots()).wrapping_neg().wrapping_sub(layout.slots()),
            lines: (laps * layout.lines()).wrapping_neg().wrapping_sub(layout.lines()),
        };
        memory.store(CONSUMED, start.pack(), Ordering::Relaxed);
        (producer.written, producer.consumed) = (start, start);
        (consumer.consumed, consumer.published) = (start, start);

        let mut unsent = VecDeque::new();
        let mut expected = VecDeque::new();
        let (mut asleep, mut waiting) = (false, false);
        for step in steps {
            match step {
                Step::Push { kind, tag, body } => {
                    expected.push_back(Message { kind, tag, body: body.clone() });
                    unsent.push_back((kind, tag, body, 0));
                }
                Step::Receive => match receive_message(&mut consumer).unwrap() {
                    Some(message) => prop_assert_eq!(Some(message), expected.pop_front()),
                    None => prop_assert!(!consumer.is_ready()),
                },
                Step::Sleep => asleep = consumer.sleep(),
                Step::AwaitSpace => waiting = producer.await_space().unwrap(),
            }
            let before = producer.written;
            while let Some((kind, tag, body, sent)) = unsent.front_mut() {
                if !producer.push(*kind, *tag, body, sent).unwrap() {
                    break;
                }
                unsent.pop_front();
            }
            prop_assert_eq!(producer.announce(), asleep && consumer.is_asleep() && producer.written != before);
            asleep &= producer.written == before && consumer.is_asleep();
            prop_assert!(!asleep || !consumer.is_ready());
            if consumer.take_space_awaited() {
                prop_assert!(waiting);
                waiting = false;
            }
        }
        while !expected.is_empty() {
            while let Some((kind, tag, body, sent)) = unsent.front_mut() {
                if !producer.push(*kind, *tag, body, sent).unwrap() {
                    break;
                }
                unsent.pop_front();
            }
            while let Some(message) = receive_message(&mut consumer).unwrap() {
                prop_assert_eq!(Some(message), expected.pop_front());
            }
        }
        prop_assert_eq!(receive_message(&mut consumer).unwrap(), None);
    }

    /// Whatever a hostile producer has written, the consumer ends with an error or has nothing more, and never
    /// holds more than a message may have.
    #[test]
    fn garbage_is_an_error_or_nothing(
        words in prop::collection::vec((0..200usize, any::<u64>()), 1..64),
        seeds in prop::collection::vec(any::<u32>(), 8),
    ) {
        let layout = small();
        let (_, mut consumer, memory) = ring(layout);
        for (word, value) in words {
            memory.store(word * 8, value, Ordering::Relaxed);
        }
        // Headers that are looked at, because their sequence is right.
        for (position, seed) in (0u32..).zip(seeds) {
            let fields = match seed % 4 {
                0 => seed & 0x0000_003f,
                1 => layout.piece_max() as u32 | MORE,
                2 => seed & 0x8fff_ffff,
                _ => seed,
            };
            let header = u64::from(position + 1) | u64::from(fields) << 32;
            memory.store(layout.slot(position), header, Ordering::Relaxed);
        }
        for _ in 0..=layout.slots() {
            match receive_message(&mut consumer) {
                Ok(Some(message)) => prop_assert!(message.body.len() <= SIZE_MAX),
                Ok(None) => break,
                Err(_) => return Ok(()),
            }
        }
        prop_assert!(!consumer.is_ready());
    }
}

/// A full ring takes nothing more until a quarter of it is consumed, and then tells the producer that waits.
#[test]
fn a_full_ring_waits_for_space() {
    let (mut producer, mut consumer, _) = ring(small());
    for _ in 0..8 {
        assert!(push(&mut producer, b"small"));
    }
    assert!(!push(&mut producer, b"small"));
    assert!(producer.await_space().unwrap());
    receive(&mut consumer).unwrap();
    assert!(!consumer.take_space_awaited());
    receive(&mut consumer).unwrap();
    assert!(consumer.take_space_awaited());
    assert!(push(&mut producer, b"small"));
    assert!(!producer.await_space().unwrap(), "there is space");
}

/// A message larger than the byte ring goes through it in pieces.
#[test]
fn a_large_message_goes_in_pieces() {
    let (mut producer, mut consumer, _) = ring(small());
    let body: Vec<u8> = (0..100_000u32).map(|number| (number % 251) as u8).collect();
    let mut sent = 0;
    let mut received = None;
    while received.is_none() {
        producer.push(3, 4, &body, &mut sent).unwrap();
        received = receive_message(&mut consumer).unwrap();
    }
    let expected = Message {
        kind: 3,
        tag: 4,
        body,
    };
    assert_eq!(received, Some(expected));
}

/// One who sends more than a message may have is cut off, and memory for it was never more than what came.
#[test]
fn a_message_without_end_is_an_error() {
    let (mut producer, mut consumer, _) = ring(small());
    let body = vec![0; 2 * SIZE_MAX];
    let mut sent = 0;
    let error = loop {
        producer.push(1, 2, &body, &mut sent).unwrap();
        match receive_message(&mut consumer) {
            Ok(message) => assert_eq!(message, None),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FrameError::Length { length } if length > SIZE_MAX && length < SIZE_MAX + 1000));
    assert!(sent < SIZE_MAX + 2 * small().lines() as usize * LINE_SIZE);
}

/// A consumer that says to have consumed what was not sent, or to have gone back, is found out.
#[test]
fn impossible_counters_are_an_error() {
    for counters in [
        Counters { slots: 9, lines: 0 },
        Counters { slots: 0, lines: 1 },
        Counters {
            slots: u32::MAX,
            lines: 0,
        },
    ] {
        let (mut producer, _, memory) = ring(small());
        for _ in 0..8 {
            assert!(push(&mut producer, b"small"));
        }
        memory.store(CONSUMED, counters.pack(), Ordering::Relaxed);
        let mut sent = 0;
        assert_eq!(producer.push(1, 2, b"small", &mut sent), Err(FrameError::Counter));
        assert_eq!(producer.await_space(), Err(FrameError::Counter));
    }
}

/// Two threads that sleep and ring pass messages of all sizes without loss.
#[test]
fn two_threads_pass_messages() {
    let (mut producer, mut consumer, _) = ring(small());
    let sizes = |number: usize| (number * 37) % 700;
    let (to_consumer, consumer_bell) = std::sync::mpsc::channel();
    let (to_producer, producer_bell) = std::sync::mpsc::channel();
    const COUNT: usize = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                let body = vec![number as u8; sizes(number)];
                let mut sent = 0;
                while !producer.push(1, number as u64, &body, &mut sent).unwrap() {
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
        });
        for number in 0..COUNT {
            let message = loop {
                if let Some(message) = receive_message(&mut consumer).unwrap() {
                    break message;
                }
                if consumer.take_space_awaited() {
                    to_producer.send(()).unwrap();
                }
                if consumer.sleep() {
                    consumer_bell.recv().unwrap();
                    consumer.wake();
                }
            };
            assert_eq!(message.tag, number as u64);
            assert_eq!(message.body, vec![number as u8; sizes(number)]);
            if consumer.take_space_awaited() {
                // It may have sent its last message and ended.
                let _ = to_producer.send(());
            }
        }
    });
}
