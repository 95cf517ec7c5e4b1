use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    canary::{Canary, is_put_back},
    chunks::Cut,
    ids::{Member, PlanId, Session, ShareId, Site, StreamId, Term, Token},
    message::{ChunkHeader, FromScheduler, Grant, Input, Row, Standing, ToScheduler},
    rates::SendRates,
    recent::Recent,
    scheduler::{Call, End, Failure, GiveUp},
    stream::Stream,
};

mod action;
mod early_grants;
mod early_rows;
mod gathering;
mod merge;
mod part;
mod result;
mod sends;

pub use self::action::{Chunk, Place, WorkerAction};
use self::{
    early_grants::EarlyGrants,
    early_rows::EarlyRows,
    merge::{Claim, Merge},
    part::Part,
    sends::Sends,
};

/// One site: it holds originals, and works on its nodes of all plans.
///
/// Inputs are the `handle_*` functions, and [`contribute`](Self::contribute) for the user. After each, the caller
/// takes the actions from [`poll_action`](Self::poll_action) until there is none, carries them out in order, and
/// answers each [`WorkerAction::SendChunk`] and [`WorkerAction::Fold`] once, at any time.
///
/// It keeps [`WINDOW_BYTES`](crate::Chunking::WINDOW_BYTES) of each session, at least two chunks for each of its nodes,
/// and [`ENDED_MAX`](Self::ENDED_MAX) ends of sessions.
#[derive(Debug)]
pub struct Worker {
    site: Site,
    scheduler: Site,
    term: Term,
    sessions: BTreeMap<Session, Part>,
    ended: Recent<End>,
    /// The nodes that may have something to send, the first chunks of the oldest sessions first.
    sendable: BTreeSet<(Session, u64, StreamId)>,
    sends: Sends,
    early_grants: EarlyGrants,
    /// Rows of sessions to which this site has not contributed yet: others may hold its original.
    early_rows: EarlyRows,
    /// The nodes that may have something to fold.
    foldable: VecDeque<(Session, StreamId)>,
    is_folding: bool,
    /// The sessions that were given up here and have not ended.
    given_up: BTreeMap<Session, (Member, GiveUp)>,
    /// The reason for which it contributes to nothing any more.
    left: Option<String>,
    actions: VecDeque<WorkerAction>,
}

impl Worker {
    /// Ends that are remembered for late callers.
    pub const ENDED_MAX: usize = 1_024;
    /// Grants that may come before their rows: one for each class and child of a plan or two.
    pub const EARLY_MAX: usize = 4_096;
    /// Rows that may come before this site has contributed to their sessions.
    pub const EARLY_ROWS_MAX: usize = 1_024;

    /// A site without sessions; `scheduler` is where the first seat is.
    pub fn new(site: Site, scheduler: Site, term: Term) -> Self {
        Self {
            site,
            scheduler,
            term,
            sessions: BTreeMap::new(),
            ended: Recent::new(Self::ENDED_MAX),
            sendable: BTreeSet::new(),
            sends: Sends::new(SendRates::WINDOW_FIRST),
            early_grants: EarlyGrants::default(),
            early_rows: EarlyRows::default(),
            foldable: VecDeque::new(),
            is_folding: false,
            given_up: BTreeMap::new(),
            left: None,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<WorkerAction> {
        self.actions.pop_front()
    }

    /// The sessions that have not ended here.
    pub fn sessions(&self) -> impl Iterator<Item = Session> {
        self.sessions.keys().copied()
    }

    /// Sets the number of chunks that are being sent at once, as [`SendRates::window`] says. One receiver gets half of
    /// them at most, and at first one.
    pub fn set_sends(&mut self, sends: u32) {
        self.sends.set_max(sends);
    }

    /// The chunks that a node here works on.
    pub fn cut(&self, session: Session, stream: StreamId) -> Option<Cut> {
        self.sessions.get(&session)?.cut(stream)
    }

    /// The sites from which chunks come or to which they go.
    pub fn neighbours(&self) -> BTreeSet<Site> {
        let streams = self.sessions.values().flat_map(|part| part.streams.values());
        let neighbours = streams.flat_map(|stream| {
            let children = stream.children.iter().map(|child| child.site);
            children.chain(stream.parent.map(|(parent, _)| parent))
        });
        neighbours.collect()
    }

    /// Contributes originals, or inherits them. They stay unchanged until [`WorkerAction::Finished`].
    pub fn contribute(&mut self, session: Session, call: Call, originals: Vec<(Member, Token)>) {
        if let Some(end) = self.ended.get(&session) {
            self.actions
                .push_back(WorkerAction::Finished(session, end.clone()));
            return;
        }
        let part = self.sessions.entry(session);
        let part = part.or_insert_with(|| Part::new(call.clone()));
        part.originals.extend(originals.iter().copied());
        self.tell(ToScheduler::Announce {
            session,
            call,
            originals,
            are_enclosed: false,
        });
        for row in self.early_rows.take(session) {
            self.take_row(row);
        }
        self.work();
    }

    /// Gives a session up for all, in the name of a member.
    pub fn give_up(&mut self, session: Session, member: Member, reason: GiveUp) {
        if self.ended.contains(&session) {
            return;
        }
        self.given_up.insert(session, (member, reason.clone()));
        while self.given_up.len() > Self::ENDED_MAX {
            self.given_up.pop_first();
        }
        self.tell(ToScheduler::GiveUp {
            session,
            member,
            reason,
        });
    }

    /// Contributes to nothing any more: sessions to which this site has not contributed end on all.
    pub fn leave(&mut self, why: String) {
        self.left = Some(why.clone());
        self.tell(ToScheduler::Leave { why });
    }

    /// A message of the scheduler at `from`. What an older seat says is ignored.
    pub fn handle_scheduler(&mut self, from: Site, message: FromScheduler) {
        let own = self.term;
        let follows = |term| term >= own || is_put_back(Canary::OldTermFollowed);
        match message {
            FromScheduler::NewTerm(term) if term > self.term => self.follow(from, term),
            FromScheduler::Row(row) if follows(row.plan.term) => self.take_row(row),
            FromScheduler::Ended { session, term, end } if follows(term) => self.end(session, end),
            _ => {}
        }
        self.work();
    }

    /// A grant of a parent.
    pub fn handle_grant(&mut self, grant: Grant) {
        if let Some(stream) = self.stream(grant.session, grant.to) {
            stream.note_grant(grant.taken, grant.until);
            self.advance(grant.session, grant.to);
            self.work();
        } else if self.is_to_come(grant.session, grant.to.plan) {
            self.early_grants.keep(grant);
        }
    }

    /// The place for a chunk that arrives from a child; `None` if it has none here, as chunks of withdrawn plans.
    pub fn place(&self, chunk: &ChunkHeader) -> Option<Place> {
        let part = self.sessions.get(&chunk.session)?;
        let stream = part.streams.get(&chunk.to)?;
        let child = stream.child(chunk.from)?;
        stream
            .expects(chunk.index, child)
            .then(|| self.window(chunk.session, chunk.to, chunk.index, child))
    }

    /// Says if a chunk came before the row that it is for: the first ones of a plan are sent unasked. It is kept until
    /// it is not early any more, and has a [place](Self::place) then if it is still of use.
    pub fn is_early(&self, chunk: &ChunkHeader) -> bool {
        self.is_to_come(chunk.session, chunk.to.plan) && !is_put_back(Canary::EarlyChunkForgotten)
    }

    /// Says if a chunk that this site was to send is still of use.
    pub fn is_needed(&self, chunk: &ChunkHeader) -> bool {
        let part = self.sessions.get(&chunk.session);
        let stream = part.and_then(|part| part.streams.get(&chunk.sender()));
        stream.is_some_and(|stream| stream.has(chunk.index))
    }

    /// A chunk is in its [place](Self::place).
    pub fn handle_chunk(&mut self, chunk: &ChunkHeader) {
        if let Some(stream) = self.stream(chunk.session, chunk.to)
            && let Some(child) = stream.child(chunk.from)
        {
            stream.note_arrived(chunk.index, child, chunk.tokens);
            self.advance(chunk.session, chunk.to);
        }
        self.work();
    }

    /// A chunk that was sent to a site has arrived there.
    pub fn handle_delivered(&mut self, to: Site, chunk: &ChunkHeader) {
        self.handle_send_ended(to, chunk, Stream::note_delivered);
    }

    /// A chunk that was to be sent to a site will never arrive there.
    pub fn handle_undelivered(&mut self, to: Site, chunk: &ChunkHeader) {
        self.handle_send_ended(to, chunk, Stream::note_undelivered);
    }

    fn handle_send_ended(&mut self, to: Site, chunk: &ChunkHeader, note: impl FnOnce(&mut Stream, u32)) {
        self.sends.handle_ended(to);
        if let Some(stream) = self.stream(chunk.session, chunk.sender()) {
            note(stream, chunk.index);
            self.advance(chunk.session, chunk.sender());
        }
        self.work();
    }

    /// A site cannot be reached, or cannot reach this one.
    pub fn handle_unreachable(&mut self, site: Site) {
        let mut plans = BTreeSet::new();
        for (&session, part) in &self.sessions {
            let is_neighbour = |stream: &Stream| {
                stream.parent.is_some_and(|(parent, _)| parent == site)
                    || stream.children.iter().any(|child| child.site == site)
            };
            let concerned = part.streams.iter().filter(|(_, stream)| is_neighbour(stream));
            plans.extend(concerned.map(|(id, _)| (session, id.plan)));
        }
        for (session, plan) in plans {
            self.tell(ToScheduler::Unreachable { session, plan, site });
        }
    }

    /// Operands are folded.
    pub fn handle_folded(&mut self, session: Session, stream: StreamId, index: u32) {
        self.is_folding = false;
        let moved = self.merge(session).and_then(Merge::finish);
        if let Some(known) = self.stream(session, stream) {
            known.note_folded(index);
            if known.is_over() {
                self.advance_newer(session, stream);
                self.open_blocks(session);
            }
            self.advance(session, stream);
        }
        if let Some(class) = moved {
            self.spread(session, class);
        }
        self.report(session);
        self.work();
    }

    /// The operands of a [`WorkerAction::Fold`] could not be folded: a retry would fail again.
    pub fn handle_fold_failed(&mut self, session: Session, failure: Failure) {
        self.is_folding = false;
        self.handle_failure(session, failure);
    }

    /// A session cannot be done.
    pub fn handle_failure(&mut self, session: Session, failure: Failure) {
        self.tell(ToScheduler::Failed { session, failure });
        self.work();
    }

    fn tell(&mut self, message: ToScheduler) {
        self.actions
            .push_back(WorkerAction::Tell(self.scheduler, message));
    }

    fn stream(&mut self, session: Session, stream: StreamId) -> Option<&mut Stream> {
        self.sessions.get_mut(&session)?.streams.get_mut(&stream)
    }

    /// Says if a plan is newer than what is known here: its row is on the way, or waits for this site's own call.
    fn is_to_come(&self, session: Session, plan: PlanId) -> bool {
        let part = self.sessions.get(&session);
        let newest = part.and_then(|part| part.plans.values().max());
        !self.ended.contains(&session) && newest.is_none_or(|newest| plan > *newest) && plan.term >= self.term
    }

    fn window(&self, session: Session, stream: StreamId, index: u32, child: usize) -> Place {
        let windows = self.cut(session, stream).map_or(2, |cut| cut.windows());
        Place::Window {
            stream,
            slot: index % windows,
            child,
        }
    }

    /// Follows a new seat: gives up all plans and says what is here.
    fn follow(&mut self, scheduler: Site, term: Term) {
        self.term = term;
        self.scheduler = scheduler;
        self.sendable.clear();
        self.early_grants = EarlyGrants::default();
        self.early_rows = EarlyRows::default();
        self.foldable.clear();
        let mut sessions = Vec::new();
        for (&session, part) in &mut self.sessions {
            let forgotten = part.end_streams(|_, _| Some(0));
            if let Some(merge) = &mut part.merge {
                merge.forget_ahead();
            }
            self.actions.push_back(WorkerAction::Forget(session, forgotten));
            part.plans.clear();
            sessions.push(part.standing(session));
        }
        sessions.extend(self.ended.iter().map(|(&session, end)| Standing {
            session,
            call: Call::default(),
            originals: Vec::new(),
            shares: Vec::new(),
            chunking: None,
            roster: None,
            end: Some(end.clone()),
        }));
        // This comes first: the last standing may be the one that was waited for.
        if let Some(why) = self.left.clone() {
            self.tell(ToScheduler::Leave { why });
        }
        for (session, (member, reason)) in self.given_up.clone() {
            self.tell(ToScheduler::GiveUp {
                session,
                member,
                reason,
            });
        }
        self.tell(ToScheduler::Standing { term, sessions });
    }

    fn end(&mut self, session: Session, end: End) {
        self.sendable.retain(|(known, ..)| *known != session);
        self.early_grants.forget(session);
        self.early_rows.forget(session);
        self.foldable.retain(|(known, _)| *known != session);
        self.given_up.remove(&session);
        *self.ended.insert(session, end.clone()) = end.clone();
        if self.sessions.remove(&session).is_some() {
            self.actions.push_back(WorkerAction::Finished(session, end));
        }
    }

    fn take_row(&mut self, row: Row) {
        self.term = row.plan.term;
        let Some(part) = self.sessions.get_mut(&row.session) else {
            if !self.ended.contains(&row.session) {
                self.early_rows.keep(row);
            }
            return;
        };
        let is_known = part.plans.get(&row.share).is_some_and(|known| *known >= row.plan);
        if is_known || !row.is_valid(part.chunking) || !row.is_for(&part.call) {
            return;
        }
        let forgotten = part.withdraw(&row);
        self.actions
            .push_back(WorkerAction::Forget(row.session, forgotten));
        let (session, plan, share) = (row.session, row.plan, row.share);
        let cut = row.chunking.cut(share);
        let windows = cut.windows();
        let mut begun = Vec::new();
        for node in row.nodes {
            let own = node.inputs.iter().filter_map(|input| match input {
                Input::Own(member) => Some(part.originals.get(member).copied()),
                Input::Final => Some(Some(Token::sum(row.members.iter().map(|(_, token)| *token)))),
                Input::Child(..) => None,
            });
            let tokens: Option<Vec<Token>> = own.collect();
            let Some(tokens) = tokens else {
                let site = self.site;
                return self.tell(ToScheduler::Unreachable { session, plan, site });
            };
            let id = StreamId {
                plan,
                class: node.class,
                node: node.node,
            };
            let merge = part.merge.as_ref().filter(|_| node.parent.is_none());
            let from = node
                .from
                .max(merge.map_or(0, |merge| merge.until(share, node.class)));
            let end = cut.chunks_of(node.class);
            let is_known = row.ahead_of.is_none() || !matches!(node.inputs[..], [Input::Final]);
            let own = is_known.then(|| Token::sum(tokens));
            let mut stream = Stream::new(node, share, own, (from, end), windows, cut.unasked());
            if share == ShareId::SPREAD
                && let Some(merge) = &mut part.merge
            {
                stream.note_final(merge.finals(id.class), merge.tokens());
            }
            if let Some(grant) = self.early_grants.take(session, id) {
                stream.note_grant(grant.taken, grant.until);
            }
            part.insert(id, stream);
            begun.push(id);
        }
        self.early_grants.forget_until(session, plan);
        begun.into_iter().for_each(|id| self.advance(session, id));
        self.open_blocks(session);
        self.report(session);
    }

    /// Grants the next blocks of a gather their places, if it is their turn.
    fn open_blocks(&mut self, session: Session) {
        let opened = self.sessions.get_mut(&session).map(Part::open_blocks);
        let opened = opened.into_iter().flatten();
        opened.for_each(|id| self.advance(session, id));
    }

    /// Looks at what a node can do next.
    fn advance(&mut self, session: Session, id: StreamId) {
        let Some(part) = self.sessions.get_mut(&session) else {
            return;
        };
        let Some(cut) = part.cut(id) else { return };
        let Some(stream) = part.streams.get_mut(&id) else {
            return;
        };
        if part.gathering.is_waiting(stream.share, id) {
            return;
        }
        for (site, node, taken, until) in stream.grants() {
            let grant = Grant {
                session,
                to: StreamId { node, ..id },
                taken,
                until,
            };
            self.actions.push_back(WorkerAction::Grant {
                to: site,
                parent: id,
                grant,
                is_known: stream.is_known(taken, until),
            });
        }
        if let Some(index) = stream.sendable() {
            self.sendable.insert((session, cut.chunk(id.class, index), id));
        }
        if stream.foldable().is_some() {
            self.foldable.push_back((session, id));
        }
    }

    /// An older plan has merged what it keeps of a class: the newer ones may have waited for that.
    fn advance_newer(&mut self, session: Session, than: StreamId) {
        let Some(part) = self.sessions.get(&session) else {
            return;
        };
        let newer = part.streams.range(
            StreamId {
                class: u16::MAX,
                ..than
            }..,
        );
        let newer = newer.filter(|(id, stream)| id.class == than.class && stream.parent.is_none());
        let newer: Vec<StreamId> = newer.map(|(id, _)| *id).collect();
        newer.into_iter().for_each(|id| self.advance(session, id));
    }

    fn work(&mut self) {
        while let Some(next) = self.next_sendable() {
            self.sendable.remove(&next);
            let (session, _, id) = next;
            if let Some(chunk) = self.next_chunk(session, id) {
                self.sends.handle_begun(chunk.to);
                self.actions.push_back(WorkerAction::SendChunk(chunk));
                self.advance(session, id);
            }
        }
        while !self.is_folding
            && let Some((session, id)) = self.foldable.pop_front()
        {
            self.fold(session, id);
        }
    }

    /// The first node with something to send whose parent has not got its part of the sends; or, if there is none,
    /// whose parent is the only one to which something is being sent.
    fn next_sendable(&self) -> Option<(Session, u64, StreamId)> {
        let has_room = |part: &Part| self.sends.has_room(part.call.order);
        if !self.sessions.values().any(has_room) {
            return None;
        }
        let find = |may_send: &dyn Fn(Site) -> bool| {
            let mut sendable = self.sendable.iter();
            sendable.find(|(session, _, id)| {
                let Some(part) = self.sessions.get(session) else {
                    return true;
                };
                let parent = part.streams.get(id).and_then(|stream| stream.parent);
                has_room(part) && parent.is_none_or(|(parent, _)| may_send(parent))
            })
        };
        let first = find(&|to| self.sends.has_room_for(to));
        first
            .or_else(|| find(&|to| self.sends.has_room_alone(to)))
            .copied()
    }

    /// Begins to send a chunk, if it is still of use.
    fn next_chunk(&mut self, session: Session, id: StreamId) -> Option<Chunk> {
        let part = self.sessions.get_mut(&session)?;
        let cut = part.cut(id)?;
        let stream = part.streams.get_mut(&id)?;
        let (to, node) = stream.parent?;
        let (index, tokens) = stream.next_to_send()?;
        let place = match stream.inputs[..] {
            [Input::Own(member)] => Place::Original(member),
            [Input::Final] => Place::Result,
            _ => self.window(session, id, index, 0),
        };
        Some(Chunk {
            to,
            header: ChunkHeader {
                session,
                to: StreamId { node, ..id },
                from: id.node,
                index,
                tokens,
            },
            range: cut.range(id.class, index),
            place,
        })
    }

    fn fold(&mut self, session: Session, id: StreamId) {
        let Some(part) = self.sessions.get(&session) else {
            return;
        };
        let Some(cut) = part.cut(id) else { return };
        let Some(stream) = part.streams.get(&id) else {
            return;
        };
        let Some((index, tokens)) = stream.foldable() else {
            return;
        };
        let (share, is_root) = (stream.share, stream.parent.is_none());
        let mut children = 0..;
        let operand = |input: &Input| match input {
            Input::Own(member) => Place::Original(*member),
            Input::Final => Place::Result,
            Input::Child(..) => self.window(session, id, index, children.next().unwrap_or_default()),
        };
        let mut operands: Vec<Place> = stream.inputs.iter().map(operand).collect();
        let mut into = self.window(session, id, index, 0);
        if is_root {
            let merge = self.merge(session);
            match merge.map_or(Claim::Nothing, |merge| {
                merge.claim(share, id.class, index, tokens)
            }) {
                Claim::Write => {}
                Claim::Fold => operands.insert(0, Place::Result),
                Claim::Nothing => return,
                Claim::WrongTokens => {
                    let failure = Failure::Tokens;
                    return self.tell(ToScheduler::Failed { session, failure });
                }
            }
            into = Place::Result;
        }
        self.is_folding = true;
        if let Some(stream) = self.stream(session, id) {
            stream.begin_fold(index);
        }
        self.actions.push_back(WorkerAction::Fold {
            session,
            stream: id,
            index,
            range: cut.range(id.class, index),
            operands,
            into,
        });
    }
}
