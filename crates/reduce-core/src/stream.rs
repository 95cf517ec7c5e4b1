use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use super::{
    ids::{ShareId, Site, Token},
    message::{Input, RowNode},
};

/// One node at work: it opens a window for each chunk, in order, grants its children a place there, folds what they
/// send, and sends the outcome to the parent.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) share: ShareId,
    pub(crate) inputs: Vec<Input>,
    pub(crate) children: Vec<Child>,
    pub(crate) parent: Option<(Site, u32)>,
    /// The sum of the tokens of its own originals, or of the result; `None` as long as that is not known.
    own: Option<Token>,
    /// The index after the last chunk.
    end: u32,
    /// The parent does not need the chunks before it any more; at the root, they are merged.
    taken: u32,
    /// The chunks before it are folded.
    folded: u32,
    /// The chunks before it have a place at the parent.
    granted: u32,
    /// The first chunk that a plan leaves to this node, and the index after the last one that children send unasked.
    unasked: Range<u32>,
    /// The chunks before it are sent or being sent.
    sent: u32,
    /// Those of the chunks from `taken` on that are begun.
    windows: VecDeque<Window>,
    /// So many chunks may be begun and not taken.
    windows_max: u32,
    /// The sends and the fold that are under way, by index: their buffers are in use even if nobody needs them any
    /// more.
    busy: BTreeMap<u32, u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) site: Site,
    pub(crate) node: u32,
    /// The chunks before it were granted a place.
    granted: u32,
}

#[derive(Clone, Debug)]
struct Window {
    /// For each child, whether its chunk is here.
    arrived: Vec<bool>,
    tokens: Token,
    /// The parent has the chunk.
    is_delivered: bool,
}

impl Window {
    fn is_full(&self) -> bool {
        self.arrived.iter().all(|arrived| *arrived)
    }
}

impl Stream {
    /// `from` may lie beyond the node's own first chunk: the root skips what it has merged. So many chunks from the
    /// first one on are sent `unasked`.
    pub(crate) fn new(
        node: RowNode,
        share: ShareId,
        own: Option<Token>,
        (from, end): (u32, u32),
        windows_max: u32,
        unasked: u32,
    ) -> Self {
        let children = node.inputs.iter().filter_map(|input| match *input {
            Input::Child(site, node) => Some(Child {
                site,
                node,
                granted: 0,
            }),
            Input::Own(_) | Input::Final => None,
        });
        let from = from.min(end);
        let first = node.from.min(end);
        let unasked = first..(first + unasked).min(end);
        let mut stream = Self {
            share,
            children: children.collect(),
            inputs: node.inputs,
            parent: node.parent,
            own,
            end,
            taken: from,
            folded: from,
            granted: unasked.end,
            unasked,
            sent: from,
            windows: VecDeque::new(),
            windows_max,
            busy: BTreeMap::new(),
        };
        if stream.sends_original() {
            stream.folded = end;
        }
        stream
    }

    /// It has one original and no children: nothing is folded.
    pub(crate) fn sends_original(&self) -> bool {
        self.parent.is_some() && matches!(self.inputs[..], [Input::Own(_)])
    }

    /// It sends the result on.
    pub(crate) fn sends_final(&self) -> bool {
        matches!(self.inputs[..], [Input::Final])
    }

    /// The chunks of the result before this index are here, with these tokens: they can be sent on, and need not come
    /// any more.
    pub(crate) fn note_final(&mut self, until: u32, tokens: Option<Token>) {
        match self.sends_final() {
            true => {
                self.folded = self.folded.max(until.min(self.end));
                self.own = self.own.or(tokens);
            }
            false => self.note_taken(until),
        }
    }

    /// It ends before this chunk already, and forgets what it has of this one and those after it. Returns the slots of
    /// their windows.
    pub(crate) fn end_at(&mut self, end: u32) -> Vec<u32> {
        if end >= self.end {
            return Vec::new();
        }
        let first = self.taken.max(end);
        let forgotten = first..self.taken + self.windows.len() as u32;
        self.end = end;
        self.windows.truncate((first - self.taken) as usize);
        self.folded = self.folded.min(end).max(self.taken);
        self.granted = self.granted.min(end);
        forgotten.map(|index| index % self.windows_max).collect()
    }

    /// Says if it works on a chunk.
    pub(crate) fn has(&self, index: u32) -> bool {
        index < self.end
    }

    /// It has folded all, and nobody needs more of it.
    pub(crate) fn is_over(&self) -> bool {
        self.taken >= self.end
    }

    /// The number of a child among the children.
    pub(crate) fn child(&self, node: u32) -> Option<usize> {
        self.children.iter().position(|child| child.node == node)
    }

    /// The parent takes the chunks before `until`, and does not need those before `taken` any more.
    pub(crate) fn note_grant(&mut self, taken: u32, until: u32) {
        self.granted = self.granted.max(until.min(self.end));
        self.note_taken(taken);
    }

    /// The next chunk that can be sent.
    pub(crate) fn sendable(&self) -> Option<u32> {
        (self.sent < self.folded.min(self.granted)).then_some(self.sent)
    }

    /// Begins to send the next chunk. Returns it and its token.
    pub(crate) fn next_to_send(&mut self) -> Option<(u32, Token)> {
        let index = self.sendable()?;
        self.sent += 1;
        *self.busy.entry(index).or_default() += 1;
        let folded = self.windows.get((index - self.taken) as usize);
        Some((
            index,
            self.own
                .unwrap_or_default()
                .plus(folded.map_or(Token::default(), |window| window.tokens)),
        ))
    }

    /// Opens windows as far as there is room, and grants children their places: each time for half of the windows.
    /// Returns children, and how far they were taken and granted.
    pub(crate) fn grants(&mut self) -> Vec<(Site, u32, u32, u32)> {
        let opened = self.open();
        let batch = (self.windows_max / 2).max(1);
        let (taken, windows, end) = (self.taken, &self.windows, self.end);
        let mut grants = Vec::new();
        for (at, child) in self.children.iter_mut().enumerate() {
            let arrived = windows.iter().take_while(|window| window.arrived[at]).count();
            let arrived = taken + arrived as u32;
            // A child that has used up its grants is not kept waiting for more of them.
            let batch = if arrived >= child.granted { 1 } else { batch };
            if opened >= child.granted + batch || (opened == end && opened > child.granted) {
                child.granted = opened;
                grants.push((child.site, child.node, arrived, opened));
            }
        }
        grants
    }

    /// Says if a child knows of such a grant without being told.
    pub(crate) fn is_known(&self, taken: u32, until: u32) -> bool {
        taken <= self.unasked.start && until <= self.unasked.end
    }

    /// Returns the index after the last window.
    fn open(&mut self) -> u32 {
        if self.sends_original() || self.sends_final() {
            return self.taken;
        }
        // Buffers go round.
        let oldest = self
            .busy
            .keys()
            .next()
            .map_or(self.taken, |&busy| busy.min(self.taken));
        let limit = oldest.saturating_add(self.windows_max).min(self.end);
        while self.taken + (self.windows.len() as u32) < limit {
            self.windows.push_back(Window {
                arrived: vec![false; self.children.len()],
                tokens: Token::default(),
                is_delivered: false,
            });
        }
        self.taken + self.windows.len() as u32
    }

    /// Says if a chunk of a child has a place here and has not come yet.
    pub(crate) fn expects(&self, index: u32, child: usize) -> bool {
        let at = index.checked_sub(self.taken);
        let window = at.and_then(|at| self.windows.get(at as usize));
        window.is_some_and(|window| !window.arrived[child])
    }

    /// A chunk of a child is in its place, if it [was expected](Self::expects).
    pub(crate) fn note_arrived(&mut self, index: u32, child: usize, tokens: Token) {
        if self.expects(index, child) {
            let window = &mut self.windows[(index - self.taken) as usize];
            window.arrived[child] = true;
            window.tokens = window.tokens.plus(tokens);
        }
    }

    /// The next chunk to fold, and the sum of its tokens, if all its operands are here.
    pub(crate) fn foldable(&self) -> Option<(u32, Token)> {
        if self.sends_original() || self.sends_final() {
            return None;
        }
        let window = self.windows.get((self.folded - self.taken) as usize)?;
        window
            .is_full()
            .then(|| (self.folded, window.tokens.plus(self.own.unwrap_or_default())))
    }

    /// A fold begins.
    pub(crate) fn begin_fold(&mut self, index: u32) {
        *self.busy.entry(index).or_default() += 1;
    }

    /// A chunk is folded. At the root that is the end of it.
    pub(crate) fn note_folded(&mut self, index: u32) {
        self.finish(index);
        if index == self.folded && self.has(index) {
            self.folded += 1;
            if self.parent.is_none() {
                self.note_taken(index + 1);
            }
        }
    }

    /// The parent has a chunk: it is not needed here any more.
    pub(crate) fn note_delivered(&mut self, index: u32) {
        self.finish(index);
        let at = index.checked_sub(self.taken);
        if let Some(window) = at.and_then(|at| self.windows.get_mut(at as usize)) {
            window.is_delivered = true;
        }
        while self.windows.front().is_some_and(|window| window.is_delivered) {
            self.note_taken(self.taken + 1);
        }
    }

    /// A chunk could not be sent.
    pub(crate) fn note_undelivered(&mut self, index: u32) {
        self.finish(index);
    }

    fn finish(&mut self, index: u32) {
        if let Some(count) = self.busy.get_mut(&index) {
            *count -= 1;
            if *count == 0 {
                self.busy.remove(&index);
            }
        }
    }

    fn note_taken(&mut self, until: u32) {
        let until = until.min(self.end);
        while self.taken < until {
            self.windows.pop_front();
            self.taken += 1;
        }
        self.folded = self.folded.max(self.taken);
        self.sent = self.sent.max(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node of one child, with two windows, in the middle of a tree.
    fn stream() -> Stream {
        with_windows(2)
    }

    fn with_windows(windows: u32) -> Stream {
        let node = RowNode {
            class: 0,
            node: 1,
            from: 0,
            inputs: vec![Input::Child(Site(7), 2)],
            parent: Some((Site(8), 0)),
        };
        Stream::new(node, ShareId(0), Some(Token::default()), (0, 10), windows, 0)
    }

    /// A chunk passes: granted, arrived, folded, sent, taken.
    #[test]
    fn chunks_pass() {
        let mut stream = stream();
        assert_eq!(stream.grants(), [(Site(7), 2, 0, 2)]);
        stream.note_arrived(0, 0, Token(5));
        assert_eq!(stream.foldable(), Some((0, Token(5))));
        stream.begin_fold(0);
        stream.note_folded(0);
        assert_eq!(stream.next_to_send(), None);
        stream.note_grant(0, 1);
        assert_eq!(stream.next_to_send(), Some((0, Token(5))));
        assert_eq!(stream.grants(), []);
        stream.note_delivered(0);
        assert_eq!(stream.grants(), [(Site(7), 2, 1, 3)]);
    }

    /// Grants come for half of the windows each time, but a child that has used up its own gets what there is.
    #[test]
    fn a_child_that_waits_gets_what_there_is() {
        let mut stream = with_windows(4);
        assert_eq!(stream.grants(), [(Site(7), 2, 0, 4)]);
        let mut pass = |chunks: Range<u32>, delivered: u32| {
            for index in chunks {
                stream.note_arrived(index, 0, Token(5));
                stream.begin_fold(index);
                stream.note_folded(index);
            }
            stream.note_grant(0, 10);
            while stream.next_to_send().is_some() {}
            stream.note_delivered(delivered);
            stream.grants()
        };
        assert_eq!(pass(0..1, 0), []);
        assert_eq!(pass(1..4, 1), [(Site(7), 2, 4, 6)]);
        assert_eq!(pass(4..6, 2), [(Site(7), 2, 6, 7)]);
    }

    /// Two chunks go unasked, and their parent need not tell of the grant; one that skips a chunk has to.
    #[test]
    fn the_first_chunks_go_unasked() {
        let node = RowNode {
            class: 0,
            node: 1,
            from: 3,
            inputs: vec![Input::Own(crate::ids::Member(1))],
            parent: Some((Site(8), 0)),
        };
        let mut stream = Stream::new(node, ShareId(0), Some(Token(5)), (3, 10), 4, 2);
        let sent: Vec<u32> = std::iter::from_fn(|| stream.next_to_send().map(|(index, _)| index)).collect();
        assert_eq!(sent, [3, 4]);
        assert!(stream.is_known(3, 5) && !stream.is_known(3, 6) && !stream.is_known(4, 5));
        stream.note_grant(3, 6);
        assert_eq!(stream.next_to_send().map(|(index, _)| index), Some(5));
    }

    /// The window of a chunk is in use until the chunk has arrived, also if a later one has.
    #[test]
    fn windows_are_used_again_when_their_chunks_have_left() {
        let mut stream = stream();
        stream.grants();
        for index in [0, 1] {
            stream.note_arrived(index, 0, Token(5));
            stream.begin_fold(index);
            stream.note_folded(index);
        }
        stream.note_grant(0, 2);
        assert_eq!(stream.next_to_send().map(|(index, _)| index), Some(0));
        assert_eq!(stream.next_to_send().map(|(index, _)| index), Some(1));
        stream.note_grant(2, 4);
        assert_eq!(stream.grants(), []);
        stream.note_delivered(1);
        assert_eq!(stream.grants(), []);
        stream.note_delivered(0);
        assert_eq!(stream.grants(), [(Site(7), 2, 2, 4)]);
    }

    /// Chunks that a later plan takes over are forgotten, wherever they are; the others go on.
    #[test]
    fn the_end_comes_nearer() {
        let mut stream = with_windows(4);
        stream.grants();
        for index in 0..4 {
            stream.note_arrived(index, 0, Token(5));
        }
        for index in 0..3 {
            stream.begin_fold(index);
            stream.note_folded(index);
        }
        stream.note_grant(0, 4);
        assert_eq!(stream.next_to_send().map(|(index, _)| index), Some(0));
        stream.begin_fold(3);
        assert_eq!(stream.end_at(2), [2, 3]);
        stream.note_folded(3);
        assert!(!stream.expects(2, 0) && !stream.expects(3, 0));
        assert_eq!(stream.foldable(), None);
        assert_eq!(stream.next_to_send().map(|(index, _)| index), Some(1));
        assert_eq!(stream.next_to_send(), None);
        stream.note_delivered(0);
        stream.note_delivered(1);
        assert_eq!(stream.grants(), []);
        assert_eq!(stream.end_at(1), []);
        stream.note_grant(2, 6);
        assert_eq!((stream.foldable(), stream.sendable()), (None, None));
        assert_eq!(stream.grants(), []);
    }

    /// A parent that has merged more than the plan says lets its child skip.
    #[test]
    fn chunks_are_skipped() {
        let mut stream = stream();
        stream.grants();
        stream.note_arrived(0, 0, Token(5));
        stream.note_grant(6, 8);
        assert_eq!(stream.foldable(), None);
        assert!(!stream.expects(0, 0) && !stream.expects(1, 0));
        assert_eq!(stream.grants(), [(Site(7), 2, 6, 8)]);
    }
}
