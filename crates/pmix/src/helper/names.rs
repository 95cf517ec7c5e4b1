//! Names: processes publish values under them, look them up and forget them.

use std::{io, time::Instant};

use ropewalk_launch_core::pmix::{Process, Wish};
use ropewalk_pmi as pmi;

use super::{Helper, Waiting};
use crate::{
    lookups::{Kept, Lookup},
    sys::{replies::OpReply, types::status},
};

impl Helper {
    pub(super) fn handle_value(&mut self, lookup: u64, key: &str, answer: pmi::Answer) -> io::Result<()> {
        let pmi::Answer::Value { value: Some(value) } = &answer else {
            if let Some(found) = self.lookups.get_mut(&lookup) {
                found.handle_answer(Instant::now(), key, None);
            }
            return Ok(());
        };
        // The sign of a group that has met has no value.
        let kept: Option<Kept> = match value.is_empty() {
            true => Some(Kept::sign()),
            false => postcard::from_bytes(value).ok(),
        };
        let is_taken = kept.as_ref().is_some_and(|kept| kept.is_taken_by_reader);
        let Some(found) = self.lookups.get_mut(&lookup) else {
            return Ok(());
        };
        found.handle_answer(Instant::now(), key, kept);
        let from = found.from.clone();
        if is_taken {
            let name = key.to_owned();
            self.ask(from, Wish::Unpublish { name }, Waiting::Nobody)?;
        }
        Ok(())
    }

    pub(super) fn look_up(&mut self, id: u64, lookup: Lookup) -> io::Result<()> {
        let (from, keys) = (lookup.from.clone(), lookup.keys().to_vec());
        self.lookups.insert(id, lookup);
        self.ask_for_keys(id, &from, keys)
    }

    pub(super) fn ask_for_keys(&mut self, lookup: u64, from: &Process, keys: Vec<String>) -> io::Result<()> {
        for key in keys {
            let name = key.clone();
            self.ask(from.clone(), Wish::Lookup { name }, Waiting::Key { lookup, key })?;
        }
        Ok(())
    }

    /// Publishes one pair after the other.
    pub(super) fn publish(
        &mut self,
        from: Process,
        mut rest: Vec<(String, Vec<u8>)>,
        reply: OpReply,
    ) -> io::Result<()> {
        let Some((name, value)) = rest.pop() else {
            reply.send(status::SUCCESS);
            return Ok(());
        };
        let waiting = Waiting::Publish {
            reply,
            rest,
            from: from.clone(),
        };
        self.ask(from, Wish::Publish { name, value }, waiting)
    }

    /// Forgets one name after the other. One that is not there is forgotten too.
    pub(super) fn unpublish(
        &mut self,
        from: Process,
        mut rest: Vec<String>,
        reply: OpReply,
    ) -> io::Result<()> {
        let Some(name) = rest.pop() else {
            reply.send(status::SUCCESS);
            return Ok(());
        };
        let waiting = Waiting::Unpublish {
            reply,
            rest,
            from: from.clone(),
        };
        self.ask(from, Wish::Unpublish { name }, waiting)
    }
}
