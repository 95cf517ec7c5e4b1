use std::collections::BTreeMap;

use crate::{Order, ids::Site};

/// The chunks that a site is sending.
///
/// A receiver gets one at first, and with each answer one more, up to half of all if others get some too: so that a
/// slow one has little in its link, where the scheduler's messages have to pass too, and does not hold up the others.
#[derive(Debug)]
pub(super) struct Sends {
    max: u32,
    all: u32,
    receivers: BTreeMap<Site, Receiver>,
}

#[derive(Debug)]
struct Receiver {
    sends: u32,
    max: u32,
}

impl Sends {
    /// In a fixed order a site has the same few receivers in all trees, and to some of them several send at once: what
    /// waits there may not keep chunks from the others. So many windows may be under way to all together.
    const WINDOWS_ORDERED: u32 = 4;

    pub(super) fn new(max: u32) -> Self {
        Self {
            max,
            all: 0,
            receivers: BTreeMap::new(),
        }
    }

    pub(super) fn set_max(&mut self, max: u32) {
        self.max = max.max(1);
    }

    /// Something that is folded in this order may be sent.
    pub(super) fn has_room(&self, order: Order) -> bool {
        let windows = match order {
            Order::Any => 1,
            Order::Ordered => Self::WINDOWS_ORDERED,
        };
        self.all < windows * self.max
    }

    /// A receiver has not got its part.
    pub(super) fn has_room_for(&self, to: Site) -> bool {
        let receiver = self.receivers.get(&to);
        receiver.is_none_or(|receiver| receiver.sends < receiver.max.min(self.max.div_ceil(2)))
    }

    /// A receiver has got its part, and may have that of others too: they get nothing.
    pub(super) fn has_room_alone(&self, to: Site) -> bool {
        let receiver = self.receivers.get(&to);
        receiver.is_some_and(|receiver| receiver.sends == self.all && receiver.sends < receiver.max)
    }

    pub(super) fn handle_begun(&mut self, to: Site) {
        self.all += 1;
        let receiver = self.receivers.entry(to).or_insert(Receiver { sends: 0, max: 1 });
        receiver.sends += 1;
    }

    pub(super) fn handle_ended(&mut self, to: Site) {
        self.all = self.all.saturating_sub(1);
        if let Some(receiver) = self.receivers.get_mut(&to) {
            receiver.sends = receiver.sends.saturating_sub(1);
            receiver.max = (receiver.max + 1).min(self.max);
        }
    }
}
