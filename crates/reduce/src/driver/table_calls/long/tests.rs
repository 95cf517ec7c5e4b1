use std::thread;

use ropewalk_fabric::{Block, Data, Record, TablePlace};
use ropewalk_names::Rank;

use super::*;
use crate::{
    folding::Memory,
    operation::{Fold, Operation, elementwise},
    ordered_fold,
    signature::{OnLoss, Order, RootFailure},
};

/// Several chunks of whole elements, the last of which is shorter.
const LENGTH: usize = 100_000;

/// Neither the order of two operands nor the brackets may change.
fn operation() -> Operation<Vec<u32>> {
    elementwise("mix", |left: u32, right: u32| {
        left.wrapping_mul(31).rotate_left(7) ^ right
    })
}

fn contribution(rank: usize) -> Vec<u32> {
    let element = |at: usize| (at as u32).wrapping_mul(2_654_435_761) ^ (rank as u32) << 13;
    (0..LENGTH).map(element).collect()
}

fn signature(contributions: Contributions, root: usize, is_spread: bool) -> Signature {
    let operation = operation();
    Signature {
        operation: operation.name,
        element: operation.element,
        element_size: operation.element_size,
        length: Some(4 * LENGTH as u64),
        contributions,
        root: Rank(root as u32),
        is_spread,
        order: Order::Ordered,
        on_loss: OnLoss::Fail,
        on_root_loss: RootFailure::Fail,
    }
}

fn tables(ranks: usize) -> Vec<CallTable> {
    let first = CallTable::create(ranks, 0).unwrap();
    let place: TablePlace = first.place().to_string().parse().unwrap();
    let others = (1..ranks).map(|own| CallTable::open(&place, ranks, own).unwrap());
    let others: Vec<_> = others.collect();
    std::iter::once(first).chain(others).collect()
}

/// The results of all ranks of one call.
fn results(ranks: usize, signature: &Signature, is_block: bool, is_lent: bool) -> Vec<Option<Vec<u32>>> {
    let Fold::Elements(fold) = operation().fold else {
        panic!("vectors are reduced")
    };
    let tables = tables(ranks);
    let mut blocks: Vec<Block> = Vec::new();
    let calls: Vec<LongCall> = (0..ranks)
        .map(|own| {
            let table = &tables[own];
            let mine = contribution(own);
            let rows = (signature.root.index(), own);
            let call = LongCall::new(0, signature, Arc::clone(&fold), rows, ranks, is_block);
            let mut data = table.allocate(4 * LENGTH).unwrap();
            data.fill_from(bytemuck::cast_slice(&mine));
            let result = call
                .has_common_result()
                .then(|| table.allocate(4 * LENGTH).unwrap());
            let record = Record {
                call: b"long",
                data: Data::Long(&data),
                result: result.as_ref(),
            };
            table.post(0, &record);
            if is_lent {
                call.lend(Box::new(mine));
            }
            blocks.extend(result);
            blocks.push(data);
            call
        })
        .collect();
    thread::scope(|scope| {
        let works = calls.iter().zip(&tables).map(|(call, table)| {
            scope.spawn(|| {
                let is_at_end = || match call.is_wanted {
                    true => call.take_result(),
                    false => call
                        .is_done(table)
                        .then_some(Ok(ResultMemory::Object(Memory::default()))),
                };
                loop {
                    call.work(table, usize::MAX, Duration::from_secs(10));
                    if let Some(result) = is_at_end() {
                        break match result.unwrap() {
                            ResultMemory::Elements(elements) => {
                                Some(*elements.into_any().downcast::<Vec<u32>>().unwrap())
                            }
                            ResultMemory::Object(_) => None,
                        };
                    }
                    thread::yield_now();
                }
            })
        });
        let works: Vec<_> = works.collect();
        works.into_iter().map(|work| work.join().unwrap()).collect()
    })
}

/// However many ranks share the work, and wherever they combine: the bits are those of an ordered fold.
#[test]
fn results_have_the_bits_of_an_ordered_fold() {
    for ranks in [2, 3, 17, 20] {
        let all: Vec<_> = (0..ranks).map(contribution).collect();
        let expected = ordered_fold(all, operation()).unwrap();
        for (root, is_spread, is_block, is_lent) in [
            (0, true, false, true),
            (0, true, false, false),
            (0, false, false, true),
            (1, false, false, true),
            (1, false, false, false),
            (1, false, true, true),
        ] {
            let signature = signature(Contributions::Each, root, is_spread);
            for (rank, result) in results(ranks, &signature, is_block, is_lent)
                .into_iter()
                .enumerate()
            {
                let is_wanted = is_spread || rank == root;
                assert!(
                    result == expected.clone().filter(|_| is_wanted),
                    "{rank} of {ranks}"
                );
            }
        }
    }
}

/// One contribution goes to all, and all go side by side.
#[test]
fn contributions_are_copied() {
    for is_lent in [true, false] {
        let one = signature(Contributions::One(Member(1)), 1, true);
        for result in results(3, &one, false, is_lent) {
            assert!(result == Some(contribution(1)));
        }
        let side_by_side = signature(Contributions::SideBySide, 0, true);
        for result in results(3, &side_by_side, false, is_lent) {
            assert!(result == Some((0..3).flat_map(contribution).collect()));
        }
    }
}
