use std::collections::BTreeSet;

use crate::ids::{ShareId, StreamId};

/// The blocks of a gather that the root has granted places: a few at once, in their order. All come in by its one link,
/// and what is granted of all blocks of a large group together would fill the queue before it.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    waiting: BTreeSet<(ShareId, StreamId)>,
    open: Vec<StreamId>,
}

impl Gathering {
    /// A node of the root is to get a block from another site.
    pub(super) fn note(&mut self, share: ShareId, id: StreamId) {
        self.waiting.insert((share, id));
    }

    /// Says if it is not the block's turn yet.
    pub(super) fn is_waiting(&self, share: ShareId, id: StreamId) -> bool {
        self.waiting.contains(&(share, id))
    }

    /// Opens the next blocks if there is room for them among so many, and returns their nodes. Those that are over make
    /// room.
    pub(super) fn open_next(&mut self, at_once: usize, is_over: impl Fn(&StreamId) -> bool) -> Vec<StreamId> {
        self.open.retain(|id| !is_over(id));
        let before = self.open.len();
        while self.open.len() < at_once
            && let Some((_, id)) = self.waiting.pop_first()
        {
            if !is_over(&id) {
                self.open.push(id);
            }
        }
        self.open[before..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PlanId;

    /// Blocks open in their order, and a plan that is given up holds nobody up.
    #[test]
    fn blocks_open_in_their_order() {
        let id = |node| StreamId {
            plan: PlanId::default(),
            class: 0,
            node,
        };
        let mut gathering = Gathering::default();
        for block in [3, 0, 2, 1] {
            gathering.note(ShareId(block), id(block));
        }
        assert_eq!(gathering.open_next(2, |_| false), [id(0), id(1)]);
        assert_eq!(gathering.open_next(2, |_| false), []);
        assert!(gathering.is_waiting(ShareId(2), id(2)) && !gathering.is_waiting(ShareId(1), id(1)));
        assert_eq!(
            gathering.open_next(2, |known| [id(1), id(2)].contains(known)),
            [id(3)]
        );
    }
}
