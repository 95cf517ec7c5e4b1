//! The names that a name server keeps.

use std::collections::BTreeMap;

use bstr::BString;

use super::{
    NameRefusal, NameReply, NameRequest,
    protocol::{decode, encode},
};

/// The names that jobs published. A job is known by `J`: by its connection, with which its names end.
#[derive(Debug)]
pub struct NameTable<J> {
    names: BTreeMap<BString, Published<J>>,
    /// How many names each job has; those with none are not here.
    jobs: BTreeMap<J, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Published<J> {
    port: BString,
    by: J,
}

impl<J> Default for NameTable<J> {
    fn default() -> Self {
        Self::new()
    }
}

impl<J> NameTable<J> {
    /// The longest name, in bytes.
    pub(crate) const SERVICE_SIZE_MAX: usize = 1 << 10;
    /// The longest port, in bytes: four of MPICH's longest.
    pub(crate) const PORT_SIZE_MAX: usize = 4 << 10;
    /// How many names a job may have.
    pub(crate) const PER_JOB_MAX: usize = 1 << 10;
    /// How many bytes all names take together, as [`cost`] has it.
    pub(crate) const BYTES_MAX: usize = 16 << 20;

    /// A table without names.
    pub fn new() -> Self {
        Self {
            names: BTreeMap::new(),
            jobs: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Returns true if no name is kept, and neither jobs nor bytes are counted.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.jobs.is_empty() && self.bytes == 0
    }
}

impl<J: Copy + Ord> NameTable<J> {
    /// Answers what a job has sent, whatever that is.
    pub fn handle_message(&mut self, job: J, message: &[u8]) -> Vec<u8> {
        encode(&match decode(message) {
            Some(request) => self.handle_request(job, request),
            None => Err(NameRefusal::Unclear),
        })
    }

    pub(crate) fn handle_request(&mut self, job: J, request: NameRequest) -> NameReply {
        match request {
            NameRequest::Lookup { service } => match self.names.get(&service) {
                Some(published) => Ok(Some(published.port.clone())),
                None => Err(NameRefusal::NotFound),
            },
            NameRequest::Publish { service, port } => self.publish(job, service, port).map(|()| None),
            NameRequest::Unpublish { service } => match self.names.get(&service) {
                None => Err(NameRefusal::NotFound),
                Some(published) if published.by != job => Err(NameRefusal::NotYours),
                Some(_) => {
                    self.remove(&service);
                    Ok(None)
                }
            },
        }
    }

    /// The connection of a job is gone. Its names go with it.
    pub fn handle_gone(&mut self, job: J) {
        if !self.jobs.contains_key(&job) {
            return;
        }
        let its = self.names.iter().filter(|(_, published)| published.by == job);
        let its: Vec<_> = its.map(|(service, _)| service.clone()).collect();
        for service in its {
            self.remove(&service);
        }
    }

    fn publish(&mut self, job: J, service: BString, port: BString) -> Result<(), NameRefusal> {
        if service.len() > Self::SERVICE_SIZE_MAX || port.len() > Self::PORT_SIZE_MAX {
            return Err(NameRefusal::TooLong);
        }
        match self.names.get(&service) {
            // It was not sure whether the first time was heard.
            Some(known) if known.by == job && known.port == port => return Ok(()),
            Some(_) => return Err(NameRefusal::Published),
            None => {}
        }
        let count = self.jobs.get(&job).copied().unwrap_or_default();
        if count >= Self::PER_JOB_MAX {
            return Err(NameRefusal::TooMany);
        }
        let bytes = self.bytes + cost(&service, &port);
        if bytes > Self::BYTES_MAX {
            return Err(NameRefusal::Full);
        }
        self.bytes = bytes;
        self.jobs.insert(job, count + 1);
        self.names.insert(service, Published { port, by: job });
        Ok(())
    }

    fn remove(&mut self, service: &BString) {
        let Some(Published { port, by }) = self.names.remove(service) else {
            return;
        };
        self.bytes -= cost(service, &port);
        if let Some(count) = self.jobs.get_mut(&by) {
            *count -= 1;
            if *count == 0 {
                self.jobs.remove(&by);
            }
        }
    }
}

/// The approximate size of a name in the table, in bytes, with its overhead.
fn cost(service: &BString, port: &BString) -> usize {
    service.len() + port.len() + 256
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(table: &mut NameTable<u32>, job: u32, service: &str, port: &str) -> NameReply {
        let (service, port) = (service.into(), port.into());
        table.handle_request(job, NameRequest::Publish { service, port })
    }

    fn lookup(table: &mut NameTable<u32>, service: &str) -> NameReply {
        let service = service.into();
        table.handle_request(9, NameRequest::Lookup { service })
    }

    fn unpublish(table: &mut NameTable<u32>, job: u32, service: &str) -> NameReply {
        let service = service.into();
        table.handle_request(job, NameRequest::Unpublish { service })
    }

    /// All see a name, one at a time has it, and only that one takes it away.
    #[test]
    fn a_name_belongs_to_whom_published_it() {
        let mut table = NameTable::new();
        assert_eq!(lookup(&mut table, "s"), Err(NameRefusal::NotFound));
        assert_eq!(publish(&mut table, 1, "s", "p"), Ok(None));
        assert_eq!(publish(&mut table, 1, "s", "p"), Ok(None));
        assert_eq!(publish(&mut table, 1, "s", "q"), Err(NameRefusal::Published));
        assert_eq!(publish(&mut table, 2, "s", "p"), Err(NameRefusal::Published));
        assert_eq!(lookup(&mut table, "s"), Ok(Some("p".into())));
        assert_eq!(unpublish(&mut table, 2, "s"), Err(NameRefusal::NotYours));
        assert_eq!(unpublish(&mut table, 1, "s"), Ok(None));
        assert_eq!(unpublish(&mut table, 1, "s"), Err(NameRefusal::NotFound));
        assert_eq!(publish(&mut table, 2, "s", "q"), Ok(None));
        assert_eq!(lookup(&mut table, "s"), Ok(Some("q".into())));
    }

    /// A job that is gone leaves nothing, and takes nothing of others with it.
    #[test]
    fn names_go_with_their_job() {
        let mut table = NameTable::new();
        for (job, service) in [(1, "a"), (1, "b"), (2, "c")] {
            assert_eq!(publish(&mut table, job, service, "p"), Ok(None));
        }
        table.handle_gone(1);
        table.handle_gone(3);
        assert_eq!(lookup(&mut table, "a"), Err(NameRefusal::NotFound));
        assert_eq!(lookup(&mut table, "c"), Ok(Some("p".into())));
        assert_eq!(unpublish(&mut table, 2, "c"), Ok(None));
        assert!(table.is_empty(), "{table:?}");
    }

    /// Each limit has a refusal of its own, and names that are gone make room again.
    #[test]
    fn the_table_has_limits() {
        type Table = NameTable<u32>;
        let mut table = Table::new();
        let (service, port) = (
            "s".repeat(Table::SERVICE_SIZE_MAX),
            "p".repeat(Table::PORT_SIZE_MAX),
        );
        assert_eq!(publish(&mut table, 1, &service, &port), Ok(None));
        for (service, port) in [
            (service.clone() + "s", "p".to_owned()),
            ("s".to_owned(), port.clone() + "p"),
        ] {
            assert_eq!(publish(&mut table, 1, &service, &port), Err(NameRefusal::TooLong));
        }
        for number in 1..Table::PER_JOB_MAX {
            assert_eq!(publish(&mut table, 1, &number.to_string(), "p"), Ok(None));
        }
        assert_eq!(publish(&mut table, 1, "one more", "p"), Err(NameRefusal::TooMany));
        assert_eq!(unpublish(&mut table, 1, "1"), Ok(None));
        assert_eq!(publish(&mut table, 1, "one more", "p"), Ok(None));
        let mut jobs = 2..;
        let full = loop {
            let job = jobs.next().unwrap();
            let refused = (0..Table::PER_JOB_MAX)
                .map(|number| publish(&mut table, job, &format!("{job}.{number}"), &port))
                .find_map(Result::err);
            if refused.is_some() {
                break refused;
            }
        };
        assert_eq!(full, Some(NameRefusal::Full));
        table.handle_gone(2);
        assert_eq!(publish(&mut table, 1, "1", &port), Err(NameRefusal::TooMany));
        assert_eq!(publish(&mut table, 2, "1", &port), Ok(None));
    }

    /// Requests come over the wire whole, and what is none is answered as such.
    #[test]
    fn what_is_no_request_is_answered() {
        let mut table = NameTable::new();
        let (service, port) = (BString::from("s"), BString::from("p"));
        let request = encode(&NameRequest::Publish { service, port });
        let reply = |bytes: Vec<u8>| decode::<NameReply>(&bytes);
        assert_eq!(reply(table.handle_message(1, &request)), Some(Ok(None)));
        let too_long = [&request[..], &[0]].concat();
        for bytes in [&too_long[..], &request[..request.len() - 1], &[], &[255; 40]] {
            let refused = reply(table.handle_message(1, bytes));
            assert_eq!(refused, Some(Err(NameRefusal::Unclear)));
        }
    }
}
