//! Ranks that have come back are admitted, and a rank that has come back asks for that.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytemuck::Pod;
use ropewalk_fabric::{Address, CallTable};
use ropewalk_names::Rank;
use ropewalk_pmi_client::{Client, ClientError};
use ropewalk_rpc::{Call, CallError, CallOptions, Engine};

use super::{
    arrivals::Arrivals,
    bootstrap::{BootstrapError, HostMark, has_tables, key_of_address},
    group::{Group, Protection, ReduceOptions},
    job::{Job, KEY_OF_END, LEAVE_PATIENCE, Wish, fence_of_all},
    procedures::{Admission, Knock},
    reduction::ReduceError,
    roster::{Card, Roster},
};
use crate::{operation::Max, outcome::ReductionError, signature::OnLoss};

impl Job {
    /// Takes in the ranks that were lost and have come back, and returns who they are: none, most of the time, and then
    /// it costs as much as a short allreduce.
    ///
    /// Under `ropewalk run --on-failure respawn` a rank that fails is started again; its [`from_env`](Self::from_env)
    /// waits until the others call this. All ranks that live call it, at the same place between their other calls:
    /// after the same step of a loop, say. If somebody has come back it waits for the end of all calls under way, and
    /// the job begins a new epoch: groups that were made before cannot be used any more, [`world`](Self::world) has the
    /// ranks that came back again, and [`lost`](Self::lost) names those that did not. A rank that was admitted knows
    /// nothing of what the others have computed: they tell it by [`share_state`](Self::share_state). Its own first call
    /// of this returns at once, and the same as that of the others by which it was admitted: so one loop is right for
    /// all ranks. Before that it makes no other call: a broadcast or a barrier before the loop is for ranks that [have
    /// not come back](Self::has_come_back). A call that some ranks have begun and others make only after this would
    /// never end.
    ///
    /// Under another process manager nobody comes back.
    ///
    /// # Errors
    /// As an allreduce of all ranks. If it is [`Fenced`](ReductionError::Fenced), or about this host alone, this
    /// process has to end; else the members are as they were.
    ///
    /// # Examples
    /// ```
    /// use ropewalk_reduce::{Job, OnLoss, ReduceOptions, Sum};
    ///
    /// let mut job = Job::from_env()?;
    /// let options = ReduceOptions { on_loss: OnLoss::Exclude, ..ReduceOptions::default() };
    /// // The step to be made next, and what was computed.
    /// let mut state = vec![0.0, 0.0];
    /// loop {
    ///     if !job.admit()?.is_empty() {
    ///         state = job.share_state(state)?;
    ///     }
    ///     if state[0] == 10.0 {
    ///         break;
    ///     }
    ///     let outcome = job.world().allreduce(vec![1.0], Sum, &options)?.get()?;
    ///     let ranks = outcome.value.ok_or("all get the sum")?;
    ///     state = vec![state[0] + 1.0, state[1] + ranks[0]];
    /// }
    /// job.finalize()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn admit(&mut self) -> Result<Vec<Rank>, ReduceError> {
        if let Some(admitted) = self.take_own_admission() {
            return Ok(admitted);
        }
        let shared = Arc::clone(self.shared());
        if shared.link.is_none() || shared.size == 1 {
            return Ok(Vec::new());
        }
        let visitors: Vec<Card> = shared.visitors().values().cloned().collect();
        let knocking = vec![u64::from(!visitors.is_empty())];
        let living = self.living()?;
        let knocking = living.allreduce(knocking, Max, &options())?.get()?;
        // All get the same receipt, and so go on as the same group.
        *living = living.without(&knocking.receipt.excluded)?;
        if knocking.value.is_none_or(|knocking| knocking == [0]) {
            return Ok(Vec::new());
        }
        let living = living.clone();
        let own = shared.roster.card(shared.rank).cloned();
        let cards = own.iter().cloned().chain(visitors).collect::<Vec<Card>>();
        let (all, mut lost) = exchange(&living, &cards)?;
        lost.extend(knocking.receipt.excluded);
        let cards: Vec<Card> = all.into_iter().flatten().collect();
        let draft = shared.roster.next(cards.clone(), Vec::new(), &lost);
        let made = make_table(shared.rank, &draft);
        let place = made.as_ref().map(|table| table.place().to_string());
        let host = shared.roster.hosts.get(shared.rank.index());
        let place: Vec<(HostMark, String)> = host.copied().zip(place).into_iter().collect();
        let (tables, lost_now) = exchange(&living, &place)?;
        lost.extend(lost_now);
        let tables = tables.into_iter().flatten().collect();
        let roster = shared.roster.next(cards, tables, &lost);
        let admitted = roster.admitted.clone();
        if admitted.is_empty() {
            return Ok(admitted);
        }
        if roster.card(shared.rank) != own.as_ref() {
            let (rank, incarnation) = (shared.rank, own.map(|own| own.incarnation).unwrap_or_default());
            return Err(ReductionError::Fenced { rank, incarnation }.into());
        }
        let table = made.or_else(|| roster.open_table(shared.rank));
        let next = Arc::new(shared.in_epoch(roster, table));
        let (done, entered) = mpsc::channel();
        shared.wish(Wish::Enter {
            next: Arc::clone(&next),
            done,
        });
        entered.recv().map_err(|_| ReduceError::JobEnded)??;
        self.go_on_with(next);
        Ok(admitted)
    }

    /// Says if this process replaces an earlier one of its rank.
    pub fn has_come_back(&self) -> bool {
        self.incarnation().0 > 0
    }

    /// Tells the ranks that were [admitted](Self::admit) last what the others have. All members call this. Ranks that
    /// were there before get their own state back; the others get that of the lowest of them, whatever they give and
    /// however long it is.
    ///
    /// It is a broadcast. If the rank that has the state is lost, the next one takes its place.
    ///
    /// # Errors
    /// As [`broadcast`](Group::broadcast); [`ContributionLost`](ReductionError::ContributionLost) if none is left that
    /// was there before.
    pub fn share_state<T: Pod + Send + Sync>(&self, state: Vec<T>) -> Result<Vec<T>, ReduceError> {
        let group = self.world().without(&self.lost())?;
        let stayed = self.stayed();
        let has_state = stayed.contains(&self.rank());
        let broadcast = |holder| -> Result<Option<Vec<T>>, ReduceError> {
            let length = vec![state.len() as u64];
            let length = group.broadcast(length, holder, &options())?.get()?.value;
            let length = length
                .and_then(|length| length.first().copied())
                .unwrap_or_default();
            let mut state = if has_state { state.clone() } else { Vec::new() };
            state.resize(length as usize, T::zeroed());
            Ok(group.broadcast(state, holder, &options())?.get()?.value)
        };
        let mut holders = stayed.iter();
        let mut holder = holders.next().copied().unwrap_or(Rank(0));
        loop {
            holder = match (broadcast(holder), holders.next()) {
                (Err(ReduceError::Reduction(ReductionError::ContributionLost { .. })), Some(next)) => *next,
                (told, _) => return Ok(told?.filter(|_| !has_state).unwrap_or(state)),
            };
        }
    }

    /// The ranks that were there before ranks were [admitted](Self::admit) last, ascending: they have what was
    /// computed. All ranks get the same.
    pub fn stayed(&self) -> Vec<Rank> {
        self.shared().roster.stayed().collect()
    }

    /// The ranks that were lost when ranks were [admitted](Self::admit) last and had not come back, ascending; none
    /// before the first admission. Receipts name those that are lost later. All ranks get the same.
    pub fn lost(&self) -> Vec<Rank> {
        self.shared().roster.lost()
    }
}

/// The choices of the calls by which ranks agree on who is admitted.
fn options() -> ReduceOptions {
    ReduceOptions {
        on_loss: OnLoss::Exclude,
        protection: Protection::None,
        ..ReduceOptions::default()
    }
}

/// The things of all ranks of a group, and the ranks that are lost. All get the same.
fn exchange<T>(world: &Group, mine: &[T]) -> Result<(Vec<Vec<T>>, Vec<Rank>), ReduceError>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    let mine = postcard::to_allocvec(mine).unwrap_or_default();
    let most = world.allreduce(vec![mine.len() as u64], Max, &options())?.get()?;
    let length = most
        .value
        .and_then(|most| most.first().copied())
        .unwrap_or_default() as usize;
    let mut block = mine;
    // Further bytes are not read.
    block.resize(length.max(1), 0);
    let outcome = world.allgather(block, &options())?.get()?;
    let mut lost = most.receipt.excluded;
    lost.extend(outcome.receipt.excluded);
    let blocks = outcome.value.unwrap_or_default();
    let told = world.ranks().iter().zip(blocks.chunks(length.max(1)));
    let told = told.filter(|(rank, _)| !lost.contains(rank));
    let things = told.map(|(_, block)| {
        postcard::take_from_bytes::<Vec<T>>(block).map_or(Vec::new(), |(things, _)| things)
    });
    Ok((things.collect(), lost))
}

/// The new table of this host, if this rank is to make it: the lowest one here that stayed.
fn make_table(rank: Rank, roster: &Roster) -> Option<CallTable> {
    let here = HostMark::ranks_beside(rank, &roster.hosts);
    let maker = roster.stayed().find(|stayed| here.contains(stayed));
    if maker != Some(rank) || !has_tables(&roster.hosts) {
        return None;
    }
    let own = here.iter().position(|beside| *beside == rank)?;
    CallTable::create(here.len(), own).ok()
}

/// Asks the others for admission, and lets those find this process that come back later. `None` if the others leave
/// the job, and wait for this process to [leave with them](leave_late).
///
/// # Errors
/// [`BootstrapError::JobOver`] if they have left; then this process has left too. [`BootstrapError::NobodyThere`] if
/// nobody can be reached.
pub(super) fn come_back(
    (engine, arrivals): (&mut Engine, &Arrivals),
    card: &Card,
    (pmi, size): (&Client, u32),
    connect_timeout: Duration,
) -> Result<Option<Roster>, BootstrapError> {
    let known = |rank: Rank| -> Result<Option<Address>, ClientError> {
        // In the key-value space only the addresses of the first processes can be seen without a fence of all.
        let text = pmi.get(&key_of_address(rank))?.unwrap_or_default();
        Ok(text
            .rsplit_once('#')
            .and_then(|(address, _)| address.parse().ok()))
    };
    let published = |rank: Rank| -> Result<Option<Address>, ClientError> {
        let text = pmi.lookup(&name_of_door(pmi, rank))?.unwrap_or_default();
        Ok(str::from_utf8(&text)
            .ok()
            .and_then(|address| address.parse().ok()))
    };
    let name = name_of_door(pmi, card.rank);
    // A process before this one may have come back too.
    let _ = pmi.unpublish(&name);
    pmi.publish(&name, card.address.to_string().as_bytes())?;
    // Each begins with another one: not all are to ask the same.
    let others = || (1..size).map(|step| Rank((card.rank.0 + step) % size));
    let mut rounds_without_answer = 0;
    while rounds_without_answer < ROUNDS_MAX {
        rounds_without_answer += 1;
        let mut is_over = false;
        let mut addresses = others().map(known).chain(others().map(published));
        let mut knocks = Knocks::new(connect_timeout);
        loop {
            // One at a time: answers come meanwhile.
            let next = match knocks.have_room() {
                true => addresses.next().transpose()?,
                false => None,
            };
            let patience = match next {
                Some(Some(address)) => {
                    knocks.begin(engine, card, &address);
                    Duration::ZERO
                }
                Some(None) => Duration::ZERO,
                None if knocks.under_way.is_empty() => break,
                None => LOOK_AGAIN,
            };
            wait(engine, arrivals, patience);
            for answer in knocks.take() {
                match answer {
                    Answer::Admitted(roster) if roster.fits(size) && roster.card(card.rank) == Some(card) => {
                        return Ok(Some(*roster));
                    }
                    Answer::JobOver => is_over = true,
                    Answer::AskAgain => rounds_without_answer = 0,
                    Answer::Admitted(_) | Answer::NotThere => {}
                }
            }
        }
        if rounds_without_answer > 0 {
            // A rank that leaves with an error says so too: it counts if nobody computes.
            if is_over {
                return Ok(None);
            }
            // Those who say so are there until all are: this is for when all have left.
            if pmi.get(KEY_OF_END)?.is_some() {
                pmi.finalize()?;
                return Err(BootstrapError::JobOver { rank: card.rank });
            }
        }
        let end = Instant::now() + PAUSE;
        while Instant::now() < end {
            wait(engine, arrivals, LOOK_AGAIN);
        }
    }
    Err(BootstrapError::NobodyThere { rank: card.rank })
}

/// Leaves the job with the others, without having been in it again.
pub(super) fn leave_late(pmi: &Client) -> Result<(), ClientError> {
    pmi.set_timeout(LEAVE_PATIENCE);
    fence_of_all(pmi)?;
    pmi.finalize()
}

/// The answer to a rank that has come back.
enum Answer {
    Admitted(Box<Roster>),
    JobOver,
    /// Somebody is there who computes.
    AskAgain,
    NotThere,
}

/// The questions that are under way. The port of one that was lost may belong to a program that says nothing: so
/// several are asked at a time.
struct Knocks {
    under_way: Vec<Call<Admission>>,
    answer_time: Duration,
}

impl Knocks {
    const MAX: usize = 8;

    /// None yet. That a program says nothing is known before their time is over: to connect takes so long at most, and
    /// so does the handshake.
    fn new(connect_timeout: Duration) -> Self {
        Self {
            under_way: Vec::new(),
            answer_time: ANSWER_TIME_MIN.max(3 * connect_timeout),
        }
    }

    fn have_room(&self) -> bool {
        self.under_way.len() < Self::MAX
    }

    fn begin(&mut self, engine: &mut Engine, card: &Card, address: &Address) {
        let options = CallOptions::new(self.answer_time);
        let knock = engine.call::<Knock>(address, &Box::new(card.clone()), options);
        // One that cannot even be asked is not there.
        self.under_way.extend(knock);
    }

    /// The answers that have come.
    fn take(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        self.under_way.retain_mut(|knock| {
            let answer = match knock.try_take() {
                Some(Ok(Admission::Admitted(roster))) => Answer::Admitted(roster),
                Some(Ok(Admission::JobOver)) => Answer::JobOver,
                Some(Err(CallError::TimedOut { .. } | CallError::Fault { .. })) => Answer::AskAgain,
                Some(Ok(Admission::Waiting) | Err(_)) => Answer::NotThere,
                None => return true,
            };
            answers.push(answer);
            false
        });
        answers
    }
}

/// Waits for something to come.
fn wait(engine: &mut Engine, arrivals: &Arrivals, patience: Duration) {
    engine.wait(patience);
    arrivals.turn_away();
}

/// The name under which a process that has come back can be found.
fn name_of_door(pmi: &Client, rank: Rank) -> Vec<u8> {
    [b"ropewalk-door-", pmi.kvsname(), format!("-{rank}").as_bytes()].concat()
}

/// So long a rank is waited for that computes; then it is asked again.
const ANSWER_TIME_MIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// After all have been asked, and nobody is there.
const PAUSE: Duration = Duration::from_millis(200);
const ROUNDS_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, sync::Barrier, thread};

    use ropewalk_fabric::{Endpoint, EndpointOptions, Identity, JobKey, Role};
    use ropewalk_names::{Incarnation, JobId};

    use super::*;

    /// Processes that have come back may take the ports of those that were lost. They do not wait for each other.
    #[test]
    fn those_who_wait_themselves_are_not_waited_for() {
        let key = JobKey::generate().unwrap();
        let newcomer = |rank: u32| {
            let identity = Identity {
                role: Role::Rank,
                rank: Rank(rank),
                incarnation: Incarnation(1),
            };
            let options = EndpointOptions::new(JobId([0; 16]), key.clone(), identity);
            let mut engine = Engine::new(Endpoint::bind(options).unwrap());
            let arrivals = Arrivals::serve(&mut engine);
            let card = Card {
                rank: identity.rank,
                incarnation: identity.incarnation,
                address: engine.address().clone(),
            };
            (engine, arrivals, card)
        };
        let (mut first, first_arrivals, first_card) = newcomer(0);
        let (mut second, second_arrivals, second_card) = newcomer(1);
        // It accepts connections and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent: Address = format!("tcp://{}", silent.local_addr().unwrap()).parse().unwrap();
        let has_ended = Barrier::new(2);
        let asked = |engine: &mut Engine, arrivals: &Arrivals, own: &Card, other: &Card| {
            let mut knocks = Knocks::new(Duration::from_secs(5));
            for address in [&silent, &other.address, &own.address] {
                knocks.begin(engine, own, address);
            }
            let mut waiting = 0;
            while waiting < 2 {
                wait(engine, arrivals, LOOK_AGAIN);
                knocks.under_way.retain_mut(|knock| match knock.try_take() {
                    None => true,
                    Some(answer) => {
                        assert!(matches!(answer, Ok(Admission::Waiting)), "{answer:?}");
                        waiting += 1;
                        false
                    }
                });
            }
            engine.flush(LOOK_AGAIN);
            has_ended.wait();
        };
        thread::scope(|scope| {
            scope.spawn(|| asked(&mut first, &first_arrivals, &first_card, &second_card));
            asked(&mut second, &second_arrivals, &second_card, &first_card);
        });
    }
}
