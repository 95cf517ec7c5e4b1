//! The decisions of a client: which request may be sent, and to which request a response belongs.

use std::collections::{BTreeSet, VecDeque};

use bstr::BStr;
use thiserror::Error;

use crate::{DecodeError, EncodeError, Form, MessageBuffer, MessageError, Request, Response};

/// Which version of PMI a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Lines; one request at a time.
    Pmi1,
    /// Frames; several requests at a time where the process manager can tell them apart.
    Pmi2,
}

impl Dialect {
    /// The form of its messages.
    pub fn form(self) -> Form {
        match self {
            Self::Pmi1 => Form::Line,
            Self::Pmi2 => Form::Frame,
        }
    }
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(u64);

/// The client's side of a connection: requests in, bytes out; bytes in, responses out.
///
/// [`submit`](Self::submit) requests and write what [`take_outgoing`](Self::take_outgoing) gives; tell what comes
/// with [`handle_bytes`](Self::handle_bytes), write again, and take responses with
/// [`poll_response`](Self::poll_response).
#[derive(Debug)]
pub struct ClientCore {
    dialect: Dialect,
    /// True if the server repeats `thrid`, so that responses may come in any order.
    tells_threads: bool,
    buffer: MessageBuffer,
    outgoing: Vec<u8>,
    /// The request without a thread that waits for its response; the next one is sent after that.
    in_order: Option<(RequestId, Asked)>,
    queued: VecDeque<(RequestId, Asked, Vec<u8>)>,
    by_thread: BTreeSet<RequestId>,
    responses: VecDeque<(RequestId, Response)>,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Probe,
    Usual,
}

/// The value of `thrid` in a probe.
const PROBE: &str = "0";

impl ClientCore {
    /// A client of a server of which nothing is known yet.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            tells_threads: false,
            buffer: MessageBuffer::default(),
            outgoing: Vec::new(),
            in_order: None,
            queued: VecDeque::new(),
            by_thread: BTreeSet::new(),
            responses: VecDeque::new(),
            next: 1,
        }
    }

    /// The dialect it speaks.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns true if several requests can be under way: the server answered a [`probe`](Self::probe) as it
    /// should.
    pub fn tells_threads(&self) -> bool {
        self.tells_threads
    }

    /// A request that gets one response; a spawn of PMI-1 is several blocks. It goes out at once or, if the server
    /// could not tell it from another, after that.
    ///
    /// # Errors
    /// If it cannot be written. Nothing of it goes out then.
    pub fn submit(&mut self, requests: &[Request]) -> Result<RequestId, EncodeError> {
        let id = RequestId(self.next);
        let mut bytes = Vec::new();
        let mut is_threaded = false;
        for request in requests {
            let form = self.form_of(request);
            is_threaded = self.tells_threads && form == Form::Frame;
            let word = is_threaded.then(|| id.0.to_string());
            request.encode_into(form, word.as_deref().map(BStr::new), &mut bytes)?;
        }
        self.next += 1;
        if is_threaded {
            self.by_thread.insert(id);
            self.outgoing.extend_from_slice(&bytes);
        } else {
            self.enqueue(id, Asked::Usual, bytes);
        }
        Ok(id)
    }

    /// A request that finds out whether the server repeats the word for a thread. One that does not answers all the
    /// same, and then gets one request at a time. In PMI-1 it is a usual request.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub fn probe(&mut self, request: &Request) -> Result<RequestId, EncodeError> {
        let form = self.form_of(request);
        let bytes = request.encode(form, Some(BStr::new(PROBE)))?;
        let id = RequestId(self.next);
        self.next += 1;
        self.enqueue(id, Asked::Probe, bytes);
        Ok(id)
    }

    /// A request without a response: an abort.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub fn tell(&mut self, request: &Request) -> Result<(), EncodeError> {
        request.encode_into(self.form_of(request), None, &mut self.outgoing)
    }

    /// Takes out the bytes to be written next. Write them in one piece: Slurm's server takes each read for
    /// one whole line.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Takes what the server wrote, cut anywhere.
    ///
    /// # Errors
    /// If it is no response to what was asked. The connection is of no use after that.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ClientCoreError> {
        self.buffer.push(bytes);
        while let Some(message) = self.buffer.next_message()? {
            let decoded = Response::decode(message)?;
            let id = match decoded.thread {
                Some(thread) if self.is_probe_answered_by(&thread) => {
                    self.tells_threads = true;
                    self.end_in_order()
                }
                Some(thread) => {
                    let id = std::str::from_utf8(&thread)
                        .ok()
                        .and_then(|text| text.parse().ok());
                    id.map(RequestId).filter(|id| self.by_thread.remove(id))
                }
                None => self.end_in_order(),
            };
            let id = id.ok_or(ClientCoreError::Unasked)?;
            self.responses.push_back((id, decoded.command));
        }
        Ok(())
    }

    /// The next response.
    pub fn poll_response(&mut self) -> Option<(RequestId, Response)> {
        self.responses.pop_front()
    }

    /// The greeting is a line in both dialects, and PMI-1's spawn a block.
    fn form_of(&self, request: &Request) -> Form {
        match request {
            Request::Init { .. } | Request::InitAck { .. } | Request::Singinit { .. } => Form::Line,
            Request::SpawnBlock { .. } => Form::Block,
            _ => self.dialect.form(),
        }
    }

    fn enqueue(&mut self, id: RequestId, asked: Asked, bytes: Vec<u8>) {
        self.queued.push_back((id, asked, bytes));
        self.advance();
    }

    fn advance(&mut self) {
        if self.in_order.is_none()
            && let Some((id, asked, bytes)) = self.queued.pop_front()
        {
            self.in_order = Some((id, asked));
            self.outgoing.extend_from_slice(&bytes);
        }
    }

    fn is_probe_answered_by(&self, thread: &[u8]) -> bool {
        matches!(self.in_order, Some((_, Asked::Probe))) && thread == PROBE.as_bytes()
    }

    fn end_in_order(&mut self) -> Option<RequestId> {
        let (id, _) = self.in_order.take()?;
        self.advance();
        Some(id)
    }
}

/// Why a connection to a process manager is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientCoreError {
    /// A message that is no response.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Bytes that are no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A response to nothing.
    #[error("a response came that belongs to no request")]
    Unasked,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(key: &str) -> Request {
        Request::Get {
            kvsname: None,
            source: None,
            key: key.into(),
        }
    }

    fn outgoing(core: &mut ClientCore) -> String {
        String::from_utf8(core.take_outgoing()).expect("ASCII")
    }

    fn answer(core: &mut ClientCore, body: &str) -> Result<(), ClientCoreError> {
        core.handle_bytes(format!("{:<6}{body}", body.len()).as_bytes())
    }

    fn probed(tells: bool) -> ClientCore {
        let mut core = ClientCore::new(Dialect::Pmi2);
        let id = core.probe(&Request::GetMyKvsname {}).expect("short");
        assert_eq!(outgoing(&mut core), "22    cmd=job-getid;thrid=0;");
        let thread = if tells { "thrid=0;" } else { "" };
        answer(
            &mut core,
            &format!("cmd=job-getid-response;{thread}jobid=k;rc=0;"),
        )
        .expect("asked");
        assert_eq!(core.poll_response().map(|(answered, _)| answered), Some(id));
        core
    }

    /// "Send thrid only if the server echoed it in a probe": then responses may come in any order.
    #[test]
    fn requests_of_threads_are_under_way_together() {
        let mut core = probed(true);
        assert!(core.tells_threads());
        let first = core.submit(&[get("a")]).expect("short");
        let second = core.submit(&[get("b")]).expect("short");
        assert_eq!(
            outgoing(&mut core),
            "26    cmd=kvs-get;thrid=2;key=a;26    cmd=kvs-get;thrid=3;key=b;"
        );
        for thread in ["3", "2"] {
            let body = format!("cmd=kvs-get-response;thrid={thread};found=FALSE;rc=0;");
            answer(&mut core, &body).expect("asked");
        }
        let order = [core.poll_response(), core.poll_response()].map(|response| response.map(|(id, _)| id));
        assert_eq!(order, [Some(second), Some(first)]);
        assert_eq!(
            answer(&mut core, "cmd=kvs-get-response;thrid=2;found=FALSE;rc=0;"),
            Err(ClientCoreError::Unasked)
        );
    }

    /// "Slurm's server does not echo thrid": it gets one request at a time.
    #[test]
    fn a_server_that_forgets_threads_is_asked_in_order() {
        let mut core = probed(false);
        let first = core.submit(&[get("a")]).expect("short");
        let second = core.submit(&[get("b")]).expect("short");
        assert_eq!(outgoing(&mut core), "18    cmd=kvs-get;key=a;");
        answer(&mut core, "cmd=kvs-get-response;rc=0;found=TRUE;value=v;").expect("asked");
        assert_eq!(outgoing(&mut core), "18    cmd=kvs-get;key=b;");
        assert_eq!(core.poll_response().map(|(id, _)| id), Some(first));
        assert_eq!(core.poll_response(), None);
        answer(&mut core, "cmd=kvs-get-response;rc=0;found=FALSE;").expect("asked");
        assert_eq!(core.poll_response().map(|(id, _)| id), Some(second));
        assert_eq!(
            answer(&mut core, "cmd=kvs-get-response;rc=0;found=FALSE;"),
            Err(ClientCoreError::Unasked)
        );
    }

    /// "One request outstanding per connection" in PMI-1; blocks of a spawn are one request.
    #[test]
    fn lines_go_one_at_a_time() {
        let mut core = ClientCore::new(Dialect::Pmi1);
        let spawn = crate::Spawn {
            preput: vec![],
            commands: vec![
                crate::SpawnCommand {
                    program: "p".into(),
                    processes: 1,
                    arguments: vec![],
                    info: vec![],
                };
                2
            ],
        };
        let blocks: Vec<Request> = crate::SpawnBlocks::of(&spawn).collect();
        let first = core.submit(&blocks).expect("short");
        let second = core.submit(&[get("a")]).expect("short");
        let sent = outgoing(&mut core);
        assert!(
            sent.starts_with("mcmd=spawn\n") && sent.matches("endcmd\n").count() == 2,
            "{sent}"
        );
        core.handle_bytes(b"cmd=spawn_result rc=0\n").expect("asked");
        assert_eq!(outgoing(&mut core), "cmd=get key=a\n");
        core.handle_bytes(b"cmd=get_result rc=0 msg=success value=v\n")
            .expect("asked");
        let order = [core.poll_response(), core.poll_response()].map(|response| response.map(|(id, _)| id));
        assert_eq!(order, [Some(first), Some(second)]);
    }
}
