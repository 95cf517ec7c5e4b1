//! Groups of processes, as PMIx has them (PMIx 4.1, section 13.1): their members meet in a fence.

use ropewalk_launch_core::pmix::Process;

use crate::sys::{
    replies::InfoReply,
    types::{Status, data_type, status},
    values::{Infos, Item},
};

/// A group that is constructed or destructed.
pub(crate) struct Construction {
    members: Vec<Process>,
    /// The members want a number of their group.
    wants_context: bool,
    reply: InfoReply,
}

/// `PMIX_GROUP_ASSIGN_CONTEXT_ID`.
const ASSIGN_CONTEXT: &str = "pmix.grp.actxid";
/// `PMIX_GROUP_CONTEXT_ID`.
const CONTEXT: &str = "pmix.grp.ctxid";
/// `PMIX_GROUP_ENDPT_DATA`.
const DATA: &str = "pmix.grp.endpt";
/// `PMIX_GROUP_MEMBERSHIP`.
const MEMBERSHIP: &str = "pmix.grp.mbrs";

impl Construction {
    /// A group with these members, and the data of those that are here for all.
    pub(crate) fn new(
        members: Vec<Process>,
        directives: Vec<(String, Option<Item>)>,
        reply: InfoReply,
    ) -> (Self, Vec<u8>) {
        let wants_context = directives
            .iter()
            .any(|(key, item)| key == ASSIGN_CONTEXT && Item::is_true(item.as_ref()));
        let data = directives.into_iter().find_map(|(key, item)| match item {
            Some(Item::Bytes(data)) if key == DATA => Some(data),
            _ => None,
        });
        let group = Self {
            members,
            wants_context,
            reply,
        };
        (group, data.unwrap_or_default())
    }

    /// The members have met, with the data of all and a number of their group, or cannot.
    pub(crate) fn answer(self, found: Status, data: &[u8], context: Option<u64>) {
        if found != status::SUCCESS {
            return self.reply.send(found, Infos::default());
        }
        let mut items = vec![(MEMBERSHIP, Item::Processes(self.members))];
        if let (true, Some(bits)) = (self.wants_context, context) {
            let data_type = data_type::SIZE;
            items.push((CONTEXT, Item::Number { data_type, bits }));
        }
        let mut infos = Infos::new(&items);
        if !data.is_empty() {
            infos.give(DATA, data);
        }
        self.reply.send(status::SUCCESS, infos);
    }
}
