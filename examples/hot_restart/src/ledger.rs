//! The ledger: what was deposited, each deposit once.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// A deposit, which may come more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deposit {
    /// Who makes it.
    pub(crate) client: u64,
    /// Its number among the client's deposits, from 0 on without gaps.
    pub(crate) number: u64,
    pub(crate) amount: u64,
}

/// The sum of all deposits, and which they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    balance: u64,
    clients: BTreeMap<u64, Deposited>,
}

/// The numbers of a client's deposits: all below one, and some above that came early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Deposited {
    below: u64,
    above: BTreeSet<u64>,
}

impl Ledger {
    pub(crate) fn balance(&self) -> u64 {
        self.balance
    }

    /// Counts the deposit unless it was counted before. Returns whether it was new.
    pub(crate) fn deposit(&mut self, deposit: Deposit) -> bool {
        let deposited = self.clients.entry(deposit.client).or_default();
        if deposit.number < deposited.below || !deposited.above.insert(deposit.number) {
            return false;
        }
        while deposited.above.remove(&deposited.below) {
            deposited.below += 1;
        }
        self.balance += deposit.amount;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// In whatever order deposits come, and however often, each counts once; and what has no gaps takes no
        /// room.
        #[test]
        fn each_counts_once(order in proptest::collection::vec((0_u64..3, 0_u64..30), 0..300)) {
            let mut ledger = Ledger::default();
            let mut seen = BTreeSet::new();
            for (client, number) in order {
                let amount = 1 + client * 100 + number;
                let new = ledger.deposit(Deposit { client, number, amount });
                prop_assert_eq!(new, seen.insert((client, number)));
            }
            let sum: u64 = seen.iter().map(|(client, number)| 1 + client * 100 + number).sum();
            prop_assert_eq!(ledger.balance(), sum);
            for (client, number) in (0..3).flat_map(|client| (0..30).map(move |number| (client, number))) {
                ledger.deposit(Deposit { client, number, amount: 0 });
            }
            prop_assert!(ledger.clients.values().all(|deposited| deposited.above.is_empty()));
        }
    }
}
