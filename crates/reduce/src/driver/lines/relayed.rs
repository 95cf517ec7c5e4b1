//! The messages that go through the relays of a large job.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_fabric::Address;
use ropewalk_names::Rank;
use ropewalk_reduce_core::Site;
use ropewalk_rpc::Engine;

use super::{Answered, BatchAnswer, Letter, Lines, MESSAGE_TIMEOUT, Messages};
use crate::{
    driver::{
        procedures::{Collect, Spread},
        roads::Roads,
    },
    message::{ForGroup, Forwarded, ToSeat, ToSite},
};

impl Lines {
    /// The relays that have not answered for messages that they carry.
    pub(in crate::driver) fn relays_in_use(&self) -> BTreeSet<Rank> {
        let of_relay =
            |messages: &Messages| [messages.to_seat.relay_in_use(), messages.to_site.relay_in_use()];
        self.messages.values().flat_map(of_relay).flatten().collect()
    }

    /// Hands to relays what they carry: messages for the scheduler, and those of the scheduler here.
    pub(super) fn send_through_relays(
        &mut self,
        engine: &mut Engine,
        addresses: &[Option<Address>],
        roads: &Roads,
    ) {
        let own = self.own.rank;
        let (relays, without_relay) = (&self.relays, &self.without_relay);
        let fit = |relay: Site, rank: Rank, scheduler: Rank| {
            let relay = Rank(relay.0);
            let is_fit = ![relay, rank, scheduler]
                .iter()
                .any(|rank| without_relay.contains(rank));
            let address = addresses[relay.index()].as_ref().filter(|_| is_fit)?;
            Some((relay, address))
        };
        let mut spread: BTreeMap<Rank, Vec<Rank>> = BTreeMap::new();
        for (&rank, messages) in &mut self.messages {
            if addresses[rank.index()].is_none() || roads.is_detour(rank) {
                continue;
            }
            if messages.to_seat.has_waiting()
                && messages
                    .to_seat
                    .waiting
                    .iter()
                    .all(|letter| letter.message.is_said_by_many())
                && let Some(relay) = relays.between(Site(own.0), Site(rank.0))
                && let Some((relay, address)) = fit(relay, own, rank)
            {
                let letters = Forwarded {
                    from: self.own,
                    to: rank,
                    letters: ToSeat::pack(messages.to_seat.next_batch()),
                };
                let call = engine.call::<Collect>(address, &(self.epoch, Box::new(letters)), MESSAGE_TIMEOUT);
                if let Ok(call) = call {
                    messages.to_seat.begin(Some(relay), BatchAnswer::OfRelay(call));
                }
            }
            if messages.to_site.has_waiting()
                && let Some(relay) = relays.bringing(Site(rank.0), Site(own.0))
                && let Some((relay, _)) = fit(relay, rank, own)
            {
                spread.entry(relay).or_default().push(rank);
            }
        }
        for (relay, ranks) in spread.into_iter().filter(|(_, ranks)| ranks.len() > 1) {
            let letters = ranks.iter().filter_map(|rank| {
                Some(Forwarded {
                    from: self.own,
                    to: *rank,
                    letters: ToSite::pack(self.messages.get(rank)?.to_site.next_batch()),
                })
            });
            let input = (self.epoch, ForGroup::pack(letters.collect()));
            let Some(address) = &addresses[relay.index()] else {
                continue;
            };
            let Ok(call) = engine.call::<Spread>(address, &input, MESSAGE_TIMEOUT) else {
                continue;
            };
            self.last += 1;
            self.spreads.insert(self.last, call);
            for rank in ranks {
                if let Some(messages) = self.messages.get_mut(&rank) {
                    messages
                        .to_site
                        .begin(Some(relay), BatchAnswer::OfSpread(self.last));
                }
            }
        }
    }

    /// Takes the answers of relays. What they have not carried goes without them from now on.
    pub(super) fn hear_relays(&mut self) -> Vec<Answered> {
        let mut answered = Vec::new();
        let answers = self.spreads.iter_mut();
        let answers = answers.filter_map(|(number, call)| Some((*number, call.try_take()?.ok())));
        let answers: BTreeMap<u64, Option<Vec<Rank>>> = answers.collect();
        self.spreads.retain(|number, _| !answers.contains_key(number));
        for (&rank, messages) in &mut self.messages {
            let (to_seat, to_site) = (&mut messages.to_seat, &mut messages.to_site);
            if let Some(BatchAnswer::OfRelay(call)) =
                to_seat.under_way.front_mut().map(|batch| &mut batch.answer)
                && let Some(result) = call.try_take()
            {
                let via = to_seat.under_way.front().and_then(|batch| batch.via);
                match result {
                    Ok(()) => answered.push(to_seat.is_answered(rank)),
                    Err(_) => {
                        self.without_relay.extend(via);
                        to_seat.recall(via);
                    }
                }
            }
            let spread = to_site.under_way.front().and_then(|batch| match batch.answer {
                BatchAnswer::OfSpread(number) => Some((answers.get(&number)?, batch.via)),
                _ => None,
            });
            match spread {
                None => {}
                Some((Some(missed), _)) if !missed.contains(&rank) => {
                    answered.push(to_site.is_answered(rank));
                }
                Some((missed, via)) => {
                    // A rank that was missed may be stopped, or cut off from the relay alone.
                    self.without_relay.extend(match missed {
                        Some(_) => Some(rank),
                        None => via,
                    });
                    to_site.recall(via);
                }
            }
        }
        answered
    }
}
