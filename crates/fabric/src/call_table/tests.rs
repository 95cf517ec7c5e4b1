use std::{thread, time::Duration};

use super::*;

fn tables(rows: usize) -> Vec<CallTable> {
    let first = CallTable::create(rows, 0).unwrap();
    let place: TablePlace = first.place().to_string().parse().unwrap();
    let others = (1..rows).map(|own| CallTable::open(&place, rows, own).unwrap());
    let others: Vec<_> = others.collect();
    std::iter::once(first).chain(others).collect()
}

const EMPTY: Record<'_> = short(b"", b"");

const fn short<'a>(call: &'a [u8], data: &'a [u8]) -> Record<'a> {
    Record {
        call,
        data: Data::Short(data),
        result: None,
    }
}

fn read(table: &CallTable, row: usize, number: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut call, mut data) = (Vec::new(), vec![0; CallTable::DATA_SIZE_MAX]);
    table.read_call(row, number, &mut call);
    let length = table.read_data(row, number, &mut data);
    data.truncate(length);
    (call, data)
}

fn in_a_minute() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Processes that wait for each other read what each has posted, also when places are used again.
#[test]
fn records_are_what_was_posted() {
    const CALLS: u64 = 3 * CallTable::PLACES;
    let run = |own: usize, table: &CallTable| {
        for number in 0..CALLS {
            let data = vec![own as u8; number as usize];
            assert_eq!(
                table.post(number, &short(&number.to_le_bytes(), &data)),
                Post::Done
            );
            table.wait(in_a_minute(), || table.state(number) == CallState::Open);
            assert_eq!(table.state(number), CallState::Posted);
            for row in 0..3 {
                let (call, data) = read(table, row, number);
                assert_eq!(call, number.to_le_bytes());
                assert_eq!(data, vec![row as u8; number as usize]);
            }
            table.finish(number + 1);
        }
    };
    let tables = tables(3);
    thread::scope(|scope| {
        for (own, table) in tables.iter().enumerate() {
            scope.spawn(move || run(own, table));
        }
    });
    assert_eq!(tables[0].view.posted(2), CALLS);
}

/// A place is not used again before all have read the record in it, and calls are posted in their order.
#[test]
fn there_is_so_much_room() {
    let tables = tables(2);
    assert_eq!(tables[0].post(1, &EMPTY), Post::NoRoom);
    for number in 0..CallTable::PLACES {
        assert_eq!(tables[0].post(number, &EMPTY), Post::Done);
    }
    assert_eq!(tables[0].post(CallTable::PLACES, &EMPTY), Post::NoRoom);
    tables[0].finish(1);
    assert_eq!(tables[0].post(CallTable::PLACES, &EMPTY), Post::NoRoom);
    tables[1].finish(1);
    assert_eq!(tables[0].post(CallTable::PLACES, &EMPTY), Post::Done);
}

/// A result is taken once, by the process that has it, and earlier ones with it.
#[test]
fn results_are_taken() {
    let tables = tables(2);
    assert_eq!(tables[0].taken(1, 3), Taken::NotYet);
    assert!(tables[1].take(3));
    assert_eq!(tables[0].taken(1, 3), Taken::Yes);
    tables[0].close(1);
    assert_eq!(tables[0].taken(1, 3), Taken::Yes);
    assert_eq!(tables[0].taken(1, 4), Taken::Never);
}

/// Of a row that is closed what was posted stays, and nothing comes to it; who waits is woken.
#[test]
fn a_closed_row_gets_nothing() {
    let tables = tables(2);
    assert_eq!(tables[1].post(0, &short(b"call", b"data")), Post::Done);
    assert_eq!(tables[0].post(0, &short(b"call", b"")), Post::Done);
    assert_eq!(tables[0].post(1, &short(b"call", b"")), Post::Done);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            tables[0].wait(in_a_minute(), || tables[0].state(1) == CallState::Open);
            tables[0].state(1)
        });
        while tables[0].view.memory.sleepers().load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        tables[0].close(1);
        assert_eq!(waiting.join().unwrap(), CallState::Closed);
    });
    assert_eq!(tables[1].post(1, &short(b"call", b"late")), Post::Closed);
    assert_eq!(tables[0].state(0), CallState::Posted);
    assert_eq!(read(&tables[0], 1, 0).1, b"data");
    assert_eq!(tables[0].missing(1).collect::<Vec<_>>(), [1]);
    assert!(!tables[1].take(0));
    assert_eq!(tables[0].taken(1, 0), Taken::Never);
}

/// Another table in the place of the one that is looked for is found out, and so is who has not come.
#[test]
fn it_is_known_who_has_the_table() {
    let (first, other) = (CallTable::create(2, 0).unwrap(), CallTable::create(2, 0).unwrap());
    let (place, other) = (first.place().to_string(), other.place().to_string());
    let mark_of = |place: &str| place.split('.').nth(2).unwrap().to_owned();
    let wrong = place.replace(&mark_of(&place), &mark_of(&other));
    let wrong: TablePlace = wrong.parse().unwrap();
    assert!(CallTable::open(&wrong, 2, 1).is_err());
    assert!(!first.is_shared());
    let second = CallTable::open(&place.parse().unwrap(), 2, 1).unwrap();
    assert!(second.is_shared());
}

/// Long data and a common result stand in memory that all have, and it is free again when all have finished.
#[test]
fn long_data_are_read_by_all() {
    const LENGTH: usize = 1 << 20;
    let tables = tables(2);
    let blocks: Vec<Block> = (0..2)
        .map(|own: usize| {
            let mut block = tables[own].allocate(LENGTH).unwrap();
            block.fill(own as u8 + 1);
            block
        })
        .collect();
    let result = tables[1].allocate(2 * LENGTH).unwrap();
    for own in 0..2 {
        let record = Record {
            call: b"long",
            data: Data::Long(&blocks[own]),
            result: (own == 1).then_some(&result),
        };
        assert_eq!(tables[own].post(0, &record), Post::Done);
    }
    for table in &tables {
        assert!(table.data(0, 0).len() == LENGTH && table.data(0, 0).iter().all(|byte| *byte == 1));
        assert!(table.data(1, 0).iter().all(|byte| *byte == 2));
        assert!(table.result(0, 0).is_none());
    }
    let common = tables[0].result(1, 0).unwrap();
    assert_eq!(common.length(), 2 * LENGTH);
    common.write(2 * LENGTH - 3, &[7, 8, 9]);
    let mut read = [0; 2];
    tables[1].result(1, 0).unwrap().read(2 * LENGTH - 2, &mut read);
    assert_eq!(read, [8, 9]);
    assert_eq!(tables[0].finished_by_all(), 0);
    tables[0].finish(1);
    assert_eq!(tables[0].finished_by_all(), 0);
    tables[1].finish(1);
    assert_eq!(tables[0].finished_by_all(), 1);
}

/// A place or a length outside the areas is no data, whoever says so.
#[test]
fn what_a_record_says_is_not_believed() {
    let tables = tables(2);
    let foreign = Arena::create(1 << 20).unwrap().allocate(100_000).unwrap();
    let record = Record {
        data: Data::Long(&foreign),
        result: Some(&foreign),
        ..EMPTY
    };
    assert_eq!(tables[0].post(0, &record), Post::Done);
    assert!(tables[1].data(0, 0).len() <= CallTable::DATA_SIZE_MAX);
    assert!(tables[1].result(0, 0).is_none());
}

/// Threads share the chunks of calls that follow each other in the same place.
#[test]
fn chunks_of_a_call_are_claimed_once() {
    const COUNT: u32 = 100;
    let tables = tables(2);
    for number in [0, CallTable::PLACES, 2 * CallTable::PLACES] {
        let claim = |table: &CallTable| {
            let claimed = std::iter::from_fn(|| table.claim(number, COUNT));
            let claimed: Vec<u32> = claimed.collect();
            claimed
                .iter()
                .for_each(|chunk| table.finish_chunk(number, *chunk, COUNT));
            claimed
        };
        assert!(!tables[0].is_chunk_finished(number, COUNT - 1));
        let mut claimed = thread::scope(|scope| {
            let other = scope.spawn(|| claim(&tables[1]));
            let own = claim(&tables[0]);
            [own, other.join().unwrap()].concat()
        });
        claimed.sort_unstable();
        assert!(claimed.into_iter().eq(0..COUNT));
        assert!(tables[0].are_chunks_finished(number, COUNT));
    }
}

/// A group has rows of its own order, apart from those of all and of other groups, and all find the same section.
#[test]
fn groups_have_sections() {
    let tables = tables(4);
    let [first, second] = [&[3, 1][..], &[2, 1, 0]];
    assert!(tables[0].section(7, first).is_none());
    assert!(tables[0].section(0, second).is_none());
    let ours: Vec<_> = first
        .iter()
        .map(|row| tables[*row].section(7, first).unwrap())
        .collect();
    let theirs: Vec<_> = second
        .iter()
        .map(|row| tables[*row].section(8, second).unwrap())
        .collect();
    assert_eq!(tables[1].post(0, &short(b"all", b"")), Post::Done);
    assert_eq!(ours[1].post(0, &short(b"ours", b"")), Post::Done);
    assert_eq!(theirs[1].post(0, &short(b"theirs", b"")), Post::Done);
    assert_eq!(read(&ours[0], 1, 0).0, b"ours");
    assert_eq!(read(&theirs[2], 1, 0).0, b"theirs");
    assert_eq!(read(&tables[3], 1, 0).0, b"all");
    ours[0].close(1);
    assert_eq!(ours[1].post(1, &EMPTY), Post::Closed);
    assert_eq!(theirs[1].post(1, &EMPTY), Post::Done);
    // Also those see a section that are not of its group.
    let seen: Vec<_> = tables[2].sections().collect();
    let names: Vec<_> = seen.iter().map(|seen| (seen.name, &seen.members[..])).collect();
    assert_eq!(names, [(7, first), (8, second)]);
    assert_eq!((seen[0].rows.posted(0), seen[0].rows.posted(1)), (0, 1));
}

/// A section is shared when all processes have the table, also those outside the group: they look after the lost.
#[test]
fn a_section_is_shared_by_all() {
    let first = CallTable::create(3, 0).unwrap();
    let open = |own| CallTable::open(&first.place(), 3, own).unwrap();
    let second = open(1);
    let section = second.section(7, &[1, 0]).unwrap();
    assert!(!section.is_shared());
    let _third = open(2);
    assert!(section.is_shared());
}

/// When all sections are in use the next group has none, for any process.
#[test]
fn sections_are_limited() {
    let tables = tables(2);
    let names = 1..=2 * memory::SECTIONS as u64;
    let served = |own: usize| -> Vec<bool> {
        let sections = names.clone().map(|name| tables[own].section(name, &[0, 1]));
        sections.map(|section| section.is_some()).collect()
    };
    assert_eq!(served(0), served(1));
    assert_eq!(
        served(0).iter().filter(|served| **served).count(),
        memory::SECTIONS - 1
    );
}
