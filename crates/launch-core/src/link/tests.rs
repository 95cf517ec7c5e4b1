use std::collections::VecDeque;

use proptest::{collection::vec, prelude::*};

use super::*;

impl LinkMessage for u32 {
    fn is_sound(&self) -> bool {
        true
    }
}

/// Two ends and what is under way between them.
#[derive(Default)]
struct Pair {
    ends: [Link<u32>; 2],
    /// From each end.
    under_way: [VecDeque<Bytes>; 2],
    said: [u32; 2],
    heard: [Vec<u32>; 2],
    is_cut: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Say { end: usize },
    Send { end: usize, at_most: usize },
    Deliver { from: usize, at_most: usize },
    Cut,
    Dial,
    Ask { end: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..2usize).prop_map(|end| Step::Say { end }),
        4 => (0..2usize, 1..9usize).prop_map(|(end, at_most)| Step::Send { end, at_most }),
        4 => (0..2usize, 1..9usize).prop_map(|(from, at_most)| Step::Deliver { from, at_most }),
        1 => Just(Step::Cut),
        1 => Just(Step::Dial),
        1 => (0..2usize).prop_map(|end| Step::Ask { end }),
    ];
    vec(step, 0..300)
}

impl Pair {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Say { end } => {
                self.ends[end].push(self.said[end], 1 << 20);
                self.said[end] += 1;
            }
            Step::Send { end, at_most } => {
                for _ in 0..at_most {
                    let Some(body) = self.ends[end].poll_body() else {
                        return;
                    };
                    self.ends[end].handle_sent();
                    self.under_way[end].push_back(body);
                }
            }
            Step::Deliver { from, at_most } => {
                let count = at_most.min(self.under_way[from].len());
                for body in self.under_way[from].drain(..count) {
                    let to = &mut self.ends[1 - from];
                    self.heard[1 - from].extend(to.handle_body::<u32>(&body).unwrap());
                }
            }
            Step::Cut => {
                self.is_cut = true;
                for end in 0..2 {
                    self.under_way[end].clear();
                    self.ends[end].handle_cut();
                }
            }
            Step::Dial if self.is_cut => {
                self.is_cut = false;
                self.ends[0].greet();
            }
            Step::Ask { end } if !self.is_cut => self.ends[end].greet(),
            Step::Dial | Step::Ask { .. } => {}
        }
    }

    /// Until nothing is under way and nobody has anything to send.
    fn settle(&mut self) {
        self.step(&Step::Dial);
        let mut is_quiet = false;
        while !is_quiet {
            for end in 0..2 {
                self.step(&Step::Send { end, at_most: 1000 });
            }
            is_quiet = self.under_way.iter().all(VecDeque::is_empty);
            for from in 0..2 {
                self.step(&Step::Deliver { from, at_most: 1000 });
            }
        }
    }
}

proptest! {
    /// However often the connection breaks, with whatever under way, both ends hear all that the other said,
    /// in order and once, and then keep little of it.
    #[test]
    fn nothing_is_lost_or_doubled(steps in steps()) {
        let mut pair = Pair::default();
        for step in &steps {
            pair.step(step);
            for end in 0..2 {
                // What one end takes for sent has come, or is under way.
                let is_sent = pair.ends[end].is_sent() && pair.under_way[end].is_empty();
                prop_assert!(!is_sent || pair.heard[1 - end].len() == pair.said[end] as usize);
            }
        }
        pair.settle();
        for end in 0..2 {
            let all: Vec<_> = (0..pair.said[1 - end]).collect();
            prop_assert_eq!(&pair.heard[end], &all);
            prop_assert!(pair.ends[end].kept.len() <= Link::<u32>::UNTOLD_MAX as usize);
        }
    }

    /// Who asks hears of all that has come, however little that is.
    #[test]
    fn who_asks_hears_what_came(said in 1..9u32) {
        let mut pair = Pair::default();
        for _ in 0..said {
            pair.step(&Step::Say { end: 0 });
            pair.settle();
        }
        prop_assert!(!pair.ends[0].is_idle());
        pair.step(&Step::Ask { end: 0 });
        pair.settle();
        prop_assert!(pair.ends[0].is_idle());
        prop_assert_eq!(pair.heard[1].len() as u32, said);
    }

    /// Without a cut nothing is sent twice, and little is sent only to say what came.
    #[test]
    fn a_sound_connection_costs_little(batches in 1..500u32) {
        let mut pair = Pair::default();
        let mut bodies = 0;
        for _ in 0..batches {
            pair.step(&Step::Say { end: 0 });
            for end in 0..2 {
                pair.step(&Step::Send { end, at_most: 1000 });
                bodies += pair.under_way[end].len() as u32;
                pair.step(&Step::Deliver { from: end, at_most: 1000 });
            }
        }
        prop_assert_eq!(bodies, batches + batches / Link::<u32>::UNTOLD_MAX as u32);
    }
}

/// A batch is refused if its number cannot follow those that came, or if it says that more came than was
/// sent.
#[test]
fn numbers_that_do_not_agree_are_refused() {
    let head = Head::default();
    for wrong in [
        Head { number: 2, ..head },
        Head { received: 1, ..head },
        Head {
            number: u64::MAX,
            ..head
        },
    ] {
        let error = Link::<u32>::default()
            .handle_body::<u32>(&encode(wrong, &[7u32]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("its numbers do not agree"), "{error}");
    }
    let unnumbered = Link::<u32>::default().handle_body::<u32>(&encode(head, &[7u32]));
    assert!(unnumbered.is_err());
}
