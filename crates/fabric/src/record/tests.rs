//! Tests of the records, between a writer and a reader.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

fn secret(byte: u8) -> RecordSecret {
    RecordSecret::new([byte; 32])
}

/// The records of these contents, one each.
fn records_of(contents: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut writer = RecordWriter::new(secret(1));
    let record_of = |content: &Vec<u8>| {
        assert_eq!(writer.write([&content[..]].into_iter()), content.len());
        let record = writer.unsent().to_vec();
        writer.handle_sent(record.len());
        record
    };
    contents.iter().map(record_of).collect()
}

/// What a reader makes of a stream that comes in pieces of at most this size, and how it ends.
fn read(reader: &mut RecordReader, mut stream: &[u8], size: usize) -> (Vec<u8>, Result<(), FrameError>) {
    let mut content = Vec::new();
    while !stream.is_empty() {
        let space = reader.space();
        assert!(!space.is_empty());
        let count = size.min(stream.len()).min(space.len());
        space[..count].copy_from_slice(&stream[..count]);
        reader.handle_read(count);
        stream = &stream[count..];
        loop {
            match reader.poll() {
                Ok(Some(piece)) => content.extend_from_slice(piece),
                Ok(None) => break,
                Err(error) => return (content, Err(error)),
            }
        }
        assert!(reader.buffer.len() <= RecordReader::BUFFER_SIZE_MAX);
    }
    (content, Ok(()))
}

fn contents() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let length = prop_oneof![1usize..100, 1usize..=RECORD_SIZE_MAX];
    vec(length.prop_flat_map(|length| vec(any::<u8>(), length)), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is written is read, however much is sent and received at once.
    #[test]
    fn what_is_written_is_read(
        stream in vec(any::<u8>(), 1..150_000),
        cut in any::<Index>(),
        sent in 1usize..70_000,
        received in 1usize..70_000,
    ) {
        let mut writer = RecordWriter::new(secret(1));
        let mut reader = RecordReader::new(secret(1));
        let mut rest = &stream[..];
        let mut content = Vec::new();
        while !rest.is_empty() || !writer.unsent().is_empty() {
            while writer.has_room() && !rest.is_empty() {
                let (first, second) = rest.split_at(cut.index(rest.len()));
                let count = writer.write([first, second].into_iter());
                rest = &rest[count..];
            }
            prop_assert!(writer.records.capacity() <= 4 * WHOLE_SIZE_MAX);
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
        let mut records = records_of(&contents);
        let changed = record.index(records.len());
        let at = at.index(records[changed].len());
        records[changed][at] ^= 1u8 << bit;
        // The length may have become that of a longer record.
        records.push(vec![0; WHOLE_SIZE_MAX]);
        let (content, end) = read(&mut RecordReader::new(secret(1)), &records.concat(), size);
        prop_assert!(content == contents[..changed].concat());
        prop_assert_eq!(end, Err(FrameError::Forged { record: changed as u64 }));
    }

    /// A record that is left out, repeated, or changes its place is not passed on, nor is what follows.
    #[test]
    fn records_keep_their_order(contents in contents(), at in any::<Index>(), change in 0..3) {
        let mut records = records_of(&contents);
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
        let (content, end) = read(&mut RecordReader::new(secret(1)), &records.concat(), 4096);
        prop_assert!(content == contents[..untouched].concat());
        if records.len() > untouched {
            prop_assert_eq!(end, Err(FrameError::Forged { record: untouched as u64 }));
        }
    }

    /// A record that has not come to its end is not passed on.
    #[test]
    fn nothing_is_passed_on_of_a_part(contents in contents(), end in any::<Index>()) {
        let records = records_of(&contents);
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
        let (content, result) = read(&mut RecordReader::new(secret(1)), &stream[..end], 4096);
        prop_assert_eq!(result, Ok(()));
        prop_assert!(content == expected);
    }

    /// Garbage, and what is written with another secret, is nothing but an error.
    #[test]
    fn garbage_is_not_read(bytes in vec(any::<u8>(), 0..40_000), size in 1usize..70_000) {
        let (content, _) = read(&mut RecordReader::new(secret(1)), &bytes, size);
        prop_assert!(content.is_empty());
        let records = records_of(&[vec![7; 20]]).concat();
        let (content, end) = read(&mut RecordReader::new(secret(2)), &records, size);
        prop_assert!(content.is_empty());
        prop_assert_eq!(end, Err(FrameError::Forged { record: 0 }));
    }
}

/// An error stays.
#[test]
fn nothing_follows_an_error() {
    let mut reader = RecordReader::new(secret(1));
    let [first, second] = &records_of(&[b"first".to_vec(), b"second".to_vec()])[..] else {
        panic!("two contents are two records");
    };
    let forged = Err(FrameError::Forged { record: 0 });
    assert_eq!(read(&mut reader, second, 100).1, forged);
    assert_eq!(reader.poll(), Err(FrameError::Forged { record: 0 }));
    assert_eq!(read(&mut reader, first, 100), (Vec::new(), forged));
}

/// Keys follow each other on both sides, and are others.
#[test]
fn keys_are_replaced() {
    let mut writer = RecordWriter::new(secret(1));
    let mut reader = RecordReader::new(secret(1));
    for cipher in [&mut writer.cipher, &mut reader.cipher] {
        cipher.number = RECORDS_PER_KEY - 1;
    }
    let mut kept = RecordWriter::new(secret(1));
    kept.cipher.number = RECORDS_PER_KEY;
    for content in [b"last", b"next"] {
        writer.write([&content[..]].into_iter());
        let record = writer.unsent().to_vec();
        writer.handle_sent(record.len());
        assert_eq!(read(&mut reader, &record, 100), (content.to_vec(), Ok(())));
        kept.write([&content[..]].into_iter());
        assert_ne!(kept.unsent(), record);
        kept.handle_sent(record.len());
    }
    assert!(reader.cipher.secret == secret(1).next() && reader.cipher.secret != secret(1));
}

/// A connection with little to say holds little, and one that said much holds no more for it.
#[test]
fn idle_connections_hold_little() {
    let mut writer = RecordWriter::new(secret(1));
    let mut reader = RecordReader::new(secret(1));
    for size in [10, RECORD_SIZE_MAX, 10] {
        writer.write([&vec![0; size][..]].into_iter());
        let record = writer.unsent().to_vec();
        assert_eq!(record.len(), size + RECORD_OVERHEAD);
        writer.handle_sent(record.len());
        assert!(writer.records.capacity() <= RecordWriter::KEPT_SIZE_MAX);
        if size == 10 && reader.cipher.number == 0 {
            assert_eq!(read(&mut reader, &record, record.len()).0, [0; 10]);
            assert_eq!(reader.buffer.len(), RecordReader::BUFFER_SIZE);
        }
    }
}

/// What is printed of secrets tells nothing of them.
#[test]
fn secrets_are_not_printed() {
    assert_eq!(format!("{:?}", secret(255)), "RecordSecret(..)");
}

/// The format, so that it does not change unnoticed; these bytes are what Python's `cryptography` and `hmac` make of it.
#[test]
fn the_format_is_kept() {
    let records = records_of(&[b"ropewalk".to_vec(), b"records".to_vec()]).concat();
    let hex: String = records.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "080075dac577fa473c6ef759030d157f3697e9403fda1882b246",
        "0700ee4e2436cb5c54c13e56c1d8b196578975662157d303e2",
    );
    assert_eq!(hex, expected);
}
