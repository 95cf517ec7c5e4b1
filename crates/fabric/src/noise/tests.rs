//! Tests of the records, between the two ends of a connection.

use proptest::{collection::vec, prelude::*, sample::Index};
use ropewalk_names::{Incarnation, Rank};

use super::*;
use crate::{Identity, JobKey, Role};

/// Both ends of a connection, of which the first has opened it.
fn connect() -> [Records; 2] {
    let (key, greetings) = (shared_key(), [&b"initiator"[..], b"responder"]);
    let mut opener = NoiseHandshake::opener(&key, greetings);
    let mut answerer = NoiseHandshake::answerer(&key, greetings);
    let opening = opener.open(Opening::Welcome).unwrap();
    assert_eq!(answerer.read_opening(&opening), Ok(Opening::Welcome));
    let answer = answerer.answer().unwrap();
    opener.read_answer(&answer).unwrap();
    [opener, answerer].map(|end| *end.into_records().unwrap())
}

fn shared_key() -> SharedKey {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(0),
        incarnation: Incarnation(0),
    };
    JobKey::from_bytes([1; 32]).key_of(identity).shared_with(identity)
}

/// The records of these contents, one each.
fn records_of(writer: &mut Records, contents: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let record_of = |content: &Vec<u8>| {
        assert_eq!(writer.write(content), content.len());
        let record = writer.unsent().to_vec();
        writer.handle_sent(record.len());
        record
    };
    contents.iter().map(record_of).collect()
}

/// The content that a reader gets of a stream that comes in pieces of at most this size, and how it ends.
fn read(reader: &mut Records, mut stream: &[u8], size: usize) -> (Vec<u8>, Result<(), FrameError>) {
    let mut content = Vec::new();
    let mut scratch = [0; RECORD_SIZE_MAX];
    while !stream.is_empty() {
        let space = reader.space();
        assert!(!space.is_empty());
        let count = size.min(stream.len()).min(space.len());
        space[..count].copy_from_slice(&stream[..count]);
        reader.handle_read(count);
        stream = &stream[count..];
        loop {
            match reader.poll(&mut scratch) {
                Ok(Some(piece)) => content.extend_from_slice(piece),
                Ok(None) => break,
                Err(error) => return (content, Err(error)),
            }
        }
        assert!(reader.buffer.len() <= Records::BUFFER_SIZE_MAX);
    }
    (content, Ok(()))
}

fn contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let length = prop_oneof![1usize..100, 1usize..=RECORD_SIZE_MAX];
    vec(length.prop_flat_map(|length| vec(any::<u8>(), length)), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The written bytes are read, however much is sent and received at once.
    #[test]
    fn what_is_written_is_read(
        stream in vec(any::<u8>(), 1..150_000),
        cut in any::<Index>(),
        sent in 1usize..70_000,
        received in 1usize..70_000,
    ) {
        let [mut writer, mut reader] = connect();
        let mut rest = &stream[..];
        let mut content = Vec::new();
        while !rest.is_empty() || !writer.unsent().is_empty() {
            while writer.has_room() && !rest.is_empty() {
                let count = writer.write(&rest[..=cut.index(rest.len())]);
                rest = &rest[count..];
            }
            prop_assert!(writer.written.capacity() <= 4 * WHOLE_SIZE_MAX);
            let count = writer.unsent().len().min(sent);
            let (more, end) = read(&mut reader, &writer.unsent()[..count], received);
            prop_assert_eq!(end, Ok(()));
            content.extend(more);
            writer.handle_sent(count);
        }
        prop_assert!(content == stream);
    }

    /// Whichever bit is changed, nothing of its record and of all after it is passed on, and it is told which record it
    /// was once all that the reader waits for has come.
    #[test]
    fn changed_bits_are_found(
        contents in contents(),
        record in any::<Index>(),
        at in any::<Index>(),
        bit in 0..8u32,
        size in 1usize..70_000,
    ) {
        let [mut writer, mut reader] = connect();
        let mut records = records_of(&mut writer, &contents);
        let changed = record.index(records.len());
        let at = at.index(records[changed].len());
        records[changed][at] ^= 1u8 << bit;
        // The length may have become that of a longer record.
        records.push(vec![0; WHOLE_SIZE_MAX]);
        let (content, end) = read(&mut reader, &records.concat(), size);
        prop_assert!(content == contents[..changed].concat());
        prop_assert_eq!(end, Err(FrameError::Forged { record: changed as u64 }));
    }

    /// A record that is left out, repeated, or changes its place is not passed on, nor is what follows.
    #[test]
    fn records_keep_their_order(contents in contents(), at in any::<Index>(), change in 0..3) {
        let [mut writer, mut reader] = connect();
        let mut records = records_of(&mut writer, &contents);
        let at = at.index(records.len());
        match change {
            0 => drop(records.remove(at)),
            1 => records.insert(at + 1, records[at].clone()),
            _ if at == 0 => records.rotate_left(1),
            _ => records.swap(at - 1, at),
        }
        let untouched = match change {
            0 => at,
            1 => at + 1,
            _ if records.len() == 1 => 1,
            _ => at.saturating_sub(1),
        };
        let (content, end) = read(&mut reader, &records.concat(), 4096);
        prop_assert!(content == contents[..untouched].concat());
        if records.len() > untouched {
            prop_assert_eq!(end, Err(FrameError::Forged { record: untouched as u64 }));
        }
    }

    /// A record that has not come to its end is not passed on.
    #[test]
    fn nothing_is_passed_on_of_a_part(contents in contents(), end in any::<Index>()) {
        let [mut writer, mut reader] = connect();
        let records = records_of(&mut writer, &contents);
        let stream = records.concat();
        let end = end.index(stream.len());
        let mut whole = 0;
        let mut expected = Vec::new();
        for (record, content) in records.iter().zip(&contents) {
            whole += record.len();
            if whole <= end {
                expected.extend_from_slice(content);
            }
        }
        let (content, result) = read(&mut reader, &stream[..end], 4096);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(content == expected);
    }

    /// Garbage, records of another connection and one's own that come back are nothing but an error.
    #[test]
    fn garbage_is_not_read(bytes in vec(any::<u8>(), 0..40_000), size in 1usize..70_000) {
        let [_, mut reader] = connect();
        let (content, _) = read(&mut reader, &bytes, size);
        prop_assert!(content.is_empty());
        let [mut writer, _] = connect();
        let records = records_of(&mut writer, &[vec![7; 20]]).concat();
        let [_, mut reader] = connect();
        for reader in [&mut reader, &mut writer] {
            let (content, end) = read(reader, &records, size);
            prop_assert!(content.is_empty());
            prop_assert_eq!(end, Err(FrameError::Forged { record: 0 }));
        }
    }
}

/// An error stays.
#[test]
fn nothing_follows_an_error() {
    let [mut writer, mut reader] = connect();
    let [first, second] = &records_of(&mut writer, &[b"first".to_vec(), b"second".to_vec()])[..] else {
        panic!("two contents are two records");
    };
    let forged = Err(FrameError::Forged { record: 0 });
    assert_eq!(read(&mut reader, second, 100).1, forged);
    let mut content = [0; RECORD_SIZE_MAX];
    assert_eq!(reader.poll(&mut content), Err(FrameError::Forged { record: 0 }));
    assert_eq!(read(&mut reader, first, 100), (Vec::new(), forged));
}

/// A connection with little to say holds little, and one that said much holds no more for it.
#[test]
fn idle_connections_hold_little() {
    let [mut writer, mut reader] = connect();
    for size in [10, RECORD_SIZE_MAX, 10] {
        writer.write(&vec![0; size]);
        let record = writer.unsent().to_vec();
        assert_eq!(record.len(), size + RECORD_OVERHEAD);
        writer.handle_sent(record.len());
        assert!(writer.written.capacity() <= Records::KEPT_SIZE_MAX);
        if size == 10 && reader.noise.receiving_nonce() == 0 {
            assert_eq!(read(&mut reader, &record, record.len()).0, [0; 10]);
            assert_eq!(reader.buffer.len(), Records::BUFFER_SIZE);
        }
    }
}

/// A handshake with another key, or with other greetings, fails at its first message.
#[test]
fn both_ends_need_the_same() {
    let key = shared_key();
    let opening = NoiseHandshake::opener(&key, [b"initiator", b"responder"])
        .open(Opening::Fenced)
        .unwrap();
    let agent = Identity {
        role: Role::Agent,
        rank: Rank(0),
        incarnation: Incarnation(0),
    };
    let other_key = JobKey::from_bytes([1; 32]).key_of(agent).shared_with(agent);
    for (key, greeting, expected) in [
        (&key, b"initiator", Ok(Opening::Fenced)),
        (&key, b"initiatoR", Err(HandshakeError::Proof)),
        (&other_key, b"initiator", Err(HandshakeError::Proof)),
    ] {
        let mut answerer = NoiseHandshake::answerer(key, [greeting, b"responder"]);
        assert_eq!(answerer.read_opening(&opening), expected);
    }
}
