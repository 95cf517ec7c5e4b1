//! Questions that only the root can answer: about names, other groups and new processes.

use std::{collections::BTreeMap, mem};

use bstr::BString;

use super::{
    Action, Answer, BridgeToken, ChildId, Down, NameQuestionId, Question, Server, SpawnId, Up, fences::Above,
    waiter::Waiter, words::words,
};
use crate::{Form, LINE_SIZE_MAX, Response};

/// Who wants to know.
#[derive(Clone, Debug)]
pub(super) enum Asker {
    /// A server below, which numbers its questions itself.
    Child { child: ChildId, id: u64 },
    /// A bridge, for a process here.
    Bridge(BridgeToken),
    /// A process here.
    Local { waiter: Waiter, wanted: Wanted },
}

/// The request of a process, as far as its answer depends on it.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Connect { job: BString },
    Get,
    Lookup,
    Publish { service: BString },
    Spawn,
    Unpublish { service: BString },
}

/// Those whose questions were handed on and are not answered.
#[derive(Debug, Default)]
pub(super) struct Questions {
    askers: BTreeMap<u64, Asker>,
    next: u64,
}

impl Questions {
    /// Keeps who wants to know. Returns the number of the question.
    fn keep(&mut self, asker: Asker) -> u64 {
        let id = self.next;
        self.next += 1;
        self.askers.insert(id, asker);
        id
    }

    fn take(&mut self, id: u64) -> Option<Asker> {
        self.askers.remove(&id)
    }

    /// Nobody will answer any more.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Asker> + use<> {
        mem::take(&mut self.askers).into_values()
    }

    /// A server below is gone.
    pub(super) fn forget_child(&mut self, gone: ChildId) {
        self.askers
            .retain(|_, asker| !matches!(asker, Asker::Child { child, .. } if *child == gone));
    }
}

impl Server {
    pub(super) fn ask(&mut self, question: Question, asker: Asker) {
        match (self.above, question) {
            (Above::Lost, _) => self.answer(asker, Answer::Lost),
            (Above::Nobody, Question::Spawn { from, spawn }) => {
                let id = SpawnId(self.questions.keep(asker));
                self.outbox.push(Action::Spawn { id, from, spawn });
            }
            (Above::Nobody, question) if self.shares_names && question.is_about_names() => {
                let id = NameQuestionId(self.questions.keep(asker));
                self.outbox.push(Action::AskNames { id, question });
            }
            (Above::Nobody, question) => {
                let answer = self.decide(question);
                self.answer(asker, answer);
            }
            (Above::Parent, question) => {
                let id = self.questions.keep(asker);
                self.outbox.tell_parent(Up::Ask { id, question });
            }
        }
    }

    /// The answer to a question that was handed on.
    pub(super) fn take_answer(&mut self, id: u64, answer: Answer) {
        // Who asked may be gone.
        if let Some(asker) = self.questions.take(id) {
            self.answer(asker, answer);
        }
    }

    pub(super) fn answer(&mut self, asker: Asker, answer: Answer) {
        match asker {
            Asker::Child { child, id } => self.outbox.push(Action::ToChild {
                child,
                message: Down::Answer { id, answer },
            }),
            Asker::Bridge(token) => self.answer_bridge(token, answer),
            Asker::Local { waiter, wanted } => {
                if let (Wanted::Connect { job }, Answer::Done { done: true }) = (&wanted, &answer)
                    && let Some(connection) = self.connections.get_mut(waiter.connection)
                {
                    connection.connected.insert(job.clone());
                }
                let response = response(waiter.form, wanted, answer);
                self.respond(waiter, &response);
            }
        }
    }

    fn decide(&mut self, question: Question) -> Answer {
        let group = |kvsname: &BString| {
            let mut groups = self.groups.values();
            groups.find(|group| *kvsname == group.options.kvsname)
        };
        match question {
            Question::Connect { kvsname } => Answer::Done {
                done: group(&kvsname).is_some(),
            },
            Question::Get { kvsname, key } => Answer::Value {
                value: group(&kvsname).and_then(|group| group.space.value(&key).cloned()),
            },
            Question::Lookup { service } => Answer::Value {
                value: self.services.value(&service).cloned(),
            },
            Question::Publish { service, port } => {
                let is_new = self.services.value(&service).is_none();
                Answer::Done {
                    done: is_new && self.services.put(service, port).is_ok(),
                }
            }
            Question::Spawn { .. } => Answer::Lost,
            Question::Unpublish { service } => Answer::Done {
                done: self.services.remove(&service),
            },
        }
    }
}

impl Question {
    fn is_about_names(&self) -> bool {
        matches!(
            self,
            Self::Lookup { .. } | Self::Publish { .. } | Self::Unpublish { .. }
        )
    }
}

/// The response to a process, in the words that it knows.
fn response(form: Form, wanted: Wanted, answer: Answer) -> Response {
    let in_words = form != Form::Frame;
    let said = |done: bool, otherwise: BString| match (done, in_words) {
        (true, true) => Some("success".into()),
        (true, false) => None,
        (false, _) => Some(otherwise),
    };
    let trouble = match &answer {
        Answer::Failed { reason } => Some(words(reason)),
        Answer::Lost => Some("the_process_manager_lost_its_parent".into()),
        _ => None,
    };
    let done = matches!(answer, Answer::Done { done: true });
    let value = match &answer {
        Answer::Value { value } => value.clone(),
        _ => None,
    };
    match wanted {
        Wanted::Connect { job } => Response::JobConnect {
            kvscopy: Some(false),
            rc: Some(if done { 0 } else { -1 }),
            message: said(done, bstr::concat([b"no_job_", &words(job)[..]]).into()),
        },
        Wanted::Get => get_response(form, value, trouble.unwrap_or_else(|| "key_not_found".into())),
        Wanted::Lookup => Response::LookupName {
            info: value.as_ref().map(|_| "ok".into()),
            found: Some(value.is_some()),
            rc: Some(i32::from(value.is_none())),
            message: said(
                value.is_some(),
                trouble.unwrap_or_else(|| "service_not_found".into()),
            ),
            port: value.clone(),
            value,
        },
        Wanted::Publish { service } => Response::PublishName {
            info: Some("ok".into()),
            rc: Some(i32::from(!done)),
            message: said(
                done,
                match (trouble, in_words) {
                    (Some(trouble), _) => trouble,
                    (None, true) => "key_already_present".into(),
                    (None, false) => bstr::concat([b"duplicate_service_", &words(service)[..]]).into(),
                },
            ),
        },
        Wanted::Spawn => {
            let result = match answer {
                Answer::Spawned(result) => result.map_err(|refused| refused.reason),
                _ => Err(trouble.unwrap_or_default()),
            };
            match result {
                Ok(spawned) => Response::Spawn {
                    rc: Some(0),
                    message: None,
                    errcodes: errcodes(&spawned.errcodes),
                    job: Some(spawned.kvsname),
                    error_count: Some(0),
                },
                Err(reason) => Response::Spawn {
                    rc: Some(-1),
                    message: Some(words(reason)),
                    errcodes: None,
                    job: None,
                    error_count: None,
                },
            }
        }
        Wanted::Unpublish { service } => Response::UnpublishName {
            info: Some("ok".into()),
            rc: Some(i32::from(!done)),
            message: said(
                done,
                match (trouble, in_words) {
                    (Some(trouble), _) => trouble,
                    (None, true) => "service_not_found".into(),
                    (None, false) => bstr::concat([b"service_", &words(service)[..], b"_not_found"]).into(),
                },
            ),
        },
    }
}

/// The response to a process that gets a key.
pub(super) fn get_response(form: Form, value: Option<BString>, otherwise: BString) -> Response {
    match (form, value) {
        (Form::Frame, value) => Response::Get {
            found: Some(value.is_some()),
            value,
            rc: Some(0),
            message: None,
        },
        (Form::Block | Form::Line, Some(value)) => Response::Get {
            found: None,
            value: Some(value),
            rc: Some(0),
            message: Some("success".into()),
        },
        (Form::Block | Form::Line, None) => Response::Get {
            found: None,
            value: Some("unknown".into()),
            rc: Some(-1),
            message: Some(otherwise),
        },
    }
}

/// The error codes of the processes. If there are none, clients take it that all processes were started: the
/// codes are left out if that is so and they do not fit into a line.
fn errcodes(codes: &[i32]) -> Option<BString> {
    /// With room for what else the line says.
    const SIZE_MAX: usize = LINE_SIZE_MAX - 64;
    let text = codes.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    let says_nothing = codes.iter().all(|&code| code == 0) && text.len() > SIZE_MAX;
    (!codes.is_empty() && !says_nothing).then(|| text.into())
}
