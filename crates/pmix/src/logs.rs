//! Texts that processes log (`PMIx_Log`; PMIx 4.1, section 12.4).

use std::collections::VecDeque;

use ropewalk_launch_core::{OutputStream, pmix::Process};

use crate::sys::{
    replies::OpReply,
    types::{Status, status},
    values::Item,
};

/// Texts of one call that come out one after the other.
pub(crate) struct Log {
    pub(crate) from: Process,
    /// Those that have not come out yet.
    left: VecDeque<(OutputStream, Vec<u8>)>,
    /// The answer when all have.
    end: Status,
    reply: OpReply,
}

/// How long a text may be, in bytes.
const TEXT_SIZE_MAX: usize = 1 << 20;
/// `PMIX_LOG_STDERR`.
const STDERR: &str = "pmix.log.stderr";
/// `PMIX_LOG_STDOUT`.
const STDOUT: &str = "pmix.log.stdout";
/// `PMIX_LOG_ONCE`: the first channel that there is gets the text.
const ONCE: &str = "pmix.log.once";
/// The keys of channels begin with it.
const CHANNEL: &str = "pmix.log.";
/// Keys with that beginning that name no channel: who logs, and when.
const MARKS: [&str; 3] = ["pmix.log.source", "pmix.log.tstmp", "pmix.log.gtstmp"];

impl Log {
    /// A call with the texts that a process logs. Channels other than the standard streams are refused.
    pub(crate) fn new(
        from: Process,
        data: Vec<(String, Option<Item>)>,
        directives: &[(String, Option<Item>)],
        reply: OpReply,
    ) -> Self {
        let is_channel = |key: &str| key.starts_with(CHANNEL) && !MARKS.contains(&key);
        let wanted = data.iter().filter(|(key, _)| is_channel(key)).count();
        let mut left: VecDeque<_> = data.into_iter().filter_map(lines).collect();
        let is_once = directives
            .iter()
            .any(|(key, item)| key == ONCE && Item::is_true(item.as_ref()));
        let is_long = left.iter().any(|(_, lines)| lines.len() > TEXT_SIZE_MAX);
        let end = match (left.len(), is_once) {
            (0, _) => status::NOT_SUPPORTED,
            _ if is_long => {
                left.clear();
                status::NO_MEMORY
            }
            (_, true) => {
                left.truncate(1);
                status::SUCCESS
            }
            (known, false) if known == wanted => status::SUCCESS,
            _ => status::PARTIAL_SUCCESS,
        };
        Self {
            from,
            left,
            end,
            reply,
        }
    }

    /// The next text, with its stream.
    pub(crate) fn poll(&mut self) -> Option<(OutputStream, Vec<u8>)> {
        self.left.pop_front()
    }

    /// All texts have come out.
    pub(crate) fn answer(self) {
        self.reply.send(self.end);
    }

    /// Texts cannot come out.
    pub(crate) fn refuse(self, why: Status) {
        self.reply.send(why);
    }
}

/// The lines that a channel for texts gets; `None` for other channels.
fn lines((key, item): (String, Option<Item>)) -> Option<(OutputStream, Vec<u8>)> {
    let stream = match key.as_str() {
        STDERR => OutputStream::Stderr,
        STDOUT => OutputStream::Stdout,
        _ => return None,
    };
    let mut lines = match item? {
        Item::Text(text) => text.into_bytes(),
        Item::Bytes(bytes) => bytes,
        _ => return None,
    };
    // Lines of several ranks are not mixed.
    if lines.last().is_some_and(|last| *last != b'\n') {
        lines.push(b'\n');
    }
    Some((stream, lines))
}
