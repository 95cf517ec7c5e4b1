//! Calls of a group that may end in the table.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ropewalk_fabric::CallTable;
use ropewalk_names::Rank;
use ropewalk_reduce_core::Contributions;

use super::{Offer, OwnCall, State, TableCall, TableCalls, Waiting, long::LongCall};
use crate::{
    driver::{
        contribution::ContributionMemory,
        group::{Group, Protection, ReduceOptions},
        hold::Hold,
        reduction::{Completion, ReduceError},
        session::Originals,
    },
    ids::{ReductionId, ReductionNumber},
    message::Contribution,
    operation::Fold,
    signature::Signature,
    source::shared_token,
};

/// A call that is about to be made.
pub(in crate::driver) struct Offered<'a> {
    pub(in crate::driver) id: ReductionId,
    pub(in crate::driver) signature: &'a Signature,
    pub(in crate::driver) fold: &'a Fold,
    /// To combine never fails.
    pub(in crate::driver) is_total: bool,
    /// Nobody needs the result if its root is lost.
    pub(in crate::driver) is_block: bool,
    /// The contribution is a buffer.
    pub(in crate::driver) is_lent: bool,
    /// The contribution of this rank, if it makes one.
    pub(in crate::driver) data: Option<&'a [u8]>,
    pub(in crate::driver) options: &'a ReduceOptions,
}

impl Offered<'_> {
    /// The number of the call and the bytes by which it is compared, if it suits the table. All ranks that call alike
    /// find the same.
    fn suits(&self, calls: &TableCalls) -> Option<(u64, Vec<u8>)> {
        let ReductionNumber::Call(number) = self.id.number else {
            return None;
        };
        let signature = self.signature;
        let length = signature.length? as usize;
        let is_suited = matches!(self.fold, Fold::Elements(_))
            && (self.is_total || length == 0)
            && length <= calls.length_max(self.is_lent)
            && !matches!(signature.contributions, Contributions::Shared(_));
        let is_suited = is_suited && calls.hosts.as_ref().is_none_or(|hosts| hosts.suits(self, calls));
        let compared = TableCalls::compared(signature, self.is_taken());
        Some((number, compared.filter(|_| is_suited)?))
    }

    /// The call has ended when the root has the result: if it is lost before, another one may get it.
    fn is_taken(&self) -> bool {
        !self.signature.is_spread && !self.is_block && self.signature.length != Some(0)
    }
}

impl Group {
    /// Offers a call to the table. Returns the way to its end, or the completion, with which it goes by the scheduler.
    pub(in crate::driver) fn offer(
        &self,
        offered: &Offered<'_>,
        completion: Completion,
    ) -> Result<Result<Waiting, Completion>, ReduceError> {
        let shared = self.shared();
        let Some(calls) = self.calls(offered.id) else {
            return Ok(Err(completion));
        };
        let Some((number, compared)) = offered.suits(&calls) else {
            return Ok(Err(completion));
        };
        let Offered {
            id,
            signature,
            data,
            options,
            ..
        } = *offered;
        self.wished_copies(options.protection)?;
        let length = signature.length.unwrap_or_default();
        let fold = offered.fold.clone();
        let begin = self.begin(id, signature.clone(), length, fold, options.timeout, completion)?;
        let is_protected = data.is_some() && options.protection != Protection::None;
        begin.completion.settle(is_protected.then_some(Duration::ZERO));
        let mut call = TableCall {
            begin,
            call: compared,
            signature: signature.clone(),
            contributes: data.is_some(),
            taker: calls.taker(offered),
            since: Instant::now(),
            long: calls.long_call(number, offered),
            is_overdue: false,
            among_hosts: None,
        };
        if calls.hosts.is_some()
            && let Some(data) = data
        {
            // Those who hear of a loss first may be on another host.
            self.protect_waiting(&mut call, offered, data)?;
        }
        let (taker, long) = (call.taker, call.long.clone());
        let waiting = Waiting::new(Arc::clone(shared), Arc::clone(&calls), number, taker, long);
        let offer = match call.begin.originals.waits_for_agent() {
            true => Offer::Waits(call),
            false => calls.offer(number, call, data.unwrap_or_default()),
        };
        match offer {
            Offer::Posted => {
                let has_to_begin = calls.has_to_begin_among_hosts(number);
                // To drive the machines takes less time than to wake who does.
                if has_to_begin && !(calls.stands_for_host() && shared.turns.take_turn()) {
                    shared.wake();
                }
            }
            // Its contribution is protected, and must not be so again with another token.
            Offer::Refused(call) if calls.hosts.is_some() => {
                shared.settle(&calls, calls.keep(number, call));
                shared.wake();
            }
            Offer::Waits(mut call) => {
                if let Some(data) = data.filter(|_| calls.hosts.is_none()) {
                    self.protect_waiting(&mut call, offered, data)?;
                }
                shared.settle(&calls, calls.keep(number, call));
                shared.wake();
            }
            Offer::Refused(call) => return Ok(Err(call.begin.completion)),
        }
        if data.is_some() {
            shared.tracer.mark_contribution();
        }
        if options.timeout.is_some() {
            shared.wake();
        }
        Ok(Ok(waiting))
    }

    /// The contribution of a call that is not posted yet.
    fn protect_waiting(
        &self,
        call: &mut TableCall,
        offered: &Offered<'_>,
        data: &[u8],
    ) -> Result<(), ReduceError> {
        let (id, signature) = (offered.id, offered.signature);
        let member = self.place()?;
        let memory = ContributionMemory::new(self.spare_memory(), data);
        let mut memory = memory.map_err(ReduceError::Memory)?;
        let contribution = Contribution {
            session: id.session(),
            members: self.members_if_not_all(),
            signature: signature.clone(),
            member,
            // As it is if it is found in the table.
            token: shared_token(id.session(), member),
            length: data.len() as u64,
        };
        let hold = match offered.options.protection {
            Protection::None => None,
            _ => self.protect(&mut memory, &contribution)?,
        };
        if let Some(Hold::Waits(_)) = hold {
            call.begin.completion.unsettle();
        }
        call.begin.originals = Originals::Own {
            token: contribution.token,
            bytes: memory.into_bytes(),
            begin: signature.begin_of(member),
            hold,
        };
        Ok(())
    }

    /// A call was made, or could not be.
    pub(in crate::driver) fn note_call(&self, id: ReductionId, is_made: bool) {
        let (Some(calls), ReductionNumber::Call(number)) = (self.calls(id), id.number) else {
            return;
        };
        if !is_made {
            calls.close();
        }
        self.shared().settle(&calls, calls.pass(number));
    }

    /// The table for a call, if one can end there.
    fn calls(&self, id: ReductionId) -> Option<Arc<TableCalls>> {
        let ReductionNumber::Call(_) = id.number else {
            return None;
        };
        let calls = self.shared().tables.as_ref()?.of(id.group, self.members());
        calls.filter(|calls| !calls.has_left())
    }
}

impl TableCalls {
    /// The most bytes of a contribution.
    fn length_max(&self, is_lent: bool) -> usize {
        let long = match is_lent {
            true => self.table.long_max().min(LENT_LENGTH_MAX),
            false => self.table.long_max(),
        };
        long.max(CallTable::DATA_SIZE_MAX)
    }

    /// The rank whose result is waited for.
    fn taker(&self, offered: &Offered<'_>) -> Option<Rank> {
        match &self.hosts {
            Some(hosts) => Some(hosts.own()),
            None => offered.is_taken().then_some(offered.signature.root),
        }
    }

    /// The work on a call, if it is long.
    fn long_call(&self, number: u64, offered: &Offered<'_>) -> Option<Arc<LongCall>> {
        let Fold::Elements(fold) = offered.fold else {
            return None;
        };
        let is_long = offered.signature.length > Some(CallTable::DATA_SIZE_MAX as u64);
        let root = self.row_of(offered.signature.root).filter(|_| is_long)?;
        Some(Arc::new(LongCall::new(
            number,
            offered.signature,
            Arc::clone(fold),
            (root, self.own_row()),
            self.table.rows(),
            offered.is_block,
        )))
    }
}

impl State {
    /// Offers contributions again that the agent had no room for.
    pub(super) fn offer_to_agent(&mut self) {
        if self.waits_for_agent {
            let mut calls = self.calls.iter_mut().flatten();
            self.waits_for_agent = !calls.all(|call| match call {
                OwnCall::Here(call) => call.begin.offer_again(),
                OwnCall::Elsewhere => true,
            });
        }
    }
}

impl OwnCall {
    /// Says if the agent has no room for the contribution yet.
    pub(super) fn waits_for_agent(&self) -> bool {
        match self {
            Self::Here(call) => call.begin.originals.waits_for_agent(),
            Self::Elsewhere => false,
        }
    }
}

/// Who lends a longer buffer has no memory for copies. A shorter one is copied: the copy takes less time than the
/// scheduler.
const LENT_LENGTH_MAX: usize = 64 << 20;
