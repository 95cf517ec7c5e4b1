use std::{thread, time::Duration};

use super::*;

fn tables(rows: usize) -> Vec<CallTable> {
    let first = CallTable::create(rows).unwrap();
    let place: TablePlace = first.place().to_string().parse().unwrap();
    let others = (1..rows).map(|own| CallTable::open(&place, rows, own).unwrap());
    let others: Vec<_> = others.collect();
    std::iter::once(first).chain(others).collect()
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
            assert_eq!(table.post(number, &number.to_le_bytes(), &data), Post::Done);
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
    assert_eq!(tables[0].posted(2), CALLS);
}

/// A place is not used again before all have read the record in it, and calls are posted in their order.
#[test]
fn there_is_so_much_room() {
    let tables = tables(2);
    assert_eq!(tables[0].post(1, b"", b""), Post::NoRoom);
    for number in 0..CallTable::PLACES {
        assert_eq!(tables[0].post(number, b"", b""), Post::Done);
    }
    assert_eq!(tables[0].post(CallTable::PLACES, b"", b""), Post::NoRoom);
    tables[0].finish(1);
    assert_eq!(tables[0].post(CallTable::PLACES, b"", b""), Post::NoRoom);
    tables[1].finish(1);
    assert_eq!(tables[0].post(CallTable::PLACES, b"", b""), Post::Done);
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
    assert_eq!(tables[1].post(0, b"call", b"data"), Post::Done);
    assert_eq!(tables[0].post(0, b"call", b""), Post::Done);
    assert_eq!(tables[0].post(1, b"call", b""), Post::Done);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            tables[0].wait(in_a_minute(), || tables[0].state(1) == CallState::Open);
            tables[0].state(1)
        });
        while tables[0].memory.sleepers().load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        tables[0].close(1);
        assert_eq!(waiting.join().unwrap(), CallState::Closed);
    });
    assert_eq!(tables[1].post(1, b"call", b"late"), Post::Closed);
    assert_eq!(tables[0].state(0), CallState::Posted);
    assert_eq!(read(&tables[0], 1, 0).1, b"data");
    assert_eq!(tables[0].missing(1).collect::<Vec<_>>(), [1]);
    assert!(!tables[1].take(0));
    assert_eq!(tables[0].taken(1, 0), Taken::Never);
}

/// Another table in the place of the one that is looked for is found out, and so is who has not come.
#[test]
fn it_is_known_who_has_the_table() {
    let (first, other) = (CallTable::create(2).unwrap(), CallTable::create(2).unwrap());
    let (place, other) = (first.place().to_string(), other.place().to_string());
    let (descriptor, mark) = (
        place.rsplit_once('.').unwrap().0,
        other.rsplit_once('.').unwrap().1,
    );
    let wrong: TablePlace = format!("{descriptor}.{mark}").parse().unwrap();
    assert!(CallTable::open(&wrong, 2, 1).is_err());
    assert_eq!(first.not_joined().collect::<Vec<_>>(), [1]);
    let second = CallTable::open(&place.parse().unwrap(), 2, 1).unwrap();
    assert_eq!(second.not_joined().count(), 0);
}
