//! How much of a pipelined transfer is in progress at once.

use std::{
    ops::RangeInclusive,
    time::{Duration, Instant},
};

/// How a pipelined transfer is cut, and how much of it is in progress at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pipeline {
    /// Of what is pulled, how many chunks are in progress, or have arrived and wait to be taken; of what is pushed, how
    /// many are on their way while another one is filled.
    pub depth: Amount,
    /// How long a chunk is, in bytes; the last one may be shorter.
    pub chunk: Amount,
}

/// A number, or the choice of one by what is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Amount {
    /// Chosen, and changed while the transfer goes on, by the rate that is reached.
    #[default]
    Auto,
    /// This many; 0 is taken as 1.
    Exactly(usize),
}

/// Chooses depth and chunk of one transfer by trying neighbours of what it has: a change that makes the chunks
/// come faster is kept and tried again, another one is taken back.
///
/// Each chunk that is taken is told by [`handle_taken`](Self::handle_taken), in order; [`chunk`](Self::chunk)
/// and [`depth`](Self::depth) then say what the next one should be.
#[derive(Debug)]
pub(crate) struct Controller {
    current: Setting,
    /// The best setting so far and its bytes per second.
    best: (Setting, f64),
    step: Step,
    round: Round,
    depth_is_free: bool,
    chunk_is_free: bool,
    chunk_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    depth: usize,
    chunk: usize,
}

/// The change that is being tried, in the order in which changes are likely to pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing: what there is is measured.
    Stand,
    Deeper,
    Larger,
    Smaller,
    /// Nothing for so many rounds. After that things may have changed.
    Rest(u32),
}

/// The measurement of one setting.
#[derive(Debug)]
struct Round {
    /// How many chunks of the setting before are still to come.
    stale: usize,
    /// How many chunks came since then and before the round began.
    passed: usize,
    /// When the last chunk before those that are counted was taken.
    since: Option<Instant>,
    chunks: usize,
    bytes: usize,
    /// How long they were waited for.
    awaited: Duration,
}

impl Controller {
    const DEPTH: RangeInclusive<usize> = 2..=16;
    const CHUNK: RangeInclusive<usize> = 64 << 10..=4 << 20;
    /// A setting that is nearly always good: the paper's depth, and the chunk at which most transports come
    /// close to what they can.
    const FIRST: Setting = Setting {
        depth: 4,
        chunk: 256 << 10,
    };
    /// A faster rate counts from here on; less is noise.
    const GAIN_MIN: f64 = 1.03;
    /// A round is as many bytes as tell something about a rate, in not too few chunks.
    const ROUND_BYTES: usize = 2 << 20;
    const ROUND_CHUNKS: RangeInclusive<usize> = 4..=32;
    const REST_ROUNDS: u32 = 32;
    /// One who waits for less than this part of the time gains nothing by more in progress.
    const AWAITED_SHARE: u32 = 32;

    /// For a transfer of `length` bytes.
    pub(crate) fn new(pipeline: Pipeline, length: u64) -> Self {
        // Some chunks there should be, or there is nothing to overlap.
        let share = usize::try_from(length / 16).unwrap_or(usize::MAX);
        let chunk_max = share.clamp(*Self::CHUNK.start(), *Self::CHUNK.end());
        let chosen = |amount, first| match amount {
            Amount::Auto => first,
            Amount::Exactly(number) => number.max(1),
        };
        let current = Setting {
            depth: chosen(pipeline.depth, Self::FIRST.depth),
            chunk: chosen(pipeline.chunk, Self::FIRST.chunk.min(chunk_max)),
        };
        Self {
            current,
            best: (current, 0.0),
            step: Step::Stand,
            round: Round::new(0),
            depth_is_free: pipeline.depth == Amount::Auto,
            chunk_is_free: pipeline.chunk == Amount::Auto,
            chunk_max,
        }
    }

    /// How many chunks should be in progress or wait to be taken.
    pub(crate) fn depth(&self) -> usize {
        self.current.depth
    }

    /// How long the next chunk should be.
    pub(crate) fn chunk(&self) -> usize {
        self.current.chunk
    }

    /// Tells of a chunk of `length` bytes that was taken at `now`, and how long it was waited for.
    pub(crate) fn handle_taken(&mut self, now: Instant, length: usize, awaited: Duration) {
        let depth = self.current.depth;
        let round = &mut self.round;
        if round.stale > 0 {
            round.stale -= 1;
            return;
        }
        // Over a far link chunks come in bursts, as they were asked for. A rate is that of whole bursts: both ends
        // of a round are where one begins, if there are any.
        let is_burst = !awaited.is_zero();
        let Some(since) = round.since else {
            round.passed += 1;
            if is_burst || round.passed > depth {
                round.since = Some(now);
            }
            return;
        };
        round.chunks += 1;
        round.bytes += length;
        round.awaited += awaited;
        let (fewest, most) = (*Self::ROUND_CHUNKS.start(), *Self::ROUND_CHUNKS.end());
        let enough = (Self::ROUND_BYTES / self.current.chunk)
            .clamp(fewest, most)
            .max(depth);
        if round.chunks < enough || (!is_burst && round.chunks < enough + depth) {
            return;
        }
        let elapsed = now.saturating_duration_since(since).max(Duration::from_nanos(1));
        let rate = round.bytes as f64 / elapsed.as_secs_f64();
        let is_awaited = round.awaited > elapsed / Self::AWAITED_SHARE;
        self.handle_round(rate, is_awaited);
    }

    fn handle_round(&mut self, rate: f64, is_awaited: bool) {
        let before = self.current;
        let next = match self.step {
            Step::Stand => {
                self.best = (self.current, rate);
                Step::Deeper
            }
            Step::Rest(0) => Step::Stand,
            Step::Rest(rounds) => Step::Rest(rounds - 1),
            step if rate > self.best.1 * Self::GAIN_MIN => {
                self.best = (self.current, rate);
                step
            }
            step => {
                self.current = self.best.0;
                match step {
                    Step::Deeper => Step::Larger,
                    Step::Larger => Step::Smaller,
                    _ => Step::Rest(Self::REST_ROUNDS),
                }
            }
        };
        self.step = self.take(next, is_awaited);
        // What was asked for under the old setting comes first.
        self.round = Round::new(if self.current == before { 0 } else { before.depth });
    }

    /// Does this step, or the first after it that is possible.
    fn take(&mut self, step: Step, is_awaited: bool) -> Step {
        let Setting { depth, chunk } = self.current;
        let may_deepen = self.depth_is_free && is_awaited && depth < *Self::DEPTH.end();
        let may_enlarge = self.chunk_is_free && chunk * 2 <= self.chunk_max;
        let may_shrink = self.chunk_is_free && chunk / 2 >= *Self::CHUNK.start();
        match step {
            Step::Stand | Step::Rest(_) => step,
            // More in progress is of use only to one who waits.
            Step::Deeper if may_deepen => {
                self.current.depth = (depth * 2).min(*Self::DEPTH.end());
                Step::Deeper
            }
            Step::Deeper | Step::Larger if may_enlarge => {
                self.current.chunk = chunk * 2;
                Step::Larger
            }
            _ if may_shrink => {
                self.current.chunk = chunk / 2;
                Step::Smaller
            }
            _ => Step::Rest(Self::REST_ROUNDS),
        }
    }
}

impl Round {
    fn new(stale: usize) -> Self {
        Self {
            stale,
            passed: 0,
            since: None,
            chunks: 0,
            bytes: 0,
            awaited: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, ops::Range};

    use proptest::prelude::*;

    use super::*;

    /// A link and a consumer in virtual time.
    #[derive(Clone, Copy, Debug)]
    struct World {
        /// From asking for a chunk until its first byte comes, if nothing else is on the link.
        latency: Duration,
        /// The time that each chunk costs the link beside its bytes.
        overhead: Duration,
        link_rate: f64,
        consumer_rate: f64,
        /// The time that each chunk costs the consumer beside its bytes.
        handling: Duration,
    }

    /// How long it takes to move and consume `length` bytes.
    fn time_taken(world: World, pipeline: Pipeline, length: u64) -> Duration {
        let start = Instant::now();
        let seconds = |bytes: usize, rate: f64| Duration::from_secs_f64(bytes as f64 / rate);
        let mut controller = Controller::new(pipeline, length);
        let mut left = length;
        let (mut now, mut link_free) = (start, start);
        let mut coming: VecDeque<(Instant, usize)> = VecDeque::new();
        loop {
            while left > 0 && coming.len() < controller.depth() {
                let chunk = (controller.chunk() as u64).min(left) as usize;
                left -= chunk as u64;
                link_free =
                    link_free.max(now + world.latency) + world.overhead + seconds(chunk, world.link_rate);
                coming.push_back((link_free, chunk));
            }
            let Some((arrival, chunk)) = coming.pop_front() else {
                return now - start;
            };
            let awaited = arrival.saturating_duration_since(now);
            now += awaited;
            controller.handle_taken(now, chunk, awaited);
            now += world.handling + seconds(chunk, world.consumer_rate);
        }
    }

    fn any_world() -> impl Strategy<Value = World> {
        let rate = |exponents: Range<f64>| exponents.prop_map(|exponent| 10_f64.powf(exponent));
        let micros =
            move |exponents| rate(exponents).prop_map(|micros| Duration::from_secs_f64(1e-6 * micros));
        // From shared memory to a slow and far network; from a checksum to a disk.
        (
            micros(-1.0..4.0),
            micros(-1.0..2.0),
            rate(8.0..10.5),
            rate(8.0..11.0),
            micros(-1.0..2.0),
        )
            .prop_map(|(latency, overhead, link_rate, consumer_rate, handling)| World {
                latency,
                overhead,
                link_rate,
                consumer_rate,
                handling,
            })
    }

    proptest! {
        /// In whatever world, what is chosen is not much slower than the best of all fixed settings, found with
        /// hindsight, once it had some round trips to find it.
        #[test]
        fn auto_comes_close_to_the_best(world in any_world()) {
            let length = 512 << 20;
            let auto = time_taken(world, Pipeline::default(), length);
            let depths = [2, 4, 8, 16].into_iter();
            let fixed = depths.flat_map(|depth| (16..=22).map(move |bits| (depth, 1 << bits)));
            let (best, setting) = fixed
                .map(|(depth, chunk)| {
                    let (depth, chunk) = (Amount::Exactly(depth), Amount::Exactly(chunk));
                    (time_taken(world, Pipeline { depth, chunk }, length), (depth, chunk))
                })
                .min_by_key(|&(time, _)| time)
                .unwrap();
            let ramp = 20 * world.latency;
            prop_assert!(auto < best.mul_f64(1.25) + ramp, "{auto:?} instead of {best:?} by {setting:?}");
        }

        /// An amount that was asked for exactly stays, and a chosen one stays within its limits, whatever is
        /// measured.
        #[test]
        fn choices_stay_within_limits(
            depth in prop_oneof![Just(Amount::Auto), (0..100_usize).prop_map(Amount::Exactly)],
            chunk in prop_oneof![Just(Amount::Auto), (0..10_usize).prop_map(Amount::Exactly)],
            length in prop_oneof![0..100_u64, any::<u64>()],
            takes in proptest::collection::vec((0..1_000_000_u64, 0..1_000_000_u64), 0..2000),
        ) {
            let mut controller = Controller::new(Pipeline { depth, chunk }, length);
            let mut now = Instant::now();
            for (nanoseconds, awaited) in takes {
                now += Duration::from_nanos(nanoseconds);
                controller.handle_taken(now, controller.chunk(), Duration::from_nanos(awaited));
                match depth {
                    Amount::Auto => prop_assert!(Controller::DEPTH.contains(&controller.depth())),
                    Amount::Exactly(depth) => prop_assert_eq!(controller.depth(), depth.max(1)),
                }
                match chunk {
                    Amount::Auto => prop_assert!(Controller::CHUNK.contains(&controller.chunk())),
                    Amount::Exactly(chunk) => prop_assert_eq!(controller.chunk(), chunk.max(1)),
                }
            }
        }
    }
}
