//! Messages of a server: to processes, and to the servers above and below.

use std::collections::{BTreeSet, VecDeque};

use bstr::BString;

use super::{Absence, Action, ChildId, ConnectionId, Down, GroupId, Up};
use crate::{Form, RankSet, Response, wire::MessageWriter};

/// The actions that are still to be done, and those below who hear what all are told.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) children: BTreeSet<ChildId>,
    actions: VecDeque<Action>,
}

impl Outbox {
    /// The next action to do.
    pub(super) fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn tell_parent(&mut self, message: Up) {
        self.push(Action::ToParent { message });
    }

    /// Many ranks that leave at the same time make one message.
    pub(super) fn tell_parent_of_departure(&mut self, id: GroupId, departed: RankSet, absence: Absence) {
        if let Some(Action::ToParent {
            message: Up::Departed { group, ranks, how },
        }) = self.actions.back_mut()
            && *group == id
            && *how == absence
        {
            *ranks = ranks.union(&departed);
            return;
        }
        self.tell_parent(Up::Departed {
            group: id,
            ranks: departed,
            how: absence,
        });
    }

    pub(super) fn tell_children(&mut self, message: &Down) {
        for &child in &self.children {
            let message = message.clone();
            self.actions.push_back(Action::ToChild { child, message });
        }
    }

    /// Sends a response. Responses that follow each other on the same connection go out as one action.
    pub(super) fn send(
        &mut self,
        id: ConnectionId,
        form: Form,
        thread: Option<&BString>,
        response: &Response,
    ) {
        let thread = thread.map(|thread| bstr::BStr::new(&**thread));
        let form = match form {
            Form::Frame => Form::Frame,
            Form::Block | Form::Line => Form::Line,
        };
        if !matches!(self.actions.back(), Some(Action::Send { connection, .. }) if *connection == id) {
            self.push(Action::Send {
                connection: id,
                bytes: Vec::new(),
            });
        }
        let Some(Action::Send { bytes, .. }) = self.actions.back_mut() else {
            unreachable!("it was pushed above");
        };
        if response.encode_into(form, thread, bytes).is_ok() {
            return;
        }
        // What does not fit into a message of this form is refused: silence would keep the client waiting.
        let name = response
            .name(form)
            .expect("only what a form can say is answered in it");
        let mut refusal = MessageWriter::new(bytes, form, name, thread);
        refusal.pair("rc", b"-1");
        refusal
            .finish()
            .expect("a name and a number fit into every message");
    }
}
